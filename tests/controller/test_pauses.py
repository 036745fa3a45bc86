"""What cannot wait is answered between the writes of a round that has yet to write. Virtual time, slow plans."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from edl.controller.loop import Controller
from edl.model.actions import Action, CreatePod, Outcome, PatchStatus
from edl.model.names import JobKey
from tests.controller.loop_stage import NODE, A, B, Stage, at_work, play
from tests.worlds.builders import make_job

NEW = JobKey("default", "new")
PLAN_S, SLOW_S = 6.0, 0.2
"""What may start takes as long as the plan: a third of both, less what the rest counts, is 2.3 s of writing."""


@dataclass
class Diary:
    """What was written when, and by which plan; the cluster cannot be observed while writes are under way."""

    stage: Stage
    written: list[tuple[float, int, Action]] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)

    def open(self) -> None:
        cluster = self.stage.cluster
        cluster.on_observe = self._look

        def note(action: Action) -> Outcome | None:
            self.written.append((asyncio.get_running_loop().time(), self.stage.decided, action))
            cluster.delay_s = SLOW_S * (0.5 + len(self.written) % 3 / 2)  # so that they do not all end together
            return None

        cluster.policies = note

    def _look(self) -> None:
        cluster = self.stage.cluster
        cluster.problem = "the cache does not show edl's own writes yet" if cluster.under_way else ""
        if not cluster.problem:
            self.observed.append(asyncio.get_running_loop().time())

    def creations(self, key: JobKey) -> list[float]:
        return [at for at, _, action in self.written if isinstance(action, CreatePod) and action.job == key]

    def first_status(self, key: JobKey) -> tuple[float, int]:
        found = ((at, n) for at, n, action in self.written if isinstance(action, PatchStatus) and action.job == key)
        return next(found)


def run(script: Callable[[Stage, Diary], Awaitable[None]], plan_s: float = PLAN_S) -> Diary:
    """A job of two trainers that grows to hundreds, and another of two; the script begins with the first creation."""
    stage = Stage(targets={"a": 2, "b": 2}, plan_s=plan_s)
    for name in ("a", "b"):
        stage.world.add(make_job(name, trainers=2, min_trainers=1, max_trainers=900, on=(NODE.name,)))
    diary = Diary(stage)

    async def main(controller: Controller) -> None:
        diary.open()
        stage.cluster.delay_s = SLOW_S
        async with at_work(controller):
            await asyncio.sleep(20.0)
            stage.targets |= {"a": 900, "b": 900}
            stage.cluster.touch()
            await until(lambda: bool(diary.creations(A) and diary.creations(B)))
            await script(stage, diary)

    play(stage, main)
    return diary


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.05)


def come(stage: Stage) -> None:
    stage.targets["new"] = 1
    stage.world.add(make_job("new", min_trainers=1, max_trainers=1))
    stage.cluster.urge()


def end_b(stage: Stage) -> None:
    """A trainer of B succeeds, and so does the job."""
    job = stage.world.jobs[B]
    stage.world.jobs[B] = replace(job, pods=job.pods[1:])
    stage.cluster.urge()


def test_a_new_job_gets_its_status_while_a_round_writes_and_the_round_goes_on() -> None:
    came: list[float] = []

    async def script(stage: Stage, _: Diary) -> None:
        came.append(asyncio.get_running_loop().time())
        come(stage)
        await asyncio.sleep(1.5)

    diary = run(script)
    at_s, plan = diary.first_status(NEW)
    assert at_s - came[0] < 2 * SLOW_S + SLOW_S, "the writes under way, and the status"
    later = [number for at, number, action in diary.written if isinstance(action, CreatePod) and at > at_s]
    assert later, "the growth goes on"
    assert set(later) == {plan}, "by the same plan"


def test_nothing_is_under_way_while_the_cluster_is_observed_in_a_pause() -> None:
    async def script(stage: Stage, _: Diary) -> None:
        come(stage)
        await asyncio.sleep(1.5)

    diary = run(script)
    at_s, _ = diary.first_status(NEW)
    looked = max(at for at in diary.observed if at < at_s)
    creations = diary.creations(A) + diary.creations(B)
    assert not [at for at in creations if looked < at <= at_s]


def test_a_job_that_was_answered_in_a_pause_is_left_alone_until_the_next_plan() -> None:
    lost: list[tuple[float, int]] = []

    async def script(stage: Stage, _: Diary) -> None:
        lost.append((asyncio.get_running_loop().time(), stage.decided))
        end_b(stage)
        await asyncio.sleep(1.5)

    diary = run(script)
    lost_s, plan = lost[0]
    later = [(at, action) for at, number, action in diary.written if number == plan and at > lost_s]
    answered = next(at for at, act in later if isinstance(act, PatchStatus) and act.job == B)
    created = {act.job for at, act in later if isinstance(act, CreatePod) and at > answered}
    assert created == {A}, "the other job grows on"


def test_a_pause_is_not_counted_as_writing() -> None:
    """The same growth by one plan, with and without a pause."""

    async def quiet(stage: Stage, _: Diary) -> None:
        stage.cluster.touch()
        await asyncio.sleep(1.0)
        come(stage)
        await asyncio.sleep(3.0)

    async def paused(stage: Stage, _: Diary) -> None:
        come(stage)
        await asyncio.sleep(1.0)
        stage.targets["c"] = 1
        stage.world.add(make_job("c", min_trainers=1, max_trainers=1))
        stage.cluster.urge()
        await asyncio.sleep(3.0)

    def written_by_the_first_plan(diary: Diary) -> int:
        plans = [plan for _, plan, action in diary.written if isinstance(action, CreatePod)]
        return plans.count(min(plans))

    counts = [written_by_the_first_plan(run(script)) for script in (quiet, paused)]
    assert counts[1] > 0.8 * counts[0]


def test_changes_without_end_leave_two_thirds_of_the_time_to_the_writes() -> None:
    async def script(stage: Stage, _: Diary) -> None:
        for _turn in range(40):
            stage.cluster.urge()
            await asyncio.sleep(0.05)

    diary = run(script)
    began = min(diary.creations(A))
    created = [at for at in diary.creations(A) + diary.creations(B) if at < began + 2.0]
    pauses = [looked for looked in diary.observed if began < looked < began + 2.0]
    assert 2 <= len(pauses) <= 6
    assert len(created) > 100, "without pauses it would be 160"


def test_what_changes_while_it_is_found_what_may_start_is_answered_before_it_is_known() -> None:
    came: list[float] = []

    async def script(stage: Stage, _: Diary) -> None:
        decided = stage.decided
        await until(lambda: stage.decided > decided)
        planned = stage.decided
        await asyncio.sleep(0.3)
        came.append(asyncio.get_running_loop().time())
        come(stage)
        await asyncio.sleep(1.0)
        assert stage.decided == planned

    diary = run(script)
    at_s, _ = diary.first_status(NEW)
    assert at_s - came[0] < 2 * SLOW_S


def test_a_stop_ends_a_round_that_has_yet_to_write_without_a_pause() -> None:
    async def script(stage: Stage, _: Diary) -> None:
        come(stage)
        stage.controller._hand_back.is_stopping = lambda: True

    diary = run(script)
    assert not [action for _, _, action in diary.written if action.job == NEW]


def test_what_comes_while_a_round_writes_that_owes_nothing_does_not_wait_for_the_next_round() -> None:
    """That one first waits for further changes, and takes a while until it knows whom to answer."""
    came: list[float] = []

    async def script(stage: Stage, _: Diary) -> None:
        came.append(asyncio.get_running_loop().time())
        come(stage)
        await asyncio.sleep(3.0)

    diary = run(script, plan_s=1.0)
    assert diary.first_status(NEW)[0] - came[0] < 2 * SLOW_S + SLOW_S
