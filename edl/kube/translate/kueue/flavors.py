"""Which pods a ResourceFlavor takes: what Kueue compares before it looks at any quota.

Source: sigs.k8s.io/kueue/pkg/scheduler/flavorassigner, funcs checkFlavorForPodSets and flavorSelector, 0.19;
k8s.io/api/core/v1, method ToleratesTaint of Toleration; k8s.io/apimachinery/pkg/labels, func NewRequirement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakValueDictionary

from edl.kube.translate.kueue.objects import FlavorSpec
from edl.kube.translate.objects import PodSpec
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import placement_of, toleration_of
from edl.model.resources import Placement, Requirement, Taint, Toleration
from edl.planner.eligibility import REPELLING_EFFECTS, holds, matches
from edl.printable import one_line

_MOST_QUOTED = 100
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: a set of nodes with common labels and taints.

    Attributes:
        labels: sorted (label, value) of the nodes.
        taints: those of the nodes that repel pods.
        tolerations: what Kueue adds to the pods there.
    """

    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class Verdict(NamedTuple):
    """Whether a ResourceFlavor takes some pods.

    Attributes:
        why: why it does not take them; empty if it does.
        ends: Kueue cannot read what the pods require, and tries no flavor after this one.
    """

    why: str = ""
    ends: bool = False


TAKEN = Verdict()


class PodPlace:
    """The node requirements of the pods of one template.

    It remembers what each flavor has said: a template may have thousands of expressions, and every decision asks.

    Args:
        placement: of the pods, with every toleration.
    """

    __slots__ = ("__weakref__", "_known", "_placement")

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._known: dict[str, tuple[Flavor, Verdict]] = {}

    def verdict(self, name: str, flavor: Flavor) -> Verdict:
        """Return whether the flavor of that name takes the pods."""
        known = self._known.get(name)
        if known is None or known[0] != flavor:
            self._known[name] = known = flavor, _verdict(flavor, self._placement)
        return known[1]


_PLACES: WeakValueDictionary[Placement, PodPlace] = WeakValueDictionary()


def place_of(spec: PodSpec) -> PodPlace:
    """Read the node requirements of a pod template; for Kueue tolerations with a time limit count, too.

    One object for equal templates: thousands of Workloads have only a few different ones.
    """
    tolerations = tuple(toleration_of(one) for one in spec.tolerations or ())
    placement = replace(placement_of(spec), tolerations=tolerations)
    place = _PLACES.get(placement)
    if place is None:
        _PLACES[placement] = place = PodPlace(placement)
    return place


def flavor_of(spec: FlavorSpec | None) -> Flavor:
    """Translate the spec of a ResourceFlavor."""
    spec = spec or FlavorSpec()
    taints = (Taint(one.key or "", text(one.value), one.effect or "") for one in spec.node_taints or ())
    return Flavor(
        tuple(sorted((key, text(value)) for key, value in (spec.node_labels or {}).items())),
        tuple(taint for taint in taints if taint.effect in REPELLING_EFFECTS),
        tuple(toleration_of(one) for one in spec.tolerations or ()),
    )


def _verdict(flavor: Flavor, pods: Placement) -> Verdict:
    tolerations = (*pods.tolerations, *flavor.tolerations)
    for taint in flavor.taints:
        if not any(_tolerates(one, taint) for one in tolerations):
            return Verdict(f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated")
    labels = dict(flavor.labels)
    for key, value in pods.node_selector:
        if labels.get(key, value) != value:
            return Verdict(f"nodeLabels say {key}={labels[key]}, and the node selector {key}={_quoted(value)}")
    terms = [[one for one in term.expressions if one.key in labels] for term in pods.required]
    if not terms or not all(terms) or any(_is_met(term, labels) for term in terms):
        return TAKEN  # a term about none of its labels lets the pods run anywhere
    found = next(one for term in terms for one in term)
    wrong = next((one for term in terms for one in term if _is_wrong(one)), None)
    if wrong is not None:
        return Verdict(f"Kueue cannot read {_words(wrong)} of the required node affinity", ends=True)
    return Verdict(f"nodeLabels do not meet the required node affinity, such as {_words(found)}")


def _is_met(term: Iterable[Requirement], labels: dict[str, str]) -> bool:
    return all(not _is_wrong(one) and holds(one, labels) for one in term)


def _is_wrong(one: Requirement) -> bool:
    """Return True if the API server would reject the expression in a pod.

    Only templates of other kinds can have it.
    """
    match one.operator:
        case "In" | "NotIn":
            return not one.values or not all(map(_LABEL_VALUE.fullmatch, one.values))
        case "Exists" | "DoesNotExist":
            return bool(one.values)
        case "Gt" | "Lt":
            return len(one.values) != 1 or not one.values[0].isdecimal()
        case _:
            return True


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """True if Kueue takes the toleration for the taint; unlike most kube-schedulers it compares numbers."""
    if toleration.operator not in {"Gt", "Lt"}:
        return matches(toleration, taint)
    if not all(map(_INTEGER.fullmatch, (toleration.value, taint.value))):
        return False
    mine, theirs = int(toleration.value), int(taint.value)
    is_met = theirs > mine if toleration.operator == "Gt" else theirs < mine
    return is_met and matches(toleration._replace(operator="Exists"), taint)


def _words(one: Requirement) -> str:
    return _quoted(f"{one.key} {one.operator} {', '.join(one.values[:3])}".rstrip())


def _quoted(value: str) -> str:
    return one_line(value, _MOST_QUOTED)
