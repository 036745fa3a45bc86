"""When rounds begin: after changes, at intervals, after failures, and once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from edl.controller.loop import Controller
from edl.controller.pace import Pace
from edl.controller.ports import RoundResult
from edl.model.actions import Action, Outcome, PatchStatus, Result
from tests.controller.loop_stage import A, Stage, at_work, play, with_jobs
from tests.worlds.builders import make_job, make_serving


def test_a_round_starts_half_a_second_after_the_first_change_even_if_changes_never_stop() -> None:
    stage = with_jobs(a=4)
    times: list[float] = []

    async def script(controller: Controller) -> None:
        loop = asyncio.get_running_loop()
        stage.cluster.on_observe = lambda: times.append(loop.time())
        async with at_work(controller):
            for _ in range(100):
                await asyncio.sleep(0.1)
                stage.cluster.touch()

    play(stage, script)
    gaps = [after - before for before, after in pairwise(times[2:])]
    assert gaps
    assert max(gaps) <= 0.75
    assert min(gaps) >= 0.5


def observed_at(urges: int, gap_s: float) -> tuple[float, list[float]]:
    """When urgent changes begin on a quiet cluster, and when it is observed from then on."""
    stage = with_jobs(a=4)
    times: list[float] = []
    began: list[float] = []

    async def script(controller: Controller) -> None:
        loop = asyncio.get_running_loop()
        async with at_work(controller):
            await asyncio.sleep(7.3)
            stage.cluster.on_observe = lambda: times.append(loop.time())
            began.append(loop.time())
            for _ in range(urges):
                stage.cluster.urge()
                await asyncio.sleep(gap_s)
            await asyncio.sleep(1.0)

    play(stage, script)
    return began[0], times


def test_a_round_starts_soon_after_the_last_of_some_changes_that_cannot_wait() -> None:
    began_s, times = observed_at(3, 0.1)
    assert 0.4 <= times[0] - began_s <= 0.46, "0.2 s after the third change"


def test_a_round_starts_half_a_second_after_the_first_change_if_urgent_ones_never_stop() -> None:
    began_s, times = observed_at(20, 0.1)
    assert 0.5 <= times[0] - began_s <= 0.51


def test_a_quiet_cluster_is_observed_every_interval() -> None:
    stage = with_jobs(a=4)

    async def script(controller: Controller) -> None:
        async with at_work(controller):
            await asyncio.sleep(61)

    play(stage, script)
    assert 12 <= stage.cluster.observed <= 14
    assert len([w for w in stage.world.writes if isinstance(w, PatchStatus)]) <= 2


def test_a_round_starts_when_the_grace_of_a_serving_pod_ends() -> None:
    stage = with_jobs(a=4)
    times: list[float] = []

    async def script(controller: Controller) -> None:
        loop = asyncio.get_running_loop()
        stage.cluster.serving = (replace(make_serving("web"), created_s=loop.time()),)
        stage.cluster.on_observe = lambda: times.append(loop.time())
        async with at_work(controller):
            await asyncio.sleep(4)

    play(stage, script)
    assert any(1002.0 <= at <= 1002.6 for at in times)


def test_failing_rounds_become_rarer_and_never_stop() -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.policies = lambda a: Outcome(a, Result.FAILED, "Unavailable", "503")
        async with at_work(controller):
            for _ in range(300):
                await asyncio.sleep(1)
                stage.cluster.touch()
            first = stage.cluster.observed
            stage.cluster.policies = lambda _: None
            await asyncio.sleep(40)
        assert first <= 30

    play(stage, script)
    assert stage.count(A) == 6


def results_of(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> list[RoundResult]:
    """The results of the rounds that follow, as they end."""
    results, plays = list[RoundResult](), controller.round

    async def listed() -> RoundResult:
        results.append(await plays())
        return results[-1]

    monkeypatch.setattr(controller, "round", listed)
    return results


def test_a_skipped_round_after_a_failure_does_not_shorten_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.policies = lambda a: Outcome(a, Result.FAILED, "Unavailable", "503")
        looks = 0

        def lag() -> None:
            nonlocal looks
            looks += 1
            stage.cluster.problem = "the cache does not show yet" if looks % 40 else ""  # longer than a round waits

        stage.cluster.on_observe = lag
        results = results_of(controller, monkeypatch)
        async with at_work(controller):
            for _ in range(300):
                await asyncio.sleep(1)
                stage.cluster.touch()
        assert results.count(RoundResult.SKIPPED) >= results.count(RoundResult.FAILED) > 10
        assert stage.cluster.observed <= 30

    play(stage, script)


def test_a_round_waits_a_little_until_the_cache_shows_what_was_written() -> None:
    stage = with_jobs(a=6)

    async def script(controller: Controller) -> None:
        stage.cluster.problem = "the cache does not show yet"
        asyncio.get_running_loop().call_later(0.3, setattr, stage.cluster, "problem", "")
        began_s = asyncio.get_running_loop().time()
        assert await controller.round() is RoundResult.ACTED
        assert asyncio.get_running_loop().time() - began_s < 0.5

    play(stage, script)
    assert RoundResult.SKIPPED not in stage.recorder.results


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


def test_what_changed_while_a_plan_was_made_is_not_waited_for() -> None:
    """The cluster is read again before trainers go for serving, and that read takes the change away."""
    stage = with_jobs(a=4)

    async def script(controller: Controller) -> None:
        await controller.round()
        shrinking = replace(
            stage.recorder.plans[-1].decisions[0], victims=("a-trainer-3",), shrink_reason="ServingNeedsRoom"
        )
        plan = replace(stage.recorder.plans[-1], decisions=(shrinking,))
        view = await stage.cluster.observe()
        stage.cluster.touch()
        await controller._postponed(view, plan.decisions)
        began_s = asyncio.get_running_loop().time()
        await controller._rest(RoundResult.ACTED)
        assert asyncio.get_running_loop().time() - began_s < 1.0, "not five seconds"

    play(stage, script)


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
        await controller.round(to_the_end=True)

    play(stage, script)
    assert len(ages) > 40
    assert max(ages) <= 5.0
