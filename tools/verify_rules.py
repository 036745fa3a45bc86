"""Checks that new pods of a plan are where their required rules about other pods and their volumes let them be.

Affinity and spread depend on the order of the pods. What is checked is what must hold in the end, whatever the order:
each pod with an affinity has a neighbour or begins a group, and no new pod makes a domain larger than its spread
allows. Exit code 0: all is right; 1: something is not; 2: a file cannot be used. The files are those of
`verify_certificate.py`, which lies beside this script; SNAPSHOT has volumes, their claims and namespaces, too.
"""

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from verify_certificate import ROLES, Cluster, at, parsed, placement_of, takes  # type: ignore[import-not-found] # lies beside it


def matches(labels: Any, expressions: Any, terms: Any = None, name: str = "") -> bool:
    """True if labels have what all expressions ask for, and what those of one of the terms do."""
    node = {"name": name, "labels": labels, "taints": [], "ready": True}
    return bool(takes(node, json.dumps([expressions, terms, []])))


def selects(selector: Any, labels: Any, own: Any = None, term: Any = None) -> bool:
    """True if a label selector, with what a term takes over of the pod's own labels, matches labels."""
    wanted = [{"key": k, "operator": "In", "values": [v]} for k, v in (at(selector, "matchLabels") or {}).items()]
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = [key for key in at(term, field) or [] if key in own]
        wanted += [{"key": key, "operator": operator, "values": [own[key]]} for key in keys]
    return selector is not None and matches(labels, [*wanted, *(at(selector, "matchExpressions") or [])])


def rules_of(cluster: Cluster, space: str, labels: Any, spec: Any, more: Any = ()) -> Any:
    """What a pod requires of the pods beside it, and its claims."""
    uses = (at(volume, "persistentVolumeClaim", "claimName") for volume in [*(spec.get("volumes") or []), *more])
    spread = [t for t in spec.get("topologySpreadConstraints") or [] if t["whenUnsatisfiable"] == "DoNotSchedule"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        "space": space,
        "team": at(cluster.found["Namespace"], space, "metadata", "labels") or {},
        "labels": labels,
        "apart": at(spec, "affinity", "podAntiAffinity", required) or [],
        "near": at(spec, "affinity", "podAffinity", required) or [],
        "spread": spread,
        "placement": parsed(placement_of(spec)),
        "claims": [f"{space}/{claim}" for claim in uses if claim],
    }


def is_about(term: Any, own: Any, other: Any) -> bool:
    """True if a term of a pod is about another one."""
    spaces = term.get("namespaces") or [own["space"]] * ("namespaceSelector" not in term)
    if not (other["space"] in spaces or selects(term.get("namespaceSelector"), other["team"])):
        return False
    return selects(term.get("labelSelector"), other["labels"], own["labels"], term)


def new_pods(cluster: Cluster, plan: Any, cert: Any) -> Iterator[tuple[str, Any]]:
    """The node and the rules of each pod that the plan places."""
    for pod, node in cert["pods"].items():
        body = cluster.found["Pod"][pod]
        yield node, rules_of(cluster, pod.partition("/")[0], body["metadata"].get("labels") or {}, body["spec"])
    for key, facts in cert["jobs"].items():
        (space, _, name), spec = key.partition("/"), cluster.found["TrainingJob"][key]["spec"]
        for role in ROLES:
            nodes = Counter(plan[key]["nodes"]).elements() if role == "trainer" else facts[role]
            made, more = at(spec, role, "template") or {}, (spec.get("volumes") or []) if role == "trainer" else []
            own = {"paddlepaddle.org/job": name, "paddlepaddle.org/role": role}
            labels = (at(made, "metadata", "labels") or {}) | own
            for node in nodes:
                yield node, rules_of(cluster, space, labels, made.get("spec") or {}, more)


def staying_pods(cluster: Cluster, plan: Any, cert: Any) -> Iterator[tuple[str, Any]]:
    """The node and the rules of each pod that runs and is not to end."""
    gone = {f"{key.partition('/')[0]}/{name}" for key, decision in plan.items() for name in decision["victims"]}
    off = [key for key in cluster.jobs if key not in cert["jobs"]]
    gone |= {f"{key.partition('/')[0]}/{pod['name']}" for key in off for pod in cluster.jobs[key]["live"]}
    for name, pod in cluster.found["Pod"].items():
        node, is_over = at(pod, "spec", "nodeName"), at(pod, "status", "phase") in {"Succeeded", "Failed"}
        if node in cluster.nodes and name not in gone and not (is_over or pod["metadata"].get("deletionTimestamp")):
            labels = pod["metadata"].get("labels") or {}
            yield node, rules_of(cluster, name.partition("/")[0], labels, pod["spec"])


def beside_excluded(cluster: Cluster, new: Any, staying: Any) -> Iterator[str]:
    """New pods that share a domain with a pod that anti-affinity excludes."""
    everyone = [*staying, *new]
    strict = [one for one in everyone if one[1]["apart"]]
    for node, own in new:
        pairs = [(own, other, place) for place, other in everyone if own["apart"] and other is not own]
        pairs += [(other, own, place) for place, other in strict if other is not own]
        for one, two, place in pairs:
            for term in one["apart"]:
                here, there = (at(cluster.nodes, n, "labels", term["topologyKey"]) for n in (node, place))
                if here is not None and here == there and is_about(term, one, two):
                    yield f"node {node}: anti-affinity excludes a pod that is planned for it"


