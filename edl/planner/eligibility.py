"""Which nodes may take a new pod, and which of them the pod prefers, whatever is free on them.

The planner may promise only what kube-scheduler will grant, so these are the scheduler's own filters: readiness,
taints, node selector and required node affinity. Preferred affinity and PreferNoSchedule are scores, as in its
plugins NodeAffinity and TaintToleration. Capacity, spreading and pod affinity are not judged here.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and .../taint-and-toleration/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from edl.model.cluster import Node
from edl.model.resources import NodeTerm, Placement, Preference, Requirement, Taint, Toleration

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
REPELLING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
AVOIDING_EFFECT = "PreferNoSchedule"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def takes(node: Node, placement: Placement) -> bool:
    """True if a new pod with this placement may be bound to the node.

    A node that is not ready takes no pod, whatever the pod tolerates. A cordon counts as the taint that
    kube-scheduler makes of it, so a pod that tolerates the taint may still go there. PreferNoSchedule repels no pod.
    """
    return node.ready and is_tolerated(node, placement.tolerations) and is_selected(node, placement)


def takes_each(nodes: Sequence[Node], placements: Iterable[Placement]) -> dict[Placement, list[bool]]:
    """`takes` for each placement and each node, in the order of the nodes.

    Nodes that no placement can tell apart are judged once: clusters have many nodes and few kinds of them.
    """
    wanted = tuple(placements)
    named = {r.key for p in wanted for term in p.required for r in term.expressions}
    keys = sorted(named | {key for p in wanted for key, _ in p.node_selector})
    by_name = any(term.fields for p in wanted for term in p.required)
    kinds: dict[tuple[object, ...], int] = {}
    examples: list[Node] = []
    order = []
    for node in nodes:
        values: tuple[str | None, ...] = ()
        if keys:
            labels = dict(node.labels)
            values = tuple(labels.get(key) for key in keys)
        profile = (node.ready, node.cordoned, node.taints, values, node.name if by_name else "")
        kind = kinds.setdefault(profile, len(examples))
        if kind == len(examples):
            examples.append(node)
        order.append(kind)
    taken = {placement: [takes(node, placement) for node in examples] for placement in wanted}
    return {placement: [by_kind[kind] for kind in order] for placement, by_kind in taken.items()}


def is_tolerated(node: Node, tolerations: tuple[Toleration, ...]) -> bool:
    """True if every repelling taint of the node, a cordon included, is tolerated."""
    return first_untolerated(node, tolerations) is None


def first_untolerated(node: Node, tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first repelling taint that is not tolerated, a cordon before all others; None if all are tolerated."""
    taints = (UNSCHEDULABLE, *node.taints) if node.cordoned else node.taints
    repelling = (taint for taint in taints if taint.effect in REPELLING_EFFECTS)
    return next((t for t in repelling if not any(matches(toleration, t) for toleration in tolerations)), None)


def count_avoided(node: Node, tolerations: tuple[Toleration, ...]) -> int:
    """How many PreferNoSchedule taints of the node are not tolerated; fewer is better."""
    return sum(
        not any(matches(toleration, taint) for toleration in tolerations)
        for taint in node.taints
        if taint.effect == AVOIDING_EFFECT
    )


def add_weights(preferred: Iterable[Preference], labels: Mapping[str, str], fields: Mapping[str, str]) -> int:
    """The sum of the weights of all preferences that a node meets; more is better."""
    return sum(weight for weight, term in preferred if is_met(term, labels, fields))


def matches(toleration: Toleration, taint: Taint) -> bool:
    """True if the toleration accepts the taint; an operator other than Exists and Equal accepts none."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and bool(toleration.key) and toleration.value == taint.value


def is_selected(node: Node, placement: Placement) -> bool:
    """True if the node selector holds, and any one term of the required affinity."""
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in placement.node_selector):
        return False
    if not placement.required:
        return True
    fields = {"metadata.name": node.name}
    return any(is_met(term, labels, fields) for term in placement.required)


def is_met(term: NodeTerm, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """True if every expression of the term holds; a term without expressions selects no node."""
    if not term.expressions and not term.fields:
        return False
    return all(holds(r, labels) for r in term.expressions) and all(holds(r, fields) for r in term.fields)


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """True if the labels meet one expression."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return bool(requirement.values) and (value is None or value not in requirement.values)
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)
        case _:
            return False


def _compares(value: str | None, requirement: Requirement) -> bool:
    """Gt and Lt compare integers with one bound; a value that is no integer matches nothing, as in the scheduler."""
    if len(requirement.values) != 1:
        return False
    if not (_INTEGER.fullmatch(value or "") and _INTEGER.fullmatch(requirement.values[0])):
        return False
    have, bound = int(value or ""), int(requirement.values[0])
    return have > bound if requirement.operator == "Gt" else have < bound
