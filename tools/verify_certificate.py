"""Checks a plan of edl without edl: python verify_certificate.py SNAPSHOT PLAN CERTIFICATE.

SNAPSHOT is the JSON List of `kubectl get -o json`, the others are of `edl plan -o json --certificate F`. Exit code 0:
all holds; 1: something does not; 2: a file cannot be used. The bound is Lagrange's: at any prices >= 0, no plan has
more value than its trainers have beyond the prices of their places, plus the most that nodes earn by offering places.
"""

import gc
import json
import re
import sys
from ast import literal_eval
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache, reduce
from math import ceil, gcd
from pathlib import Path
from typing import Any

KINDS = {"Node": "v1", "Pod": "v1", "TrainingJob": "paddlepaddle.org/v1"}
RENAMED = {f"alpha.kubernetes.io/nvidia-gpu{a}": f"nvidia.com/gpu{b}" for a, b in (("", ""), ("-name", ".product"))}
POWERS = {"n": -9, "u": -6, "m": -3, None: 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
QUANTITY = re.compile(r"\+?(\d{0,40})(?:\.(\d{0,40}))?(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?\d{1,2}))?")
TOLERANCE, parsed = Fraction(1, 10**6), cache(json.loads)


def at(value: Any, *path: str) -> Any:
    """The field at the end of a path; None if a part of it is missing."""
    return reduce(lambda part, key: None if part is None else part.get(key), path, value)


@cache
def amount(text: str, resource: str) -> int:
    """A Kubernetes quantity in millicores, bytes or pieces, rounded up."""
    match = QUANTITY.fullmatch(text)
    if not match or not (match[1] or match[2]):
        raise ValueError(f"{resource} {text!r} is no quantity")
    power = int(match[5] or POWERS[match[4]]) + 3 * (resource == "cpu")
    binary = 1024 ** ("KMGTPE".index(match[3]) + 1) if match[3] else 1
    return ceil(Fraction(f"{match[1] or 0}.{match[2] or 0}") * binary * Fraction(10) ** power)


def amounts(*quantities: Any) -> Counter[str]:
    """Resource -> amount; a later mapping replaces what an earlier one says."""
    named = {RENAMED.get(name, name): value for part in quantities for name, value in (part or {}).items()}
    return Counter({name: amount(str(value), name) for name, value in named.items() if value is not None})


@cache
def counted(text: str) -> tuple[tuple[str, int], ...]:
    """What kube-scheduler counts for a pod: containers, sidecars, init containers, overhead and one pod."""
    (containers, whole, overhead), total, peak = literal_eval(text), Counter[str](), Counter[str]()
    for stays, resources, cpu in containers:
        limits, declared = amounts(at(resources, "limits")), amounts({"cpu": cpu or None})
        asked = Counter({**limits, **amounts(at(resources, "requests"))}) | (
            declared if declared <= limits else Counter()
        )
        total, peak = (total + asked, peak) if stays else (total, peak | (asked + total))
    total = Counter({**amounts(at(whole, "limits")), **(total | peak), **amounts(at(whole, "requests"))})
    return tuple(sorted((total + amounts(overhead) + Counter(pods=1)).items()))


def request_of(spec: Any, declared: Any = None) -> tuple[tuple[str, int], ...]:
    """Resource and amount, sorted; equal pods are counted once. A trainer that lends CPU declares more."""
    found = [(c.get("restartPolicy") == "Always", c.get("resources"), None) for c in spec.get("initContainers") or []]
    beside = [(c.get("resources"), c.get("name") == "trainer" and declared) for c in spec.get("containers") or []]
    return counted(repr((found + [(True, *one) for one in beside], spec.get("resources"), spec.get("overhead"))))


def lent_of(spec: Any, status: Any, request: Any) -> int:
    """Millicores that a trainer declares and that kube-scheduler does not count: the larger of spec and granted."""
    mine = [c for c in spec["containers"] if c.get("name") == "trainer"]
    asked = max((amounts(at(one, "resources", "requests"))["cpu"] for one in mine), default=0)
    found = [one for one in status.get("containerStatuses") or [] if one.get("name") == "trainer"]
    kept = [at(one, "resources", "requests") for one in found] + [one.get("allocatedResources") for one in found]
    held = max((amounts(part)["cpu"] for part in kept), default=0)
    declared, counted_now = (dict[str, int](amounts_of).get("cpu", 0) for amounts_of in (request, request_of(spec)))
    return max(0, declared - counted_now - max(0, held - asked))


def role_spec(spec: Any, role: str) -> Any:
    """What of a pod of a role decides its size and its nodes, as edl creates it."""
    made, resources = dict(at(spec, role, "template", "spec") or {}), at(spec, role, "resources")
    usual = {"requests": {"cpu": "250m", "memory": "256Mi"}} if role == "master" else {}
    if made.get("hostNetwork", spec.get("hostNetwork") or spec.get("host_network")) or "hostPort" in json.dumps(made):
        raise ValueError("a job uses host ports, which this check does not know")
    made["nodeSelector"] = {RENAMED.get(key, key): value for key, value in (made.get("nodeSelector") or {}).items()}
    if role != "master" and at(spec, "topology", "mode") == "Required":
        made["affinity"] = with_label(made.get("affinity"), spec["topology"]["key"])
    beside = [container for container in made.get("containers") or [] if container["name"] != role]
    return made | {"containers": [{"resources": usual if resources is None else resources}, *beside]}


def with_label(affinity: Any, key: str) -> Any:
    """The affinity that also requires a label, whatever its value: the bound allows each pod any domain."""
    path, exists = "requiredDuringSchedulingIgnoredDuringExecution", {"key": key, "operator": "Exists"}
    terms = at(affinity, "nodeAffinity", path, "nodeSelectorTerms") or []
    both = [t | {"matchExpressions": [*(t.get("matchExpressions") or []), exists]} if t else t for t in terms]
    return {"nodeAffinity": {path: {"nodeSelectorTerms": both or [{"matchExpressions": [exists]}]}}}


def apart(cluster: Any, job: Any, decision: Any, pservers: Any) -> bool:
    """True if new trainers and pservers are not in one domain: that of trainers that stay, else of pservers."""
    labels = {name: node["labels"].get(job["key"]) or "" for name, node in cluster.nodes.items()}
    new = {labels.get(name, "") for name in [*decision["nodes"], *pservers]} if job["key"] else set()
    old = {"trainer": set[str](), "pserver": set[str](), "master": set[str]()}
    for pod in (pod for pod in job["live"] if pod["name"] not in decision["victims"]):
        old[pod["role"]] |= {labels.get(pod["node"], "")} - {""}
    home = old["trainer"] or old["pserver"]
    return bool(new) and ("" in new or len(new) > 1 or bool(home and not new <= home))


def placement_of(spec: Any) -> str:
    """Node selector, required node affinity and tolerations as text; pods with equal texts may use equal nodes."""
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = None if required is None else required.get("nodeSelectorTerms") or [{}]
    lasting = [t for t in spec.get("tolerations") or [] if t.get("tolerationSeconds") is None]
    return json.dumps([spec.get("nodeSelector") or {}, terms, lasting], sort_keys=True)


def holds(expression: Any, values: Any) -> bool:
    """True if labels or fields of a node meet one expression."""
    have, wanted = values.get(expression["key"]), [str(v) for v in expression.get("values") or []]
    known = {"In": have is not None and have in wanted, "NotIn": bool(wanted) and have not in wanted}
    return (known | {"Exists": have is not None, "DoesNotExist": have is None})[expression["operator"]]


def takes(node: Any, placement: str) -> bool:
    """True if a new pod with this placement may be bound to the node, whatever is free there."""
    selector, terms, tolerations = parsed(placement)
    for taint in node["taints"]:
        for toleration in tolerations:
            key, effect, operator, value = (toleration.get(f) or "" for f in ("key", "effect", "operator", "value"))
            equal = key != "" and operator in {"", "Equal"} and str(value) == str(taint.get("value") or "")
            if effect in {"", taint["effect"]} and key in {"", taint["key"]} and (operator == "Exists" or equal):
                break
        else:
            return False
    chosen, fields = terms is None, {"metadata.name": node["name"]}
    for term in terms or []:
        found = [holds(expression, node["labels"]) for expression in term.get("matchExpressions") or []]
        found += [holds(expression, fields) for expression in term.get("matchFields") or []]
        chosen = chosen or (bool(found) and all(found))
    return chosen and node["ready"] and all(node["labels"].get(key) == str(v) for key, v in selector.items())


class Cluster:
    """The snapshot: nodes with what is free beside foreign pods, jobs with their bounds, and the pods of each job."""

    def __init__(self, snapshot: Any, admitted: Any) -> None:
        found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for item in snapshot["items"]:
            if KINDS.get(item["kind"]) == item["apiVersion"]:
                space = "" if item["kind"] == "Node" else f"{item['metadata'].get('namespace') or 'default'}/"
                found[item["kind"]][space + item["metadata"]["name"]] = item
        self.uid = {name: job["metadata"].get("uid") for name, job in found["TrainingJob"].items()}
        self.nodes = {name: self._node(name, node) for name, node in found["Node"].items()}
        self.own: dict[str, list[Any]] = {name: [] for name in self.uid}
        self.lent: Counter[str] = Counter()
        self.waiting = {name: read for name, pod in found["Pod"].items() if (read := self._pod(name, pod))}
        found_jobs = found["TrainingJob"].items()
        self.jobs = {name: self._job(job, self.own[name], name in admitted) for name, job in found_jobs}

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
        role, label = labels.get("paddlepaddle.org/role"), labels.get("paddlepaddle.org/job")
        node, cpu = spec.get("nodeName") or status.get("nominatedNodeName") or "", "paddlepaddle.org/declared-cpu"
        over, live = phase in {"Succeeded", "Failed"}, not meta.get("deletionTimestamp")
        uid = self.uid.get(job := f"{name.partition('/')[0]}/{label}")
        mine = [o for o in owners if (o.get("uid") == uid if o.get("uid") and uid else o.get("name") == label)]
        ours = job in self.own and role in ("trainer", "pserver", "master") and (mine or not owners) and role
        declared = at(meta, "annotations", cpu) if ours == "trainer" else None
        request = request_of(spec, declared)
        if ours:
            read = {"name": meta["name"], "role": role, "live": live and not over, "node": node, "request": request}
            read["lent"] = lent_of(spec, status, request) if declared and read["live"] else 0
            self.lent[node] += read["lent"]
            self.own[job].append(read | {"done": role == "trainer" and phase == "Succeeded" and live})
        if node in self.nodes and not over and (live or not ours):
            there = self.nodes[node]["held" if ours else "free"]
            for resource, n in request:
                there[resource] += n if ours else -n
        blocked = ours or node or over or not live or spec.get("schedulingGates") or (spec.get("priority") or 0) < 0
        owned = {o.get("kind") for o in owners} & {"DaemonSet", "TrainingJob"}
        return None if blocked or owned else (request, placement_of(spec))

    def _job(self, job: Any, pods: list[Any], admitted: bool) -> Any:
        spec, live = job["spec"], [pod for pod in pods if pod["live"]]
        trainers = [pod for pod in live if pod["role"] == "trainer"]
        low, high = bounds = [at(spec, "trainer", f"{end}-instance") for end in ("min", "max")]
        if not admitted:  # its spec may be one that nobody can use
            is_valid = all(type(n) is int for n in bounds) and low <= high
            return {"live": live, "trainers": trainers} | ({"bounds": bounds} if is_valid else {})
        if any(pod["done"] for pod in pods):
            low, high = min(low, max(1, len(trainers))), max(1, len(trainers))
        elif spec["trainer"].get("instances"):
            low = high = spec["trainer"]["instances"]
        count = {"master": spec.get("fault_tolerant") is True, "pserver": at(spec, "pserver", "min-instance") or 0}
        specs = {role: role_spec(spec, role) for role in ("trainer", *(r for r, n in count.items() if n))}
        shapes = {role: (request_of(made), placement_of(made)) for role, made in specs.items()}
        missing = {role: max(0, n - sum(pod["role"] == role for pod in live)) for role, n in count.items()}
        key = at(spec, "topology", "mode") == "Required" and spec["topology"]["key"]
        stopped = spec.get("suspend") or at(job, "metadata", "deletionTimestamp")
        read = {"key": key, "bounds": bounds, "low": low, "high": high, "missing": missing, "stopped": stopped}
        return read | {"live": live, "trainers": trainers, "shapes": shapes}


def check(cluster: Cluster, plan: Any, cert: Any) -> list[str]:
    """What is wrong with the decisions, and with the nodes that get pods.

    What pods request may not exceed a node; trainers that lend request less than they declare. What pods declare may
    exceed it only by the CPU that the placed serving pods take of what trainers lend.
    """
    found, change, asked = list[str](), defaultdict[str, Counter[str]](Counter), set[tuple[str, str, bool]]()
    served = defaultdict[str, Counter[str]](Counter)
    planned, lent = [(node, cluster.waiting[pod], 1) for pod, node in cert["pods"].items()], Counter(cluster.lent)
    serving = len(planned)
    for key, decision in plan.items():
        job, facts, new, target = cluster.jobs[key], cert["jobs"].get(key), decision["nodes"], decision["target"]
        gone, trainers = Counter(decision["victims"]), Counter(pod["name"] for pod in job["trainers"])
        counts, bounds = [decision["current"], target], [decision["min"], decision["max"]]
        agrees = counts == [len(trainers), len(trainers) - gone.total() + sum(new.values())]
        agrees = agrees and bounds == job.get("bounds", bounds)
        agrees = agrees and all(type(n) is int and n > 0 for n in new.values()) and not (gone - trainers)
        found += [f"job {key}: its numbers do not add up, or pservers move"] * bool(not agrees or decision["moves"])
        for pod in (p for p in job["live"] if p["name"] in gone or not (decision["admitted"] and facts)):
            change[pod["node"]].subtract(dict(pod["request"]))
            lent[pod["node"]] -= pod["lent"]
        if not (decision["admitted"] and facts):
            is_off = not (decision["admitted"] or facts or target or new or trainers - gone)
            found += [f"job {key}: it has pods without admission, or PLAN and CERTIFICATE disagree"] * (not is_off)
            continue
        runs = not job["stopped"] and job["low"] <= target <= job["high"]
        runs = runs and all(len(facts[role]) == n for role, n in job["missing"].items())
        found += [f"job {key}: it may not run, or not with {target} trainers, or lacks a node"] * (not runs)
        found += [f"job {key}: its pods are not in one domain"] * apart(cluster, job, decision, facts["pserver"])
        planned += [(node, job["shapes"]["trainer"], n) for node, n in new.items()]
        planned += [(node, job["shapes"][role], 1) for role in job["missing"] for node in facts[role]]
    for number, (node, (request, placement), n) in enumerate(planned):
        if not (node in cluster.nodes and takes(cluster.nodes[node], placement)):
            found.append(f"node {node}: it does not exist or does not take a pod that is planned for it")
        (served if number < serving else change)[node].update({resource: value * n for resource, value in request})
        asked |= {(node, resource, number < serving) for resource, _ in request if node in cluster.nodes}
    for node, name, is_served in sorted(asked):
        used, free = cluster.nodes[node]["held"][name] + change[node][name], cluster.nodes[node]["free"][name]
        beside = served[node][name] - (lent[node] if name == "cpu" else 0)
        used += beside if is_served else max(0, beside)
        found += [f"node {node}: overcommitted: its pods request {used} of {name}, {free} is free"] * (used > free)
    return found


def earned(nodes: dict[str, Any], rooms: dict[str, Counter[str]], proof: Any, price: dict[Any, int]) -> int:
    """What all nodes earn at most: each the least of what the prices of its resources and whole pods allow."""
    shapes = [(dict(request), placement, n) for (request, placement), n in sorted(price.items()) if n > 0]
    names, steps = sorted({r for s in shapes for r in s[0]}), [(r, max(1, int(n))) for r, n in proof["steps"].items()]
    sizes = [tuple(request.get(r, 0) // step for r, step in steps) for request, _, _ in shapes]

    @cache
    def packed(fits: tuple[int, ...], left: tuple[int, ...]) -> int:
        rest = ((shapes[s][2], tuple(a - b for a, b in zip(left, sizes[s], strict=True))) for s in fits)
        return max((worth + packed(fits, after) for worth, after in rest if min(after) >= 0), default=0)

    @cache
    def value(taken: tuple[str, ...], free: tuple[int, ...], vector: Any) -> Any:
        room, prices = dict(zip(names, free, strict=True)), proof["nodePrices"].get(vector, {})
        slots = [min(room[r] // n for r, n in request.items()) * (place in taken) for request, place, _ in shapes]
        fits = tuple(s for s, most in enumerate(slots) if most > 0)
        for r in names:  # what no set of these pods can use is not paid for
            room[r] -= room[r] % (gcd(*(shapes[s][0].get(r, 0) for s in fits)) or 1)
        price_of = {r: max(0, int(prices.get(r, 0))) for r in names}
        worth = sum(room[r] * price_of[r] for r in names)
        for s in fits:
            worth += slots[s] * max(0, shapes[s][2] - sum(price_of[r] * n for r, n in shapes[s][0].items()))
        whole_pods = steps and all(any(sizes[s]) for s in fits)
        return min(worth, packed(fits, tuple(room.get(r, 0) // step for r, step in steps))) if whole_pods else worth

    total, places = 0, sorted({placement for _, placement, _ in shapes})
    for name, node in nodes.items():
        taken = tuple(placement for placement in places if takes(node, placement))
        total += value(taken, tuple(rooms[name][r] for r in names), proof["nodes"].get(name))
    return total


def fulfilment(job: Any, facts: Any, count: int) -> Fraction:
    """0 at the minimum of a job, 1 at its cap; a job that cannot grow has 1."""
    return Fraction(count - job["low"], facts["cap"] - job["low"]) if facts["cap"] > job["low"] else Fraction(1)


def bound_of(cluster: Cluster, plan: Any, cert: Any, name: str) -> Fraction:
    """The bound that the prices of a proof give, computed from the snapshot."""
    proof, unit, total = cert["proofs"][name], int(cert["denominator"]), Fraction(0)
    named, fixed = {pod: cluster.waiting[pod] for pod in cert["pods"]}, defaultdict[str, Counter[str]](Counter)
    for key in cert["jobs"]:
        named |= {f"{key} {role}": shape for role, shape in cluster.jobs[key]["shapes"].items()}
        for pod in (pod for pod in cluster.jobs[key]["live"] if pod["role"] != "trainer"):
            fixed[pod["node"]].update(dict(pod["request"]))
    rooms = {node: (read["free"] | read["held"]) - fixed[node] for node, read in cluster.nodes.items()}
    price, paid = {named[label]: max(0, int(value)) for label, value in proof["prices"].items()}, 0
    for key, facts in cert["jobs"].items():
        job, (request, placement) = cluster.jobs[key], cluster.jobs[key]["shapes"]["trainer"]
        alike = [pod["node"] for pod in job["trainers"] if pod["request"] == request]
        stuck = len(job["trainers"]) - sum(node in rooms and takes(cluster.nodes[node], placement) for node in alike)
        low, high, cost = job["low"], job["high"], Fraction(price.get((request, placement), 0), unit)
        least = {"promised": facts["floor"], "minimum": low}[name]
        if not (unit > 0 and low <= least <= plan[key]["target"] and low <= facts["cap"] <= high):
            raise ValueError(f"job {key}: its floor or its cap is out of range")
        counts = {least, high, min(max(least, stuck), high)}
        total += max(fulfilment(job, facts, n) - cost * max(0, n - stuck) for n in counts)
        paid += sum(price.get(job["shapes"][role], 0) * n for role, n in job["missing"].items() if n)
    if not cluster.lent.total():  # where trainers lend, a plan may place serving on CPU that others declare
        paid += sum(price.get(named[pod], 0) for pod in cert["pods"])
    return total + Fraction(earned(cluster.nodes, rooms, proof, price) - paid, unit)


def verify(snapshot: Any, plan: Any, cert: Any) -> tuple[list[str], list[str]]:
    """What holds and what does not."""
    cluster, jobs, unit = Cluster(snapshot, cert["jobs"]), cert["jobs"], int(cert["denominator"])
    chosen = {f"{d['namespace']}/{d['name']}": d for d in plan["decisions"]}
    if len(chosen) < len(plan["decisions"]) or not chosen.keys() == cluster.jobs.keys() >= jobs.keys():
        raise ValueError("PLAN does not have one decision for each job of SNAPSHOT")
    if found := check(cluster, chosen, cert):
        return [], found
    achieved = sum(fulfilment(cluster.jobs[key], facts, chosen[key]["target"]) for key, facts in jobs.items())
    stated = {key: plan["certificate"][key] for key in ("achieved", "bound")}
    agrees = abs(achieved - Fraction(stated["achieved"])) < TOLERANCE and stated.items() <= cert["plan"].items()
    served = (plan["serving"]["waiting"], plan["serving"]["placed"]) == (len(cluster.waiting), len(cert["pods"]))
    found += [f"PLAN is worth {float(achieved)} or counts serving pods unlike it states"] * (not (agrees and served))
    held = [f"every number adds up and no node is overcommitted; the plan is worth {float(achieved)}"]
    for name, proof in cert["proofs"].items():
        bound, proved = Fraction(int(proof["bound"]), unit), bound_of(cluster, chosen, cert, name)
        found += [f"proof {name}: its prices prove {float(proved)}, not {float(bound)}"] * (bound < proved)
        held.append(f"no plan that gives each job its {name} count is worth more than {float(bound)}")
    over = Fraction(int(cert["proofs"]["promised"]["bound"]), unit) - Fraction(stated["bound"])
    held += [f"PLAN states a bound that is lower by {float(over)}; that part is not proved"] * (over > TOLERANCE)
    return held, found


if __name__ == "__main__":
    gc.disable()
    try:
        right, wrong = verify(*(json.loads(Path(path).read_text()) for path in sys.argv[1:]))
    except Exception as error:
        print(f"cannot check: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(wrong or right))
    sys.exit(bool(wrong))
