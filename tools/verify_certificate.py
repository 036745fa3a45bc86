"""Checks a plan of edl without edl. Exit code 0: all is right; 1: something is not; 2: a file cannot be used.

SNAPSHOT is from `kubectl get -o json`, PLAN and CERTIFICATE are from `edl plan -o json --certificate CERTIFICATE`.
Plans of policies `utility` and `goodput` count speeds: `verify_speeds.py` checks them.
"""

import gc
import json
import re
import sys
from argparse import ArgumentParser
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache, reduce
from math import ceil, floor, gcd, inf, lcm
from pathlib import Path
from typing import Any

GLOBAL = ("Node", "PersistentVolume", "Namespace")
KINDS = dict.fromkeys((*GLOBAL, "Pod", "PersistentVolumeClaim"), "v1") | {"TrainingJob": "paddlepaddle.org/v1"}
RENAMED = {f"alpha.kubernetes.io/nvidia-gpu{a}": f"nvidia.com/gpu{b}" for a, b in (("", ""), ("-name", ".product"))}
QUANTITY = re.compile(r"(\+?[\d.]{1,81})(?:([KMGTPE]i|[numkMGTPE])|([eE][+-]?\d{1,2}))?")
DECIMAL = {unit: Fraction(1000) ** power for power, unit in enumerate(("n", "u", "m", None, *"kMGTPE"), -3)}
UNITS = DECIMAL | {f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
MEANS = {
    "promised": "that gives each job its promised count",
    "minimum": "that gives each job its minimum count",
    "repacked": "with these levels, wherever pods run,",
    "staying": "with these levels in which the trainers that stay do not move",
}
TOLERANCE, ROLES, parsed, counted = 1e-6, ("trainer", "pserver", "master"), cache(json.loads), dict[str, Any]()


def at(value: Any, *path: str) -> Any:
    """The field at the end of a path; None if a part of it is missing."""
    return reduce(lambda part, key: None if part is None else part.get(key), path, value)


@cache
def amount(text: str, resource: str) -> int:
    """A Kubernetes quantity in millicores, bytes or pieces, rounded up."""
    if not (match := QUANTITY.fullmatch(text)):
        raise ValueError(f"{resource} {text!r} is no quantity")
    return ceil(Fraction(match[1] + (match[3] or "")) * UNITS[match[2]] * (1000 if resource == "cpu" else 1))


def amounts(*quantities: Any) -> Counter[str]:
    """Resource -> amount; a later mapping replaces what an earlier one says."""
    named = {RENAMED.get(name, name): value for part in quantities for name, value in (part or {}).items()}
    return Counter({name: amount(str(value), name) for name, value in named.items() if value is not None})


def request_of(spec: Any, declared: int = 0) -> Any:
    """What kube-scheduler counts for a pod, or what its trainer declares within its limit, sorted."""
    found = [(c.get("restartPolicy") == "Always", c.get("resources"), 0) for c in spec.get("initContainers") or []]
    beside, (whole, overhead) = spec.get("containers") or [], (spec.get("resources"), spec.get("overhead"))
    found += [(True, c.get("resources"), declared * (c.get("name") == "trainer")) for c in beside]
    if (key := repr((found, whole, overhead))) not in counted:
        total, peak = Counter[str](), Counter[str]()
        for stays, resources, cpu in found:
            limits, requests = (amounts(at(resources, kind)) for kind in ("limits", "requests"))
            asked = Counter({**limits, **requests}) | Counter(cpu=cpu if cpu <= limits["cpu"] else 0)
            total, peak = (total + asked, peak) if stays else (total, peak | (asked + total))
        total = Counter({**amounts(at(whole, "limits")), **(total | peak), **amounts(at(whole, "requests"))})
        counted[key] = tuple(sorted((total + amounts(overhead) + Counter(pods=1)).items()))
    return counted[key]


def tree_of(spec: Any) -> tuple[list[str], int, int, int]:
    """The labels of the levels, how many of them name the domain of a job, and the same of a slice after its size."""
    tree = spec.get("topology") or {}
    levels = tree.get("levels") or ([tree] if tree.get("key") else [])
    depth = next((i for i, level in enumerate(levels, 1) if level.get("mode") == "Required"), 0)
    keys, size = [level["key"] for level in levels], at(tree, "slice", "size") or 1
    return keys, depth, size, keys.index(tree["slice"].get("key") or keys[-1]) + 1 if size > 1 else 0


def shape_of(spec: Any, role: str) -> tuple[Any, str]:
    """The size of a pod of a role as edl creates it, and its placement: any node with the labels of its domain."""
    made, resources = dict(at(spec, role, "template", "spec") or {}), at(spec, role, "resources")
    usual = {"requests": {"cpu": "250m", "memory": "256Mi"}} if role == "master" and resources is None else resources
    if made.get("hostNetwork", spec.get("hostNetwork") or spec.get("host_network")) or "hostPort" in json.dumps(made):
        raise ValueError("a job uses host ports, which this check does not know")
    made["nodeSelector"] = {RENAMED.get(key, key): value for key, value in (made.get("nodeSelector") or {}).items()}
    made["containers"] = [{"resources": usual}, *(c for c in made.get("containers") or [] if c["name"] != role)]
    (keys, depth, _, part), is_trainer = tree_of(spec), role == "trainer"
    return request_of(made), placement_of(made, keys[: max(depth, part * is_trainer)] if role != "master" else ())


def placement_of(spec: Any, labels: Any = ()) -> str:
    """What labels of a node must meet, always and in one of several cases, and tolerations; as text to compare."""
    fixed = [{"key": k, "operator": "In", "values": [v]} for k, v in sorted((spec.get("nodeSelector") or {}).items())]
    fixed += [{"key": key, "operator": "Exists"} for key in labels]
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    lasting = [t for t in spec.get("tolerations") or [] if t.get("tolerationSeconds") is None]
    return json.dumps([fixed, required and (required.get("nodeSelectorTerms") or []), lasting], sort_keys=True)


def takes(node: Any, placement: str) -> bool:
    """True if the node exists and a new pod with this placement may be bound to it, whatever is free there."""

    def meets(expression: Any, values: Any) -> bool:
        have, wanted = values.get(expression["key"]), [str(value) for value in expression.get("values") or []]
        known = {"In": have in wanted, "NotIn": bool(wanted) and have not in wanted}
        return (known | {"Exists": have is not None, "DoesNotExist": have is None})[expression["operator"]]

    def tolerates(toleration: Any, taint: Any) -> bool:
        key, effect, operator, value = (toleration.get(f) or "" for f in ("key", "effect", "operator", "value"))
        equal = key != "" and operator in {"", "Equal"} and str(value) == str(taint.get("value") or "")
        return effect in {"", taint["effect"]} and key in {"", taint["key"]} and (operator == "Exists" or equal)

    always, terms, tolerations = parsed(placement)
    node = node or {"name": "", "labels": {}, "taints": [], "ready": False}
    is_open = node["ready"] and all(any(tolerates(t, taint) for t in tolerations) for taint in node["taints"])
    sides = (("matchExpressions", node["labels"]), ("matchFields", {"metadata.name": node["name"]}))
    cases = [[meets(e, have) for side, have in sides for e in term.get(side) or []] for term in terms or []]
    is_chosen = terms is None or any(case and all(case) for case in cases)
    return is_open and is_chosen and all(meets(e, node["labels"]) for e in always)


class Cluster:
    """The snapshot: nodes with what is free beside foreign pods, jobs with their bounds, and the pods of each job."""

    def __init__(self, snapshot: Any, admitted: Any) -> None:
        unread, found = [snapshot], {kind: dict[str, Any]() for kind in KINDS}
        while unread:
            kind, version, meta = (item := unread.pop())["kind"], item["apiVersion"], item.get("metadata")
            if kind.endswith("List") and "items" in item:  # an item of a NodeList need not say that it is a Node
                unread += [{"apiVersion": version, "kind": kind[:-4]} | one for one in reversed(item["items"] or [])]
            elif KINDS.get(kind) == version:
                found[kind][f"{meta.get('namespace') or 'default'}/" * (kind not in GLOBAL) + meta["name"]] = item
        self.found, jobs = found, found["TrainingJob"]
        self.nodes = {name: self._node(name, node) for name, node in found["Node"].items()}
        self.own: dict[str, list[Any]] = {name: [] for name in jobs}
        self.waiting = {name: read for name, pod in found["Pod"].items() if (read := self._pod(name, pod))}
        self.jobs = {name: self._job(job, self.own[name], name in admitted) for name, job in jobs.items()}

    def _node(self, name: str, node: Any) -> Any:
        taints = [t for t in at(node, "spec", "taints") or [] if t["effect"] in {"NoSchedule", "NoExecute"}]
        if at(node, "spec", "unschedulable") or at(node, "metadata", "deletionTimestamp"):
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        free = amounts({"pods": 110}, at(node, "status", "allocatable") or at(node, "status", "capacity"))
        labels = {key: str(value) for key, value in (at(node, "metadata", "labels") or {}).items()}
        ready = all(c["status"] == "True" for c in at(node, "status", "conditions") or [] if c["type"] == "Ready")
        return {"name": name, "taints": taints, "ready": ready, "labels": labels, "free": free, "held": Counter()}

    def _pod(self, name: str, pod: Any) -> Any:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        labels, owners, phase = meta.get("labels") or {}, meta.get("ownerReferences") or [], status.get("phase")
        label, roles = labels.get("paddlepaddle.org/job") or "", [labels.get("paddlepaddle.org/role")]
        roles += [r for r in ROLES if labels.get(f"paddle-job-{r}".removesuffix("-trainer")) == label]
        roles += [r for r in ROLES if meta["name"].startswith(f"{label}-{r}-")]  # if no label says it
        job, node = f"{name.partition('/')[0]}/{label}", spec.get("nodeName") or status.get("nominatedNodeName") or ""
        live, uid = not meta.get("deletionTimestamp"), at(self.found["TrainingJob"], job, "metadata", "uid")
        mine = any(o.get("controller") and o.get("uid") == uid if uid else o.get("name") == label for o in owners)
        ours = next((r for r in roles if r in ROLES), "") if job in self.own and (mine or not (owners or uid)) else ""
        cpu = at(meta, "annotations", "paddlepaddle.org/declared-cpu") if ours == "trainer" else None
        over, request = phase in {"Succeeded", "Failed"}, request_of(spec, declared := amounts({"cpu": cpu})["cpu"])
        uses, owned = Counter(dict(request)), {o.get("kind") for o in owners} & {"DaemonSet", "TrainingJob"}
        if ours:
            there: Any = next((c for c in status.get("containerStatuses") or [] if c.get("name") == "trainer"), {})
            held = (amounts(at(there, "resources", "requests")) | amounts(there.get("allocatedResources")))["cpu"]
            least = request_of(spec, min(declared, held)) if declared else request  # what kube-scheduler counts
            uses["lent"] = max(0, uses["cpu"] - Counter(dict(least))["cpu"])
            read = {"name": meta["name"], "role": ours, "live": live and not over, "node": node, "request": request}
            self.own[job].append(read | {"uses": uses, "done": ours == "trainer" and phase == "Succeeded" and live})
        if node in self.nodes and not over and (live or not ours):
            (self.nodes[node]["held"].update if ours else self.nodes[node]["free"].subtract)(uses)
        blocked = ours or node or over or not live or spec.get("schedulingGates") or (spec.get("priority") or 0) < 0
        return None if blocked or owned else (request, placement_of(spec))

    def _job(self, job: Any, pods: list[Any], admitted: bool) -> Any:
        spec, live = job["spec"], [pod for pod in pods if pod["live"]]
        trainers = [pod for pod in live if pod["role"] == "trainer"]
        low, high = bounds = [at(spec, "trainer", f"{end}-instance") for end in ("min", "max")]
        stopped = spec.get("suspend") or at(job, "metadata", "deletionTimestamp")
        read = {"live": live, "trainers": trainers, "bounds": bounds, "stopped": stopped}
        if not admitted:  # its spec may be one that nobody can use
            return read if all(type(n) is int for n in bounds) and low <= high else read | {"bounds": None}
        ended, pinned = max(1, len(trainers)) * any(pod["done"] for pod in pods), spec["trainer"].get("instances")
        low, high = (min(low, ended), ended) if ended else (pinned, pinned) if pinned else (low, high)
        count = {"master": spec.get("fault_tolerant") is True, "pserver": at(spec, "pserver", "min-instance") or 0}
        shapes = {role: shape_of(spec, role) for role in ("trainer", *(r for r, n in count.items() if n))}
        missing = {role: max(0, n - sum(pod["role"] == role for pod in live)) for role, n in count.items()}
        sizes = {} if ended else spec["trainer"]
        keys, depth, size, of_slice = tree_of({} if ended and at(spec, "topology", "slice") else spec)
        read |= {"sizes": sizes.get("sizes") or range(0, high + 1, lcm(sizes.get("step") or 1, size)), "low": low}
        read |= {"domain": keys[:depth], "size": size, "slice": keys[:of_slice], "missing": missing, "shapes": shapes}
        return read | {"high": max(low, min(high, self._most_in_tree(read))), "knots": ()}

    def path(self, node: str, keys: list[str]) -> Any:
        """The values of these labels of a node; empty if one of them is missing."""
        return path if all(path := tuple(at(self.nodes, node, "labels", key) for key in keys)) else ()

    def straddles(self, job: Any) -> bool:
        """True if trainers that belong together are in two domains, or in none, as after a change of labels."""
        homes, whole, part = defaultdict[Any, set[Any]](set), job["domain"], job["slice"]
        for pod in job["trainers"] if whole or part else ():
            homes["all"].add(self.path(pod["node"], whole) or not whole)
            number = int(pod["name"].rpartition("-")[2]) // job["size"] if part else 0
            homes[number].add(self.path(pod["node"], part) or not part)
        return any(len(found) > 1 or False in found for found in homes.values())

    def _most_in_tree(self, job: Any) -> Any:
        """The most trainers that its domains could hold if nothing else ran there; no limit if it straddles some."""
        (request, placement), whole, part = job["shapes"]["trainer"], job["domain"], job["slice"]
        if not (whole or part) or self.straddles(job):
            return inf
        fit, most = Counter[Any](), Counter[Any]()
        for pod in job["trainers"]:  # those that need no slot
            is_new = pod["request"] == request and takes(self.nodes.get(pod["node"]), placement)
            fit[self.path(pod["node"], whole), self.path(pod["node"], part)] += not is_new
        for name, node in self.nodes.items():
            slots = min(max(0, node["free"][r], node["held"][r]) // n for r, n in request)
            fit[self.path(name, whole), self.path(name, part)] += slots * takes(node, placement)
        for (domain, _), slots in fit.items():
            most[domain] += slots // job["size"] * job["size"]
        return max(most.values(), default=inf)


def check(cluster: Cluster, plan: Any, cert: Any) -> list[str]:
    """What is wrong with the decisions, and with the nodes that get pods; serving may use CPU that trainers lend."""
    found, asked, nodes = list[str](), set[tuple[str, str, bool]](), cluster.nodes
    change = defaultdict[tuple[str, bool], Counter[str]](Counter)  # by node, and by whether it is for serving
    planned = [(node, cluster.waiting[pod], 1, True) for pod, node in cert["pods"].items()]
    for key, decision in plan.items():
        job, facts, new, target = cluster.jobs[key], cert["jobs"].get(key), decision["nodes"], decision["target"]
        gone, trainers = Counter(decision["victims"]), Counter(pod["name"] for pod in job["trainers"])
        is_on, is_off = decision["admitted"] and facts, not (decision["admitted"] or facts or target or new)
        ok = [decision["current"], target] == [len(trainers), len(trainers) - gone.total() + sum(new.values())]
        ok = ok and not gone - trainers and all(type(n) is int and n > 0 for n in new.values()) and (is_on or is_off)
        wrong = job["bounds"] not in (None, [decision["min"], decision["max"]]) or not ok or decision["moves"]
        found += [f"job {key}: current, target, victims and nodes do not add up, or break a bound"] * bool(wrong)
        for pod in (pod for pod in job["live"] if pod["name"] in gone or not is_on):
            change[pod["node"], False].subtract(pod["uses"])
        if not is_on:
            continue
        runs = all(len(facts[role]) == n for role, n in job["missing"].items()) and not job["stopped"]
        runs = runs and job["low"] <= facts["floor"] <= target in job["sizes"]
        runs = runs and target <= job["high"] >= facts["cap"] >= job["low"]
        found += [f"job {key}: it may not run, or not with {target} trainers, or lacks a node"] * (not runs)
        stay = ([p["node"] for p in job["live"] if p["role"] == r and p["name"] not in gone] for r in ROLES[:2])
        places = [[*new, *facts["pserver"]], *map(list, stay)]
        here, *old = ({cluster.path(node, job["domain"]) for node in place} for place in places)
        at_home = here <= (old[0] - {()} or old[1] - {()} or here) or cluster.straddles(job)
        is_one = len(here) < 2 and () not in here and at_home
        found += [f"job {key}: its pods are not in one domain"] * bool(job["domain"] and not is_one)
        parts = Counter(cluster.path(node, job["slice"]) for node in [*Counter(new).elements(), *places[1]])
        is_part = any(n % job["size"] for n in parts.values()) and not cluster.straddles(job)
        found += [f"job {key}: a slice is not whole, or not in one domain"] * is_part
        planned += [(node, job["shapes"]["trainer"], n, False) for node, n in new.items()]
        planned += [(node, job["shapes"][role], 1, False) for role in job["missing"] for node in facts[role]]
    for node, (request, placement), n, is_served in planned:
        is_open = takes(nodes.get(node), placement)
        found += [f"node {node}: it does not exist or does not take a pod that is planned for it"] * (not is_open)
        change[node, is_served].update({resource: value * n for resource, value in request})
        asked |= {(node, resource, is_served) for resource, _ in request if node in nodes}
    for node, name, is_served in sorted(asked):
        held, free, gone = nodes[node]["held"], nodes[node]["free"][name], change[node, False]
        beside = change[node, True][name] - (held["lent"] + gone["lent"] if name == "cpu" else 0)
        used = held[name] + gone[name] + (beside if is_served else max(0, beside))
        found += [f"node {node}: overcommitted: its pods request {used} of {name}, {free} is free"] * (used > free)
    return found


def earned(cluster: Cluster, rooms: dict[str, Counter[str]], proof: Any, price: dict[Any, int]) -> int:
    """What all nodes earn at most: each the least by prices of resources that pods can use, and by whole pods."""
    shapes = [(dict(request), placement, n) for (request, placement), n in sorted(price.items()) if n > 0]
    names, steps = sorted({r for s in shapes for r in s[0]}), [(r, max(1, int(n))) for r, n in proof["steps"].items()]
    sizes = [tuple(request.get(r, 0) // step for r, step in steps) for request, _, _ in shapes]

    @cache
    def packed(fits: tuple[int, ...], left: tuple[int, ...]) -> int:
        rest = ((shapes[s][2], tuple(a - b for a, b in zip(left, sizes[s], strict=True))) for s in fits)
        return max((worth + packed(fits, after) for worth, after in rest if min(after) >= 0), default=0)

    def value(taken: tuple[str, ...], free: tuple[int, ...], vector: Any) -> Any:
        room, prices = dict(zip(names, free, strict=True)), proof["nodePrices"].get(vector, {})
        slots = [min(room[r] // n for r, n in request.items()) * (place in taken) for request, place, _ in shapes]
        fits = tuple(s for s, most in enumerate(slots) if most > 0)
        room = {r: n - n % (gcd(*(shapes[s][0].get(r, 0) for s in fits)) or 1) for r, n in room.items()}
        price_of = {r: max(0, int(prices.get(r, 0))) for r in names}
        left = [n - sum(price_of[r] * k for r, k in request.items()) for request, _, n in shapes]
        worth = sum(room[r] * price_of[r] for r in names) + sum(slots[s] * max(0, left[s]) for s in fits)
        whole_pods = steps and all(any(sizes[s]) for s in fits)
        return min(worth, packed(fits, tuple(room.get(r, 0) // step for r, step in steps))) if whole_pods else worth

    places, vectors = sorted({placement for _, placement, _ in shapes}), proof["nodes"]
    taken = ((name, tuple(p for p in places if takes(node, p))) for name, node in cluster.nodes.items())
    kinds = Counter((those, tuple(rooms[name][r] for r in names), vectors.get(name)) for name, those in taken)
    return sum(value(*kind) * n for kind, n in kinds.items())


def fulfilment(job: Any, facts: Any, count: int) -> Fraction:
    """0 at the minimum of a job, 1 at its cap; a job that cannot grow has 1."""
    return Fraction(count - job["low"], facts["cap"] - job["low"]) if facts["cap"] > job["low"] else Fraction(1)


def bound_of(
    cluster: Cluster, cert: Any, proof: Any, least: Any, kept: Any = None, *, worth: Any = fulfilment
) -> Fraction:
    """Lagrange's: no plan is worth more than trainers beyond prices >= 0 of their places, plus what nodes earn.

    `least` has the fewest trainers of each job, `kept` those that stay on their nodes. `worth` has knots.
    """
    nodes, total, paid, unit = cluster.nodes, Fraction(0), 0, int(cert["denominator"])
    named = {pod: cluster.waiting[pod] for pod in cert["pods"]}
    rooms = {node: read["free"] | read["held"] for node, read in nodes.items()}
    named |= {f"{key} {role}": shape for key in cert["jobs"] for role, shape in cluster.jobs[key]["shapes"].items()}
    price = {named[label]: max(0, int(value)) for label, value in proof["prices"].items()}
    for key, facts in cert["jobs"].items():
        job, (request, placement) = cluster.jobs[key], cluster.jobs[key]["shapes"]["trainer"]
        own = sum(p["request"] != request or not takes(nodes.get(p["node"]), placement) for p in job["trainers"])
        own, low, high = own if kept is None else len(kept[key]), least[key], job["high"]
        cost, knots = Fraction(price.get((request, placement), 0), unit), (n for n in job["knots"] if low < n < high)
        counts = {low, high, min(max(low, own), high), *knots}
        total += max(worth(job, facts, n) - cost * max(0, n - own) for n in counts)
        paid += sum(price.get(job["shapes"][role], 0) * n for role, n in job["missing"].items() if n)
        for pod in (pod for pod in job["live"] if pod["node"] in rooms):
            stays = pod["role"] != "trainer" or (kept is not None and pod["name"] in kept[key])
            rooms[pod["node"]] -= Counter(dict(pod["request"]) if stays else {})
    lends = any(read["held"]["lent"] for read in nodes.values())  # serving may be placed on CPU that trainers declare
    paid += 0 if lends else sum(price.get(named[pod], 0) for pod in cert["pods"])
    return total + Fraction(earned(cluster, rooms, proof, price) - paid, unit)


def check_levels(cluster: Cluster, plan: Any, cert: Any, worth: dict[str, Fraction]) -> tuple[list[str], list[str]]:
    """What holds and what does not of the levels: the jobs that are worst off, and how far they could be."""
    jobs, held, found, said = cert["jobs"], list[str](), list[str](), plan["certificate"]["levels"]
    target = {f"{d['namespace']}/{d['name']}": d["target"] for d in plan["decisions"]}
    for level, stated, proof in zip(levels_of(cluster, jobs, worth), said, cert["levels"], strict=True):
        at = [key for key in sorted(jobs) if worth[key] == level]
        agrees = stated["jobs"] == at and abs(level - Fraction(stated["fulfilment"])) < TOLERANCE
        found += [f"level {float(level)}: PLAN states other jobs or another fulfilment"] * (not agrees)
        bound, least = Fraction(proof["bound"]), dict[str, int]()
        for key, facts in jobs.items():
            low, span = cluster.jobs[key]["low"], facts["cap"] - cluster.jobs[key]["low"]
            least[key] = low if span == 0 else target[key] if worth[key] < level else low + floor(bound * span) + 1
        is_plain = any(n > cluster.jobs[key]["high"] for key, n in least.items())
        proved = is_plain or bound_of(cluster, cert, proof, least, worth=lambda *_: 0) < 0  # there is no such plan
        found += [f"level {float(level)}: its prices do not prove that {float(bound)} is the most"] * (not proved)
        others = "while those below keep theirs: " * bool(held)
        held.append(f"the worst off have {float(level)}, {others}no plan gives all of them more than {float(bound)}")
        over = bound - Fraction(stated["bound"])
        held += [f"PLAN states a bound that is lower by {float(over)}; that part is not proved"] * (over > TOLERANCE)
    return held, found


def levels_of(cluster: Cluster, jobs: Any, worth: dict[str, Fraction]) -> list[Fraction]:
    """The three lowest levels of jobs that can grow and do not have all."""
    return sorted({w for key, w in worth.items() if w < 1 and jobs[key]["cap"] > cluster.jobs[key]["low"]})[:3]


def verify(snapshot: Any, plan: Any, cert: Any, by_speed: Any = None) -> tuple[list[str], list[str]]:
    """What holds and what does not; `by_speed` makes of the jobs what their trainers are worth."""
    cluster, jobs, unit = Cluster(snapshot, cert["jobs"]), cert["jobs"], int(cert["denominator"])
    chosen = {f"{d['namespace']}/{d['name']}": d for d in plan["decisions"]}
    if unit < 1 or len(chosen) < len(plan["decisions"]) or not chosen.keys() == cluster.jobs.keys() >= jobs.keys():
        raise ValueError("PLAN does not have one decision for each job of SNAPSHOT, or the denominator is below 1")
    if (cert["worth"] == "fulfilment") is bool(by_speed):
        raise ValueError("plans that count speeds are for verify_speeds.py, all others for verify_certificate.py")
    if found := check(cluster, chosen, cert):
        return [], found
    worth_of = by_speed(cluster, cert) if by_speed else fulfilment
    worth = {key: worth_of(cluster.jobs[key], facts, chosen[key]["target"]) for key, facts in jobs.items()}
    achieved, stated = sum(worth.values()), plan["certificate"]
    agrees = abs(achieved - Fraction(stated["achieved"])) < TOLERANCE
    agrees = agrees and all(stated[n] == cert["plan"][n] for n in ("achieved", "bound", "staying", "repacked"))
    served = (plan["serving"]["waiting"], plan["serving"]["placed"]) == (len(cluster.waiting), len(cert["pods"]))
    found += ["PLAN and CERTIFICATE do not state the same worth, bounds and serving"] * (not (agrees and served))
    held = [f"every number adds up and no node is overcommitted; the plan is worth {float(achieved)}"]
    worth = {} if by_speed else worth  # levels are of fulfilment
    more, wrong = check_levels(cluster, plan, cert, worth)
    held, found, last = held + more, found + wrong, max([Fraction(0), *levels_of(cluster, jobs, worth)])
    low = {key: cluster.jobs[key]["low"] for key in jobs}
    cap, floors = ({key: facts[name] for key, facts in jobs.items()} for name in ("cap", "floor"))
    fair = {k: max(floors[k], min(chosen[k]["target"], n + ceil(last * (cap[k] - n)))) for k, n in low.items()}
    kept = {key: {p["name"] for p in cluster.jobs[key]["trainers"]} - {*chosen[key]["victims"]} for key in jobs}
    steps = lcm(*(max(1, cap[key] - n) for key, n in low.items()))  # whole trainers are such parts of 1
    cases = {"promised": (floors, None), "minimum": (low, None), "repacked": (fair, None), "staying": (fair, kept)}
    for name, (least, stays) in cases.items():
        bound = Fraction(int(cert["proofs"][name]["bound"]), unit)
        proved = bound_of(cluster, cert, cert["proofs"][name], least, stays, worth=worth_of)
        proved = proved if by_speed else Fraction(floor(proved * steps), steps)
        found += [f"proof {name}: its prices prove {float(proved)}, not {float(bound)}"] * (bound < proved)
        held.append(f"no plan {MEANS[name]} is worth more than {float(bound)}")
        over = bound - Fraction(stated.get({"promised": "bound"}.get(name, name), bound))
        held += [f"PLAN states a bound that is lower by {float(over)}; that part is not proved"] * (over > TOLERANCE)
    return held, found


if __name__ == "__main__":
    gc.disable()
    parser = ArgumentParser(usage="python verify_certificate.py SNAPSHOT PLAN CERTIFICATE", description=__doc__)
    parser.add_argument("files", nargs=3, help="the three files, in JSON")
    path, problem = "", "is not JSON; write it with `kubectl get ... -o json` or `edl plan -o json --certificate F`"
    try:
        files = [json.loads(Path(path := name).read_text()) for name in parser.parse_args().files]
        path, problem = "the files", "do not belong together, or have a field that is missing or not known here"
        right, wrong = verify(*files)
    except Exception as error:
        parser.error(f"{path} {problem} ({error})")
    print("\n".join(wrong or right))
    sys.exit(bool(wrong))
