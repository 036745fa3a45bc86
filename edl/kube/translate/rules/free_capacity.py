"""How many more pods fit on each node, by their requests and by the rules that edl counts as resources of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from edl.kube.translate.rules.anti_affinity import Capacity, Slots
from edl.kube.translate.rules.view import Unit, View
from edl.model.resources import HOST_PORT_PREFIX, RULE_PREFIX, Resources, port_at_every_address

IntArray = NDArray[np.int64]


class FreeCapacity:
    """The capacity of one snapshot; it is read when it is first asked for.

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
        self._free: tuple[list[Resources], list[Resources]] | None = None
        self._amounts: dict[str, tuple[IntArray, IntArray]] = {}
        self._slots: dict[tuple[tuple[str, int], ...], Slots] = {}

    def slots(self, unit: Unit) -> Slots:
        """Return how many pods of a unit fit on each node."""
        wanted = (*unit.shape.request.amounts, *((n, a) for n, a in unit.request.items() if n in self._ruled))
        if wanted not in self._slots:
            most = np.zeros((2, len(self._view.nodes)), dtype=np.int64)
            if wanted:
                of_each = [(*self._amount(name), amount) for name, amount in wanted]
                most[0] = np.minimum.reduce([now // amount for now, _, amount in of_each]).clip(min=0)
                most[1] = np.minimum.reduce([without // amount for _, without, amount in of_each]).clip(min=0)
            self._slots[wanted] = (most[0].tolist(), most[1].tolist())
        return self._slots[wanted]

    def _amount(self, name: str) -> tuple[IntArray, IntArray]:
        """(nodes,) what is free of a resource now, and (nodes,) what would be without training."""
        if name not in self._amounts:
            if self._free is None:
                self._free = self._read_free()
            read = _free_ports if name.startswith(HOST_PORT_PREFIX) else _free_amount
            now = without = np.zeros(len(self._view.nodes), dtype=np.int64)
            if not name.startswith(RULE_PREFIX):  # of which a node has nothing of its own
                now, without = (np.array([read(free, name) for free in each], dtype=np.int64) for each in self._free)
            if name in self._ruled:
                ruled = self._of_rules(name)
                now, without = now + ruled - self._used(name), without + ruled
            self._amounts[name] = (now, without)
        return self._amounts[name]

    def _of_rules(self, name: str) -> IntArray:
        """(nodes,) what the rules give of a resource; of two that name it, the larger amount."""
        most = np.zeros(len(self._view.nodes), dtype=np.int64)
        for capacity in self._ruled[name]:
            amounts = np.full(len(most), capacity.elsewhere, dtype=np.int64)
            for number, amount in capacity.of_node.items():
                amounts[number] = amount
            most = np.maximum(most, amounts)
        return most

    def _used(self, name: str) -> IntArray:
        """(nodes,) what the pods of jobs use of a resource that stands for a rule."""
        used = np.zeros(len(self._view.nodes), dtype=np.int64)
        for unit in self._units:
            if amount := unit.request.get(name, 0):
                for number, pods in unit.live.items():
                    used[number] += amount * pods
        return used

    def _read_free(self) -> tuple[list[Resources], list[Resources]]:
        nodes, index = self._view.nodes, self._view.index
        used: list[Counter[str]] = [Counter() for _ in nodes]
        for pod in self._view.fixed_pods():
            used[index[pod.node or pod.nominated]].update(dict(pod.requested.amounts))
        without = _left(self._view, used)
        for job in self._view.snapshot.jobs:
            for pod in job.pods if not job.is_left_alone else ():
                if not pod.is_finished and (number := index.get(pod.node)) is not None:
                    used[number].update(dict(pod.requested.amounts))
        return _left(self._view, used), without


def _left(view: View, used: list[Counter[str]]) -> list[Resources]:
    return [n.allocatable - n.reserved - Resources.of(here) for n, here in zip(view.nodes, used, strict=True)]


def _free_amount(free: Resources, name: str) -> int:
    return free[name]


def _free_ports(free: Resources, name: str) -> int:
    """One if nobody has the port; one at every address conflicts with each that is at any."""
    everywhere = port_at_every_address(name)
    names = (everywhere, name) if name != everywhere else (n for n in free if port_at_every_address(n) == everywhere)
    return int(all(free[other] == 0 for other in names))