def far_from_all(cluster: Cluster, new: Any, staying: Any) -> Iterator[str]:
    """New pods that find no neighbour, in whatever order they are bound."""

    def is_near(node: str, own: Any) -> bool:
        there = [place for place, other in bound if all(is_about(term, own, other) for term in own["near"])]
        for term in own["near"]:
            here = at(cluster.nodes, node, "labels", term["topologyKey"])
            if here is None or all(at(cluster.nodes, n, "labels", term["topologyKey"]) != here for n in there):
                return False
        return True

    def may_begin(node: str, own: Any) -> bool:
        is_labelled = all(term["topologyKey"] in cluster.nodes[node]["labels"] for term in own["near"])
        likes_itself = all(is_about(term, own, own) for term in own["near"])
        found = (other for _, other in staying if all(is_about(term, own, other) for term in own["near"]))
        return is_labelled and likes_itself and next(found, None) is None

    bound, left, begun = list(staying), [one for one in new if one[1]["near"]], list[Any]()
    bound += [one for one in new if not one[1]["near"]]
    while left:
        following = [one for one in left if is_near(*one)]
        if not following:  # a group begins once; its other pods follow the first
            following = [one for one in left if one[1]["near"] not in begun and may_begin(*one)][:1]
            begun += [one[1]["near"] for one in following]
        if not following:
            break
        bound += following
        left = [one for one in left if not any(one is done for done in following)]
    for node, _ in left:
        yield f"node {node}: a pod that is planned for it must be near a pod that is not there"


def unevenly_spread(cluster: Cluster, new: Any, staying: Any) -> Iterator[str]:
    """New pods that make a domain larger than their topology spread allows, in whatever order they are bound."""
    known = dict[str, Any]()
    for node, own in new:
        for term in own["spread"]:
            key = term["topologyKey"]
            kind = json.dumps([term, own["spread"], own["space"], own["labels"], own["placement"]], sort_keys=True)
            if kind not in known:
                known[kind] = spread_of(cluster, term, own, new, staying)
            counted, later = known[kind]
            domain = cluster.nodes[node]["labels"].get(key)
            lowest = min(counted.values(), default=0) if len(counted) >= (term.get("minDomains") or 1) else 0
            if domain is None or counted[domain] - later[domain] - lowest > term["maxSkew"]:
                yield f"node {node}: topology spread over {key} allows no pod that is planned for it"


def spread_of(cluster: Cluster, term: Any, own: Any, new: Any, staying: Any) -> tuple[Counter[str], Counter[str]]:
    """The pods in each domain that a spread constraint counts, and those of them that may be bound last."""
    keys = {one["topologyKey"] for one in own["spread"]}
    places = {
        name: place["labels"][term["topologyKey"]]
        for name, place in cluster.nodes.items()
        if keys <= place["labels"].keys() and is_counted(place, own["placement"], term)
    }
    counted, later = Counter[str](dict.fromkeys(places.values(), 0)), Counter[str]()
    for node, other in (*staying, *new):
        if node in places and other["space"] == own["space"] and is_spread(term, own, other):
            counted[places[node]] += 1
    for node, other in new:
        if node in places and other["space"] == own["space"] and is_spread(term, own, other):
            later[places[node]] += term not in other["spread"]
    return counted, later


def is_spread(term: Any, own: Any, other: Any) -> bool:
    """True if a spread constraint of a pod counts another pod of its namespace."""
    return selects(term.get("labelSelector"), other["labels"], own["labels"], term)


def is_counted(place: Any, placement: Any, term: Any) -> bool:
    """True if a spread constraint counts the pods of a node."""
    always, terms, tolerations = placement
    if term.get("nodeAffinityPolicy") == "Ignore":
        always, terms = [], None
    taints = place["taints"] if term.get("nodeTaintsPolicy") == "Honor" else []
    return bool(takes(place | {"ready": True, "taints": taints}, json.dumps([always, terms, tolerations])))


def far_from_volumes(cluster: Cluster, new: Any) -> Iterator[str]:
    """New pods on nodes where their volumes are not."""
    for node, own in new:
        for claim in own["claims"]:
            volume = at(cluster.found["PersistentVolumeClaim"], claim, "spec", "volumeName")
            required = at(cluster.found["PersistentVolume"], volume, "spec", "nodeAffinity", "required")
            labels = cluster.nodes[node]["labels"]
            if required and not matches(labels, [], required.get("nodeSelectorTerms"), node):
                yield f"node {node}: volume {volume} of a pod that is planned for it is elsewhere"


def verify(snapshot: Any, plan: Any, cert: Any) -> list[str]:
    """What does not hold."""
    cluster = Cluster(snapshot, cert["jobs"])
    chosen = {f"{d['namespace']}/{d['name']}": d for d in plan["decisions"]}
    new, staying = [*new_pods(cluster, chosen, cert)], [*staying_pods(cluster, chosen, cert)]
    checks = (check(cluster, new, staying) for check in (beside_excluded, far_from_all, unevenly_spread))
    return sorted({*far_from_volumes(cluster, new), *chain.from_iterable(checks)})


if __name__ == "__main__":
    parser = ArgumentParser(usage="python verify_rules.py SNAPSHOT PLAN CERTIFICATE", description=__doc__)
    parser.add_argument("files", nargs=3, help="the three files, in JSON")
    try:
        wrong = verify(*(json.loads(Path(name).read_text()) for name in parser.parse_args().files))
    except Exception as error:
        parser.error(f"the files are not JSON, or do not belong together ({error})")
    print("\n".join(wrong or ["each pod is where its rules about other pods and its volumes let it be"]))
    sys.exit(bool(wrong))
