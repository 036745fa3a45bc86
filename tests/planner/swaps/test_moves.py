"""Swaps on many nodes at once are what looking at each node finds, and every fit is exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from benchmarks.worst_worlds import many_sizes
from edl.model.limits import Limits, Quota
from edl.model.resources import CPU, HOST_PORT_PREFIX, Resources
from edl.planner.minimums.batches import Served
from edl.planner.minimums.required import place_in_free_capacity
from edl.planner.problem_reader import read_problem
from edl.planner.swaps.moves import Aim, best_swaps, worth_trying
from edl.planner.swaps.state import SwapState, as_bits
from edl.planner.trial_packing import TrialPacking


def state_of(seed: int, jobs: int = 6, ports: int = 0) -> SwapState:
    """A few nodes with some trainers of each job; with ports, two of three jobs ask for some of so many."""
    random, made = np.random.default_rng(seed), []
    world = many_sizes(jobs if ports else max(4, jobs // 2), jobs, seed).snapshot
    for i, job in enumerate(world.jobs):
        asked = random.choice(ports, ports // 6, replace=False).tolist() if ports and i % 3 else []
        request = job.trainer.request + Resources.of({f"{HOST_PORT_PREFIX}TCP/{port}": 1 for port in asked})
        trainer = replace(job.trainer, request=request)
        made.append(replace(job, trainer=trainer, min_trainers=1 if ports else job.min_trainers))
    problem = read_problem(replace(world, jobs=tuple(made)), Limits())
    packing = place_in_free_capacity(TrialPacking(problem, range(jobs)), Served({}, {}, 0))
    assert packing is not None
    state = SwapState(packing, dict.fromkeys(range(jobs), 12), {})
    state.restore(packing)
    for k in range(jobs):
        state.best_fit(k, (seed + k) % 4)
    return state


def best_by_hand(state: SwapState, aim: Aim, node: int) -> float:
    """The most that taking nothing or one out of a node, and putting one or two in, adds."""
    jobs = range(len(state.jobs))
    outs = [[], *([k] for k in jobs if state.held[node, k])]
    intos = [[k] for k in jobs] + [list(pair) for pair in combinations_with_replacement(jobs, 2)]
    nets = [0.0]
    for out in outs:
        for into in intos:
            free = state.free[node] + state.request[out].sum(axis=0) - state.request[into].sum(axis=0)
            if (free >= 0).all() and not set(out) & set(into):
                nets.append(aim.net(state, out, into))
    return max(nets)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_swap_of_each_node_is_found(seed: int) -> None:
    state, random = state_of(seed), np.random.default_rng(seed)
    worth = random.random(6) + 0.1
    aim = Aim(state.high, worth, worth / 2, state.low, state.size)

    found = {swap.node: swap.net for swap in best_swaps(state, aim, np.arange(4))}

    assert found == pytest.approx({n: best for n in range(4) if (best := best_by_hand(state, aim, n)) > 1e-6})


@pytest.mark.parametrize("seed", range(8))
def test_jobs_that_are_not_worth_trying_are_in_no_best_swap(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.planner.swaps.moves.FILLED", 1)
    state, random = state_of(seed, 18), np.random.default_rng(seed)
    state.opened[::3, 1:3] = False
    worth = random.choice([0.2, 0.4, 0.6], 18)
    aim = Aim(state.high, worth, worth / 2, state.low, state.size)

    among = worth_trying(state, aim)

    assert among.sum() < 18
    found, expected = (best_swaps(state, aim, np.arange(4), jobs) for jobs in (among, None))
    nets = [{swap.node: swap.net for swap in swaps} for swaps in (found, expected)]
    assert all(net >= nets[1].get(node, 0.0) - 1e-9 for node, net in nets[0].items())
    assert nets[0].keys() == nets[1].keys()
    assert all(among[k] for swap in found for k in swap.into)


def test_of_very_many_jobs_those_that_are_worth_most_for_their_size_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = state_of(1, 18)
    worth = np.linspace(0.1, 0.9, 18)
    aim = Aim(state.high, worth, worth, state.low, state.size)
    everyone = state.covers(np.arange(18))
    state.high = state.count + 1
    for module in ("moves", "state"):
        monkeypatch.setattr(f"edl.planner.swaps.{module}.MOST_COMPARED", 7)

    best = np.argsort(-worth / state.size, kind="stable")[:7]

    assert set(np.flatnonzero(worth_trying(state, aim)).tolist()) <= set(best.tolist())
    assert state.covers(best).tolist() == everyone[np.ix_(best, best)].tolist()
    state.high = state.count
    assert not worth_trying(state, aim).any()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("thorough", [False, True])
def test_a_swap_fits_to_the_byte_and_is_worth_what_it_says(seed: int, thorough: bool) -> None:
    state, random = state_of(seed), np.random.default_rng(seed)
    worth = random.random(6) + 0.1
    aim = Aim(state.high, worth, worth / 2, state.low, state.size, thorough=thorough)

    for swap in best_swaps(state, aim, np.arange(4)):
        free = state.free[swap.node] + state.request[swap.out].sum(axis=0) - state.request[swap.into].sum(axis=0)
        assert (free >= 0).all()
        assert swap.net <= aim.net(state, swap.out, swap.into) + 1e-9


@pytest.mark.parametrize("thorough", [False, True])
def test_no_swap_passes_a_quota_that_is_nearly_used(thorough: bool) -> None:
    """A refused swap would be found again at every step, and hide the swaps that the quota permits."""
    world = many_sizes(4, 6, 1).snapshot
    cpu = [job.trainer.request[CPU] for job in world.jobs]
    minimums = sum(job.min_trainers * each for job, each in zip(world.jobs, cpu, strict=True))
    limits = Limits(quotas=(Quota("default", ((CPU, minimums + max(cpu)),)),))
    problem = read_problem(world, limits)
    packing = place_in_free_capacity(TrialPacking(problem, range(6)), Served({}, {}, 0))
    assert packing is not None
    state = SwapState(packing, dict.fromkeys(range(6), 12), {})
    state.restore(packing)
    worth = np.ones(6)

    found = best_swaps(state, Aim(state.high, worth, worth, state.low, state.size, thorough=thorough), np.arange(4))

    assert found
    assert all(state.allows(swap.into, swap.out) for swap in found)
    assert not all(state.allows([k, k], []) for k in range(6))


def test_a_node_that_lacks_one_byte_takes_nothing() -> None:
    state = state_of(1)
    state.free[:] = state.request[0]
    state.free[1:, 1] -= 1
    aim = Aim(state.high, np.eye(6)[0], np.eye(6)[0], state.count.copy(), state.size)

    assert [(swap.node, swap.into) for swap in best_swaps(state, aim, np.arange(4))] == [(0, [0])]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("thorough", [False, True])
def test_ports_compared_as_bits_allow_the_same_swaps_as_their_amounts(
    monkeypatch: pytest.MonkeyPatch, seed: int, thorough: bool
) -> None:
    monkeypatch.setattr("edl.planner.swaps.state.MANY_UNITS", 1)
    state, random = state_of(seed, 14, ports=9 + 60 * (seed % 2)), np.random.default_rng(seed)
    monkeypatch.setattr("edl.planner.swaps.state.MANY_UNITS", 10**6)
    plain = state_of(seed, 14, ports=9 + 60 * (seed % 2))
    worth, nodes = random.random(14) + 0.1, np.arange(len(state.free))
    aim = Aim(state.high, worth, worth / 2, state.low, state.size, thorough=thorough)
    assert state.needed.any(axis=1).sum() > 3
    assert not plain.needed.size

    for _ in range(6):
        found = best_swaps(state, aim, nodes)
        assert found == best_swaps(plain, aim, nodes)
        for swap in found:
            for k, step in [*((k, -1) for k in swap.out), *((k, 1) for k in swap.into)]:
                state.add(swap.node, k, step)
                plain.add(swap.node, k, step)
        assert (state.free >= 0).all()
    assert (state.copy().here == as_bits(state.free[:, state._is_unit] > 0)).all()


def test_two_trainers_of_one_port_never_share_a_node() -> None:
    state = state_of(1, 14, ports=70)
    ported = int(np.flatnonzero(state.needed.any(axis=1))[0])
    state.high[:], state.high[ported] = 0, 99
    state.free[:], state.here[:] = np.where(state._is_unit, 1, 2**40), ~np.uint64(0)
    worth = np.ones(14)

    for thorough in (False, True):
        aim = Aim(state.high, worth, worth, state.low, state.size, thorough=thorough)
        assert {tuple(swap.into) for swap in best_swaps(state, aim, np.arange(len(state.free)))} == {(ported,)}
