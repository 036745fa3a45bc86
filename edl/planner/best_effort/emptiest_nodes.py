"""The node for each next trainer without requests, without looking at all nodes again each time.

There can be ten thousands of such trainers. A node becomes less attractive with each pod that it gets, so the nodes
are in a heap by how attractive they were last time, and only the first one is looked at again.
"""

from __future__ import annotations

import heapq
from math import inf

import numpy as np

from edl.planner.problem import IntArray
from edl.planner.trial_packing import TrialPacking

CLOSER = 1e-6  # more than what differs by the order in which parts are added up


class EmptiestNodes:
    """Ranks the nodes, for each shape of trainers without requests, by how well they suit one more such trainer.

    Nodes that fewer such jobs may use come first, then those whose capacity is free now, then those with most left:
    these trainers live of what others do not use.
    """

    def __init__(self, packing: TrialPacking, users: IntArray) -> None:
        """Begin without having read any node.

        Args:
            packing: the packing; the caller may place pods in it, and says where capacity has grown.
            users: (nodes,) how many shapes of such jobs may use each node.
        """
        self._packing, self._users = packing, users.tolist()
        self._largest = packing.problem.largest.tolist()
        self._request = packing.problem.request.tolist()
        self._heaps: dict[int, list[tuple[float, int]]] = {}

    def best(self, shape: int) -> int:
        """The node for one more trainer; -1 if there is none."""
        heap = self._heaps.get(shape)
        if heap is None:
            heap = self._heaps[shape] = self._read(shape)
        while heap:
            last, node = heap[0]
            cost = self._cost(shape, node)
            if cost <= last:
                return node
            if cost < inf:
                heapq.heapreplace(heap, (cost, node))
            else:
                heapq.heappop(heap)
        return -1

    def grew(self, node: int) -> None:
        """Look again at a node from which pods were evicted."""
        for shape, heap in self._heaps.items():
            if self._packing.problem.opened[shape, node]:
                heapq.heappush(heap, (-inf, node))

    def _read(self, shape: int) -> list[tuple[float, int]]:
        """Read all nodes with capacity, each with a lower bound of its cost."""
        packing, request = self._packing, self._packing.problem.request[shape]
        nodes = np.flatnonzero(packing.slots(shape))
        late = (packing.now[nodes] < request).any(axis=1)
        left = (packing.free[nodes] / packing.problem.largest).clip(0, 1).mean(axis=1)
        costs = 4 * np.array(self._users)[nodes] + 2 * late - left - CLOSER
        heap = list(zip(costs.tolist(), nodes.tolist(), strict=True))
        heapq.heapify(heap)
        return heap

    def _cost(self, shape: int, node: int) -> float:
        """How unsuitable the node is for one more trainer; infinite if it has no capacity."""
        request, late, left = self._request[shape], False, 0.0
        free, now = self._packing.free[node].tolist(), self._packing.now[node].tolist()
        for amount, here, at_once, most in zip(request, free, now, self._largest, strict=True):
            if amount > here and amount:
                return inf
            late = late or at_once < amount
            left += 0.0 if here <= 0 else 1.0 if here >= most else here / most
        return float(4 * self._users[node] + 2 * late - left / len(free))
