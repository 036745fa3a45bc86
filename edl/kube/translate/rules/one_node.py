"""Chooses a node for pods that share a volume which only one node may attach, while no pod uses it.

Jobs choose one after another, in the order in which they are admitted, and each knows what those before it take: else
all of them would choose the same node. A node must have capacity for the minimums of the jobs that choose it. Among
equal ones, that with most left if the jobs that chose it grew to their maximums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.view import Unit, View
from edl.model.names import Role

IntArray = NDArray[np.int64]
_Wanted = tuple[tuple[str, int], ...]

VOLUMES_AT_ONCE = 100
"""The number of volumes for which a node is chosen in one snapshot; the namespaces take turns."""


def choose_nodes(
    view: View, users: Mapping[str, Sequence[Unit]], capacity: FreeCapacity
) -> Iterator[tuple[str, Sequence[Unit], str]]:
    """Yield volumes, the pods that share each, and the name of the node that takes most of them.

    Args:
        view: the snapshot.
        users: the pods that share each volume. A volume gets a node if trainers of a job that may start share it,
            and no serving pod does.
        capacity: the free capacity of the nodes.

    Whoever reads a volume keeps its pods to the node before the next one: a pod may have several volumes.
    """
    choices = _Choices(view, capacity)
    for name in _first([name for name, units in users.items() if _may_choose(units)], users):
        if (node := choices.choose(users[name])) is not None:
            yield name, users[name], view.nodes[node].name


def _may_choose(units: Sequence[Unit]) -> bool:
    """True if a node may be chosen for the pods: they belong to jobs, one of which may start trainers."""
    is_trainer = (unit.role is Role.TRAINER and unit.job is not None and unit.job.is_schedulable for unit in units)
    return not any(unit.pods for unit in units) and any(is_trainer)


def _first(names: Iterable[str], users: Mapping[str, Sequence[Unit]]) -> list[str]:
    """The volumes for which a node is chosen now, in the order in which their jobs are admitted."""
    turns = {name: min(unit.job.turn for unit in users[name] if unit.job is not None) for name in names}
    ordered = sorted(turns, key=lambda name: turns[name])
    before: Counter[str] = Counter()
    place = {}
    for name in ordered:
        namespace = users[name][0].rules.namespace
        place[name] = before[namespace]
        before[namespace] += 1
    chosen = set(sorted(ordered, key=lambda name: place[name])[:VOLUMES_AT_ONCE])
    return [name for name in ordered if name in chosen]


@dataclass(slots=True)
class _Slots:
    """How many pods with one request fit on each node, after a given number of choices.

    `rows` is (3, nodes), the nodes by name: now, beside what runs and the minimums of those that chose; the same
    without training; this beside the maximums of those that chose, below 0 if these exceed the node.
    """

    rows: IntArray
    known: int


@dataclass(slots=True)
class _Choices:
    """The chosen nodes, and the capacity that the jobs on them leave."""

    view: View
    capacity: FreeCapacity
    chosen: list[int] = field(default_factory=list)  # places in `by_name`
    left: dict[str, IntArray] = field(default_factory=dict)  # (3, nodes) of each resource, rows as in `_Slots`
    slots: dict[_Wanted, _Slots] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)  # the identities of units
    by_name: IntArray = field(init=False)  # (nodes,) their numbers

    def __post_init__(self) -> None:
        order = sorted(range(len(self.view.nodes)), key=lambda number: self.view.nodes[number].name)
        self.by_name = np.array(order, dtype=np.int64)

    def choose(self, units: Sequence[Unit]) -> int | None:
        """Return the number of the node that takes most of some pods, and count them there; None if none may."""
        takes = np.logical_and.reduce([self.view.takes(unit.placement) for unit in units])
        best = np.flatnonzero(takes[self.by_name])
        if not len(best):
            return None
        fit = np.zeros((3, len(self.by_name)), dtype=np.int64)
        for unit in units:
            rows = self._slots(unit)
            fit[:2] += np.minimum(unit.number, rows[:2])
            fit[2] += rows[2]
        for amounts in fit:
            some = amounts[best]
            best = best[some == some.max()]
        place = int(best[0])
        self._count([unit for unit in units if id(unit) not in self.counted], place)
        return int(self.by_name[place])

    def _count(self, units: Sequence[Unit], place: int) -> None:
        """Note what the pods of jobs take on their node; a job that has no capacity there even alone takes none."""
        units = [unit for unit in units if unit.job is not None and unit.job.is_schedulable]
        alone = [self._alone(unit, int(self.by_name[place])) for unit in units]
        if not units or any(most < unit.number for unit, most in zip(units, alone, strict=True)):
            return
        has_all = all(self._slots(unit)[1, place] >= unit.number for unit in units)
        for unit, most in zip(units, alone, strict=True):
            self.counted.add(id(unit))
            for name, amount in self.capacity.wanted(unit):
                self.left[name][:2, place] -= amount * unit.number * has_all
                self.left[name][2, place] -= amount * min(most, _most(unit))
        self.chosen.append(place)

    def _alone(self, unit: Unit, node: int) -> int:
        """How many pods of a unit fit on a node without training, if no job had chosen it."""
        fit = (int(self.capacity.free(name)[1][node]) // amount for name, amount in self.capacity.wanted(unit))
        return max(0, min(fit, default=0))

    def _slots(self, unit: Unit) -> IntArray:
        """(3, nodes) the rows of `_Slots` by all choices up to now; after a choice only its node is read again."""
        wanted = self.capacity.wanted(unit)
        found = self.slots.get(wanted)
        if found is None:
            found = self.slots[wanted] = _Slots(self._read(wanted, slice(None)), len(self.chosen))
        elif found.known < len(self.chosen):
            some = np.array(self.chosen[found.known :], dtype=np.int64)
            found.rows[:, some] = self._read(wanted, some)
            found.known = len(self.chosen)
        return found.rows

    def _read(self, wanted: _Wanted, some: slice | IntArray) -> IntArray:
        """Return how many pods with a request fit some nodes, as rows of `_Slots`.

        An empty request has 0 everywhere.
        """
        rows = np.zeros((3, len(self.by_name[some])), dtype=np.int64)
        for number, (name, amount) in enumerate(wanted):
            if name not in self.left:
                now, without = (free[self.by_name] for free in self.capacity.free(name))
                self.left[name] = np.stack([now, without, without.clip(min=0)])
            fit = self.left[name][:, some] // amount
            rows = np.minimum(rows, fit) if number else fit
        np.maximum(rows[:2], 0, out=rows[:2])
        return rows


def _most(unit: Unit) -> int:
    """How many pods a group of equal pods may have."""
    if unit.role is not Role.TRAINER or unit.job is None:
        return unit.number
    return max(unit.number, unit.job.bounds.max_trainers)
