"""When plans begin: after changes, at intervals, after failures, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest

from edl.controller.loop import Controller
from edl.controller.pace import Pace, PlanTimer
from edl.controller.ports import RoundResult
from edl.lifecycle.trials.pauses import FIRST_S
from edl.model.actions import Action, Outcome, PatchStatus, Result
from edl.model.names import JobKey
from tests.controller.loop_stage import A, Stage, at_work, at_work_during, play, with_jobs
from tests.worlds.builders import make_job, make_serving
from tests.worlds.fakes import FakeCluster


def plans_during(stage: Stage, script: Callable[[], Awaitable[None]]) -> list[float]:
    """When plans began while the script ran; monotonic seconds."""
    times: list[float] = []
    began = PlanTimer.began

    def noted(self: PlanTimer, now_s: float) -> bool:
        times.append(now_s)
        return began(self, now_s)

    with patch.object(PlanTimer, "began", noted):
        at_work_during(stage, script)
    return times


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_plan_begins_half_a_second_after_the_first_change_even_if_changes_never_stop() -> None:
    stage = with_jobs(a=4)

    async def script() -> None:
        for _ in range(100):
            await asyncio.sleep(0.1)
            stage.cluster.touch()

    gaps = [after - before for before, after in pairwise(plans_during(stage, script)[2:])]
    assert len(gaps) > 10
    assert max(gaps) <= 0.75
    assert min(gaps) >= 0.5


def planned_after(urges: int, gap_s: float) -> float:
    """How long after urgent changes began on a quiet cluster a plan begins."""
    stage = with_jobs(a=4)
    began: list[float] = []

    async def script() -> None:
        await asyncio.sleep(7.3)
        began.append(now_s())
        for _ in range(urges):
            stage.cluster.urge()
            await asyncio.sleep(gap_s)
        await asyncio.sleep(1.0)

    times = plans_during(stage, script)
    return min(at for at in times if at >= began[0]) - began[0]


def test_a_plan_begins_soon_after_the_last_of_some_changes_that_cannot_wait() -> None:
    assert planned_after(3, 0.1) == pytest.approx(0.4, abs=0.01), "0.2 s after the third change"


def test_a_plan_begins_half_a_second_after_the_first_change_if_urgent_ones_never_stop() -> None:
    assert planned_after(20, 0.1) == pytest.approx(0.5, abs=0.01)


def test_for_a_quiet_cluster_a_plan_is_made_every_interval() -> None:
    stage = with_jobs(a=4)

    async def script() -> None:
        await asyncio.sleep(61)

    times = plans_during(stage, script)
    assert 12 <= len(times) <= 14
    assert stage.cluster.observed <= 3 * len(times)
    assert len([w for w in stage.world.writes if isinstance(w, PatchStatus)]) <= 2


def test_a_plan_begins_when_the_grace_of_a_serving_pod_ends() -> None:
    stage = with_jobs(a=4)

    async def script() -> None:
        stage.cluster.serving = (replace(make_serving("web"), created_s=now_s()),)
        await asyncio.sleep(4)

    assert any(1002.0 <= at <= 1002.1 for at in plans_during(stage, script))


def test_a_change_while_a_plan_is_made_is_planned_for_as_soon_as_that_is_done() -> None:
    stage = with_jobs(a=4)
    stage.plan_s = 2.0

    async def script() -> None:
        await asyncio.sleep(20.0)
        stage.alter(A, max_trainers=5)
        stage.cluster.urge()
        await asyncio.sleep(1.0)
        stage.alter(A, max_trainers=6)
        stage.cluster.touch()
        await asyncio.sleep(4.0)

    times = [at for at in plans_during(stage, script) if at > 1020.0]
    assert times[1] - times[0] == pytest.approx(2.0, abs=0.05)


class SaysItOnce(FakeCluster):
    """A cluster that says once that something has changed, as the mirror of a real one does."""

    async def wait_for_change(self, timeout_s: float) -> bool:
        has_changed = await super().wait_for_change(timeout_s)
        self._changed.clear()
        return has_changed


def test_no_change_is_missed_that_the_cluster_says_once() -> None:
    stage = with_jobs(a=4)

    async def main(controller: Controller) -> None:
        stage.cluster.__class__ = SaysItOnce
        async with at_work(controller):
            await asyncio.sleep(8.0)
            stage.world.change(A, "a-trainer-0", ready=False)
            stage.cluster.touch()
            await asyncio.sleep(0.3)
            status = stage.world.jobs[A].status
        assert status is not None
        assert status.trainer.ready == 3

    play(stage, main)


# --- Failures


def test_a_job_whose_writes_fail_is_tried_ever_more_rarely_and_never_given_up() -> None:
    stage = with_jobs(a=6)
    tried: list[float] = []

    async def script() -> None:
        def fail(action: Action) -> Outcome:
            tried.append(now_s())
            return Outcome(action, Result.FAILED, "Unavailable", "503")

        stage.cluster.policies = fail
        for _ in range(300):
            await asyncio.sleep(1)
            stage.cluster.touch()
        stage.cluster.policies = lambda _: None
        await asyncio.sleep(40)

    at_work_during(stage, script)
    assert len(tried) <= 50
    assert max(tried) > 1270.0
    assert stage.count(A) == 6


def test_a_cache_that_is_not_complete_is_looked_at_twice_a_second_and_nothing_is_written() -> None:
    stage = with_jobs(a=6)

    async def script() -> None:
        await asyncio.sleep(3.0)
        stage.cluster.problem = "the cache does not show yet"
        stage.world.finish(A, "a-trainer-0", 1)
        written = len(stage.world.writes)
        for _ in range(100):
            stage.cluster.urge()
            await asyncio.sleep(0.1)
        assert len(stage.world.writes) == written
        assert 15 <= len(stage.recorder.skips) <= 25
        stage.cluster.problem = ""
        await asyncio.sleep(FIRST_S + 5.0)

    at_work_during(stage, script)
    assert stage.count(A) == 6
    assert not stage.recorder.failures


def test_a_plan_that_is_made_while_the_cache_is_not_complete_is_published_all_the_same() -> None:
    stage = with_jobs(a=6)
    stage.plan_s = 2.0

    async def script() -> None:
        await asyncio.sleep(1.0)
        stage.cluster.problem = "the cache does not show yet"
        await asyncio.sleep(4.0)
        stage.cluster.problem = ""
        await asyncio.sleep(1.0)
        assert stage.count(A) == 6

    assert len(plans_during(stage, script)) <= 2
    assert not stage.recorder.failures


# --- Once


def test_once_waits_for_the_cache_and_then_does_one_round() -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.problem = "not listed yet"

        async def sync() -> None:
            await asyncio.sleep(3)
            stage.cluster.problem = ""

        syncing = asyncio.ensure_future(sync())
        assert await controller.once(10) is RoundResult.ACTED
        await syncing

    play(stage, script)
    assert stage.count(A) == 6


def test_once_gives_up_if_the_cache_never_syncs() -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.problem = "not listed yet"
        assert await controller.once(10) is RoundResult.SKIPPED

    play(stage, script)
    assert not stage.world.writes


def test_once_ends_after_its_last_write_although_the_cache_is_lost_meanwhile() -> None:
    stage = with_jobs(a=6, b=6)

    async def script(controller: Controller) -> None:
        def loses_the_cache(_: Action) -> Outcome | None:
            stage.cluster.problem = "the watch was cut off"
            return None

        stage.cluster.policies, stage.cluster.delay_s = loses_the_cache, 3.0
        stage.cluster.in_turn = asyncio.Lock()
        assert await controller.once(2.0) is RoundResult.SKIPPED
        assert not stage.cluster.under_way

    play(stage, script)
    assert len(stage.recorder.outcomes) == 2


def test_a_round_of_many_slow_writes_shows_signs_of_life() -> None:
    stage = Stage(targets={"a": 40}, pace=Pace(writes=1))
    stage.world.add(make_job("a", min_trainers=1, max_trainers=40))
    ages: list[float] = []

    async def script(controller: Controller) -> None:
        def slow(_: Action) -> Outcome | None:
            ages.append(asyncio.get_running_loop().time() - controller.last_sign_of_life_s)
            return None

        stage.cluster.delay_s = 4.0
        stage.cluster.policies = slow
        await controller.round()

    play(stage, script)
    assert len(ages) > 40
    assert max(ages) <= 5.0


def test_no_turns_are_taken_while_every_place_is_in_use_although_jobs_are_due() -> None:
    names = [f"j{number}" for number in range(10)]
    stage = with_jobs(**dict.fromkeys(names, 4))
    stage.pace = Pace(writes=2)
    turns: list[float] = []

    def note_turn() -> frozenset[str]:
        turns.append(now_s())
        return frozenset()

    def become(*, ready: bool) -> None:
        for name in names:
            stage.world.change(JobKey("default", name), f"{name}-trainer-0", ready=ready)
        stage.cluster.touch()

    async def script() -> None:
        await asyncio.sleep(20.0)
        stage.cluster.delay_s = 4.0
        become(ready=False)
        await asyncio.sleep(1.2)
        become(ready=True)
        with patch.object(stage.cluster, "urgent_changes", note_turn):
            await asyncio.sleep(2.5)

    at_work_during(stage, script)
    assert len(turns) < 20
