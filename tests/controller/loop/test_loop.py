"""Rounds of the controller against a small cluster in virtual time; the tests look at the final cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.ports import RoundResult
from edl.errors import PlanError
from edl.lifecycle.trials.pauses import FIRST_S
from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, Outcome, ProbePod, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.pods import PodPhase
from edl.model.resources import QosClass
from edl.planner.guard import RefusedPlanError
from tests.controller.loop_stage import A, B, Stage, at_work, plan_of, play, rounds, with_jobs
from tests.worlds.builders import make_job, make_serving
from tests.worlds.fakes import FakeRecorder, PodWorld


@dataclass
class LateRecorder(FakeRecorder):
    """Notes how much has been written when metrics are set; they take long on a large cluster.

    Attributes:
        world: what is written.
        written: the number of writes at each snapshot.
    """

    world: PodWorld = field(default_factory=PodWorld)
    written: list[int] = field(default_factory=list)

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        await super().observed(snapshot, leader=leader)
        self.written.append(len(self.world.writes))


def test_no_write_waits_for_the_metrics() -> None:
    stage = with_jobs(a=6)
    stage.recorder = recorder = LateRecorder(world=stage.world)
    rounds(stage, 1)
    assert recorder.written
    assert recorder.written[0] == len(stage.world.writes) > 0


class BrokenRecorder(LateRecorder):
    """A bug in what follows each plan."""

    async def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        await super().planned(snapshot, limits, plan)
        raise RuntimeError("a bug")


def test_metrics_are_set_although_the_round_fails() -> None:
    stage = with_jobs(a=6)
    stage.recorder = recorder = BrokenRecorder(world=stage.world)

    async def script(controller: Controller) -> None:
        assert await controller.round() is RoundResult.FAILED

    play(stage, script)
    assert recorder.written == [0]


def test_shrinks_before_growing() -> None:
    stage = with_jobs(a=6, b=2)
    rounds(stage)
    kinds = [type(w) for w in stage.world.writes if isinstance(w, CreatePod | DeletePod)]
    assert kinds == [DeletePod, DeletePod, CreatePod, CreatePod]
    assert (stage.count(A), stage.count(B)) == (6, 2)


def test_a_stale_cache_skips_the_round_with_a_reason() -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.problem = "the cache does not show yet that edl created Pod default/a-trainer-4"
        assert await controller.round() is RoundResult.SKIPPED

    play(stage, script)
    assert stage.recorder.skips == ["the cache does not show yet that edl created Pod default/a-trainer-4"]
    assert not stage.world.writes


def test_a_plan_that_breaks_a_rule_is_dropped_and_the_pods_stay() -> None:
    stage = with_jobs(a=6, b=2)
    snapshot = ClusterSnapshot(0.0, jobs=tuple(stage.world.jobs.values()))
    stage.failure = RefusedPlanError(plan_of(snapshot, {"a": 6}), ("node n000: overcommitted",))
    rounds(stage)
    assert stage.recorder.problems == ["node n000: overcommitted"]
    assert (stage.count(A), stage.count(B)) == (4, 4)


@pytest.mark.parametrize("failure", [PlanError("too late"), ZeroDivisionError("a bug"), FloatingPointError("NaN")])
def test_without_a_plan_no_job_grows_or_shrinks(failure: Exception) -> None:
    stage = with_jobs(a=4, b=4)

    async def script(controller: Controller) -> None:
        await controller.round()
        stage.failure, stage.targets = failure, {"a": 8, "b": 1}
        await controller.round()

    play(stage, script)
    assert (stage.count(A), stage.count(B)) == (4, 4)
    assert stage.recorder.failures


def test_the_last_plan_still_frees_capacity_for_serving_if_no_new_plan_can_be_made() -> None:
    stage = with_jobs(a=4, b=2)
    stage.reason, stage.serving = "ServingNeedsRoom", (make_serving("web"),)

    async def script(controller: Controller) -> None:
        stage.cluster.policies = lambda a: Outcome(a, Result.FAILED) if isinstance(a, DeletePod) else None
        await controller.round()
        stage.cluster.policies = lambda _: None
        stage.failure, stage.targets = PlanError("too late"), {"a": 8, "b": 4}
        await controller.round()

    play(stage, script)
    assert (stage.count(A), stage.count(B)) == (4, 2)


def test_trainers_stay_if_the_serving_pods_have_capacity_by_now() -> None:
    stage = with_jobs(a=4, b=2)
    stage.reason, stage.serving = "ServingNeedsRoom", (make_serving("web"),)

    async def script(controller: Controller) -> None:
        def nominate_after_the_plan() -> None:
            if stage.decided:
                stage.cluster.serving = (make_serving("web", nominated="n000"),)

        stage.cluster.on_observe = nominate_after_the_plan
        await controller.round()

    play(stage, script)
    assert (stage.count(A), stage.count(B)) == (4, 4)
    assert stage.recorder.put_off


def test_trainers_are_deleted_for_serving_pods_that_still_wait() -> None:
    stage = with_jobs(a=4, b=2)
    stage.reason, stage.serving = "ServingNeedsRoom", (make_serving("web"),)
    rounds(stage)
    assert (stage.count(A), stage.count(B)) == (4, 2)


def test_deletions_for_serving_wait_if_the_cluster_cannot_be_observed_again() -> None:
    stage = with_jobs(a=4, b=2)
    stage.reason, stage.serving = "ServingNeedsRoom", (make_serving("web"),)

    async def script(controller: Controller) -> None:
        def disconnect() -> None:
            stage.cluster.problem = "no contact" if stage.cluster.observed else ""

        stage.cluster.on_observe = disconnect
        await controller.round()

    play(stage, script)
    assert stage.count(B) == 4


def test_a_dry_run_shows_the_plan_and_writes_nothing() -> None:
    stage = with_jobs(a=6, b=2)
    stage.dry = True
    rounds(stage, 2)
    assert [d.target for d in stage.shown[0].decisions] == [6, 2]
    assert not stage.world.writes
    assert stage.recorder.results[0] is RoundResult.SHOWN


def test_one_failing_write_does_not_stop_the_others() -> None:
    stage = with_jobs(a=6, b=2)

    async def script(controller: Controller) -> None:
        def fail(action: Action) -> Outcome | None:
            is_one = isinstance(action, DeletePod) and action.pod == "b-trainer-2"
            return Outcome(action, Result.FAILED, "Unavailable", "503") if is_one else None

        stage.cluster.policies = fail
        assert await controller.round() is RoundResult.FAILED

    play(stage, script)
    assert (stage.count(A), stage.count(B)) == (6, 3)


def test_a_bug_in_the_adapter_does_not_stop_the_others() -> None:
    stage = with_jobs(a=6, b=2)

    async def script(controller: Controller) -> None:
        def crash(action: Action) -> Outcome | None:
            if isinstance(action, DeletePod) and action.pod == "b-trainer-2":
                raise KeyError("metadata")
            return None

        stage.cluster.policies = crash
        await controller.round()

    play(stage, script)
    assert (stage.count(A), stage.count(B)) == (6, 3)


def test_a_follower_observes_and_writes_nothing() -> None:
    stage = with_jobs(a=6)
    stage.lease.held = False
    rounds(stage, 2)
    assert stage.recorder.leads == [False, False]
    assert stage.decided == 0
    assert not stage.world.writes


def test_a_lease_lost_in_the_middle_of_a_round_stops_every_further_write() -> None:
    stage = with_jobs(a=6, b=2)

    async def script(controller: Controller) -> None:
        def lose(action: Action) -> Outcome | None:
            stage.lease.held = isinstance(action, ProbePod)
            return None

        stage.cluster.policies = lose
        await controller.round()

    stage.pace = Pace(writes=1)
    play(stage, script)
    assert len(stage.world.writes) == 1
    written = [o for o in stage.recorder.outcomes if not isinstance(o.action, ProbePod)]
    assert {o.result for o in written[1:]} == {Result.NOT_LEADER}


def test_a_refused_job_is_degraded_and_retried_rarely_while_other_jobs_run() -> None:
    stage = with_jobs(a=6, b=6)

    async def script(controller: Controller) -> None:
        def refuse(action: Action) -> Outcome | None:
            is_a = isinstance(action, CreatePod) and action.job == A
            return Outcome(action, Result.REFUSED, "Forbidden", "exceeded quota: pods=4") if is_a else None

        stage.cluster.policies = refuse
        async with at_work(controller):
            for _ in range(60):
                await asyncio.sleep(1)
                stage.cluster.touch()

    play(stage, script)
    assert (stage.count(A), stage.count(B)) == (4, 6)
    asked = [o for o in stage.recorder.outcomes if isinstance(o.action, CreatePod) and o.action.job == A]
    assert 2 <= len(asked) <= 12, "5 s, then 10 s, then 20 s apart, two pods each time"
    status = stage.world.jobs[A].status
    assert status is not None
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason, degraded.message) == ("True", "Forbidden", "exceeded quota: pods=4")
    healthy = stage.world.jobs[B].status
    assert healthy is not None
    other = healthy.condition("Degraded")
    assert other is not None
    assert other.status == "False"


def test_a_refusal_that_is_lifted_lets_the_job_grow_and_recover() -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.policies = lambda a: (
            Outcome(a, Result.REFUSED, "Forbidden", "no") if isinstance(a, CreatePod) else None
        )
        await controller.round()
        stage.cluster.policies = lambda _: None
        for _ in range(4):
            await asyncio.sleep(10)
            await controller.round()
            stage.world.step()

    play(stage, script)
    assert stage.count(A) == 6
    status = stage.world.jobs[A].status
    assert status is not None
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert degraded.status == "False"


def test_missing_priority_classes_degrade_the_jobs() -> None:
    stage = with_jobs(a=4)

    async def script(controller: Controller) -> None:
        stage.cluster.missing_priority_classes = ("edl-surplus",)
        await controller.round()

    play(stage, script)
    status = stage.world.jobs[A].status
    assert status is not None
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert degraded.reason == "PriorityClassMissing"
    assert "edl-surplus" in degraded.message


@pytest.mark.parametrize(("qos", "expected"), [(QosClass.BURSTABLE, "False"), (QosClass.BEST_EFFORT, "True")])
def test_the_classes_of_trainers_without_requests_are_missed_by_jobs_that_have_some(
    qos: QosClass, expected: str
) -> None:
    stage = Stage(targets={"a": 4})
    stage.world.add(replace(make_job("a", max_trainers=4), qos=qos))

    async def script(controller: Controller) -> None:
        stage.cluster.missing_priority_classes = ("edl-best-effort", "edl-best-effort-surplus")
        await controller.round()

    play(stage, script)
    status = stage.world.jobs[A].status
    assert status is not None
    degraded = status.condition("Degraded")
    assert (degraded.status if degraded else "False") == expected


def test_writes_are_bounded_in_their_number_at_once() -> None:
    stage = Stage(targets={"a": 40}, pace=Pace(writes=12))
    stage.world.add(make_job("a", min_trainers=1, max_trainers=40))
    rounds(stage)
    assert stage.count(A) == 40
    assert stage.cluster.most_under_way == 12


def test_a_failure_is_not_stored_if_its_pod_could_not_be_marked() -> None:
    stage = with_jobs(a=4)

    async def script(controller: Controller) -> None:
        await controller.round()
        stage.world.finish(A, "a-trainer-1", 1)
        stage.cluster.policies = lambda a: Outcome(a, Result.FAILED) if isinstance(a, MarkPod) else None
        await controller.round()
        status = stage.world.jobs[A].status
        assert status is not None
        assert status.failures == 0
        stage.cluster.policies = lambda _: None
        for _ in range(3):
            await controller.round()
            stage.world.step()
        await asyncio.sleep(FIRST_S)
        await controller.round()

    play(stage, script)
    status = stage.world.jobs[A].status
    assert status is not None
    assert status.failures == 1
    assert stage.count(A) == 4


def test_a_job_that_breaks_the_lifecycle_does_not_stop_the_others() -> None:
    stage = with_jobs(a=6, b=6)
    stage.world.change(A, "a-trainer-0", phase=PodPhase.FAILED, intent=None)
    rounds(stage)
    assert (stage.count(A), stage.count(B)) == (3, 6)
    assert stage.recorder.failures[0].startswith("job default/a: ")


def test_a_pod_on_a_node_that_is_gone_is_deleted_by_force_after_a_while() -> None:
    stage = with_jobs(a=4)
    stage.world.change(A, "a-trainer-0", node="gone")

    async def script(controller: Controller) -> None:
        await controller.round()
        await asyncio.sleep(20)
        await controller.round()
        assert "a-trainer-0" in stage.world.pods(A)
        await asyncio.sleep(20)
        await controller.round()

    play(stage, script)
    assert [w.force for w in stage.world.writes if isinstance(w, DeletePod)] == [True]
