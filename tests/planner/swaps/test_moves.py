"""Swaps on many nodes at once are what looking at each node finds, and every fit is exact."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from benchmarks.worst_worlds import many_sizes
from edl.model.plan import Limits, Quota
from edl.model.resources import CPU
from edl.planner.minimums import Served, place_in_free_room
from edl.planner.problem_reader import read_problem
from edl.planner.swaps import moves
from edl.planner.swaps.moves import MANY_COLUMNS, Aim, best_swaps, worth_trying
from edl.planner.swaps.state import SwapState
from edl.planner.trial_packing import TrialPacking


def state_of(seed: int, jobs: int = 6) -> SwapState:
    """A few nodes with some trainers of each job."""
    problem = read_problem(many_sizes(max(4, jobs // 2), jobs, seed).snapshot, Limits())
    packing = place_in_free_room(TrialPacking(problem, range(jobs)), Served({}, {}, 0))
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
    packing = place_in_free_room(TrialPacking(problem, range(6)), Served({}, {}, 0))
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


@pytest.mark.parametrize("ports", [MANY_COLUMNS - 1, MANY_COLUMNS, 33, 70])
@pytest.mark.parametrize("by_node", [False, True])
def test_many_ports_compared_as_bits_fit_where_every_single_amount_does(ports: int, by_node: bool) -> None:
    random = np.random.default_rng(ports)
    pods = (3, 12) if by_node else (12,)
    scarce, large = random.integers(-1, 5, (3, 7, 2)), random.integers(0, 90, (3, 7, 2))
    room = np.concatenate([scarce, random.integers(0, 3, (3, 7, ports)), large], axis=-1)
    asked = np.where(random.random((*pods, ports)) < 2 / ports, random.integers(1, 4, (*pods, ports)), 0)
    request = np.concatenate([random.integers(0, 3, (*pods, 2)), asked, random.integers(0, 50, (*pods, 2))], axis=-1)
    request[..., : ports // 2] = request[..., : ports // 2].clip(max=2)

    expected = (request[..., None, :, :] <= room[..., None, :]).all(axis=-1)

    fits = moves._fit(request, room)
    assert (fits == expected).all()
    assert fits.any()
    assert not fits.all()
