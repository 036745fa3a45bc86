"""Which nodes may take a new pod, and which of them the pod prefers, whatever is free on them.

The planner may promise only what kube-scheduler will grant, so these are the scheduler's own filters: readiness,
taints, node selector and required node affinity. Preferred affinity and PreferNoSchedule are scores, as in its
plugins NodeAffinity and TaintToleration. Rules between pods and volumes
come with the placement, as nodes that they exclude; see `edl.kube.translate.rules`. Capacity is not judged here.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and .../taint-and-toleration/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edl.model.cluster import Node
from edl.model.resources import NodeRule, NodeTerm, Placement, Preference, Requirement, Taint, Toleration

BoolArray = NDArray[np.bool_]

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
REPELLING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
AVOIDING_EFFECT = "PreferNoSchedule"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""The form of numbers in taints and tolerations that are compared; `0100` and `+5` match nothing."""


def takes(node: Node, placement: Placement) -> bool:
    """True if a new pod with this placement may be bound to the node.

    A node that is not ready takes no pod, whatever the pod tolerates. A cordon counts as the taint that
    kube-scheduler makes of it, so a pod that tolerates the taint may still go there. PreferNoSchedule repels no pod.
    """
    return node.ready and is_tolerated(node, placement.tolerations) and is_selected(node, placement)


def takes_each(nodes: Sequence[Node], placements: Iterable[Placement]) -> dict[Placement, BoolArray]:
    """For each placement, (nodes,) True where `takes` holds."""
    judge = Eligibility(nodes)
    return {placement: judge.takes(placement) for placement in placements}


class Eligibility:
    """Which of some nodes take pods of one placement after another.

    Taints are judged once for each set of them, and an expression once for each value that a label has: clusters have
    many nodes and few kinds of them, and one pod may name a thousand nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Group the nodes by their taints."""
        taints: dict[tuple[object, ...], int] = {}
        kind = [taints.setdefault((node.ready, node.cordoned, node.taints), len(taints)) for node in nodes]
        self._one_of_each = [nodes[kind.index(k)] for k in range(len(taints))]
        self._kinds = np.array(kind, dtype=np.int64)
        self._labels = _Labels(nodes)

    def takes(self, placement: Placement) -> BoolArray:
        """(nodes,) `takes`."""
        tolerated = [node.ready and is_tolerated(node, placement.tolerations) for node in self._one_of_each]
        taken: BoolArray = np.array(tolerated, dtype=np.bool_)[self._kinds] & self._labels.select(placement)
        return taken

    def selects(self, placement: Placement) -> BoolArray:
        """(nodes,) `is_selected`."""
        return self._labels.select(placement)

    def first_broken(self, placement: Placement) -> list[NodeRule | None]:
        """(nodes,) the first rule of other objects that keeps the pod from each node; None if none does."""
        found: list[NodeRule | None] = [None] * len(self._kinds)
        for rule in reversed(placement.rules):
            for number in np.flatnonzero(~self._labels.keep(rule)).tolist():
                found[number] = rule
        return found

    def weigh(self, preferred: Iterable[Preference]) -> NDArray[np.int64]:
        """(nodes,) the sum of the weights of all preferences that a node meets; more is better."""
        weights = np.zeros(len(self._kinds), dtype=np.int64)
        for weight, term in preferred:
            weights += weight * self._labels.meet(term)
        return weights


