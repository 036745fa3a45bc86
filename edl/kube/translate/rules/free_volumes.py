"""Volumes made by hand (not by a StorageClass) as a resource of the nodes: each serves one claim.

A volume that several nodes reach counts on one of them only: the one with most free capacity for the pods. What the
other nodes could do with it, the next plan sees. Serving pods go wherever such a volume is and are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from edl.kube.translate.rules.anti_affinity import Capacity, Slots
from edl.kube.translate.rules.facts import Claim
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.view import Unit, View
from edl.kube.translate.rules.volumes import (
    FreeVolumes,
    free_volumes,
    free_volumes_of_own,
    terms_of_volume,
    to_be_made,
)
from edl.model.names import Role
from edl.model.resources import RULE_PREFIX, NodeRule, Placement
from edl.model.units import count


def give_free_volumes(view: View, units: Sequence[Unit]) -> None:
    """Block the waiting pods for whose claims no volume made by hand is left after the pods before them."""
    given: Counter[frozenset[str]] = Counter()
    seen: set[Claim] = set()
    capacity = FreeCapacity(view, units, ())
    for unit in units:
        for claim in ((unit.rules.namespace, name) for name in unit.rules.claims):
            if claim in seen or unit.job is not None or not (fits := _names(free_volumes(claim, view.facts))):
                continue
            if not _fits_somewhere(view, unit, capacity.slots):
                continue
            seen.add(claim)
            if sum(claims for others, claims in given.items() if others <= fits) >= len(fits):
                unit.block(0, f"other pods that wait get the {count(len(fits), 'free volume')} for claim {claim[1]}")
            else:
                given[fits] += 1


def _fits_somewhere(view: View, unit: Unit, slots: Callable[[Unit], Slots]) -> bool:
    """Return True if a node that the unit may use holds one of its pods without training.

    kube-scheduler binds a volume only for a pod that it finds a node for.
    """
    if not unit.shape.request.amounts:
        return bool(view.taken(unit.placement))
    _, without = slots(unit)
    return any(without[node] for node in view.taken(unit.placement))


def _names(found: FreeVolumes | None) -> frozenset[str]:
    return found.names if found is not None else frozenset()


@dataclass(slots=True)
class _Kind:
    """Claims that fit the same volumes.

    Attributes:
        name: of the resource.
        volumes: that they fit.
        askers: who has such claims, with how many each of its pods has.
    """

    name: str
    volumes: frozenset[str]
    askers: list[tuple[Unit, int]] = field(default_factory=list)


def free_volumes_of_nodes(view: View, units: Sequence[Unit], slots: Callable[[Unit], Slots]) -> Iterator[Capacity]:
    """Yield a resource for each kind of claims that pods of jobs have made for them, or serving pods wait with.

    Args:
        view: the snapshot.
        units: what a plan places.
        slots: how many pods of a unit fit on each node.
    """
    kinds = _kinds(view, units, slots)
    if not kinds:
        return
    places = _Places(view, kinds, slots)
    for kind in kinds:
        is_local = all(len(places.reached[volume]) <= 1 for volume in kind.volumes)
        reserved = 0
        used: Counter[int] = Counter()
        for other in kinds:
            for unit, number in other.askers if other.volumes <= kind.volumes else ():
                if unit.job is None and not is_local:
                    reserved += number * unit.number
                    continue
                unit.request[kind.name] = unit.request.get(kind.name, 0) + number
                used.update({node: number * pods for node, pods in _on_nodes(view, unit).items()})
        left = [node for node in map(places.node.get, sorted(kind.volumes)) if node is not None]
        yield Capacity(kind.name, dict(Counter(left[: max(0, len(left) - reserved)]) + used))


def _kinds(view: View, units: Sequence[Unit], slots: Callable[[Unit], Slots]) -> list[_Kind]:
    users = Counter((unit.rules.namespace, name) for unit in units for name in unit.rules.claims)
    found: dict[frozenset[str], _Kind] = {}
    for unit in units:
        asked = _asked(view, unit, users)
        if asked and unit.job is None and not _fits_somewhere(view, unit, slots):
            continue
        for free, number in asked.items():
            names = {kind.name for kind in found.values()}
            name = f"{RULE_PREFIX}{free.words}"
            while free.names not in found and name in names:
                name += "'"
            found.setdefault(free.names, _Kind(name, free.names)).askers.append((unit, number))
    return list(found.values())


def _asked(view: View, unit: Unit, users: Counter[Claim]) -> Counter[FreeVolumes]:
    """By kind of volumes made by hand, how many each pod of a group of equal pods needs."""
    asked: Counter[FreeVolumes] = Counter()
    is_alone = unit.job is None and unit.number == 1
    for name in unit.rules.claims if is_alone else ():
        claim = (unit.rules.namespace, name)
        if users[claim] == 1 and (free := free_volumes(claim, view.facts)) is not None:
            asked[free] += 1
    if unit.job is None or unit.role is Role.TRAINER:
        for own in to_be_made(unit.rules, view.facts):
            if (free := free_volumes_of_own(own, view.facts)) is not None:
                asked[free] += 1
    return asked


def _on_nodes(view: View, unit: Unit) -> Counter[int]:
    """How many pods of a role each node has, terminating ones included: these still use their volumes."""
    pods = unit.job.pods if unit.job is not None else ()
    numbers = (view.index.get(pod.node) for pod in pods if pod.role is unit.role and not pod.is_finished)
    return Counter(number for number in numbers if number is not None)


class _Places:
    """Assigns each volume to the node on which it counts.

    Attributes:
        reached: for each volume, the nodes from which it can be reached.
        node: for each volume, the one of them on which it counts; None if no pod can run there.
    """

    def __init__(self, view: View, kinds: Sequence[_Kind], slots: Callable[[Unit], Slots]) -> None:
        self._view = view
        volumes = sorted(frozenset[str]().union(*(kind.volumes for kind in kinds)))
        self.reached = {volume: self._reached(volume) for volume in volumes}
        self.node: dict[str, int | None] = {}
        given: Counter[int] = Counter()
        for volume in sorted(volumes, key=lambda one: len(self.reached[one])):
            units = [unit for kind in kinds if volume in kind.volumes for unit, _ in kind.askers]
            asker = next((unit for unit in units if unit.job is not None), units[0])
            now, without = slots(asker)
            open_to = self.reached[volume] & frozenset[int]().union(*(view.taken(u.placement) for u in units))
            best = max(open_to, key=lambda n: (now[n] > given[n], without[n] - given[n], -n), default=None)
            self.node[volume] = best
            if best is not None:
                given[best] += 1

    def _reached(self, volume: str) -> frozenset[int]:
        terms = terms_of_volume(volume, self._view.facts)
        if not terms:
            return frozenset(range(len(self._view.nodes)))
        return self._view.selected(Placement(rules=(NodeRule(terms, ""),)))
