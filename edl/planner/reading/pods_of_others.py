"""The pods of no job as arrays: their nodes and their shapes.

There are tens of thousands of them, and a few change between two plans. The pods of the last plan are compared with
those of this one by identity, run by run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from edl.planner.amounts import ShapeTable
from edl.planner.problem import IntArray

AT_ONCE = 512  # pods that are compared by one look
FURTHEST = 64  # pods that came or went in one place; beyond that the rest is read again
MOST_SHAPES = 10_000


class PodsOfOthers:
    """Reads the pods of no job, and remembers what it has read."""

    def __init__(self) -> None:
        self._pods: tuple[Pod, ...] = ()
        self._read = np.zeros((3, 0), dtype=np.int64)  # node, own number of the shape, whether it terminates
        self._number: dict[PodShape, int] = {}

    def forget(self) -> None:
        """Read all pods again: the nodes have other numbers."""
        self._pods = ()

    def read(
        self, pods: tuple[Pod, ...], index: Mapping[str, int], table: ShapeTable
    ) -> tuple[IntArray, IntArray, list[int]]:
        """The pods that use capacity of a node: not finished, and bound or nominated.

        Args:
            pods: the pods.
            index: the number of each node; the same as in the last call, unless `forget` was called.
            table: numbers the shapes, in the order of the first pod of each that uses capacity.

        Returns:
            (pods,) the node of each pod; -1 if it uses none. (pods,) the number of its shape; any if it uses none.
            The positions of terminating ones that use capacity.
        """
        if len(self._number) > MOST_SHAPES:
            self._number, self._pods = {}, ()
        found, done = np.empty((3, len(pods)), dtype=np.int64), 0
        for old, new, count in (*unchanged_runs(self._pods, pods), (0, len(pods), 0)):
            found[:, done:new] = self._read_each(pods[done:new], index)
            found[:, new : new + count] = self._read[:, old : old + count]
            done = new + count
        self._pods, self._read = pods, found
        node, shape, terminating = found
        leaving: list[int] = np.flatnonzero(terminating).tolist()
        return node, self._numbers(node, shape, table), leaving

    def _read_each(self, pods: Sequence[Pod], index: Mapping[str, int]) -> tuple[list[int], list[int], list[bool]]:
        """Read what is kept of each pod; this loop is hot, so it only uses dictionaries."""
        nodes, shapes, terminating = list[int](), list[int](), list[bool]()
        node_of, number, known = index.get, self._number, dict[int, int]()
        succeeded, failed = PodPhase.SUCCEEDED, PodPhase.FAILED
        for pod in pods:
            is_finished = (phase := pod.phase) is succeeded or phase is failed
            node = -1 if is_finished else node_of(pod.node or pod.nominated, -1)
            nodes.append(node)
            terminating.append(pod.terminating and node >= 0)
            if (shape := known.get(id(pod.shape))) is None:
                shape = known[id(pod.shape)] = number.setdefault(pod.shape, len(number))
            shapes.append(shape)
        return nodes, shapes, terminating

    def _numbers(self, node: IntArray, shape: IntArray, table: ShapeTable) -> IntArray:
        """Add the shapes of pods to the table in the order of the pods, and return (pods,) their numbers in it."""
        used = shape[node >= 0][::-1]
        first = np.full(len(self._number), len(shape), dtype=np.int64)
        first[used] = np.arange(len(used))[::-1]  # the last assignment counts: that of the first pod
        number, shapes = np.zeros(len(first), dtype=np.int64), list(self._number)
        for own in np.argsort(first, kind="stable").tolist():
            if first[own] < len(shape):
                number[own] = table.add(shapes[own])
        return number[shape]


def unchanged_runs(before: Sequence[object], after: Sequence[object]) -> Iterator[tuple[int, int, int]]:
    """Find the runs of equal elements that two sequences have in common, in the order of both.

    Args:
        before: a sequence.
        after: the same after some items came, went or were replaced; items are compared by identity, then by value.

    Yields:
        Where a run begins in each of them, and its length > 0. Beyond a place where too many differ there is none.
    """
    i = j = 0
    while i < len(before) and j < len(after):
        count = _common(before, i, after, j)
        if count:
            yield i, j, count
        i, j = i + count, j + count
        gaps = ((i + n, j + gap - n) for gap in range(1, FURTHEST + 1) for n in range(gap + 1))
        inside = ((m, n) for m, n in gaps if m < len(before) and n < len(after))
        i, j = next(((m, n) for m, n in inside if before[m] is after[n]), (len(before), len(after)))


def _common(before: Sequence[object], i: int, after: Sequence[object], j: int) -> int:
    """How many items are the same from two places on."""
    began, most = i, min(len(before) - i, len(after) - j)
    step = AT_ONCE
    while step:
        while i - began + step <= most and before[i : i + step] == after[j : j + step]:
            i, j = i + step, j + step
        step //= 2
    return i - began