class _Labels:
    """The labels of all nodes, by key: each value once, and which one each node has."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._labels: list[dict[str, str]] | None = None
        self._columns: dict[tuple[bool, str], tuple[dict[str | None, int], NDArray[np.int64]]] = {}

    def select(self, placement: Placement) -> BoolArray:
        """(nodes,) `is_selected`."""
        found = self._all([Requirement(key, "In", (value,)) for key, value in placement.node_selector])
        if placement.required:
            found &= np.logical_or.reduce([self.meet(term) for term in placement.required])
        for rule in placement.rules:
            found &= self.keep(rule)
        return found

    def keep(self, rule: NodeRule) -> BoolArray:
        """(nodes,) True if the rule lets the node take the pod; one without terms lets none."""
        kept: BoolArray = np.logical_or.reduce([self.meet(term) for term in rule.terms or (NodeTerm(),)])
        return kept

    def meet(self, term: NodeTerm) -> BoolArray:
        """(nodes,) `is_met`."""
        if not term.expressions and not term.fields:
            return np.zeros(len(self._nodes), dtype=np.bool_)
        return self._all(term.expressions) & self._all(term.fields, is_field=True)

    def _all(self, requirements: Sequence[Requirement], *, is_field: bool = False) -> BoolArray:
        """(nodes,) True if a node meets all of these."""
        found = np.ones(len(self._nodes), dtype=np.bool_)
        for requirement in requirements:
            number, which = self._column(requirement.key, is_field=is_field)
            if number:
                found &= _met(requirement, number)[which]
        return found

    def _column(self, key: str, *, is_field: bool) -> tuple[dict[str | None, int], NDArray[np.int64]]:
        """The values of a label, or of a field, with their indices, and the index of that of each node."""
        column = self._columns.get((is_field, key))
        if column is None:
            number: dict[str | None, int] = {}
            values = self._values(key, is_field=is_field)
            which = [number.setdefault(value, len(number)) for value in values]
            column = self._columns[is_field, key] = (number, np.array(which, dtype=np.int64))
        return column

    def _values(self, key: str, *, is_field: bool) -> Iterator[str | None]:
        """The value of a label, or of a field, on each node; most plans ask for none."""
        if is_field:
            return (node.name if key == "metadata.name" else None for node in self._nodes)
        if self._labels is None:
            self._labels = [dict(node.labels) for node in self._nodes]
        return (have.get(key) for have in self._labels)


def _met(requirement: Requirement, number: Mapping[str | None, int]) -> BoolArray:
    """(values,) `holds` for each value of the label; of a list of names, only those that some node has are read."""
    if requirement.operator in {"In", "NotIn"} and requirement.values:
        listed = [number[value] for value in requirement.values if value in number]
        found = np.full(len(number), requirement.operator == "NotIn")
        found[listed] = requirement.operator == "In"
        return found
    if requirement.operator in {"Exists", "DoesNotExist"}:
        found = np.full(len(number), requirement.operator == "Exists")
        if None in number:
            found[number[None]] = requirement.operator == "DoesNotExist"
        return found
    have = ({} if value is None else {requirement.key: value} for value in number)
    return np.array([holds(requirement, labels) for labels in have], dtype=np.bool_)


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


def matches(toleration: Toleration, taint: Taint) -> bool:
    """True if the toleration accepts the taint; an unknown operator accepts none.

    Gt and Lt compare integers: an API server without them (TaintTolerationComparisonOperators) refuses such pods.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if not toleration.key:
        return False
    if (
        toleration.operator in {"Gt", "Lt"}
        and _DECIMAL.fullmatch(taint.value)
        and _DECIMAL.fullmatch(toleration.value)
    ):
        above = int(taint.value) - int(toleration.value)
        return above > 0 if toleration.operator == "Gt" else above < 0
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


def is_selected(node: Node, placement: Placement) -> bool:
    """True if the node selector holds, any one term of the required affinity, and every rule."""
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in placement.node_selector):
        return False
    if placement.required and not _meets_any(node, labels, placement.required):
        return False
    return all(_meets_any(node, labels, rule.terms) for rule in placement.rules)


def _meets_any(node: Node, labels: Mapping[str, str], terms: Iterable[NodeTerm]) -> bool:
    fields = {"metadata.name": node.name}
    return any(is_met(term, labels, fields) for term in terms)


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
    """Evaluate Gt or Lt for integers with one bound.

    A value that is no integer matches nothing, as in the scheduler.
    """
    if len(requirement.values) != 1:
        return False
    if not (_INTEGER.fullmatch(value or "") and _INTEGER.fullmatch(requirement.values[0])):
        return False
    have, bound = int(value or ""), int(requirement.values[0])
    return have > bound if requirement.operator == "Gt" else have < bound
