"""The deadline of a decision holds inside the stages, not only between them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from edl.errors import PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.planner import clock, decide
from edl.planner.clock import LEAST_S, MANY_OBJECTS, Clock, OutOfTimeError, without_collections
from edl.planner.decide import READ_AGAIN, SHARE_BY, study
from edl.planner.guard import check
from edl.planner.packing import grow
from edl.planner.policies.registry import policy_named
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem
from edl.planner.sharing import Share, share
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_snapshot


class Ticking:
    """A time that passes by a fixed step each time that it is asked for."""

    def __init__(self, step_s: float) -> None:
        self.time_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.time_s += self.step_s
        return self.time_s


def test_a_clock_knows_what_is_left() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    now.time_s = 4.0

    assert (clock.spent_s, clock.left_s(2.0), clock.left_s(60.0)) == (4.0, 2.0, 6.0)


def test_a_stage_may_be_allowed_a_part_of_the_time() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    clock.allow(0.5)
    now.time_s = 5.5

    assert clock.is_over
    clock.allow(1.0)
    assert not clock.is_over


def test_work_that_nothing_cuts_short_is_not_begun_if_it_would_end_too_late() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    with clock.at_a_stretch("sorting", 100):
        now.time_s = 1.0
    now.time_s = 6.9
    with clock.at_a_stretch("sorting", 300):
        now.time_s = 8.0
    done = []

    with pytest.raises(OutOfTimeError, match=r"sorting would take 2\.2 s more"), clock.at_a_stretch("sorting", 600):
        done.append("sorting")

    assert not done


def test_brief_work_is_done_even_if_the_time_is_over() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    with clock.at_a_stretch("sorting", 100):
        now.time_s = 1.0
    now.time_s = 11.0
    done = []

    with clock.at_a_stretch("sorting", 9):
        done.append("sorting")

    assert done


def test_time_that_is_kept_for_the_end_is_allowed_to_no_stage() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    clock.keep(2.0)
    clock.allow(0.5)

    assert clock.left_s(60.0) == 4.0
    clock.keep(20.0)
    clock.allow(0.5)
    assert clock.left_s(60.0) == LEAST_S


def test_less_that_is_to_be_kept_shortens_no_more_that_is_kept_already() -> None:
    clock = Clock(10.0, Ticking(0.0))
    for seconds in (4.0, 1.0):
        clock.keep(seconds)
    clock.allow(0.5)
    assert clock.left_s(60.0) == 3.0


def test_what_took_long_to_read_leaves_time_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left_s = Ticking(0.0), list[float]()

    def slowly(*given: Any, **named: Any) -> Problem:
        now.time_s += 2.0
        return read_problem(*given, **named)

    def watched(packing: TrialPacking, *given: Any) -> Share:
        left_s.append(packing.problem.clock.left_s(60.0))
        return share(packing, *given)

    monkeypatch.setattr(decide, "read_problem", slowly)
    monkeypatch.setattr(decide, "share", watched)

    study(many_sizes(4, 4), policy_named("maxmin"), Limits(deadline_s=10.0), clock=Clock(10.0, now))

    assert left_s == [pytest.approx(SHARE_BY * (10.0 - READ_AGAIN * 2.0) - 2.0)]


def test_a_clock_counts_the_seconds_of_each_stage() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    for stage, seconds in (("read", 1.0), ("sharing", 2.0), ("read", 0.5), ("", 9.0)):
        clock.begin(stage)
        now.time_s += seconds

    assert clock.stages == {"read": 1.5, "sharing": 2.0}


def test_growth_ends_at_the_deadline() -> None:
    snapshot = make_snapshot(make_nodes(4, cpu=100), (make_job("a", max_trainers=200),))
    now = Ticking(1.0)
    packing = TrialPacking(read_problem(snapshot, Limits(), clock=Clock(20.0, now)), (0,))

    grow(packing, {0: 200}, {0: 200})

    assert packing.problem.clock.cut == ["growth"]
    assert now.time_s <= 25.0
    assert 5 < packing.count[0] < 200


def test_the_time_being_over_is_a_late_solver() -> None:
    clock = Clock(2.0, Ticking(5.0))

    with pytest.raises(OutOfTimeError, match=r"no plan within 2 s \(too late after pricing\)") as late:
        clock.check("pricing")

    assert late.value.failure is PlanFailure.LATE_SOLVER


def many_sizes(nodes: int, jobs: int) -> ClusterSnapshot:
    """Every job asks for another amount."""
    return make_snapshot(
        make_nodes(nodes, cpu=31, memory_gib=100),
        tuple(
            make_job(f"j{i:03d}", max_trainers=30, cpu=1.13 + 0.37 * i, memory_gib=2.5 + 1.125 * i)
            for i in range(jobs)
        ),
    )


@pytest.mark.parametrize("step_s", [0.0005, 0.002, 0.01, 0.05, 0.3, 5.0])
def test_a_slow_decision_ends_in_time_and_keeps_every_rule(step_s: float) -> None:
    snapshot, now = many_sizes(12, 14), Ticking(step_s)
    limits = Limits(deadline_s=10.0)

    plan = study(snapshot, policy_named("maxmin"), limits, clock=Clock(10.0, now)).plan

    assert not check(snapshot, plan)
    assert plan.certificate.bound >= plan.certificate.achieved
    assert step_s >= 0.002 or not plan.cut
    assert step_s < 0.3 or plan.cut
    assert now.time_s <= 10.0 + 14 * step_s  # the clock is asked so often after the end, once for each stage


def test_admission_ends_at_its_part_of_the_deadline() -> None:
    """A loop that does not look at the clock any more would go on to the end of admission."""
    snapshot, now = many_sizes(12, 14), Ticking(0.3)

    plan = study(snapshot, policy_named("maxmin"), Limits(deadline_s=1.0), clock=Clock(1.0, now)).plan

    assert plan.cut[0] == "admission"


def test_a_cut_decision_keeps_what_runs() -> None:
    jobs = tuple(make_job(f"j{i}", trainers=2, on=("n0", "n1"), cpu=1.13 + i, max_trainers=9) for i in range(3))
    nodes = (make_node("n0", 16, 64), make_node("n1", 16, 64))
    snapshot = make_snapshot(nodes, jobs)

    plan = study(snapshot, policy_named("maxmin"), Limits(deadline_s=1.0), clock=Clock(1.0, Ticking(5.0))).plan

    assert [(d.admitted, d.target, d.victims) for d in plan.decisions] == [(True, 2, ())] * 3
    assert plan.cut


def test_all_plans_of_a_decision_have_the_clock_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count that is asked for does not fit, so another plan is made with less."""

    def other_now() -> float:
        raise AssertionError("another clock was asked")

    monkeypatch.setattr("edl.planner.clock.NOW_S", other_now)
    job = make_job("a", trainers=2, min_trainers=2, max_trainers=40, on=("n0",), pinned=34)
    snapshot = make_snapshot(make_nodes(2, cpu=8), (job,))
    clock = Clock(1e6, Ticking(1e-6))

    plan = study(snapshot, policy_named("maxmin"), Limits(deadline_s=1e6), clock=clock).plan

    assert 2 <= plan.decisions[0].target < 34


