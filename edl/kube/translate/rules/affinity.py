"""Required pod affinity: keeps pods in the domains of the pods that they must be near.

A pod goes where, for each of its terms, a pod runs that matches all of them. If no such pod runs anywhere, a pod that
matches its own terms may begin in any domain, and those after it must follow. So do the trainers of a job that must
be near its master: kube-scheduler may bind the master elsewhere, and then the next plan follows it.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity, func satisfyPodAffinity
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edl.kube.translate.rules.anti_affinity import AntiAffinity
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.terms import PodRules, PodTerm
from edl.kube.translate.rules.view import Unit, View, domain_words
from edl.model.resources import RULE_PREFIX


class Group(NamedTuple):
    """Pods that must be near each other, none of which runs yet.

    Attributes:
        unit: the pods with the affinity.
        leaders: the pods of their job that they must be near; none if that is the unit itself.
    """

    unit: Unit
    leaders: tuple[Unit, ...] = ()


def require_neighbours(view: View, units: Sequence[Unit], anti: AntiAffinity) -> list[Group]:
    """Keep each pod with a required affinity to the domains of the pods that it must be near.

    Args:
        view: the snapshot.
        units: what a plan places.
        anti: remembers which terms are about which pods.

    Returns:
        Those of whom none runs yet, and that may begin in any domain: see `begin_together`.
    """
    found = (_group(view, unit, units, anti) for unit in units if unit.rules.affinity)
    return [group for group in found if group is not None]


def begin_together(view: View, groups: Iterable[Group], capacity: FreeCapacity) -> None:
    """Choose one domain for each group of pods that must be near each other.

    Args:
        view: the snapshot.
        groups: from `require_neighbours`.
        capacity: the free capacity of the nodes.
    """
    for group in groups:
        first = _first_domains(view, group, capacity)
        for term in group.unit.rules.affinity:
            group.unit.require(term.key, first.get(term.key, set()), _words(term, view))
            for leader in group.leaders:
                why = f"{RULE_PREFIX}others of its job must share a {domain_words(term.key)} with it"
                leader.require(term.key, first.get(term.key, set()), why)


def _group(view: View, unit: Unit, units: Sequence[Unit], anti: AntiAffinity) -> Group | None:
    """Keep the pods of a unit near running pods.

    If none of those run, return the group in which they start together.
    """

    def matches(rules: PodRules) -> bool:
        return all(anti.is_surely_about(term, rules) for term in unit.rules.affinity)

    candidates = view.fixed_index.candidates(unit.rules.affinity[0].selector)
    near = {node for rules, nodes in candidates if matches(rules) for node in nodes}
    near |= {node for other in units if matches(other.rules) for node in other.live}
    domains = {term.key: view.values(term.key, near) for term in unit.rules.affinity}
    is_near = any(domains.values())  # a pod on a node without the label is near nobody
    if not is_near and matches(unit.rules):
        return Group(unit)
    leaders = tuple(other for other in units if other.job is unit.job and unit.job and matches(other.rules))
    if not is_near and leaders:
        return Group(unit, leaders)
    for term in unit.rules.affinity:
        why = "" if is_near or view.lacks_label(term.key) else _nobody(term, anti.doubt(term), are_there=bool(near))
        unit.require(term.key, domains[term.key], f"{_words(term, view)}{why}")
    return None


def _words(term: PodTerm, view: View) -> str:
    words = f"{RULE_PREFIX}it must share a {domain_words(term.key)} with a pod of {term.words()}"
    return f"{words}{view.lacks_label(term.key)}"


def _nobody(term: PodTerm, doubt: str, *, are_there: bool) -> str:
    """Say that no pod exists that a pod must be near, or only on nodes without the domain's label."""
    if are_there:
        return f", and such pods run only on nodes without label {term.key}"
    return f", and {f'none is known to run{doubt}' if doubt else 'none runs'}"


def _first_domains(view: View, group: Group, capacity: FreeCapacity) -> dict[str, set[str]]:
    """Return, for each label, the domains in which the first pods of a group may begin.

    A group of one pod may begin in every domain. A larger one begins in the domains of one node, together: those with
    most slots. Pods that spread need a node with the labels.
    """
    unit = group.unit
    keys = [term.key for term in unit.rules.affinity]
    columns = [view.domains(key) for key in (*keys, *(term.key for term in unit.rules.spread))]
    nodes = [node for node in view.taken(unit.placement) if all(column[node] is not None for column in columns)]
    if unit.number == 1 and unit.pods:
        return {key: view.values(key, nodes) for key in keys}

    def place_of(node: int) -> tuple[str, ...]:
        return tuple(view.domains(key)[node] or "" for key in keys)

    allowed = [{place_of(node) for node in view.taken(leader.placement)} for leader in group.leaders]
    slots: dict[tuple[str, ...], int] = {}
    _, without = capacity.slots(unit)
    for node in nodes:
        place = place_of(node)
        if all(place in places for places in allowed):
            slots[place] = slots.get(place, 0) + without[node]
    best = max(slots, key=lambda place: (slots[place], place), default=())
    return {key: {domain} for key, domain in zip(keys, best, strict=False)}
