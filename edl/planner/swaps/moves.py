"""Finds the best swap (trainers out of a node, others into it) on each of many nodes at once, by matrices.

A swap takes nothing, one trainer, or the few that are worth least out of a node and puts one or two others in. Nodes
are compared together because a search node by node spends its time between array operations, not in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edl.planner.problem import BoolArray, IntArray, count_slots
from edl.planner.swaps.state import MOST_COMPARED, FloatArray, SwapState, WordArray

PRESENT, PAIRED, TOGETHER, FILLED = 48, 20, 4, 24  # jobs looked at on one node
PUT_IN = 2  # trainers that a swap puts in, but for fills
CELLS = 3_000_000  # comparisons made at once
SMALLEST = 1e-12
MOST = np.iinfo(np.int64).max
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Aim:
    """The objective of a search over swaps.

    Attributes:
        target: (jobs,) trainers up to which each one is worth `below`; further ones are worth `above`.
        below, above: (jobs,) what one trainer is worth.
        least: (jobs,) trainers that a job keeps in any case.
        size: (jobs,) what the capacity of one trainer is worth, > 0.
        thorough: also compare swaps that take several out, or put more than two in.
    """

    target: IntArray
    below: FloatArray
    above: FloatArray
    least: IntArray
    size: FloatArray
    thorough: bool = False

    def gain(self, count: IntArray, high: IntArray) -> FloatArray:
        """(jobs,) what one more trainer is worth; 0 for a job at its ceiling."""
        worth = np.where(count < self.target, self.below, self.above)
        return np.where(count < high, worth, 0.0)

    def loss(self, count: IntArray) -> FloatArray:
        """(jobs,) what one trainer less costs; infinite for what a job keeps in any case."""
        worth = np.where(count <= self.target, self.below, self.above)
        return np.where(count <= self.least, np.inf, worth)

    def net(self, state: SwapState, out: list[int], into: list[int]) -> float:
        """The gain of a swap; minus infinity if a job would fall below its least count or exceed its ceiling."""
        change: dict[int, int] = {}
        total = 0.0
        for k, step in [*((k, -1) for k in out), *((k, 1) for k in into)]:
            count = int(state.count[k]) + change.get(k, 0)
            edge = count if step < 0 else count + 1
            if (step < 0 and count <= self.least[k]) or (step > 0 and count >= state.high[k]):
                return -np.inf
            total += step * float(self.below[k] if edge <= self.target[k] else self.above[k])
            change[k] = change.get(k, 0) + step
        return total


@dataclass(frozen=True, slots=True)
class Swap:
    """Trainers to take out of a node and to put into it, by job."""

    node: int
    out: list[int]
    into: list[int]
    net: float


@dataclass(frozen=True, slots=True)
class _View:
    """Some nodes as arrays: which trainers may leave each node, and which jobs may get one there.

    Attributes:
        wanted: (wanted,) jobs that gain from one trainer more, those that gain most first.
        gain: (wanted,) what it is worth.
        request: (jobs, amounts) of one trainer; quotas that are nearly used up count as resources here.
        needed: (jobs, words) of which resources it needs the only one that a node may have.
        opened: (nodes, wanted) True if the node takes one.
        out: (nodes, present) jobs with a trainer there, the cheapest for its size first; -1 where there is none.
        cost: (nodes, capacities) what it costs if nothing, one of them, or the first few of them are taken out.
        capacity: (nodes, capacities, amounts) what is free then.
        here: (nodes, capacities, words) of which of these resources one is left then.
    """

    state: SwapState
    aim: Aim
    wanted: IntArray
    gain: FloatArray
    request: IntArray
    needed: WordArray
    opened: BoolArray
    out: IntArray
    cost: FloatArray
    capacity: IntArray
    here: WordArray

    def taken(self, node: int, row: int) -> list[int]:
        """The jobs that lose a trainer on a node for the slot in row `row`; `node` is the position in the view."""
        here = self.out[node]
        found = here[:0] if row == 0 else here[row - 1 : row] if row <= len(here) else here[: row - len(here) + 1]
        return [int(k) for k in found]


Choice = tuple[FloatArray, Callable[[int, int], list[int]]]  # (nodes, capacities) what is won; who is put into a slot


def worth_trying(state: SwapState, aim: Aim) -> BoolArray:
    """(jobs,) True for the jobs of which a trainer may be part of some node's best swap.

    A job is left out if two others gain as much, request no more of anything and may go wherever it may: wherever one
    or two of it fit, those do. The jobs that are worth most for their size stay in any case, because they fill the
    free capacity. Of very many jobs, only those that are worth most for their size are looked at.
    """
    gain = np.where(state.allowed(), aim.gain(state.count, state.high), 0.0)
    wanted, found = np.flatnonzero(gain > 0), np.zeros(len(gain), dtype=np.bool_)
    if not len(wanted):
        return found
    if len(wanted) > MOST_COMPARED:
        wanted = wanted[np.argsort(-gain[wanted] / aim.size[wanted], kind="stable")[:MOST_COMPARED]]
    wanted = wanted[np.argsort(-gain[wanted], kind="stable")]
    better = np.triu(state.covers(wanted), 1).sum(axis=0)
    found[wanted[better < PUT_IN]] = True
    found[wanted[np.argsort(-gain[wanted] / aim.size[wanted], kind="stable")[:FILLED]]] = True
    return found


def best_swaps(state: SwapState, aim: Aim, nodes: IntArray, among: BoolArray | None = None) -> list[Swap]:
    """The best swap on each of some nodes that gains anything, the one that gains most first.

    Args:
        state: the packing; not changed.
        aim: what counts.
        nodes: indices of the nodes.
        among: (jobs,) True for jobs that may be put in; all of them by default.
    """
    gain = np.where(state.allowed(), aim.gain(state.count, state.high), 0.0)
    wanted = np.flatnonzero(gain > 0 if among is None else (gain > 0) & among)
    wanted = wanted[np.argsort(-gain[wanted], kind="stable")]
    if not len(wanted) or not len(nodes):
        return []
    size = max(1, CELLS // (len(wanted) * (PRESENT // 2)))
    parts = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    swaps = [swap for part in parts for swap in _best_of(part, _view(state, aim, part, wanted, gain[wanted]))]
    return sorted(swaps, key=lambda swap: (-swap.net, swap.node))


def _best_of(nodes: IntArray, view: _View) -> list[Swap]:
    """The best swap on each node of a view that gains anything."""
    fits = _fit(view, view.request[view.wanted], view.needed[view.wanted]) & view.opened[:, None]
    choices = [_singles(view, fits), _pairs(view, np.asarray(fits.any(axis=1)))]
    if view.aim.thorough:
        choices.append(_fills(view))
    every = np.arange(len(nodes))
    rows = np.array([net.argmax(axis=1) for net, _ in choices])
    value = np.array([net[every, row] for (net, _), row in zip(choices, rows, strict=True)])
    kind, best = value.argmax(axis=0), value.max(axis=0)
    swaps = []
    for i in np.flatnonzero(best > ROUNDING * float(view.gain[0])).tolist():
        row = int(rows[kind[i], i])
        swaps.append(Swap(int(nodes[i]), view.taken(i, row), choices[kind[i]][1](i, row), float(best[i])))
    return swaps


def _view(state: SwapState, aim: Aim, nodes: IntArray, wanted: IntArray, gain: FloatArray) -> _View:
    """The possible swaps on some nodes; `wanted` jobs are sorted by `gain`."""
    loss = aim.loss(state.count)
    order = np.argsort(loss / aim.size, kind="stable")
    order = order[np.isfinite(loss[order])]
    row, column = (state.held[np.ix_(nodes, order)] > 0).nonzero()
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < PRESENT
    row, column, place = row[kept], column[kept], place[kept]
    width = int(place.max(initial=-1)) + 1
    out = np.full((len(nodes), width), -1, dtype=np.int64)
    out[row, place] = order[column]
    of_each, left = state.with_limits(nodes)
    asked, words = (np.flatnonzero(rows[wanted].any(axis=0)) for rows in (of_each, state.needed))
    of_each, left = of_each[:, asked], left[:, asked]  # of the others, no swap can run out
    needed, here = state.needed[:, words], state.here[np.ix_(nodes, words)][:, None]
    is_there = (out >= 0)[:, :, None]
    request, given = np.where(is_there, of_each[out], 0), np.where(is_there, needed[out], np.uint64(0))
    price = np.where(out >= 0, loss[out], np.inf)
    several = slice(1, min(TOGETHER if aim.thorough else 1, width))
    free = left[:, None]
    capacity = np.concatenate([free, free + request, free + np.cumsum(request, axis=1)[:, several]], axis=1)
    cost = np.concatenate([np.zeros((len(nodes), 1)), price, np.cumsum(price, axis=1)[:, several]], axis=1)
    together = np.bitwise_or.accumulate(given, axis=1)[:, several]
    here = np.concatenate([here, here | given, here | together], axis=1)
    opened = state.opened[wanted][:, nodes].T
    return _View(state, aim, wanted, gain, of_each, needed, opened, out, cost, capacity, here)


def _fit(view: _View, request: IntArray, needed: WordArray) -> BoolArray:
    """(nodes, capacities, pods) True where a pod fits.

    Args:
        view: the free capacities.
        request: (..., pods, amounts).
        needed: (..., pods, words).
    """
    capacity, lacking = view.capacity, ~view.here
    fits = np.ones((*capacity.shape[:-1], request.shape[-2]), dtype=np.bool_)
    most = request.max(axis=tuple(range(request.ndim - 1)), initial=0)
    least = capacity.min(axis=tuple(range(capacity.ndim - 1)), initial=MOST)
    for r in np.flatnonzero(most > least).tolist():
        fits &= request[..., None, :, r] <= capacity[..., r, None]
    for word in range(needed.shape[-1]):
        fits &= (needed[..., None, :, word] & lacking[..., word, None]) == 0
    return fits


def _first(fits: BoolArray, worth: FloatArray) -> tuple[FloatArray, IntArray]:
    """(nodes, capacities) the worth of the first pod that fits (minus infinity without one), and its index.

    `worth` is (pods,) or (nodes, pods), falling.
    """
    at = fits.argmax(axis=2)
    found = np.take_along_axis(fits, at[:, :, None], 2)[:, :, 0]
    value = worth[at] if worth.ndim == 1 else np.take_along_axis(worth, at, 1)
    return np.where(found, value, -np.inf), at


def _singles(view: _View, fits: BoolArray) -> Choice:
    """Choose for each slot one trainer."""
    worth, at = _first(fits, view.gain)
    return worth - view.cost, lambda i, row: [int(view.wanted[at[i, row]])]


def _pairs(view: _View, usable: BoolArray) -> Choice:
    """Choose for each slot two trainers of the jobs that gain most; `usable` is (nodes, wanted): one alone fits."""
    top = np.argsort(~usable, axis=1, kind="stable")[:, :PAIRED]
    is_usable = np.take_along_axis(usable, top, 1)
    first, second = np.triu_indices(top.shape[1])
    a, b = top[:, first], top[:, second]
    again = view.aim.gain(view.state.count + 1, view.state.high)[view.wanted]
    more = np.where(a == b, again[b], view.gain[b])
    needed, request = view.needed[view.wanted], view.request[view.wanted]
    apart = ~(needed[a] & needed[b]).any(axis=2)
    both = np.where((more > 0) & is_usable[:, first] & is_usable[:, second] & apart, view.gain[a] + more, -np.inf)
    order = np.argsort(-both, axis=1, kind="stable")
    both, a, b = (np.take_along_axis(rows, order, 1) for rows in (both, a, b))
    worth, at = _first(_fit(view, request[a] + request[b], needed[a] | needed[b]), both)
    return worth - view.cost, lambda i, row: [int(view.wanted[pair[i, at[i, row]]]) for pair in (a, b)]


def _fills(view: _View) -> Choice:
    """Fill each slot with as many trainers as fit, those of the most worth for their size first."""
    state, aim = view.state, view.aim
    order = np.argsort(-view.gain / aim.size[view.wanted], kind="stable")[:FILLED]
    jobs, left, here, net = view.wanted[order], view.capacity.copy(), view.here.copy(), -view.cost
    most = np.where(state.count < aim.target, np.minimum(aim.target, state.high), state.high) - state.count
    number = np.zeros((len(jobs), *net.shape), dtype=np.int64)
    for f, k in enumerate(jobs.tolist()):
        slots = count_slots(left.reshape(-1, left.shape[-1]), view.request[k]).reshape(net.shape)
        number[f] = np.minimum(slots, most[k]) * view.opened[:, order[f], None]
        if (needed := view.needed[k]).any():
            number[f] = np.minimum(number[f], 1) * ((needed & ~here) == 0).all(axis=2)
            here &= ~np.where(number[f][:, :, None] > 0, needed, np.uint64(0))
        left -= number[f][:, :, None] * view.request[k]
        net += number[f] * view.gain[order[f]]
    return net, lambda i, row: [int(k) for k in np.repeat(jobs, number[:, i, row])]