def test_cycles_are_not_searched_for_during_a_decision_and_are_afterwards() -> None:
    assert gc.isenabled()
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(("excludes_new", "more"), [(True, 1000), (True, -1000), (False, 1000)])
def test_what_a_large_decision_leaves_is_not_searched(excludes_new: bool, more: int) -> None:
    """After a decision for 15,000 nodes a search of what is new held up the event loop for half a second."""
    before, kept = gc.get_freeze_count(), list[list[int]]()
    try:
        with without_collections(excludes_new=excludes_new):
            kept += [[] for _ in range(MANY_OBJECTS + more)]
        assert (gc.get_freeze_count() - before > MANY_OBJECTS) is (excludes_new and more > 0)
    finally:
        if gc.get_freeze_count() > before:
            gc.unfreeze()


def test_unused_cycles_that_were_excluded_end_after_many_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(clock, "EXCLUDED_TIMES", 2)
    monkeypatch.setattr(clock, "_excluded", 0)

    def decide_much() -> weakref.ref[Cycle]:
        with without_collections(excludes_new=True):
            kept: list[list[int]] = [[] for _ in range(2 * MANY_OBJECTS)]
            unused = weakref.ref(Cycle())
        assert kept
        return unused

    try:
        first = decide_much()
        gc.collect()
        assert first() is not None, "it was excluded"
        second = decide_much()
        assert (first(), second()) == (None, None)
    finally:
        gc.unfreeze()


def test_they_are_searched_for_again_after_an_error() -> None:
    with pytest.raises(OutOfTimeError), without_collections():
        raise OutOfTimeError("late")
    assert gc.isenabled()
