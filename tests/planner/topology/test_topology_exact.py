"""Plans of gangs and slices in blocks and racks, against an integer program that shares no code with the planner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.racks_exact import KEYS, Best, random_world, solve
from edl.model.topology import Level, Slices, Topology, TopologyMode
from edl.planner.guard import check
from edl.planner.topology.whole import count_spread
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.effort import some
from tests.worlds.small_clusters import plan_for

PREFERRED, REQUIRED = TopologyMode.PREFERRED, TopologyMode.REQUIRED


def test_the_program_itself() -> None:
    """Two blocks share the name of a rack; 6 trainers fit in a block and in two racks, in slices of 2 only there."""
    cores = {("b1", "r1"): 3, ("b1", "r2"): 5, ("b2", "r1"): 5}
    nodes = tuple(
        make_node(f"{block}{rack}", cpu, labels=dict(zip(KEYS, (block, rack), strict=True)))
        for (block, rack), cpu in cores.items()
    )
    job = make_job("job", min_trainers=6, max_trainers=6)
    levels = (Level(KEYS[0], PREFERRED), Level(KEYS[1], PREFERRED))
    assert solve(make_snapshot(nodes, (replace(job, topology=Topology(levels)),))) == Best((True,), 3)
    in_slices = replace(job, topology=Topology(levels, Slices(2, 2)))
    assert solve(make_snapshot(nodes, (in_slices,))) == Best((True,), 3)
    large = replace(job, topology=Topology(levels, Slices(6, 2)))
    assert solve(make_snapshot(nodes, (large,))) == Best((False,), 0)
    required = replace(job, topology=Topology((Level(KEYS[0], PREFERRED), Level(KEYS[1], REQUIRED))))
    assert solve(make_snapshot(nodes, (required,))) == Best((False,), 0)
    older, younger = (
        replace(required, key=job.key._replace(name=n), min_trainers=5, created_s=t)
        for n, t in (("a", 0.0), ("b", 1.0))
    )
    assert solve(make_snapshot(nodes, (older, younger))) == Best((True, True), 0)


@pytest.mark.parametrize("seed", some(range(1_000, 1_040)))
def test_a_plan_is_never_better_than_the_best_and_keeps_every_rule(seed: int) -> None:
    world = random_world(seed, most_nodes=16)
    best = solve(world)
    assert best is not None
    plan = plan_for(world)
    assert check(world, plan) == ()
    assert plan.certificate.bound >= sum(best.runs) - 1e-6 or sum(best.runs) > sum(d.admitted for d in plan.decisions)
    decisions = {decision.job: decision for decision in plan.decisions}
    by_age = sorted(world.jobs, key=lambda job: job.created_s)
    runs = tuple(decisions[job.key].admitted for job in by_age)
    assert runs <= best.runs
    if runs == best.runs:
        assert count_spread(world, plan) >= best.domains
