"""Keeps pods where their volumes are; pods that share a claim without a volume are kept in one place.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from edl.api.manifest import claim_name_of
from edl.kube.translate.rules.facts import Claim
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.free_volumes import give_free_volumes
from edl.kube.translate.rules.view import Unit, View
from edl.kube.translate.rules.volumes import (
    place_words,
    rules_of_claim,
    rules_of_own,
    to_be_made,
    topology_of,
    waits_for_pod,
)
from edl.model.names import Role
from edl.model.resources import NodeRule, NodeTerm, Requirement


@dataclass(slots=True)
class SharedVolumes:
    """The claims without a volume that several pods share, with the places that their class allows."""

    view: View
    users: dict[Claim, list[tuple[Unit, NodeRule]]] = field(default_factory=dict)

    def choose(self, capacity: FreeCapacity) -> None:
        """Keep the pods of each claim to one place: the one with capacity for most of them."""
        for claim, users in self.users.items():
            terms = dict.fromkeys(term for _, rule in users for term in rule.terms)
            best = max(terms, key=lambda term: self._slots(term, users, capacity))
            why = f"{_in_one_place(claim)}; most of them fit {place_words((best,))}"
            for unit, _ in users:
                unit.required.append(NodeRule((best,), why))

    def _slots(
        self, term: NodeTerm, users: Sequence[tuple[Unit, NodeRule]], capacity: FreeCapacity
    ) -> tuple[int, int]:
        """How many of the pods fit in a place now, and without training."""
        now, fit = 0, 0
        for unit, rule in users:
            placement = replace(unit.placement, rules=(*unit.node_rules, NodeRule((term,), rule.why)))
            beside, without = capacity.slots(unit)
            nodes = self.view.taken(placement)
            fit += min(unit.number, sum(without[node] for node in nodes))
            now += min(unit.number, sum(beside[node] for node in nodes))
        return now, fit


def require_volumes(view: View, units: Sequence[Unit]) -> SharedVolumes:
    """Require for pods the nodes of their claims; returns shared claims that have no volume yet."""
    users: Counter[Claim] = Counter()
    for unit in units:
        for name in unit.rules.claims:
            is_counted = unit.pods or unit.role is not Role.TRAINER  # trainers come to share it
            users[unit.rules.namespace, name] += unit.number if is_counted else 2
    shared, used = SharedVolumes(view), _used(view, units)
    for unit in units:
        made = {own.name: own for own in to_be_made(unit.rules, view.facts)}
        for name in unit.rules.claims:
            claim = (unit.rules.namespace, name)
            if claim not in view.facts.claims and (claim in used or name in made):
                continue  # it exists, or is about to, and edl has not seen it
            for rule in _rules_of(view, claim, is_shared=users[claim] > 1):
                if not rule.terms and _waits(claim, unit):
                    continue
                if len(rule.terms) > 1 and users[claim] > 1 and waits_for_pod(claim, view.facts):
                    shared.users.setdefault(claim, []).append((unit, rule))
                else:
                    unit.require_rule(rule)
        for own in made.values():
            for rule in rules_of_own(own, view.facts):
                if rule.terms or not _waits((unit.rules.namespace, own.name), unit):
                    unit.require_rule(rule)
    give_free_volumes(view, units)
    return shared


def _rules_of(view: View, claim: Claim, *, is_shared: bool) -> Iterator[NodeRule]:
    """The requirements of a claim on the nodes of its pods; the volume of a shared claim will be in one place."""
    rules = list(rules_of_claim(claim, view.facts))
    yield from rules
    if not rules and is_shared and len(places := _places(view, claim)) > 1:
        yield NodeRule(places, _in_one_place(claim))


def _in_one_place(claim: Claim) -> str:
    return f"the volume of claim {claim[1]}, which several pods share, will be in one place"


def _places(view: View, claim: Claim) -> tuple[NodeTerm, ...]:
    """The places in which the driver of a class without topologies may make the volume of a claim."""
    keys = topology_of(claim, view.facts)
    columns = zip(*(view.domains(key) for key in keys), strict=True)
    places = sorted({tuple(map(str, place)) for place in columns if None not in place})
    return tuple(
        NodeTerm(tuple(Requirement(key, "In", (value,)) for key, value in zip(keys, place, strict=True)))
        for place in places
    )


def _used(view: View, units: Sequence[Unit]) -> set[Claim]:
    """The claims of pods that have a node."""
    rules = [*(rules for rules, _ in view.fixed.values()), *(unit.rules for unit in units if unit.live)]
    return {(one.namespace, name) for one in rules for name in one.claims}


def _waits(claim: Claim, unit: Unit) -> bool:
    """True if pods should wait for a claim rather than be rejected: a rejection would end the trainers beside them.

    These are the other pods of a job whose trainers run, and a master with the claim that edl makes for its journal.
    """
    job = unit.job
    if job is None or unit.role is Role.TRAINER:
        return False
    is_journal = unit.role is Role.MASTER and claim[1] == claim_name_of(job.key.object_name, job.uid)
    return is_journal or any(pod.node for pod in job.live_trainers)
