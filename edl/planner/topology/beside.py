"""How many trainers some nodes hold beside pservers of the same job, if the pservers are where they cost fewest.

A pserver in a corner that is too small for a trainer costs nothing. Where that does not suffice, up to MOST_EXACT
pservers are placed by dynamic programming over the nodes. More are placed node by node, the cheapest first, which may
count a few trainers too few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edl.planner.problem import BoolArray, IntArray, count_slots

MOST_EXACT = 16  # pservers


class Kind(NamedTuple):
    """Pods of one shape, and the nodes that take them.

    Attributes:
        request: (resources,) what one pod requests.
        is_open: (nodes,) True if the node takes such a pod.
    """

    request: IntArray
    is_open: BoolArray

    def slots(self, free: IntArray) -> IntArray:
        """(nodes,) how many such pods fit."""
        slots: IntArray = count_slots(free, self.request) * self.is_open
        return slots

    def on(self, nodes: IntArray) -> Kind:
        """The same kind of pods on some of the nodes."""
        return Kind(self.request, self.is_open[nodes])


def count_beside(free: IntArray, trainer: Kind, pserver: Kind, count: int) -> int | None:
    """The most trainers that fit on some nodes beside all pservers; None if the pservers do not fit.

    Args:
        free: (nodes, resources) free capacity.
        trainer: the shape of the trainers.
        pserver: the shape of the pservers.
        count: how many pservers there are.
    """
    slots, fit = trainer.slots(free), np.minimum(pserver.slots(free), count)
    if fit.sum() < count:
        return None
    corners = np.minimum(pserver.slots(free - slots[:, None] * trainer.request), fit)
    if corners.sum() >= count:
        return int(slots.sum())
    cost = _least if count <= MOST_EXACT else _cheapest_first
    return int(slots.sum()) - cost(_Table(free, trainer, pserver, slots, fit, corners), count)


class _Table(NamedTuple):
    """The trainer slots that pservers would take on each node.

    Attributes:
        slots: (nodes,) trainers that fit without pservers.
        fit: (nodes,) pservers that fit.
        corners: (nodes,) pservers that cost no trainer.
    """

    free: IntArray
    trainer: Kind
    pserver: Kind
    slots: IntArray
    fit: IntArray
    corners: IntArray

    def cost(self, number: int | IntArray) -> IntArray:
        """(nodes,) how many trainer slots a number of pservers costs on each node.

        Undefined where they do not fit.
        """
        used = np.broadcast_to(number, self.fit.shape)[:, None] * self.pserver.request
        cost: IntArray = self.slots - self.trainer.slots(self.free - used)
        return cost


def _least(table: _Table, count: int) -> int:
    """The fewest trainer slots that a number of pservers costs."""
    costs = [table.cost(number) for number in range(1, int(table.fit.max()) + 1)]
    best = np.full(count + 1, int(table.slots.sum()) + 1, dtype=np.int64)
    best[0] = 0
    for node in _candidates(table.fit, costs, count):
        before = best.copy()
        for number in range(1, int(table.fit[node]) + 1):
            np.minimum(best[number:], before[:-number] + costs[number - 1][node], out=best[number:])
    return int(best[count])


def _candidates(fit: IntArray, costs: list[IntArray], count: int) -> list[int]:
    """The nodes that matter: for each number of pservers on a node, the cheapest `count` nodes.

    No placing uses more nodes than that, so any other node could be replaced by one of these.
    """
    chosen: set[int] = set()
    for number, cost in enumerate(costs, start=1):
        able = np.flatnonzero(fit >= number)
        chosen.update(able[np.argsort(cost[able], kind="stable")[:count]].tolist())
    return sorted(chosen)


def _cheapest_first(table: _Table, count: int) -> int:
    """The cost of pservers that first use leftover capacity, and then fill the cheapest nodes one by one."""
    more, cost = table.fit - table.corners, table.cost(table.fit)
    left, total = count - int(table.corners.sum()), 0
    used = np.flatnonzero(more)
    for node in used[np.argsort(cost[used] / more[used], kind="stable")].tolist():
        total, left = total + int(cost[node]), left - int(more[node])
        if left <= 0:
            break
    return total
