"""Places the last pods that are left out: what is free on all nodes is collected on one of them.

What is left out goes to one node, which then has too much. The other nodes take turns to exchange pods with it: each
takes what fills it best of its own pods and that node's. The sums of two halves of the shapes are sorted and
compared, so millions of choices cost a few milliseconds. All amounts are whole numbers. The number of exchanges
limits the search, not time, so that equal snapshots give equal plans.

Sources: Horowitz and Sahni, Computing partitions with applications to the knapsack problem, Journal of the ACM 21(2),
1974, for the halves; Gupta and Ho, A new heuristic algorithm for the one-dimensional bin-packing problem, Production
Planning and Control 10(6), 1999, for filling one bin after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edl.planner.clock import Clock
from edl.planner.problem import IntArray

FloatArray = NDArray[np.float64]

HALF = 4096  # at most so many choices of pods of a half of the shapes
PARTNERS = 4  # so many choices of the other half are looked at for each, from the one that fills the node best
TURNS = 3  # so often each node takes its turn before another node collects
SEED = 1


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods that need a place, by shape, and what the nodes have.

    Attributes:
        request: (shapes, resources) what one pod requests.
        count: (shapes,) how many pods there are.
        capacity: (nodes, resources) what is free; not negative.
        most: (shapes, nodes) how many pods of a shape the node may hold.
        size: (shapes,) the largest part that a pod requests of any resource of the largest node.
    """

    request: IntArray
    count: IntArray
    capacity: IntArray
    most: IntArray
    size: FloatArray


def place_left_out(pods: Pods, placed: IntArray, exchanges: int, clock: Clock) -> IntArray | None:
    """Find a place for all pods, from a packing that leaves some out.

    Args:
        pods: the pods and the nodes.
        placed: (shapes, nodes) the pods of each node, which fit; not changed.
        exchanges: at most so many exchanges between two nodes are tried.
        clock: asked before each of them.

    Returns:
        (shapes, nodes) a packing of all pods; None if none was found.

    Raises:
        OutOfTimeError: the time of the stage is over.
    """
    missing = pods.count - placed.sum(axis=1)
    if not missing.any():
        return placed
    random, nodes = np.random.default_rng(SEED), len(pods.capacity)
    wanted = pods.count @ pods.request
    tight = int((wanted / pods.capacity.sum(axis=0).clip(min=1)).argmax())
    while exchanges > 0 and nodes > 1:
        last, now = int(random.integers(nodes)), placed.copy()
        now[:, last] += missing
        others = np.delete(np.arange(nodes), last)
        for node in np.concatenate([random.permutation(others) for _ in range(TURNS)])[:exchanges].tolist():
            clock.check("repacking")
            exchanges -= 1
            _exchange(pods, now, (node, last), tight, random)
            if (now[:, last] <= pods.most[:, last]).all() and (
                now[:, last] @ pods.request <= pods.capacity[last]
            ).all():
                return now
    return None


def _exchange(pods: Pods, now: IntArray, pair: tuple[int, int], tight: int, random: np.random.Generator) -> None:
    """Swap pods between two nodes so that the last one is overfull by as little as possible; changes `now`."""
    node, last = pair
    both = now[:, node] + now[:, last]
    kept = (both - pods.most[:, last]).clip(min=0)  # of each shape, what may not go to `last`
    free = np.minimum(both, pods.most[:, node]) - kept
    if (free < 0).any():
        return
    halves, others = _halved(free, random)
    kept[others] += (now[others, node] - kept[others]).clip(min=0, max=free[others])
    capacity = pods.capacity[node] - kept @ pods.request
    if (capacity < 0).any():
        return
    scale, movable = pods.capacity[last].clip(min=1), both - kept
    (first, first_pods), (second, second_pods) = (
        _choices(pods.request[half], free[half], capacity) for half in halves
    )
    best = _least_left((first, second), capacity, movable @ pods.request, scale, tight)
    if best is None:
        return
    more = np.zeros_like(free)
    more[halves[0]], more[halves[1]] = first_pods[best[0]], second_pods[best[1]]
    beyond = (np.stack([now[:, last], movable - more]) @ pods.request / scale).max(axis=1)
    if beyond[1] <= beyond[0]:
        now[:, node], now[:, last] = kept + more, movable - more


def _halved(free: IntArray, random: np.random.Generator) -> tuple[list[list[int]], list[int]]:
    """Divide the shapes that may move at random into two halves; returns also the shapes that are too many."""
    order = random.permutation(np.flatnonzero(free)).tolist()
    halves: list[list[int]] = []
    for _ in range(2):
        size, half = 1, list[int]()
        while order and size * (free[order[0]] + 1) <= HALF:
            size *= int(free[order[0]]) + 1
            half.append(order.pop(0))
        halves.append(half)
    return halves, order


def _least_left(
    choices: tuple[IntArray, IntArray], capacity: IntArray, movable: IntArray, scale: IntArray, tight: int
) -> tuple[int, int] | None:
    """The choice of each half that leaves the least to the last node.

    Args:
        choices: (choices, resources) of each half, what its pods request.
        capacity: (resources,) what the node has for both.
        movable: (resources,) what both halves request, and other pods that stay on the last node.
        scale: (resources,) what the last node has; at least 1.
        tight: the resource by which the sums are sorted.

    Returns:
        The rows; None if none were found that fit.
    """
    first, second = choices
    order = second[:, tight].argsort(kind="stable")
    fullest = np.searchsorted(second[order, tight], capacity[tight] - first[:, tight], side="right") - 1
    i, j = np.repeat(np.arange(len(first)), PARTNERS), (fullest[:, None] - np.arange(PARTNERS)).ravel()
    i, j = i[j >= 0], order[j[j >= 0]]
    used = first[i] + second[j]
    fits = np.flatnonzero((used <= capacity).all(axis=1))
    if not len(fits):
        return None
    best = fits[((movable - used[fits]) / scale).max(axis=1).argmin()]
    return int(i[best]), int(j[best])


def _choices(request: IntArray, most: IntArray, capacity: IntArray) -> tuple[IntArray, IntArray]:
    """Enumerate the sets of pods that fit: (choices, resources) requests and (choices, shapes) numbers of pods."""
    used = np.zeros((1, request.shape[1]), dtype=np.int64)
    pods = np.zeros((1, len(most)), dtype=np.int64)
    for k, count in enumerate(most.tolist()):
        more = np.repeat(np.arange(count + 1), len(used))
        used, pods = np.tile(used, (count + 1, 1)) + more[:, None] * request[k], np.tile(pods, (count + 1, 1))
        pods[:, k] = more
        fits = (used <= capacity).all(axis=1)
        used, pods = used[fits], pods[fits]
    return used, pods
