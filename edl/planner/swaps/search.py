"""Packs trainers of many sizes: best fit by dominant share, then swaps on single nodes as long as they gain.

The fluid program says how many trainers each job should have, and what capacity is worth. Which sizes fill a node
well together, it does not say. A swap takes nothing or one trainer from a node and puts one or two others there; all
of them are compared at once as matrices. Every state on the way is a plan without overcommit.

Source: best fit by dominant share (Ghodsi et al., NSDI 2011); swap search for bin packing, Fleszar and Hindi,
Computers and Operations Research 29(7), 2002; cheapest eviction as in Borg (Verma et al., EuroSys 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edl.planner.evictions import first_enough, shortfall
from edl.planner.problem import BoolArray, IntArray
from edl.planner.swaps.moves import SMALLEST, Aim, best_swaps, worth_trying
from edl.planner.swaps.state import MOST_COMPARED, FloatArray, SwapState
from edl.planner.trial_packing import TrialPacking

LOOKED_AT = 64  # nodes among which several are evicted
BATCH, STEPS = 128, 60  # nodes that are compared at once, and how often
RECHECKED = 4  # batches for which the jobs worth trying are found once
PASSES = 20
ROUNDS, NEAR, LEAST_GAIN = 3, 0.995, 5e-4  # further rounds while far from the fluid program, if the last one paid
HALVINGS = 12  # of the level that the free capacity in all allows
ENOUGH = 1e-4  # part of the value that a pass must gain for another one
PROMISE_FACTOR = 30.0  # a trainer of the fair share is worth so many times the most useful other one


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the fluid program (pods that can be divided) would give each job.

    Attributes:
        target: by job, how many trainers it has in the program.
        price: by job, what the capacity of one trainer is worth.
        gain: by job, what one trainer more adds to the objective.
    """

    target: Mapping[int, float]
    price: Mapping[int, float]
    gain: Mapping[int, float]


def fill_by_swaps(
    packing: TrialPacking, ceiling: Mapping[int, int], fair_share: Mapping[int, int], wanted: Wanted
) -> TrialPacking:
    """Place all trainers that do not exist yet anew, and new ones up to each ceiling.

    Args:
        packing: every member at its minimum at least; not changed.
        ceiling: the most trainers of each member.
        fair_share: the fair share of each member, in whole trainers.
        wanted: what the fluid program says.

    Returns:
        The packing; each member has its minimum, and as much of its promise as was found.
    """
    if not packing.members:
        return packing
    clock = packing.problem.clock
    state = _start(packing, ceiling, fair_share)
    gain = np.array([wanted.gain[j] for j in state.jobs])
    price = np.maximum([wanted.price[j] for j in state.jobs], SMALLEST)
    target = np.clip(np.floor([wanted.target[j] + 1e-6 for j in state.jobs]).astype(np.int64), state.due, state.high)
    _best_fit(state, target)
    _improve(state, Aim(target, price, np.minimum(price, gain), state.low, price))
    promise = np.full(len(gain), PROMISE_FACTOR * gain.max(initial=SMALLEST))
    true = Aim(state.due, promise, gain, state.low, price, thorough=True)
    _repair(state, true, gain)
    _improve(state, true)
    best, goal = state, float(gain @ [wanted.target[j] for j in state.jobs])
    for _ in range(ROUNDS):  # what fits well and what is worth most are aimed at in turn
        if state.value(gain) >= NEAR * goal or clock.is_over:
            break
        state = best.copy()
        _improve(state, Aim(target, price, np.minimum(price, gain), np.minimum(state.count, state.due), price))
        _improve(state, true)
        if state.rank(gain) <= best.rank(gain):
            break
        is_enough = state.value(gain) - best.value(gain) <= LEAST_GAIN * goal
        best = state
        if is_enough:
            break
    state = best
    _best_fit(state, state.high, by=gain / state.size)
    return state.packed()


def fill_by_totals(packing: TrialPacking, ceiling: Mapping[int, int]) -> TrialPacking:
    """Place new trainers without any program, if there is no time for one: every job up to the same fulfilment.

    It is the highest that the free capacity in all would allow, as if all nodes were one. The trainers go where they
    fit best, the largest first, so the last jobs may get less.

    Args:
        packing: every member at its minimum at least; not changed.
        ceiling: the most trainers of each member.
    """
    demands, request = packing.problem.demands, packing.problem.request
    members = [demands[j] for j in packing.members]
    count, low = np.array([(packing.count[d.index], d.min_trainers) for d in members], dtype=np.float64).T
    most = np.array([max(ceiling[d.index], packing.count[d.index]) for d in members], dtype=np.float64)
    each, free = request[[d.shape for d in members]], packing.free.clip(min=0).sum(axis=0)

    def target(level: float) -> FloatArray:
        wanted: FloatArray = np.maximum(count, np.floor(low + level * (most - low)))
        return wanted

    fits, fails = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (fits + fails) / 2
        enough = bool(((target(middle) - count) @ each <= free).all())
        fits, fails = (middle, fails) if enough else (fits, middle)
    fair_share = dict(zip(packing.members, target(fits).astype(np.int64).tolist(), strict=True))
    return _start(packing, ceiling, fair_share).packed()


