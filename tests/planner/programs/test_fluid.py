"""The fluid program bounds whatever whole pods can reach: what it says is never below what patterns reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from benchmarks.worst_worlds import fragmented_gpus, mixed_architectures, tight_memory
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.planner.decide import study
from edl.planner.policies.registry import policy_named
from edl.planner.problem import count_slots
from edl.planner.problem_reader import read_problem
from edl.planner.programs import fluid as engine
from edl.planner.programs.fair_share import fair_shares, prove, read_share_problem
from edl.planner.programs.fluid import MOST_BUCKETS, make_buckets
from edl.planner.trial_packing import TrialPacking
from tests.worlds.effort import examples
from tests.worlds.rich_clusters import rich_fresh_worlds, rich_running_worlds

DEADLINE_S = 60.0


def fluid(packing: TrialPacking) -> TrialPacking:
    """The same packing, bounded by the fluid program."""
    other = packing.copy()
    other.problem = replace(packing.problem, is_many=True)
    return other


@pytest.mark.parametrize("kind", ["fresh", "running"])
def test_its_bound_is_never_below_what_patterns_reach(kind: str) -> None:
    worlds = rich_fresh_worlds() if kind == "fresh" else rich_running_worlds()

    @given(worlds)
    @examples(60)
    def holds(world: ClusterSnapshot) -> None:
        packing = study(world, policy_named("maxmin"), Limits(deadline_s=DEADLINE_S)).context.shared.packing
        level = {j: float(packing.count[j]) for j in packing.members}
        by_patterns, by_rooms = (prove(p, level, DEADLINE_S) for p in (packing, fluid(packing)))
        reached = by_patterns.achieved if by_patterns.solution is None else by_patterns.solution.value
        base = by_patterns.bound - (by_patterns.solution.bound if by_patterns.solution else reached)
        assert by_rooms.bound >= by_rooms.achieved
        assert by_rooms.bound >= reached + base - 1e-5

    holds()


@pytest.mark.parametrize("family", [tight_memory, fragmented_gpus, mixed_architectures])
@pytest.mark.parametrize("seed", range(3))
def test_its_shares_are_never_below_those_of_patterns(family: object, seed: int) -> None:
    assert callable(family)
    world = family(4, 4, seed).snapshot
    packing = study(world, policy_named("maxmin"), Limits(deadline_s=DEADLINE_S)).context.admission.packing
    by_patterns, by_rooms = (fair_shares(read_share_problem(p), DEADLINE_S) for p in (packing, fluid(packing)))
    demands = packing.problem.demands
    assert min(demands[j].fulfilment(int(n + 1)) for j, n in by_rooms.items()) >= min(
        demands[j].fulfilment(int(n)) for j, n in by_patterns.items()
    )


def test_buckets_stay_few_however_many_nodes_differ_in_what_they_take() -> None:
    world = mixed_architectures(120, 30, 1).snapshot
    problem = read_problem(world, Limits())
    opened = problem.opened.copy()
    for node in range(120):
        opened[node % len(opened), node] ^= True

    buckets = make_buckets(problem.empty, problem.request, opened)

    assert len(buckets.groups) <= MOST_BUCKETS
    assert sorted(n for group in buckets.groups for n in group.nodes) == list(range(120))


@pytest.mark.parametrize("seed", range(5))
def test_a_bucket_has_no_more_room_than_its_nodes_have_and_its_pods_could_use(seed: int) -> None:
    random = np.random.default_rng(seed)
    capacity, request = random.integers(0, 60, (40, 3)), random.integers(1, 9, (6, 3))
    opened = random.random((6, 40)) < 0.7
    buckets = make_buckets(capacity, request, opened)
    for bucket, group in enumerate(buckets.groups):
        nodes = list(group.nodes)
        slots = np.array([count_slots(capacity[nodes], row) for row in request]) * opened[:, nodes]
        usable = np.minimum(capacity[nodes], slots.T @ request).sum(axis=0)
        assert buckets.slots[bucket].tolist() == slots.sum(axis=1).tolist()
        assert buckets.free[bucket] == pytest.approx(usable * buckets.request[0] / request[0])


def test_with_very_many_shapes_buckets_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = read_problem(mixed_architectures(60, 40, 1).snapshot, Limits())
    monkeypatch.setattr(engine, "PLACES", 40 * 5)

    assert len(make_buckets(problem.empty, problem.request, problem.opened).groups) <= 5
