"""Joins the rows of all jobs into the arrays of one problem, with the problem's shape numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from edl.planner.problem import BoundPods, IntArray, sum_requests
from edl.planner.reading.pods_of_jobs import JobRows


class UsedCapacity:
    """The nodes and shapes of pods that use capacity, collected in parts."""

    def __init__(self) -> None:
        self._parts: list[tuple[IntArray, IntArray]] = []

    def add(self, node: IntArray, shape: IntArray) -> None:
        """Add pods: (pods,) the node and the shape of each; those with node -1 use none."""
        self._parts.append((node[node >= 0], shape[node >= 0]))

    def requests(self, nodes: int, request: IntArray) -> IntArray:
        """(nodes, resources) the sum of the pods' requests on each node; see `sum_requests`."""
        node, shape = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        return sum_requests(nodes, request, node, shape)


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The pods of all jobs, job by job.

    Attributes:
        held: (pods, 2) node and shape of each pod that uses capacity of a node.
        lingering: the same of those that use it for good.
        bound: the live pods on nodes.
        demand, shape, node: (live trainers,) see `Problem.trainer_demand`.
        is_bound: (live trainers,) False if the pod names no node.
        lent: (live trainers,) the CPU that each lends, in millicores.
    """

    held: IntArray
    lingering: IntArray
    bound: BoundPods
    demand: IntArray
    shape: IntArray
    node: IntArray
    is_bound: IntArray
    lent: IntArray


def joined(rows: Sequence[JobRows], shapes: Sequence[Sequence[int]]) -> JoinedRows:
    """Join the rows of all jobs.

    Args:
        rows: those of each job.
        shapes: for each job, the number that each shape of its rows has in the problem.
    """
    first = np.cumsum([0, *map(len, shapes)], dtype=np.int64)[:-1]
    numbers = np.array(list(chain.from_iterable(shapes)), dtype=np.int64)

    def join(table_of: Callable[[JobRows], IntArray], column: int, width: int) -> tuple[IntArray, IntArray]:
        tables = [table_of(one) for one in rows]
        owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        whole = np.concatenate([np.zeros((0, width), dtype=np.int64), *tables])
        whole[:, column] = numbers[first[owner] + whole[:, column]]
        return owner, whole

    _, held = join(lambda one: one.held, 1, 2)
    _, lingering = join(lambda one: one.lingering, 1, 2)
    owner, bound = join(lambda one: one.bound, 1, 3)
    demand, live = join(lambda one: one.live, 0, 4)
    shape, node, is_bound, lent = np.ascontiguousarray(live.T)
    return JoinedRows(
        held=held,
        lingering=lingering,
        bound=BoundPods(owner, bound[:, 0].copy(), bound[:, 1].copy(), bound[:, 2] == 1),
        demand=demand,
        shape=shape,
        node=node,
        is_bound=is_bound,
        lent=lent,
    )
