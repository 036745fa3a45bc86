"""Rounds that are cut short: a newer plan is due while writes are under way. Virtual time, a slow API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from unittest.mock import patch

import pytest

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.patience import LEAST, STEP
from edl.controller.ports import RoundResult
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Need, Outcome, PatchStatus, Result
from edl.model.names import JobKey
from tests.controller.loop_stage import A, B, Stage, at_work, play
from tests.worlds.builders import make_job, make_serving

NEW = JobKey("default", "new")
SLOW_S = 0.5


@dataclass
class Diary:
    """Which writes began and ended when, and which were under way together."""

    stage: Stage
    begun: list[tuple[float, Action]] = field(default_factory=list)
    under_way: list[Action] = field(default_factory=list)
    together: list[tuple[Action, Action]] = field(default_factory=list)
    rounds_of: dict[int, int] = field(default_factory=dict)

    def open(self) -> None:
        apply = self.stage.cluster.apply

        async def noted(action: Action) -> Outcome:
            if isinstance(action, Need):
                return Outcome(action, Result.UNCHANGED)  # as the writer says if it made the object a moment ago
            self.begun.append((asyncio.get_running_loop().time(), action))
            self.together += [(other, action) for other in self.under_way]
            self.under_way.append(action)
            self.rounds_of[id(action)] = self.stage.cluster.observed
            outcome = await apply(action)
            self.under_way.remove(action)
            return outcome

        patch.object(self.stage.cluster, "apply", noted).start()


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
        times.append(asyncio.get_running_loop().time())
        arrive(stage)
        await asyncio.sleep(4)

    diary = run(stage, script)
    assert stage.count(A) < 2000, "the growth is still under way"
    status = [at for at, action in diary.begun if isinstance(action, PatchStatus) and action.job == NEW]
    pods = [at for at, action in diary.begun if isinstance(action, CreatePod) and action.job == NEW]
    assert status
    assert status[0] - times[0] <= 0.5 + 2 * SLOW_S + 0.3, "debounce, the end of what is under way, a decision"
    assert pods[0] - times[0] <= 0.5 + 3 * SLOW_S + 0.3


def test_thousands_of_pods_are_created_in_rounds_that_follow_each_other_at_once() -> None:
    stage = growing(12)

    async def script(diary: Diary) -> None:
        stage.cluster.delay_s = 0.01
        await asyncio.sleep(3.0)
        created = [at for at, action in diary.begun if isinstance(action, CreatePod)]
        assert len(created) == 12
        assert len({diary.rounds_of[id(action)] for _, action in diary.begun if isinstance(action, CreatePod)}) == 3
        assert created[-1] - created[0] < 1.0

    with patch("edl.controller.executor.MOST_STARTS", 5):
        run(stage, script)


def test_a_single_round_creates_them_all() -> None:
    stage = growing(12)

    async def main(controller: Controller) -> None:
        assert await controller.once(10.0) is RoundResult.ACTED

    with patch("edl.controller.executor.MOST_STARTS", 5):
        play(stage, main)
    assert stage.count(A) == 12


def test_a_growth_that_is_cut_short_again_and_again_ends_all_the_same() -> None:
    stage = growing(300)

    async def script(_: Diary) -> None:
        for _number in range(200):
            await asyncio.sleep(0.1)
            stage.cluster.urge()

    run(stage, script)
    assert stage.count(A) == 300
    assert len(stage.recorder.results) > 8


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
    assert 5 <= len(deleted) <= 11
    assert max(deleted) - 1000.0 <= 4.2 + 0.5 + SLOW_S
    assert any("writes: a newer plan is due first" in line for line in stage.recorder.put_off)


def test_what_changed_before_trainers_go_for_serving_still_cuts_the_writes_short() -> None:
    """The cluster is observed once more before the deletions, and that must not hide an urgent change."""
    stage = Stage(targets={"a": 2}, reason="ServingNeedsRoom", pace=Pace(writes=1))
    stage.serving = (make_serving("web"),)
    stage.world.add(make_job("a", trainers=30, min_trainers=1, on=("n000",)))

    async def script(_: Diary) -> None:
        def arrive_during_the_plan() -> None:
            if stage.cluster.observed == 1 and NEW not in stage.world.jobs:
                arrive(stage)

        stage.cluster.on_observe = arrive_during_the_plan
        await asyncio.sleep(3)

    run(stage, script)
    seen = [s.observed_at_s for s in stage.recorder.snapshots if any(job.key == NEW for job in s.jobs)]
    assert seen[0] - 1000.0 <= 0.5 + SLOW_S + 0.3


def test_the_grace_of_a_serving_pod_that_ends_cuts_the_writes_short() -> None:
    stage = growing(2000, Pace(interval_s=60.0))
    times: list[float] = []

    async def main(controller: Controller) -> None:
        loop = asyncio.get_running_loop()
        stage.cluster.delay_s = SLOW_S
        stage.cluster.serving = (replace(make_serving("web"), created_s=loop.time()),)
        stage.cluster.on_observe = lambda: times.append(loop.time())
        async with at_work(controller):
            await asyncio.sleep(12)

    play(stage, main)
    assert any(1002.0 <= at <= 1003.2 for at in times), times


def test_writing_ends_soon_after_a_lone_change_that_cannot_wait() -> None:
    stage = growing(2000, Pace(writes=1, debounce_s=2.0, quiet_s=0.2))
    times: list[float] = []

    async def script(_: Diary) -> None:
        await asyncio.sleep(5.2)
        stage.cluster.on_observe = lambda: times.append(asyncio.get_running_loop().time())
        stage.cluster.urge()
        await asyncio.sleep(4)

    diary = run(stage, script)
    assert times[0] - 1005.2 <= 0.2 + SLOW_S + 0.3
    assert diary.begun


def test_metrics_do_not_hold_up_rounds_that_follow_at_once_but_once_an_interval() -> None:
    stage = growing(2000, Pace(writes=8))
    metrics: list[float] = []

    async def script(_: Diary) -> None:
        async def observed(*_: object, **_more: object) -> None:
            metrics.append(asyncio.get_running_loop().time())

        with patch.object(stage.recorder, "observed", observed):
            for _number in range(100):
                await asyncio.sleep(0.3)
                stage.cluster.urge()

    run(stage, script)
    gaps = [after - before for before, after in pairwise(metrics)]
    assert 3 <= len(metrics) <= len(stage.recorder.results) / 3
    assert max(gaps) <= 5.0 + 2.0, "an interval, and the rounds under way at its ends"


def test_no_round_writes_longer_than_an_interval() -> None:
    stage = growing(2000)
    times: list[float] = []

    async def script(_: Diary) -> None:
        stage.cluster.on_observe = lambda: times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(60)

    run(stage, script)
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) >= 9
    assert max(gaps) <= 5.0 + SLOW_S + 0.3


def test_a_whole_round_is_never_cut_short() -> None:
    stage = growing(60, Pace(writes=1))

    async def script(controller: Controller) -> None:
        stage.cluster.delay_s = SLOW_S
        stage.cluster.policies = lambda _: stage.cluster.urge()
        assert await controller.once(10) is RoundResult.ACTED

    play(stage, script)
    assert stage.count(A) == 60


@pytest.mark.parametrize("deletions", [28, 29, 30])  # some of them leave places empty
def test_growth_never_begins_before_the_last_deletion_has_ended(deletions: int) -> None:
    stage = Stage(targets={"a": 40, "b": 2}, pace=Pace(writes=3))
    stage.world.add(make_job("a", trainers=4, min_trainers=1, max_trainers=40, on=("n000",)))
    stage.world.add(make_job("b", trainers=2 + deletions, min_trainers=1, on=("n000",)))

    async def script(_: Diary) -> None:
        for _number in range(30):
            await asyncio.sleep(0.7)
            stage.cluster.urge()

    diary = run(stage, script)
    kinds = [type(action) for _, action in diary.begun if isinstance(action, CreatePod | DeletePod)]
    assert kinds == [DeletePod] * deletions + [CreatePod] * 36
    assert not [pair for pair in diary.together if {type(one) for one in pair} >= {CreatePod, DeletePod}]


def test_no_two_rounds_and_no_two_steps_of_a_job_are_under_way_together() -> None:
    stage = growing(400, Pace(writes=8))
    stage.targets["b"] = 4
    stage.world.add(make_job("b", trainers=8, min_trainers=1, on=("n000",)))

    async def script(_: Diary) -> None:
        for number in range(20):
            await asyncio.sleep(0.7)
            if number % 3 == 0:
                stage.world.finish(B, stage.world.jobs[B].live_trainers[0].name, 1)
            stage.cluster.urge()

    diary = run(stage, script)
    assert diary.together
    assert {diary.rounds_of[id(one)] - diary.rounds_of[id(other)] for one, other in diary.together} == {0}
    for one, other in diary.together:
        if one.job == other.job:
            is_status = [isinstance(action, PatchStatus | EmitEvent) for action in (one, other)]
            assert not all(is_status), "a status and its events go one after the other"
            ends = {getattr(a, "pod", None) for a in (one, other) if isinstance(a, MarkPod | DeletePod)}
            assert len(ends) != 1 or not all(isinstance(a, MarkPod | DeletePod) for a in (one, other))


def test_an_event_whose_status_was_written_is_sent_even_if_the_round_is_cut_short() -> None:
    stage = Stage(targets={f"j{n}": 2 for n in range(20)}, pace=Pace(writes=1))
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


def test_a_lost_lease_stops_everything_that_was_not_sent() -> None:
    stage = growing(500, Pace(writes=4))

    async def script(controller: Controller) -> None:
        stage.cluster.delay_s = SLOW_S

        def lose(_: Action) -> Outcome | None:
            stage.lease.held = len(stage.world.writes) < 20
            return None

        stage.cluster.policies = lose
        assert await controller.round() is RoundResult.FAILED

    play(stage, script)
    assert len(stage.world.writes) <= 25
    refused = [o for o in stage.recorder.outcomes if o.result is Result.NOT_LEADER]
    assert 1 <= len(refused) <= 4, "nothing is tried again and again without the lease"


def test_a_few_failures_do_not_pause_a_growth_that_is_cut_short() -> None:
    stage = growing(400, Pace(writes=8))

    async def script(_: Diary) -> None:
        calls = 0

        def fail_some(action: Action) -> Outcome | None:
            nonlocal calls
            calls += 1
            return Outcome(action, Result.FAILED, "Unavailable", "503") if calls % 20 == 0 else None

        stage.cluster.policies = fail_some
        for _number in range(45):
            await asyncio.sleep(1)
            stage.cluster.urge()

    run(stage, script)
    assert stage.count(A) == 400


def test_a_stop_ends_the_writing_at_once() -> None:
    stage = growing(3000)

    async def script(_: Diary) -> None:
        await asyncio.sleep(2.2)

    diary = run(stage, script)
    assert diary.begun[-1][0] - 1000.0 <= 2.2


def test_jobs_grow_side_by_side_over_many_short_rounds() -> None:
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
        began_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(12)

    diary = run(stage, script)
    assert stage.cluster.most_under_way == Pace().writes
    created = [at_s for at_s, action in diary.begun if isinstance(action, CreatePod)]
    assert len(created) == 1200
    assert created[-1] - began_s[0] < 12, "16 at once would take 22 s"
