"""The fluid program: pods that can be divided, over buckets of nodes; it bounds any number of pod sizes in one solve.

Patterns are exact and need a table over all amounts of a node, which many distinct sizes do not have. Here the nodes
of a bucket are one large node, and a pod may be split. That only relaxes the problem, so its bound holds; where sizes
are many it is also near, because some set of pods nearly fills each node. What whole pods reach is for `swapping`.

Source: the vector bin packing relaxation by resource totals, Panigrahy et al., Heuristics for Vector Bin Packing
(2011), section 2, taken bucket by bucket; the Lagrangian bound as in `columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edl.planner.problem import BoolArray, IntArray, count_slots
from edl.planner.programs.patterns import NodeClass, distinct
from edl.planner.solvers.matrix import Matrix

FloatArray = NDArray[np.float64]

CELLS = 8  # at most so many kinds of nodes by the ratio of two resources
MOST_BUCKETS = 48
PLACES = 48_000  # pairs of a bucket and a shape; with more shapes, buckets are fewer
UNLIMITED = 1e9  # pods; what a node holds of a pod that requests nothing


@dataclass(frozen=True, slots=True)
class Buckets:
    """Nodes that are open to the same shapes and have resources in a similar ratio, taken together.

    Attributes:
        groups: (buckets,) the nodes of each bucket as a class; its capacity is that of the first node.
        free: (buckets, resources) free in all, in parts of the cluster's free amount of the resource.
        request: (shapes, resources) what one pod requests, in the same parts.
        slots: (buckets, shapes) how many whole pods the nodes hold of each shape alone.
    """

    groups: tuple[NodeClass, ...]
    free: FloatArray
    request: FloatArray
    slots: FloatArray


def make_buckets(capacity: IntArray, request: IntArray, opened: BoolArray) -> Buckets:
    """Group nodes by the shapes they take and by the ratios of what is free on them.

    Args:
        capacity: (nodes, resources) free, >= 0.
        request: (shapes, resources) what one pod of each shape requests.
        opened: (shapes, nodes) True if a pod of the shape may go there.
    """
    slots = _slots(capacity, request, opened)
    used = np.flatnonzero(slots.any(axis=0))
    scale = capacity[used].sum(axis=0).clip(min=1).astype(np.float64)
    in_parts = request / scale
    if not len(used):
        return Buckets((), np.zeros((0, request.shape[1])), in_parts, np.zeros((0, len(request))))
    if len(used) < len(capacity):
        capacity, slots, opened = capacity[used], slots[:, used], opened[:, used]
    usable = _usable(capacity, slots, request)
    most = max(2, min(MOST_BUCKETS, PLACES // len(request)))
    kind = _kinds(opened, distinct(_cells(capacity, min(CELLS, most // 2)))[1], most)
    members = [np.flatnonzero(kind == k) for k in range(int(kind.max()) + 1)]
    groups, total = [], []
    for m in members:
        part = slots[:, m]
        groups.append(
            NodeClass(tuple(usable[m[0]].tolist()), tuple(part.max(axis=1).tolist()), tuple(used[m].tolist()))
        )
        total.append(part.sum(axis=1, dtype=np.float64))
    free = np.array([usable[m].sum(axis=0) / scale for m in members])
    return Buckets(tuple(groups), free, in_parts, np.array(total))


def _slots(capacity: IntArray, request: IntArray, opened: BoolArray) -> NDArray[np.int32]:
    """(shapes, nodes) how many whole pods of each shape a node holds; there may be millions, so in one array."""
    slots, by_column = np.empty(opened.shape, dtype=np.int32), np.asfortranarray(capacity)
    for s, row in enumerate(request):
        slots[s] = np.minimum(count_slots(by_column, row), int(UNLIMITED))
    slots *= opened
    return slots


def _usable(capacity: IntArray, slots: NDArray[np.int32], request: IntArray) -> IntArray:
    """Return (nodes, resources) the capacity that pods could use if each shape filled the node by itself."""
    used = np.zeros(capacity.shape[::-1], dtype=np.int64)
    for shape, resource in np.argwhere(request).tolist():
        used[resource] += int(request[shape, resource]) * slots[shape].astype(np.int64)
    return np.minimum(capacity, used.T)


def buckets_of(classes: Sequence[NodeClass], request: IntArray) -> Buckets:
    """Make one bucket for each node class, so that the fluid program can replace the one over patterns.

    Args:
        classes: the node classes, at least one.
        request: (shapes, resources) what one pod of each shape requests.
    """
    nodes = np.array([[len(group.nodes)] for group in classes], dtype=np.float64)
    free = np.array([group.capacity for group in classes], dtype=np.float64) * nodes
    scale = free.sum(axis=0).clip(min=1)
    slots = np.array([group.most for group in classes], dtype=np.float64) * nodes
    return Buckets(tuple(classes), free / scale, request / scale, slots.clip(max=UNLIMITED))


def _kinds(opened: BoolArray, kind: IntArray, most: int) -> IntArray:
    """(nodes,) the bucket of each node: refined by the shapes that it takes, up to so many buckets.

    What most shapes have in common comes first. Where the limit leaves nodes together that take different shapes, a
    bucket still has slots of a shape only for the nodes that take it.
    """
    first, same = distinct(opened)
    for row in np.argsort(-np.bincount(same, minlength=len(first)), kind="stable").tolist():
        finer = np.unique(2 * kind + opened[first[row]], return_inverse=True)[1].astype(np.int64)
        if int(finer.max()) < most:
            kind = finer
        if int(kind.max()) + 1 >= most:
            break
    return kind


def _cells(capacity: IntArray, parts: int) -> IntArray:
    """Classify nodes, as (nodes, resources), by what they have and by the ratio of the two commonest resources."""
    cells = (capacity > 0).astype(np.int64)
    common = [r for r in range(capacity.shape[1]) if (capacity[:, r] > 0).mean() > 0.5][:2]
    if len(common) == 2:
        both = (capacity[:, common] > 0).all(axis=1)
        ratio = np.log(capacity[both][:, common[1]] / capacity[both][:, common[0]]).round(6)
        edges = np.unique(np.quantile(ratio, np.linspace(0, 1, parts + 1)[1:-1]))
        cells[both, common[0]] = 1 + np.searchsorted(edges, ratio, side="left")
    return cells


def constraints(buckets: Buckets, use: FloatArray, rows: FloatArray) -> Matrix:
    """The left sides of the program over variables, then the pods of each shape in each bucket.

    Rows: pods used <= pods in the buckets, by shape; pods in a bucket <= its capacity, by bucket and resource; then
        the
    further rows.

    Args:
        buckets: the buckets.
        use: (shapes, variables) pods that one unit of a variable takes.
        rows: (rows, variables) further constraints.
    """
    bucket, shape = buckets.slots.nonzero()
    shapes, variables = use.shape
    count, resources = buckets.free.shape
    amount = buckets.request[shape]  # (places, resources)
    place, resource = amount.nonzero()
    use_row, use_column = use.nonzero()
    row_row, row_column = rows.nonzero()
    values: Sequence[Any] = [
        use[use_row, use_column], -np.ones(len(shape)), amount[place, resource], rows[row_row, row_column],
    ]  # fmt: skip
    at_row = [use_row, shape, shapes + bucket[place] * resources + resource, shapes + count * resources + row_row]
    at_column = [use_column, variables + np.arange(len(shape)), variables + place, row_column]
    size = (shapes + count * resources + len(rows), variables + len(shape))
    return Matrix.from_entries(np.concatenate(values), np.concatenate(at_row), np.concatenate(at_column), size)


def most_places(buckets: Buckets) -> FloatArray:
    """(places,) the upper bounds of the pods of each shape in each bucket, in the order of `constraints`."""
    most: FloatArray = buckets.slots[buckets.slots.nonzero()]
    return most


def worth_of_buckets(buckets: Buckets, slot: FloatArray, capacity_price: FloatArray) -> float:
    """Bound the value of all pods that fit into the buckets, at given prices.

    Args:
        buckets: the buckets.
        slot: (shapes,) what one pod of each shape is worth, >= 0.
        capacity_price: (buckets, resources) what the capacity is worth, >= 0.
    """
    beyond = (slot[None] - capacity_price @ buckets.request.T).clip(
        min=0
    )  # (buckets, shapes) more than its capacity costs
    return float((capacity_price * buckets.free).sum() + (beyond * buckets.slots).sum())


def node_prices(buckets: Buckets, slot: FloatArray, capacity_price: FloatArray) -> FloatArray:
    """(buckets,) an upper bound on the value of one more node that is like the average node of the bucket."""
    beyond = (slot[None] - capacity_price @ buckets.request.T).clip(min=0)
    total = (capacity_price * buckets.free).sum(axis=1) + (beyond * buckets.slots).sum(axis=1)
    price: FloatArray = total / np.array([len(group.nodes) for group in buckets.groups], dtype=np.float64).clip(min=1)
    return price
