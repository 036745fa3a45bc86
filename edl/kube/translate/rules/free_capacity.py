"""How many more pods fit on each node, by requests and by the rules that edl counts as resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from edl.kube.translate.rules.anti_affinity import Capacity, Slots
from edl.kube.translate.rules.view import Unit, View
from edl.model.resources import HOST_PORT_PREFIX, RULE_PREFIX, Resources, port_at_every_address

IntArray = NDArray[np.int64]


class FreeCapacity:
    """The free capacity of the nodes in one snapshot; it is computed when first asked for.

    Args:
        view: the snapshot.
        units: what a plan places.
        capacities: the resources that stand for rules.
    """

    def __init__(self, view: View, units: Sequence[Unit], capacities: Iterable[Capacity]) -> None:
        self._view, self._units = view, units
        self._ruled: dict[str, list[Capacity]] = {}
        for capacity in capacities:
            self._ruled.setdefault(capacity.name, []).append(capacity)
        self._used: tuple[_Columns, _Columns] | None = None
        self._amounts: dict[str, tuple[IntArray, IntArray]] = {}
        self._slots: dict[tuple[tuple[str, int], ...], Slots] = {}

    def slots(self, unit: Unit) -> Slots:
        """Return how many pods of a unit fit on each node."""
        wanted = self.wanted(unit)
        if wanted not in self._slots:
            most = np.zeros((2, len(self._view.nodes)), dtype=np.int64)
            if wanted:
                of_each = [(*self.free(name), amount) for name, amount in wanted]
                most[0] = np.minimum.reduce([now // amount for now, _, amount in of_each]).clip(min=0)
                most[1] = np.minimum.reduce([without // amount for _, without, amount in of_each]).clip(min=0)
            self._slots[wanted] = (most[0].tolist(), most[1].tolist())
        return self._slots[wanted]

    def wanted(self, unit: Unit) -> tuple[tuple[str, int], ...]:
        """Return the amounts that one pod of a unit requests, by the names of the resources."""
        return (*unit.shape.request.amounts, *((n, a) for n, a in unit.request.items() if n in self._ruled))

    def free(self, name: str) -> tuple[IntArray, IntArray]:
        """Return (nodes,) what is free of a resource now, and (nodes,) what would be without training."""
        if name not in self._amounts:
            now = without = np.zeros(len(self._view.nodes), dtype=np.int64)
            if name.startswith(HOST_PORT_PREFIX):
                now, without = self._free_ports(name)
            elif not name.startswith(RULE_PREFIX):  # of which a node has nothing of its own
                now, without = self._left(name)
            if name in self._ruled:
                ruled = self._of_rules(name)
                now, without = now + ruled - self._used_of_rule(name), without + ruled
            self._amounts[name] = (now, without)
        return self._amounts[name]

    def _of_rules(self, name: str) -> IntArray:
        """(nodes,) the amount of a resource that stands for a rule; if two rules name it, the larger amount."""
        most = np.zeros(len(self._view.nodes), dtype=np.int64)
        for capacity in self._ruled[name]:
            amounts = np.full(len(most), capacity.elsewhere, dtype=np.int64)
            for number, amount in capacity.of_node.items():
                amounts[number] = amount
            most = np.maximum(most, amounts)
        return most

    def _used_of_rule(self, name: str) -> IntArray:
        """(nodes,) what the pods of jobs use of a resource that stands for a rule."""
        used = np.zeros(len(self._view.nodes), dtype=np.int64)
        for unit in self._units:
            if amount := unit.request.get(name, 0):
                for number, pods in unit.live.items():
                    used[number] += amount * pods
        return used

    def _left(self, name: str) -> tuple[IntArray, IntArray]:
        """(nodes,) what pods leave of a resource now, and (nodes,) what they would leave without training."""
        if self._used is None:
            self._used = self._read_used()
        of_fixed, of_jobs = (used.get(name, 0) for used in self._used)
        own = np.array([node.allocatable[name] - node.reserved[name] for node in self._view.nodes], dtype=np.int64)
        without: IntArray = own - of_fixed
        return without - of_jobs, without

    def _free_ports(self, name: str) -> tuple[IntArray, IntArray]:
        """(nodes,) 1 if a host port is free; a port at every address conflicts with the same port at any address."""
        if self._used is None:
            self._used = self._read_used()
        everywhere = port_at_every_address(name)
        names = {everywhere, name}
        if name == everywhere:
            known = {*chain(*self._used), *chain(*(chain(n.allocatable, n.reserved) for n in self._view.nodes))}
            names.update(other for other in known if port_at_every_address(other) == everywhere)
        now, without = zip(*(self._left(other) for other in names), strict=True)
        return _is_zero(now), _is_zero(without)

    def _read_used(self) -> tuple[_Columns, _Columns]:
        """Add up, by resource, what pods use that stay in any plan, and what pods of jobs use."""
        index = self._view.index
        of_fixed, of_jobs = _Columns(len(index)), _Columns(len(index))
        for pod in self._view.fixed_pods():
            of_fixed.add(index[pod.node or pod.nominated], pod.requested)
        for job in self._view.snapshot.jobs:
            for pod in job.pods if not job.is_left_alone else ():
                if not pod.is_finished and (number := index.get(pod.node)) is not None:
                    of_jobs.add(number, pod.requested)
        return of_fixed, of_jobs


class _Columns(dict[str, list[int]]):
    """(nodes,) what pods use of each resource."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes

    def add(self, number: int, amounts: Resources) -> None:
        """Add what a pod on a node uses."""
        for name, amount in amounts.amounts:
            if name not in self:
                self[name] = [0] * self._nodes
            self[name][number] += amount


def _is_zero(amounts: Iterable[IntArray]) -> IntArray:
    all_zero: IntArray = np.logical_and.reduce([each == 0 for each in amounts]).astype(np.int64)
    return all_zero
