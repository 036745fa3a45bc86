"""What the objects of a cluster amount to: free resources, fulfilments, victims, fairness.

The end-to-end tests judge edl by these functions. Nothing here imports edl, so that a mistake in its arithmetic
cannot hide itself. The pods of these tests have plain containers, one request each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

Object = Mapping[str, Any]
Amounts = dict[str, int]

SUFFIXES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9}
JOB_LABEL = "paddlepaddle.org/job"
ROLE_LABEL = "paddlepaddle.org/role"
INTENT = "paddlepaddle.org/intent"
DECLARED_CPU = "paddlepaddle.org/declared-cpu"


def amount(resource: str, text: str | int) -> int:
    """Parse a quantity: millicores for cpu, else bytes or pieces. Only the notations of these tests are known."""
    value = str(text)
    if resource == "cpu":
        return int(value[:-1]) if value.endswith("m") else round(float(value) * 1000)
    digits = value.rstrip("KMGTkiB")
    return round(float(digits) * SUFFIXES[value[len(digits) :]])


def request(pod: Object) -> Amounts:
    """The request of a pod, including one of the node's pods."""
    total: Counter[str] = Counter({"pods": 1})
    for container in pod["spec"]["containers"]:
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] += amount(name, text)
    return dict(total)


def as_declared(pod: Object) -> Object:
    """The pod as if it requested the CPU that it declares; the same unless it is a trainer that lends."""
    declared = (pod["metadata"].get("annotations") or {}).get(DECLARED_CPU)
    if not declared:
        return pod
    container, *others = pod["spec"]["containers"]
    requests = {**container["resources"]["requests"], "cpu": declared}
    container = {**container, "resources": {**container["resources"], "requests": requests}}
    return {**pod, "spec": {**pod["spec"], "containers": [container, *others]}}


def slowed(nodes: Iterable[Object], pods: Iterable[Object]) -> list[str]:
    """Names of the trainers that lend on a node whose pods declare more CPU than it has."""
    pods = list(pods)
    left = free_room(nodes, map(as_declared, pods))
    over = {name for name, room in left.items() if room["cpu"] < 0}
    lenders = [pod for pod in pods if pod["spec"].get("nodeName") in over and not is_finished(pod)]
    return sorted(str(pod["metadata"]["name"]) for pod in lenders if as_declared(pod) is not pod)


def intent_of(pod: Object) -> str:
    """Why edl deletes a pod: its annotation, or ServingNeedsRoom if the deletion left it a second less than usual."""
    metadata, spec = pod["metadata"], pod["spec"]
    if intent := (metadata.get("annotations") or {}).get(INTENT):
        return str(intent)
    left_s, is_ours = metadata.get("deletionGracePeriodSeconds"), JOB_LABEL in (metadata.get("labels") or {})
    is_shorter = left_s is not None and left_s == spec.get("terminationGracePeriodSeconds", 0) - 1
    return "ServingNeedsRoom" if is_ours and is_shorter else ""


def is_finished(pod: Object) -> bool:
    """True if the pod has ended and holds no resources."""
    return bool(pod["status"].get("phase") in {"Succeeded", "Failed"})