def _start(packing: TrialPacking, ceiling: Mapping[int, int], fair_share: Mapping[int, int]) -> SwapState:
    """Place minimums, then fair shares, by best fit; keep the packing's own minimums if best fit fails.

    Minimums of very many jobs stay where they are at once.
    """
    state = SwapState(packing, ceiling, fair_share)
    empty = state.copy()
    order = _by_size(state) if len(state.jobs) <= MOST_COMPARED else []
    if not order:
        state.restore(packing)
    for k in order:
        missing = int(state.low[k] - state.count[k])
        if missing > 0 and state.best_fit(k, missing, is_bound=False) < missing:
            state = empty
            state.restore(packing)
            break
    _best_fit(state, state.due)
    return state


def _by_size(state: SwapState) -> list[int]:
    """The jobs by the dominant share of one trainer, the largest first."""
    order: list[int] = np.argsort(-state.size, kind="stable").tolist()
    return order


def _best_fit(state: SwapState, target: IntArray, by: FloatArray | None = None) -> None:
    """Bring each job up to its target as far as that fits, the largest trainers first or those first in `by`."""
    order = _by_size(state) if by is None else np.argsort(-by, kind="stable").tolist()
    for k in order:
        state.best_fit(k, int(target[k] - state.count[k]))


def _improve(state: SwapState, aim: Aim) -> None:
    """Swap on the most wasteful nodes first, until a pass gains too little or the time is over."""
    value = float((np.minimum(aim.below, aim.above) * state.count).sum())
    worth = aim.below / np.maximum(state.size, SMALLEST)
    scale = (state.request / state.total * worth[:, None]).mean(axis=0) if len(worth) else np.zeros(0)
    for _ in range(PASSES):
        waste = (state.free.clip(min=0) / state.total) @ scale
        order = np.argsort(-waste, kind="stable")
        gained = 0.0
        for at in range(0, len(order), BATCH):
            if state.base.problem.clock.is_over:
                break
            if at % (RECHECKED * BATCH) == 0:
                among = worth_trying(state, aim)
            gained += _settle(state, aim, order[at : at + BATCH], among)
        if state.base.problem.clock.is_over:
            state.base.problem.clock.cut_short("growth")
            return
        if gained <= ENOUGH * max(value, SMALLEST):
            return


def _settle(state: SwapState, aim: Aim, nodes: IntArray, among: BoolArray) -> float:
    """Swap trainers on some nodes until no swap gains anything; returns the sum of the gains."""
    gained = 0.0
    for _ in range(STEPS):
        if not len(nodes) or state.base.problem.clock.is_over:
            break
        swaps, before = best_swaps(state, aim, nodes, among), gained
        for swap in swaps:
            net = aim.net(state, swap.out, swap.into)  # those before it may have changed what it is worth
            if net <= swap.net / 2 or not state.allows(swap.into, swap.out):
                continue
            for k in swap.out:
                state.add(swap.node, k, -1)
            for k in swap.into:
                state.add(swap.node, k)
            gained += net
        if gained == before:  # quotas refuse them all, and would again
            break
        nodes = np.array(sorted(swap.node for swap in swaps), dtype=np.int64)
    return gained


def _repair(state: SwapState, aim: Aim, cost: FloatArray) -> None:
    """Raise jobs below their fair share, at the cost of what other jobs have above theirs.

    `cost`: (jobs,) what a trainer adds.
    """
    lacking = np.flatnonzero(state.count < state.due)
    level = (state.count - state.low) / state.span
    for k in lacking[np.lexsort((lacking, level[lacking]))].tolist():
        while state.count[k] < state.due[k] and not state.base.problem.clock.is_over:
            if not state.best_fit(k, 1) and not (_evict_one(state, aim, k, cost) or _evict_some(state, aim, k, cost)):
                break


def _evict_one(state: SwapState, aim: Aim, k: int, cost: FloatArray) -> bool:
    """Replace the trainer that is worth least, on a node where that frees enough capacity, by one of job k."""
    givers = np.flatnonzero(state.count > np.maximum(state.due, aim.least))
    givers = givers[givers != k]
    node, giver = state.held[:, givers].nonzero()
    giver = givers[giver]
    fits = state.opened[k, node]
    for r in np.flatnonzero(state.request[k]).tolist():
        fits &= state.free[node, r] + state.request[giver, r] >= state.request[k, r]
    node, giver = node[fits], giver[fits]
    if not len(node):
        return False
    best = int(cost[giver].argmin())
    if not state.allows([k], [int(giver[best])]):
        return False
    state.add(int(node[best]), int(giver[best]), -1)
    state.add(int(node[best]), k)
    return True


def _evict_some(state: SwapState, aim: Aim, k: int, cost: FloatArray, most: int = 8) -> bool:
    """Replace several trainers of little worth on one node by one of job k; see `_evict_one`."""
    surplus = state.count - np.maximum(state.due, aim.least)
    surplus[k] = 0
    held = np.minimum(state.held, surplus.clip(min=0)[None])
    asked = np.flatnonzero(state.request[k])
    request, needed = state.request[:, asked], state.request[k, asked]
    free = state.free[:, asked]
    best: tuple[float, int, list[int]] | None = None
    enough_there = (free + held @ request >= needed).all(axis=1) & state.opened[k]
    for node in np.flatnonzero(enough_there)[:LOOKED_AT].tolist():
        here = np.repeat(np.arange(len(surplus)), held[node])
        here = here[np.argsort(cost[here] / state.size[here], kind="stable")][:most]
        if number := first_enough(shortfall(free[node], needed), request[here]):
            out = here[:number].tolist()
            lost = float(cost[out].sum())
            if best is None or lost < best[0]:
                best = (lost, node, out)
    if best is None or not state.allows([k], best[2]):
        return False
    for giver in best[2]:
        state.add(best[1], giver, -1)
    state.add(best[1], k)
    return True
