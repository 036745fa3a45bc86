"""The fluid engine, forced on small worlds, against brute force: its bound holds, and every plan keeps every rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan
from edl.planner import decide
from edl.planner.guard import check
from edl.planner.problem import Problem
from tests.worlds import brute_force as oracle
from tests.worlds.effort import examples
from tests.worlds.rich_clusters import rich_fresh_worlds, rich_running_worlds
from tests.worlds.small_clusters import plan_for

fresh = rich_fresh_worlds()
worlds = st.one_of(fresh, rich_running_worlds())


@contextmanager
def fluid_engine() -> Iterator[None]:
    """Plans are made by the fluid program and by swaps, however few the sizes are."""

    def forced(problem: Problem) -> Problem:
        return replace(problem, is_many=True, plans_in_bulk=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "with_engine", forced)
        yield


def fluid_plan(world: ClusterSnapshot) -> ScalePlan:
    with fluid_engine():
        return plan_for(world)


@given(worlds)
@examples(60)
def test_the_fluid_engine_keeps_every_rule(world: ClusterSnapshot) -> None:
    plan = fluid_plan(world)

    assert check(world, plan) == ()
    assert plan.certificate.bound >= plan.certificate.achieved


@given(worlds)
@examples(60)
def test_the_fluid_engine_serves_no_more_than_fits_and_all_that_fits_on_its_own(world: ClusterSnapshot) -> None:
    plan = fluid_plan(world)
    most = oracle.servings(world)[0].total()

    assert plan.serving.placed <= most
    assert plan.serving.placed + plan.serving.short == plan.serving.waiting


@given(fresh)
@examples(60)
def test_no_packing_exceeds_the_bound_of_the_fluid_engine(world: ClusterSnapshot) -> None:
    """Bound >= the best that brute force finds with everybody at the planned count or above >= achieved."""
    plan = fluid_plan(world)
    jobs = [job for job, d in zip(world.jobs, plan.decisions, strict=True) if d.admitted]
    assume(jobs)
    assume(world == oracle.as_pinned(world, plan))  # a pinned count that does not fit is shared from below it
    counts = {d.job: d.target for d in plan.decisions if d.admitted}
    best = min(oracle.most_fulfilment(world, jobs, serving, counts) for serving in oracle.servings(world))

    assert plan.certificate.bound >= best - 1e-6
