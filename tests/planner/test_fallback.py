"""What stands when no plan could be made: the last one, without growth, judged by the same rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import PlanError, PlanFailure
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.planner.fallback import failure_of, without_growth
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples

KEY = JobKey("default", "a")
LATE = PlanFailure.LATE_SOLVER


def decided(snapshot: ClusterSnapshot) -> ScalePlan:
    return decide(snapshot, policy_named("maxmin"), Limits())


def only(plan: ScalePlan, job: str = "a") -> ScaleDecision | None:
    return plan.decision(JobKey("default", job))


def two(trainers: int = 4, generation: int = 1) -> Job:
    return replace(make_job("a", trainers=trainers, min_trainers=2, on=("n000", "n001")), generation=generation)


def test_growth_is_dropped() -> None:
    snapshot = make_snapshot(make_nodes(2), (two(),))
    plan = decided(snapshot)
    before = only(plan)
    assert before is not None
    assert before.target > 4
    after = only(without_growth(plan, snapshot, LATE))
    assert after is not None
    assert (after.target, after.nodes, after.victims) == (4, (), ())


def test_pservers_stay_where_they_are() -> None:
    snapshot = make_snapshot(make_nodes(2), (two(),))
    plan = decided(snapshot)
    plan = replace(plan, decisions=tuple(replace(d, nodes=(), moves=("a-pserver-0",)) for d in plan.decisions))
    after = only(without_growth(plan, snapshot, LATE))
    assert after is not None
    assert after.moves == ()


def serving_plan() -> tuple[ClusterSnapshot, ScalePlan]:
    full = make_job("a", trainers=16, min_trainers=2, max_trainers=16, on=("n000", "n001"))
    snapshot = make_snapshot(make_nodes(2), (full,), (make_serving("web"),))
    return snapshot, decided(snapshot)


def test_deletions_that_waiting_serving_needs_are_kept() -> None:
    snapshot, plan = serving_plan()
    before, after = only(plan), only(without_growth(plan, snapshot, LATE))
    assert before is not None
    assert after is not None
    assert len(before.victims) == 3
    assert after.victims == before.victims
    assert after.shrink_reason == Reason.SERVING_NEEDS_ROOM


def test_deletions_for_serving_that_no_longer_waits_are_dropped() -> None:
    snapshot, plan = serving_plan()
    after = only(without_growth(plan, replace(snapshot, pods=()), LATE))
    assert after is not None
    assert (after.victims, after.target) == ((), 16)


def test_a_job_is_left_alone_where_it_is_new_changed_or_lacks_pods() -> None:
    snapshot = make_snapshot(make_nodes(2), (two(),))
    plan = decided(snapshot)
    for job in (two(generation=2), two(trainers=1), make_job("b", trainers=2, min_trainers=2, on=("n000",))):
        assert without_growth(plan, make_snapshot(make_nodes(2), (job,)), LATE).decisions == ()


def master(*, node: str = "n000") -> Job:
    """A job whose master runs and whose trainers are still to come."""
    fixed = FixedPods(Role.MASTER, make_shape(0.25, 0.25), 1)
    pod = replace(
        make_job("a", trainers=1, on=(node,)).pods[0], name="a-master-0", role=Role.MASTER, shape=fixed.shape
    )
    return replace(make_job("a", min_trainers=2, fixed=(fixed,)), pods=(pod,))


def test_a_job_whose_first_trainers_are_still_to_come_keeps_its_master() -> None:
    snapshot = make_snapshot(make_nodes(2), (master(),))
    plan = decided(snapshot)
    before = only(plan)
    assert before is not None
    assert before.admitted
    assert only(without_growth(plan, snapshot, LATE)) is None


def test_a_job_that_was_to_go_keeps_its_pods_unless_serving_still_needs_them() -> None:
    cut = make_snapshot(
        make_nodes(1, cpu=2), (replace(master(), min_trainers=2), make_job("b", tier=1, min_trainers=2))
    )
    plan = decided(cut)
    before = only(plan)
    assert before is not None
    assert not before.admitted
    assert only(without_growth(plan, cut, LATE)) is None
    waiting = without_growth(plan, replace(cut, jobs=(replace(cut.jobs[0], pods=()), cut.jobs[1])), LATE)
    assert only(waiting) is not None, "a job without pods has nothing to lose"


def test_the_plan_says_that_it_is_the_last_one_and_why() -> None:
    snapshot = make_snapshot(make_nodes(2), (two(),))
    assert without_growth(decided(snapshot), snapshot, LATE).fallback is LATE


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (PlanError("late", PlanFailure.LATE_THREAD), PlanFailure.LATE_THREAD),
        (PlanError("?"), PlanFailure.BUG),
        (FloatingPointError("NaN"), PlanFailure.NOT_A_NUMBER),
        (KeyError("x"), PlanFailure.BUG),
    ],
)
def test_a_failure_has_one_name(error: Exception, failure: PlanFailure) -> None:
    assert failure_of(error) is failure


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 4),
    st.data(),
)
def test_the_reduced_plan_always_passes_the_checks(
    jobs: list[tuple[int, int, int]], waiting: int, data: st.DataObject
) -> None:
    made = tuple(
        make_job(f"j{i}", trainers=have, min_trainers=low, max_trainers=low + more, on=("n000", "n001", "n002"))
        for i, (have, low, more) in enumerate(jobs)
    )
    serving = tuple(make_serving(f"s{i}") for i in range(waiting))
    before = make_snapshot(make_nodes(3), made, serving)
    plan = decided(before)
    kept = tuple(replace(job, pods=job.pods[data.draw(st.integers(0, len(job.pods))) :]) for job in made)
    after = replace(before, jobs=kept, pods=serving[data.draw(st.integers(0, waiting)) :])
    reduced = without_growth(plan, after, LATE)
    judged = replace(after, jobs=tuple(j for j in after.jobs if reduced.decision(j.key) is not None))
    assert check(judged, reduced) == ()
    assert all(not d.nodes and not d.fixed_nodes and d.target <= d.current for d in reduced.decisions)
