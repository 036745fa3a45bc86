"""What is true of a cluster, worked out from the API server's objects alone.

The end-to-end tests judge edl by these functions, so nothing here imports edl: a mistake in its arithmetic must not
be able to hide itself. The pods of these tests have plain containers, one request each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

Object = Mapping[str, Any]
Amounts = dict[str, int]

SUFFIXES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9}
JOB_LABEL = "paddlepaddle.org/job"
ROLE_LABEL = "paddlepaddle.org/role"
INTENT = "paddlepaddle.org/intent"


def amount(resource: str, text: str | int) -> int:
    """Millicores for cpu, else bytes or pieces; the notations that these tests use."""
    value = str(text)
    if resource == "cpu":
        return int(value[:-1]) if value.endswith("m") else round(float(value) * 1000)
    digits = value.rstrip("KMGTkiB")
    return round(float(digits) * SUFFIXES[value[len(digits) :]])


def request(pod: Object) -> Amounts:
    """What a pod asks of a node, itself (one of the node's pods) included."""
    total: Counter[str] = Counter({"pods": 1})
    for container in pod["spec"]["containers"]:
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] += amount(name, text)
    return dict(total)


def is_finished(pod: Object) -> bool:
    """True where the pod holds no room any more."""
    return bool(pod["status"].get("phase") in {"Succeeded", "Failed"})


def is_terminating(pod: Object) -> bool:
    """True where somebody has asked for its deletion."""
    return "deletionTimestamp" in pod["metadata"]


def is_running(pod: Object) -> bool:
    """True where it runs and nobody has asked it to stop."""
    return pod["status"].get("phase") == "Running" and not is_terminating(pod)


def trainers(pods: Iterable[Object], job: str) -> list[Object]:
    """The trainers of a job that are neither finished nor on their way out."""
    return [
        pod
        for pod in pods
        if (labels := pod["metadata"].get("labels") or {}).get(JOB_LABEL) == job
        and labels.get(ROLE_LABEL) == "trainer"
        and not is_finished(pod)
        and not is_terminating(pod)
    ]


def is_open(node: Object) -> bool:
    """True where new pods without tolerations may be bound to the node."""
    taints = node["spec"].get("taints") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return (
        ready
        and not node["spec"].get("unschedulable")
        and not any(t["effect"] in {"NoSchedule", "NoExecute"} for t in taints)
    )


def free_room(nodes: Iterable[Object], pods: Iterable[Object]) -> dict[str, Amounts]:
    """What is free on each open node: allocatable less the requests of the pods that hold room there.

    A pod nominated to a node holds its room, as it does for kube-scheduler.
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
    """True where every amount asked for is there."""
    return all(count <= room.get(name, 0) for name, count in need.items())


def slots(need: Amounts, room: Mapping[str, Amounts]) -> int:
    """How many more pods of that request the cluster could hold."""
    return sum(
        max(0, min(free.get(name, 0) // count for name, count in need.items() if count)) for free in room.values()
    )


def fulfilment(count: int, minimum: int, maximum: int) -> float:
    """The part of the way from its minimum to its maximum that a job has come."""
    return 1.0 if maximum == minimum else (count - minimum) / (maximum - minimum)


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all are equal, 1/n where one has everything (Jain, Chiu, Hawe 1984)."""
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def least_victims(nodes: Sequence[Object], pods: Sequence[Object], need: Amounts, count: int) -> int:
    """The least number of trainers whose end would make room for `count` more pods that need `need` each.

    An integer program: per node the pods placed and, per distinct trainer request on it, the trainers ended.

    Raises:
        ValueError: not even the end of every trainer would do.
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
        raise ValueError(f"{count} pods of {need} find no room even with every trainer gone: {result.message}")
    return round(float(result.fun))
