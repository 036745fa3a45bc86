"""Thousands of writes on a slow API server, and what changes meanwhile. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from unittest.mock import patch

import pytest

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.ports import RoundResult
from edl.controller.requests_at_once.background_writes import LEAST, STEP
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Need, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Refusal
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from tests.controller.loop_stage import NODE, A, B, Stage, at_work, plan_of, play
from tests.worlds.builders import make_job, make_serving

NEW = JobKey("default", "new")
SLOW_S = 0.5


@dataclass
class Diary:
    """Which writes began when, and which were under way together."""

    stage: Stage
    begun: list[tuple[float, Action]] = field(default_factory=list)
    under_way: list[Action] = field(default_factory=list)
    together: list[tuple[Action, Action]] = field(default_factory=list)

    def open(self) -> None:
        apply = self.stage.cluster.apply

        async def noted(action: Action) -> Outcome:
            if isinstance(action, Need):
                return Outcome(action, Result.UNCHANGED)  # as the writer says if it made the object a moment ago
            self.begun.append((now_s(), action))
            self.together += [(other, action) for other in self.under_way]
            self.under_way.append(action)
            outcome = await apply(action)
            self.under_way.remove(action)
            return outcome

        patch.object(self.stage.cluster, "apply", noted).start()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def run(stage: Stage, script: Callable[[Diary], Awaitable[None]]) -> Diary:
    """Run the controller beside a script; what the script does happens while writes are under way."""
    diary = Diary(stage)

    async def main(controller: Controller) -> None:
        diary.open()
        stage.cluster.delay_s = SLOW_S
        async with at_work(controller):
            await script(diary)

    play(stage, main)
    return diary


def growing(trainers: int, pace: Pace | None = None) -> Stage:
    stage = Stage(targets={"a": trainers}, pace=pace or Pace())
    stage.world.add(make_job("a", min_trainers=1, max_trainers=trainers))
    return stage


def arrive(stage: Stage) -> None:
    stage.targets["new"] = 2
    stage.world.add(make_job("new", min_trainers=1, max_trainers=2))
    stage.cluster.urge()


def test_a_new_job_gets_its_status_and_its_minimum_while_thousands_of_slow_writes_wait() -> None:
    stage = growing(4000)
    times: list[float] = []

    async def script(_: Diary) -> None:
        await asyncio.sleep(10.2)
        times.append(now_s())
        arrive(stage)
        await asyncio.sleep(4)

    diary = run(stage, script)
    assert stage.count(A) < 2000, "the growth is still under way"
    status = [at for at, action in diary.begun if isinstance(action, PatchStatus) and action.job == NEW]
    pods = [at for at, action in diary.begun if isinstance(action, CreatePod) and action.job == NEW]
    assert status
    assert status[0] - times[0] <= SLOW_S + 0.4, "a place, and the plan that might come soon"
    assert pods[0] - times[0] <= 0.2 + 5 * SLOW_S, "a place, the probe, the plan, the status and its two events"


def test_a_growth_of_more_than_a_minute_is_not_taken_for_one_that_does_not_start() -> None:
    stage = growing(800, Pace(writes=4))
    held: list[Refusal] = []

    def note(snapshot: ClusterSnapshot, _: Limits) -> ScalePlan:
        held.extend(job.refusal for job in snapshot.jobs if job.refusal is not None)
        return plan_of(snapshot, stage.targets)

    async def script(_: Diary) -> None:
        for _number in range(4):
            await asyncio.sleep(30.0)
            stage.cluster.urge()

    with patch.object(Stage, "_decide", lambda _, *given: note(*given)):
        run(stage, script)
    assert stage.count(A) == 800, "it went on for more than a minute"
    assert not held


def test_a_growth_ends_although_changes_never_do() -> None:
    stage = growing(300)

    async def script(_: Diary) -> None:
        for _number in range(200):
            await asyncio.sleep(0.1)
            stage.cluster.urge()

    run(stage, script)
    assert stage.count(A) == 300
    assert len(stage.recorder.results) > 30, "a plan each half second"


def test_a_deletion_that_the_newer_plan_does_not_want_is_never_sent() -> None:
    stage = Stage(targets={"a": 2}, reason="ServingNeedsRoom", pace=Pace(writes=1))
    stage.serving = (make_serving("web"),)
    stage.world.add(make_job("a", trainers=30, min_trainers=1, on=("n000",)))

    async def script(_: Diary) -> None:
        await asyncio.sleep(4.2)
        stage.cluster.serving = ()
        stage.targets["a"] = 30
        stage.cluster.urge()
        await asyncio.sleep(60)

    diary = run(stage, script)
    deleted = [at for at, action in diary.begun if isinstance(action, DeletePod)]
    assert 2 <= len(deleted) <= 11
    assert max(deleted) - 1000.0 <= 4.2, "what was not sent is dropped as soon as the pod is gone"


def test_while_jobs_grow_metrics_are_made_once_an_interval() -> None:
    stage = growing(2000, Pace(writes=8))
    metrics: list[float] = []

    async def script(_: Diary) -> None:
        async def observed(*_: object, **_more: object) -> None:
            metrics.append(now_s())

        with patch.object(stage.recorder, "observed", observed):
            for _number in range(100):
                await asyncio.sleep(0.3)
                stage.cluster.urge()

    run(stage, script)
    gaps = [after - before for before, after in pairwise(metrics)]
    assert max(gaps) <= 5.0 + SLOW_S


def test_during_a_growth_a_plan_is_made_each_interval() -> None:
    stage = growing(2000)
    times: list[float] = []

    async def script(_: Diary) -> None:
        loop = asyncio.get_running_loop()
        stage.on_decide = lambda: times.append(loop.time())
        await asyncio.sleep(30)

    run(stage, script)
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) >= 5
    assert max(gaps) <= 5.0 + SLOW_S


def test_a_whole_round_sends_everything() -> None:
    stage = growing(60, Pace(writes=1))

    async def script(controller: Controller) -> None:
        stage.cluster.delay_s = SLOW_S
        stage.cluster.policies = lambda _: stage.cluster.urge()
        assert await controller.once(10) is RoundResult.ACTED

    play(stage, script)
    assert stage.count(A) == 60


def test_no_two_steps_of_a_job_are_under_way_together_of_which_one_follows_from_the_other() -> None:
    stage = growing(400, Pace(writes=8))
    stage.targets["b"] = 12
    b = make_job("b", trainers=16, min_trainers=1, max_trainers=16, on=(NODE.name,))
    stage.world.add(replace(b, pods=tuple(replace(pod, started_s=-1000.0) for pod in b.pods)))

    async def script(_: Diary) -> None:
        for number in range(20):
            await asyncio.sleep(0.7)
            if number % 3 == 0:
                stage.world.finish(B, stage.world.jobs[B].live_trainers[0].name, 1)
            stage.cluster.urge()

    diary = run(stage, script)
    mine = [(one, other) for one, other in diary.together if one.job == other.job]
    assert mine
    for one, other in mine:
        is_status = [isinstance(action, PatchStatus | EmitEvent) for action in (one, other)]
        assert not all(is_status), "a status and its events go one after the other"
        ends = [isinstance(action, MarkPod | DeletePod) for action in (one, other)]
        assert not (ends[0] and isinstance(other, CreatePod)), "a job that ends pods creates none"
        names = {getattr(action, "pod", None) for action in (one, other)}
        assert len(names) != 1 or not all(ends)


def test_an_event_whose_status_was_written_is_sent_whatever_is_planned_meanwhile() -> None:
    stage = Stage(targets={f"j{n}": 2 for n in range(20)}, pace=Pace(writes=2))
    for number in range(20):
        stage.world.add(make_job(f"j{number}", min_trainers=1, max_trainers=2))

    async def script(_: Diary) -> None:
        for _number in range(100):
            await asyncio.sleep(0.6)
            stage.cluster.urge()

    run(stage, script)
    with_event = {event.job for event in stage.world.events}
    with_status = {key for key, job in stage.world.jobs.items() if job.status is not None}
    assert with_status == with_event == set(stage.world.jobs)


def test_a_lost_lease_stops_every_write_and_nothing_of_the_old_allotment_is_sent_after_it_is_regained() -> None:
    stage = growing(500, Pace(writes=4))
    lost: list[float] = []
    planned: list[float] = []

    async def script(_: Diary) -> None:
        await asyncio.sleep(5.1)
        assert 10 < stage.count(A) < 60
        stage.lease.held = False
        lost.append(now_s())
        await asyncio.sleep(20.0)
        stage.targets["a"] = 70
        stage.plan_s = 3.0
        loop = asyncio.get_running_loop()
        stage.on_decide = lambda: planned.append(loop.time())
        stage.lease.held = True
        await asyncio.sleep(20.0)

    diary = run(stage, script)
    assert not [at for at, _ in diary.begun if lost[0] < at < lost[0] + 20.0]
    created = [at for at, action in diary.begun if isinstance(action, CreatePod) and at > lost[0]]
    assert created
    assert min(created) >= planned[0] + 3.0
    assert stage.count(A) == 70


def test_an_action_whose_turn_comes_after_the_lease_was_lost_is_not_sent() -> None:
    stage = growing(2, Pace(writes=4))

    async def script(_: Diary) -> None:
        stage.cluster.delay_s = 0.01

        def lose(action: Action) -> Outcome | None:
            if isinstance(action, PatchStatus):
                stage.lease.held = False
            return None

        stage.cluster.policies = lose
        await asyncio.sleep(5.0)

    diary = run(stage, script)
    assert not [action for _, action in diary.begun if isinstance(action, EmitEvent)], "it follows the status"
    assert Result.NOT_LEADER in {outcome.result for outcome in stage.recorder.outcomes}


def test_a_failure_lets_its_own_job_rest_for_a_second_and_no_other() -> None:
    stage = growing(400, Pace(writes=8))
    stage.targets["b"] = 200
    stage.world.add(make_job("b", min_trainers=1, max_trainers=200))

    async def script(_: Diary) -> None:
        calls = 0

        def fail_some(action: Action) -> Outcome | None:
            nonlocal calls
            calls += action.job == B
            is_hit = action.job == B and calls % 20 == 0
            return Outcome(action, Result.FAILED, "Unavailable", "503") if is_hit else None

        stage.cluster.policies = fail_some
        await asyncio.sleep(45)

    run(stage, script)
    assert stage.count(A) == 400
    assert stage.count(B) == 200


def test_a_stop_ends_the_writing_at_once() -> None:
    stage = growing(3000)

    async def script(_: Diary) -> None:
        await asyncio.sleep(2.2)

    diary = run(stage, script)
    assert diary.begun[-1][0] - 1000.0 <= 2.2
    assert not diary.under_way, "the writes under way ended"


def test_jobs_grow_side_by_side_although_plans_follow_each_other() -> None:
    names = [f"j{number}" for number in range(10)]
    stage = Stage(targets=dict.fromkeys(names, 50), pace=Pace(writes=4))
    for name in names:
        stage.world.add(make_job(name, min_trainers=1, max_trainers=50))

    async def script(_: Diary) -> None:
        for _number in range(30):
            await asyncio.sleep(0.5)
            stage.cluster.urge()

    run(stage, script)
    counts = [stage.count(JobKey("default", name)) for name in names]
    assert sum(counts) >= 30  # beside the first plan each job also gets a first status
    assert max(counts) - min(counts) <= 2, counts


@pytest.mark.parametrize("writes", [1, 16])
def test_the_minimum_of_each_job_comes_before_the_surplus_of_any(writes: int) -> None:
    stage = Stage(targets={"a": 10, "b": 10}, pace=Pace(writes=writes))
    for name in ("a", "b"):
        stage.world.add(make_job(name, min_trainers=3, max_trainers=10))

    async def script(_: Diary) -> None:
        await asyncio.sleep(8)

    diary = run(stage, script)
    created = [action for _, action in diary.begun if isinstance(action, CreatePod)]
    assert {(action.job, action.index) for action in created[:6]} == {(key, n) for key in (A, B) for n in range(3)}


@pytest.mark.parametrize(("least", "at_once"), [(1, (LEAST, LEAST * STEP)), (400, (2 * LEAST * STEP, Pace().writes))])
def test_surplus_growth_leaves_places_on_a_busy_server(least: int, at_once: tuple[float, float]) -> None:
    """It tries one step, and takes it back."""
    stage = Stage(targets={"a": 400})
    stage.world.add(make_job("a", min_trainers=least, max_trainers=400))

    async def script(_: Diary) -> None:
        stage.cluster.in_turn, stage.cluster.delay_s = asyncio.Lock(), 0.01
        await asyncio.sleep(8)

    run(stage, script)
    assert at_once[0] < stage.cluster.most_under_way <= at_once[1]


def test_surplus_growth_takes_all_places_of_a_server_that_is_slow_without_being_busy() -> None:
    stage = Stage(targets={"a": 1200})
    stage.world.add(make_job("a", min_trainers=1, max_trainers=1200))
    began_s: list[float] = []

    async def script(_: Diary) -> None:
        stage.cluster.delay_s = 0.3
        began_s.append(now_s())
        await asyncio.sleep(12)

    diary = run(stage, script)
    assert stage.cluster.most_under_way == Pace().writes
    created = [at_s for at_s, action in diary.begun if isinstance(action, CreatePod)]
    assert len(created) == 1200
    assert created[-1] - began_s[0] < 12, "16 at once would take 22 s"
