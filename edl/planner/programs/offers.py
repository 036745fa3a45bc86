"""Chooses how many pods of one shape go to which nodes, where each node offers slots at different costs.

Source: the multiple-choice knapsack, Kellerer, Pferschy, Pisinger: Knapsack Problems (2004), chapter 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edl.planner.problem import IntArray

IMPOSSIBLE = np.iinfo(np.int64).max // 2
FEW_PODS = 128  # the last pods of thousands, which are placed at the least cost
MOST_CELLS = 1 << 20  # of the table that says how to place pods at the least cost
SPARE_CHOICE = 2  # of many nodes, consider those that could hold so many times what is wanted
WIDE = 8  # a node offers each number of pods up to this one, and its largest

Cost = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """The number of pods that fit on a node, and the cost of putting them there.

    Attributes:
        slots: how many pods fit.
        cost: the cost of using the node so.
        live_trainers: the trainers to delete first, by index.
    """

    slots: int
    cost: Cost
    live_trainers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """How one node is used.

    Attributes:
        node: index of the node.
        slots: how many pods it is to hold.
        live_trainers: the trainers to delete first, by index.
    """

    node: int
    slots: int
    live_trainers: tuple[int, ...]


def cheapest(offers: Mapping[int, list[NodeOffer]], count: int) -> list[Choice]:
    """Choose offers with the most slots, at most `count`, at the least cost.

    A node that could hold more than is still wanted may be used in part. The table of thousands of pods would be too
    large: then only the last few pods have one.
    """
    if count > FEW_PODS and count * sum(map(len, offers.values())) > MOST_CELLS:
        return _cheapest_of_many(offers, count)
    return _by_table(offers, count)


def _by_table(offers: Mapping[int, list[NodeOffer]], count: int) -> list[Choice]:
    """Solve `cheapest` exactly, by dynamic programming over the nodes."""
    nodes = sorted(offers)
    if count == 1:
        every = ((offer.cost, node, number) for node in nodes for number, offer in enumerate(offers[node]))
        first = min(every, default=None)
        return [] if first is None else [Choice(first[1], 1, offers[first[1]][first[2]].live_trainers)]
    cost = np.full((2, count + 1), IMPOSSIBLE, dtype=np.int64)
    cost[:, 0] = 0
    taken = np.full((len(nodes), count + 1), -1, dtype=np.int16)  # which offer of the node, at each total
    before = np.zeros(len(nodes), dtype=np.int64)  # the total before that offer, if it led to `count`
    for row, node in enumerate(nodes):
        best = cost.copy()
        for number, offer in enumerate(offers[node]):
            price = np.array(offer.cost)[:, None]
            reach = cost[:, : count - offer.slots] + price
            better = _is_less(reach, best[:, offer.slots : count])
            best[:, offer.slots : count][:, better] = reach[:, better]
            taken[row, offer.slots : count][better] = number
            ends = cost[:, count - offer.slots : count]
            start = count - offer.slots + int(np.lexsort((ends[1], ends[0]))[0])
            reach = cost[:, start : start + 1] + price
            if _is_less(reach, best[:, count:])[0]:
                best[:, count:] = reach
                taken[row, count] = number
                before[row] = start
        cost = best
    return _trace(offers, nodes, taken, before, int(np.flatnonzero(cost[0] < IMPOSSIBLE)[-1]))


def _cheapest_of_many(offers: Mapping[int, list[NodeOffer]], count: int) -> list[Choice]:
    """Use whole nodes, the cheapest for each pod first; the last few pods go to the best of the nodes that follow."""
    every = [(offer, node) for node, some in offers.items() for offer in some]
    slots = np.array([offer.slots for offer, _ in every], dtype=np.int64)
    major, minor = np.array([offer.cost for offer, _ in every], dtype=np.float64).T / slots
    choices: dict[int, Choice] = {}
    rest: dict[int, list[NodeOffer]] = {}
    left = count
    for at in np.lexsort((-slots, minor, major)).tolist():
        offer, node = every[at]
        if node in choices or node in rest:
            continue
        if not rest and offer.slots <= left - FEW_PODS:
            choices[node] = Choice(node, offer.slots, offer.live_trainers)
            left -= offer.slots
        elif sum(some[-1].slots for some in rest.values()) < left + FEW_PODS:
            rest[node] = _at_most(left, offers[node])
        else:
            break
    last = _by_table(rest, left) if rest else []
    return sorted([*choices.values(), *last], key=lambda choice: choice.node)


def _at_most(count: int, offers: list[NodeOffer]) -> list[NodeOffer]:
    """Limit the offers of a node to a number of pods."""
    return [offer if offer.slots <= count else replace(offer, slots=count) for offer in offers]


def _is_less(left: IntArray, right: IntArray) -> NDArray[np.bool_]:
    """(totals,) True if the cost in the left column is smaller."""
    less: NDArray[np.bool_] = (left[0] < right[0]) | ((left[0] == right[0]) & (left[1] < right[1]))
    return less


def _trace(
    offers: Mapping[int, list[NodeOffer]], nodes: list[int], taken: NDArray[np.int16], before: IntArray, total: int
) -> list[Choice]:
    """Walk back through the table from its last row and list what each node was used for."""
    count = taken.shape[1] - 1
    choices = []
    for row in range(len(nodes) - 1, -1, -1):
        number = int(taken[row, total])
        if number >= 0:
            offer = offers[nodes[row]][number]
            start = int(before[row]) if total == count else total - offer.slots
            choices.append(Choice(nodes[row], total - start, offer.live_trainers))
            total = start
    return choices[::-1]
