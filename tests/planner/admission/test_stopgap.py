"""A decision that runs out of time keeps what it found for serving, and the deadline holds whatever stage stalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from edl.explain.decision import explained_study
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.status import Condition, JobPhase, JobStatus, Reason
from edl.planner import decide, packing
from edl.planner.clock import Clock
from edl.planner.guard import check
from edl.planner.minimums import serving
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape, make_snapshot

DEADLINE_S = 10.0
AGES = (("older", 200.0), ("old", 100.0), ("young", 50.0))


class JumpingTime:
    """A time that stands still and jumps on demand."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def __call__(self) -> float:
        return self.time_s


def full_cluster(waiting: int) -> ClusterSnapshot:
    """Four nodes full of two jobs' trainers, most of them surplus, and serving pods of two cores that wait."""
    jobs = tuple(
        make_job(name, trainers=8, on=on, cpu=2, min_trainers=2, max_trainers=8)
        for name, on in (("a", ("n000", "n001")), ("b", ("n002", "n003")))
    )
    return make_snapshot(make_nodes(4), jobs, tuple(make_serving(f"web-{i}", cpu=2) for i in range(waiting)))


def real(module: ModuleType, name: str) -> Callable[..., Any]:
    """The function that a test puts a stall before."""
    function: Callable[..., Any] = getattr(module, name)
    return function


def planned(snapshot: ClusterSnapshot, now: Callable[[], float]) -> ScalePlan:
    limits = Limits(deadline_s=DEADLINE_S)
    return explained_study(snapshot, policy_named("maxmin"), limits, clock=Clock(DEADLINE_S, now)).plan


@pytest.mark.parametrize("waiting", [1, 5, 12])
def test_room_for_serving_is_made_without_time_for_admission(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now, cap = JumpingTime(), real(decide, "cap")

    def stalled(*given: object) -> object:
        now.time_s = 0.7 * DEADLINE_S  # the part of serving and admission is over
        return cap(*given)

    monkeypatch.setattr(decide, "cap", stalled)
    snapshot = full_cluster(waiting)

    plan = planned(snapshot, now)

    assert "admission" in plan.cut
    assert not check(snapshot, plan)
    assert (plan.serving.placed, plan.serving.short) == (waiting, 0)
    assert sum(len(d.victims) for d in plan.decisions) == waiting
    assert all(d.admitted and d.target >= d.min_trainers for d in plan.decisions)


@pytest.mark.parametrize("waiting", [1, 5, 12])
def test_room_for_serving_is_made_without_time_to_count_what_fits(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, place_most = JumpingTime(), real(serving, "place_most")

    def stalled(*given: object) -> object:
        now.time_s = 0.7 * DEADLINE_S
        return place_most(*given)

    monkeypatch.setattr(serving, "place_most", stalled)
    too_large = make_serving("too-large", cpu=9)
    snapshot = full_cluster(waiting)
    snapshot = replace(snapshot, pods=(too_large, *snapshot.pods))

    plan = planned(snapshot, now)

    assert "admission" in plan.cut
    assert not check(snapshot, plan)
    assert plan.serving.placed == sum(len(d.victims) for d in plan.decisions) == waiting


def test_deletions_found_before_the_time_is_over_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cap = JumpingTime(), real(decide, "cap")

    def stalled(*given: object) -> object:
        now.time_s = 0.7 * DEADLINE_S
        return cap(*given)

    def slow(*given: object) -> object:
        now.time_s += 0.05 * DEADLINE_S
        return choose(*given)

    choose = real(packing, "choose")
    monkeypatch.setattr(decide, "cap", stalled)
    monkeypatch.setattr(packing, "choose", slow)
    snapshot = full_cluster(12)

    plan = planned(snapshot, now)

    assert not check(snapshot, plan)
    assert 0 < plan.serving.placed <= 12
    assert sum(len(d.victims) for d in plan.decisions) == plan.serving.placed


def test_a_job_that_does_not_fit_leaves_all_of_its_room_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cap = JumpingTime(), real(decide, "cap")

    def stalled(*given: object) -> object:
        now.time_s = 0.7 * DEADLINE_S
        return cap(*given)

    monkeypatch.setattr(decide, "cap", stalled)
    pserver = FixedPods(Role.PSERVER, make_shape(2), 1)
    wide = make_job("wide", cpu=5, min_trainers=4, max_trainers=4, age_s=300.0, fixed=(pserver,))
    jobs = (wide, *(make_job(name, cpu=2, min_trainers=4, max_trainers=4, age_s=age_s) for name, age_s in AGES))
    snapshot = make_snapshot(make_nodes(2), jobs)

    plan = planned(snapshot, now)

    assert plan.cut == ("admission",)
    assert not check(snapshot, plan)
    assert {d.job.name: d.admitted for d in plan.decisions} == {
        "wide": False,
        "older": True,
        "old": True,
        "young": False,
    }


STAGES = ("count_serving", "cap", "admit", "share", "follow_preferences")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("stall_s", [3.0, 9.0])
def test_a_stall_in_a_stage_costs_no_more_than_the_stall(
    stage: str, stall_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage after the stall sees that time has passed: the decision ends within the deadline and a tenth."""
    now, function = JumpingTime(), real(decide, stage)

    def stalled(*given: object, **more: object) -> object:
        now.time_s += stall_s
        return function(*given, **more)

    monkeypatch.setattr(decide, stage, stalled)
    snapshot = full_cluster(3)

    plan = planned(snapshot, now)

    assert not check(snapshot, plan)
    assert plan.certificate.bound >= plan.certificate.achieved
    assert plan.seconds <= 1.1 * DEADLINE_S
    assert all(d.admitted for d in plan.decisions)
    assert plan.cut or stall_s < 9.0 or stage == "follow_preferences"


def test_sentences_become_short_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now, prefer = JumpingTime(), real(decide, "follow_preferences")

    def stalled(*given: object) -> object:
        now.time_s += 2 * DEADLINE_S
        return prefer(*given)

    monkeypatch.setattr(decide, "follow_preferences", stalled)

    plan = planned(full_cluster(3), now)

    assert plan.cut[-1] == "sentences"
    assert [d.message for d in plan.decisions] == [
        f"{d.target} of 8: {d.reason}; this decision had no time left to say why" for d in plan.decisions
    ]


@pytest.mark.parametrize("bound", [True, False])
def test_a_job_whose_status_does_not_say_yet_that_it_is_admitted_keeps_its_pods(
    bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan has admitted it; its pods come before its status, and may not have their nodes yet."""
    now, cap = JumpingTime(), real(decide, "cap")

    def stalled(*given: object) -> object:
        now.time_s = 0.7 * DEADLINE_S
        return cap(*given)

    monkeypatch.setattr(decide, "cap", stalled)
    admitted = Condition("Admitted", "False", Reason.MIN_UNSATISFIED, "waits", 0.0)
    waits = JobStatus(JobPhase.PENDING, conditions=(admitted,))
    nodes = make_nodes(2)
    on = tuple(node.name for node in nodes) if bound else ()
    new = replace(make_job("new", trainers=4, on=on, min_trainers=4, max_trainers=4), status=waits)
    plan = planned(make_snapshot(nodes, (new, make_job("other", cpu=2, min_trainers=4, max_trainers=8))), now)
    decision = next(d for d in plan.decisions if d.job.name == "new")
    assert (decision.admitted, decision.target, decision.victims) == (True, 4, ())