def is_terminating(pod: Object) -> bool:
    """True if the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_running(pod: Object) -> bool:
    """True if the pod runs and is not being deleted."""
    return pod["status"].get("phase") == "Running" and not is_terminating(pod)


def is_ready(pod: Object) -> bool:
    """True if the pod runs, is ready and is not being deleted."""
    conditions = pod["status"].get("conditions") or []
    return is_running(pod) and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def trainers(pods: Iterable[Object], job: str) -> list[Object]:
    """The trainers of a job that have not ended and are not being deleted."""
    return [
        pod
        for pod in pods
        if (labels := pod["metadata"].get("labels") or {}).get(JOB_LABEL) == job
        and labels.get(ROLE_LABEL) == "trainer"
        and not is_finished(pod)
        and not is_terminating(pod)
    ]


def is_open(node: Object) -> bool:
    """True if new pods without tolerations can be scheduled on the node."""
    taints = node["spec"].get("taints") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return (
        ready
        and not node["spec"].get("unschedulable")
        and not any(t["effect"] in {"NoSchedule", "NoExecute"} for t in taints)
    )


def free_room(nodes: Iterable[Object], pods: Iterable[Object]) -> dict[str, Amounts]:
    """The free resources of each open node: allocatable minus the requests of its pods.

    A pod nominated to a node counts as one of its pods, as for kube-scheduler.
    """
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        place = pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName")
        if place and not is_finished(pod):
            held[place].update(request(pod))
    return {
        node["metadata"]["name"]: {
            name: amount(name, text) - held[node["metadata"]["name"]][name]
            for name, text in node["status"]["allocatable"].items()
        }
        for node in nodes
        if is_open(node)
    }


def fits(need: Amounts, room: Amounts) -> bool:
    """True if each requested amount is free."""
    return all(count <= room.get(name, 0) for name, count in need.items())


def slots(need: Amounts, room: Mapping[str, Amounts]) -> int:
    """The number of pods with this request that fit into the free resources."""
    return sum(
        max(0, min(free.get(name, 0) // count for name, count in need.items() if count)) for free in room.values()
    )


def fulfilment(count: int, min_trainers: int, max_trainers: int) -> float:
    """The fulfilment of a job: 0 at its minimum, 1 at its maximum."""
    return 1.0 if max_trainers == min_trainers else (count - min_trainers) / (max_trainers - min_trainers)


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything (Jain, Chiu, Hawe 1984)."""
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def least_victims(nodes: Sequence[Object], pods: Sequence[Object], need: Amounts, count: int) -> int:
    """The least number of trainers to delete so that `count` more pods with request `need` fit.

    An integer program: for each node the pods placed and, for each trainer request on it, the trainers deleted.

    Raises:
        ValueError: they do not fit even without any trainer.
    """
    room = free_room(nodes, pods)
    groups: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
    for pod in pods:
        if (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == "trainer" and not is_finished(pod):
            groups[pod["spec"].get("nodeName", ""), tuple(sorted(request(pod).items()))] += 1
    places, kinds = sorted(room), [kind for kind in sorted(groups) if kind[0] in room]
    width = len(places) + len(kinds)
    rows, upper = [], []
    for i, place in enumerate(places):
        for name, each in need.items():
            row = np.zeros(width)
            row[i] = each
            for k, (where, shape) in enumerate(kinds):
                if where == place:
                    row[len(places) + k] = -dict(shape).get(name, 0)
            rows.append(row)
            upper.append(room[place].get(name, 0))
    demand = np.concatenate([np.ones(len(places)), np.zeros(len(kinds))])
    result = milp(
        c=np.concatenate([np.zeros(len(places)), np.ones(len(kinds))]),
        constraints=[
            LinearConstraint(np.array(rows), -np.inf, np.array(upper)),
            LinearConstraint(demand[np.newaxis, :], count, count),
        ],
        integrality=np.ones(width, dtype=np.int64),
        bounds=Bounds(0, np.concatenate([np.full(len(places), count), [groups[kind] for kind in kinds]])),
    )
    if result.x is None:
        raise ValueError(f"{count} pods of {need} do not fit even without any trainer: {result.message}")
    return round(float(result.fun))


def shortfall(ready: Sequence[tuple[float, int]], target: int, since: float, until: float) -> float:
    """Pod-seconds for which serving was below its target; `ready` lists (time, number of ready pods)."""
    times = [since, *(min(max(at, since), until) for at, _ in ready), until]
    counts = [0, *(count for _, count in ready)]
    return sum(
        max(0, target - count) * (end - start) for count, start, end in zip(counts, times, times[1:], strict=False)
    )


def utilisation(nodes: Iterable[Object], pods: Iterable[Object], resource: str = "cpu") -> float:
    """The requests of the pods on nodes as a share of what open nodes offer."""
    total = sum(amount(resource, node["status"]["allocatable"][resource]) for node in nodes if is_open(node))
    held = sum(request(p).get(resource, 0) for p in pods if p["spec"].get("nodeName") and not is_finished(p))
    return held / total


def most_trainers(nodes: Sequence[Object], pods: Sequence[Object], trainer: Amounts) -> int:
    """The most trainers of one request that fit if pservers and trainers were placed again around the other pods.

    Masters stay as the pods of no job do: their journals may be on volumes of a node, so nothing moves them. A master
    that has no node yet is placed. An integer program over patterns: how many pservers and trainers, and masters
    without a node, a node of each kind holds. Nodes with equal free resources are of one kind; each existing pserver
    must be placed.
    """
    stays = [pod for pod in pods if not _is_placed_again(pod)]
    needs = Counter(
        tuple(sorted(request(pod).items()))
        for pod in pods
        if _is_placed_again(pod) and pod["metadata"]["labels"].get(ROLE_LABEL) != "trainer" and not is_finished(pod)
    )
    fixed = [dict(need) for need in needs]
    names = sorted({*trainer, *(name for need in fixed for name in need)})
    kinds = Counter(tuple(room.get(name, 0) for name in names) for room in free_room(nodes, stays).values())
    columns = [
        (k, pattern)
        for k, kind in enumerate(kinds)
        for pattern in _patterns(dict(zip(names, kind, strict=True)), fixed)
    ]
    gains = [slots(trainer, {"": left}) for _, (_, left) in columns]
    limits = [[float(kind == k) for kind, _ in columns] for k in range(len(kinds))]
    held = [[float(pattern[i]) for _, (pattern, _) in columns] for i in range(len(fixed))]
    result = milp(
        c=-np.array(gains, dtype=float),
        constraints=[
            LinearConstraint(np.array(limits), -np.inf, np.array(list(kinds.values()), dtype=float)),
            *(
                [LinearConstraint(np.array(held), np.array(list(needs.values()), dtype=float), np.inf)]
                if held
                else []
            ),
        ],
        integrality=np.ones(len(columns), dtype=np.int64),
        options={"mip_rel_gap": 0.0},
    )
    if result.x is None:
        raise ValueError(f"the pservers alone do not fit: {result.message}")
    return round(-float(result.fun))


def _is_placed_again(pod: Object) -> bool:
    """True for a pod of a job, but for a master that has a node."""
    labels = pod["metadata"].get("labels") or {}
    is_master = labels.get(ROLE_LABEL) == "master"
    return bool(labels.get(JOB_LABEL)) and not (is_master and pod["spec"].get("nodeName"))


def _patterns(room: Amounts, fixed: Sequence[Amounts]) -> list[tuple[tuple[int, ...], Amounts]]:
    """Every combination of masters and pservers that fits, and the resources that it leaves."""
    if not fixed:
        return [((), room)]
    found = []
    for count in range(slots(fixed[0], {"": room}) + 1):
        left = {name: free - count * fixed[0].get(name, 0) for name, free in room.items()}
        found += [((count, *rest), after) for rest, after in _patterns(left, fixed[1:])]
    return found


def epoch_s(stamp: str) -> float:
    """Parse a time of the API server into seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp()
