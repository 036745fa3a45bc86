"""What happens while a plan is being made is answered at once. Virtual time; a plan takes two seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from edl.controller.pace import Pace
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, Outcome, PatchStatus, Result
from edl.model.names import JobKey
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, JobStatus, Reason
from tests.controller.loop_stage import NODE, A, Diary, Stage, at_work_during
from tests.worlds.builders import make_job, make_serving

PLAN_S = 2.0


def at_rest(trainers: int = 4, plan_s: float = PLAN_S) -> Stage:
    """A job of some running trainers, and a controller that has looked at it."""
    stage = Stage(targets={"a": trainers}, plan_s=plan_s)
    stage.world.add(make_job("a", trainers=trainers, min_trainers=1, on=(NODE.name,)))
    return stage


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.01)


def statuses(diary: Diary, key: JobKey = A) -> list[tuple[float, JobStatus]]:
    return [(at, action.status) for at, action in diary if isinstance(action, PatchStatus) and action.job == key]


def lose_trainer(stage: Stage) -> None:
    job = stage.world.jobs[A]
    stage.world.jobs[A] = replace(job, pods=job.pods[:-1])
    stage.cluster.urge()


def end(stage: Stage) -> None:
    job = stage.world.jobs[A]
    pods = tuple(replace(pod, phase=PodPhase.SUCCEEDED, exit_code=0) for pod in job.pods)
    stage.world.jobs[A] = replace(job, pods=pods)
    stage.cluster.urge()


def come(stage: Stage, name: str = "new") -> None:
    stage.targets[name] = 2
    stage.world.add(make_job(name, min_trainers=1, max_trainers=2))
    stage.cluster.urge()


def test_a_new_job_has_a_status_before_its_plan_and_its_pods_right_after_it() -> None:
    stage, key = at_rest(), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        await asyncio.sleep(10.0)

    diary = at_work_during(stage, script)
    first, second = statuses(diary, key)[:2]
    created = [at for at, action in diary if isinstance(action, CreatePod) and action.job == key]
    assert 20.0 < first[0] < 20.5
    assert first[1].explanation == "edl has not planned this job yet"
    assert second[1].explanation == "as planned"
    assert created[0] <= first[0] + 2 * PLAN_S + 0.5, "the plan, and what may start"


def test_a_job_that_ends_is_told_so_once_with_its_event() -> None:
    stage = at_rest()

    async def script() -> None:
        await asyncio.sleep(20.0)
        end(stage)
        await asyncio.sleep(10.0)

    diary = at_work_during(stage, script)
    ended = [at for at, status in statuses(diary) if status.phase is JobPhase.SUCCEEDED]
    events = [action.reason for at, action in diary if isinstance(action, EmitEvent) and at > 20.0]
    assert len(ended) == 1
    assert 20.0 < ended[0] < 20.5
    assert len(events) == len(set(events))


def test_what_happens_while_a_plan_is_made_is_told_before_it_is_made() -> None:
    stage = at_rest()

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        await asyncio.sleep(0.8)
        lose_trainer(stage)
        await asyncio.sleep(10.0)

    diary = at_work_during(stage, script)
    told = [(at, status) for at, status in statuses(diary) if at > 20.0]
    created = [at for at, action in diary if isinstance(action, CreatePod) and action.job == A]
    assert 20.8 < told[0][0] < 21.1
    assert told[0][1].trainer.ready == 3
    assert created[0] > 22.0, "a new trainer needs a plan"
    assert stage.count(A) == 4


def test_a_job_that_is_edited_while_its_plan_is_made_gets_nothing_of_that_plan() -> None:
    stage = at_rest()

    def edit(trainers: int) -> None:
        job = stage.world.jobs[A]
        stage.world.jobs[A] = replace(job, max_trainers=trainers, generation=job.generation + 1)
        stage.cluster.urge()

    async def script() -> None:
        stage.targets["a"] = 5  # the API server accepts its pods, so nobody asks again
        edit(5)
        await asyncio.sleep(23.0)
        stage.targets["a"] = 8
        edit(8)
        await asyncio.sleep(0.8)
        edit(5)
        await asyncio.sleep(PLAN_S)
        stage.targets["a"] = 5
        await asyncio.sleep(10.0)

    diary = at_work_during(stage, script)
    assert [action.index for _, action in diary if isinstance(action, CreatePod)] == [4]
    assert statuses(diary)[-1][1].observed_generation == stage.world.jobs[A].generation


BENEFICIARY = {
    "deleted": lambda stage, key: stage.world.jobs.pop(key),
    "being deleted": lambda stage, key: stage.alter(key, deleting=True),
    "edited": lambda stage, key: stage.alter(key, generation=2),
    "suspended": lambda stage, key: stage.alter(key, generation=2, suspended=True),
    "created anew": lambda stage, key: stage.alter(key, uid="another"),
}


@pytest.mark.parametrize("how", BENEFICIARY)
@pytest.mark.parametrize("plan_s", [0.6, 3.0])
def test_a_job_that_changes_while_a_plan_is_made_gets_nothing_of_it_and_costs_nobody_anything(
    how: str, plan_s: float
) -> None:
    stage, key = at_rest(4, plan_s), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        stage.targets["a"], stage.reason = 2, Reason.ADMITTED
        await until(lambda: stage.decided > decided)
        await asyncio.sleep(plan_s / 2)
        BENEFICIARY[how](stage, key)
        stage.cluster.urge()
        stage.targets |= {"new": 0, "a": 4}
        await asyncio.sleep(15.0)

    decided = 1
    written = [a for at, a in at_work_during(stage, script) if isinstance(a, CreatePod | DeletePod)]
    assert written == []


def test_a_job_that_changes_after_a_plan_was_published_costs_nobody_what_was_not_sent() -> None:
    stage, key = at_rest(40, 1.0), JobKey("default", "new")
    stage.pace = Pace(writes=1)

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        stage.targets["a"], stage.reason = 2, Reason.ADMITTED
        await until(lambda: any(pod.terminating for pod in stage.world.jobs[A].pods))
        stage.cluster.delay_s = 0.5
        stage.alter(key, generation=2, suspended=True)
        stage.cluster.urge()
        stage.targets |= {"new": 0, "a": 40}
        await asyncio.sleep(15.0)

    deleted = [a for _, a in at_work_during(stage, script) if isinstance(a, DeletePod)]
    assert 1 <= len(deleted) <= 2


def test_trainers_end_for_serving_although_another_job_has_changed_since() -> None:
    stage, key = at_rest(), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(20.0)
        stage.cluster.serving = (make_serving("web", cpu=1),)
        come(stage)
        stage.targets["a"], stage.reason = 2, Reason.SERVING_NEEDS_ROOM
        await asyncio.sleep(1.0)
        stage.alter(key, generation=2, suspended=True)
        stage.cluster.urge()
        await asyncio.sleep(PLAN_S + 2.0)

    assert len([a for _, a in at_work_during(stage, script) if isinstance(a, DeletePod)]) == 2


def test_jobs_that_keep_changing_spare_nobody_twice_in_a_row() -> None:
    stage, key = at_rest(plan_s=1.0), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        stage.targets["a"], stage.reason = 2, Reason.ADMITTED
        for generation in range(2, 40):
            await asyncio.sleep(0.3)
            stage.alter(key, generation=generation)
            stage.cluster.urge()

    deleted = [at for at, a in at_work_during(stage, script) if isinstance(a, DeletePod)]
    assert len(deleted) == 2
    assert deleted[0] > 23.0, "the second plan"


def test_a_job_that_is_edited_while_its_plan_is_made_is_asked_about_and_gets_its_trainers_with_the_next_one() -> None:
    stage, key = at_rest(), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(23.0)  # between two plans
        come(stage)
        await asyncio.sleep(0.5)
        lose_trainer(stage)  # so that the next plan is due as soon as this one is made
        await asyncio.sleep(1.5)
        stage.alter(key, generation=2)  # nobody says so; it is seen when the plan is published
        await asyncio.sleep(10.0)

    diary = at_work_during(stage, script)
    created = [at for at, action in diary if isinstance(action, CreatePod) and action.job == key]
    assert 27.5 < created[0] < 23.2 + 4 * PLAN_S + 0.3, "two plans, each with what may start"


@pytest.mark.parametrize(("delay_s", "writes"), [(0.05, 6), (1.5, 5)])
def test_a_job_that_comes_just_when_a_plan_begins_is_planned_as_soon_as_the_api_server_was_asked(
    delay_s: float, writes: int
) -> None:
    """If the answer takes longer than a plan waits for it, another plan follows at once."""
    stage, key = at_rest(plan_s=0.5), JobKey("default", "new")

    async def script() -> None:
        stage.cluster.delay_s = delay_s
        await asyncio.sleep(20.5)  # after the first second a plan is made each five seconds
        come(stage)
        await asyncio.sleep(10.0)

    diary = at_work_during(stage, script)
    created = [at for at, action in diary if isinstance(action, CreatePod) and action.job == key]
    assert created[0] < 20.5 + 0.2 + 2 * 0.5 + writes * delay_s + 0.1


def test_a_plan_that_is_made_at_once_is_waited_for() -> None:
    stage, key = at_rest(plan_s=0.05), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        await asyncio.sleep(10.0)

    assert statuses(at_work_during(stage, script), key)[0][1].explanation == "as planned"


def test_a_mass_of_new_jobs_has_its_statuses_before_the_plan_and_each_once() -> None:
    stage = at_rest()

    async def script() -> None:
        await asyncio.sleep(20.0)
        for number in range(48):
            come(stage, f"new-{number:02}")
        await asyncio.sleep(1.5)

    diary = at_work_during(stage, script)
    early = [action.job for at, action in diary if isinstance(action, PatchStatus) and 20.0 < at < 21.0]
    assert len(early) == len(set(early)) == 48


def test_a_status_that_could_not_be_written_early_is_written_with_the_plan() -> None:
    stage, key = at_rest(), JobKey("default", "new")
    refused: list[Action] = []

    async def script() -> None:
        note = stage.cluster.policies

        def refuse_once(action: Action) -> Outcome | None:
            if isinstance(action, PatchStatus) and action.job == key and not refused:
                refused.append(action)
                return Outcome(action, Result.FAILED, "Timeout", "no answer")
            return note(action)

        await asyncio.sleep(20.0)
        stage.cluster.policies = refuse_once
        come(stage)
        await asyncio.sleep(20.0)

    diary = at_work_during(stage, script)
    assert refused
    assert statuses(diary, key)[-1][1].explanation == "as planned"
    assert stage.count(key) == 2


def test_trainers_make_room_before_it_is_known_what_other_jobs_lack() -> None:
    stage = Stage(targets={"a": 4}, reason="ServingNeedsRoom")
    stage.world.add(make_job("a", trainers=4, min_trainers=1, on=(NODE.name,)))
    for number in range(20):
        stage.targets[f"b{number}"] = 2
        stage.world.add(make_job(f"b{number}", min_trainers=1, max_trainers=2))
    stage.serving = (make_serving("web"),)
    stage.targets["a"] = 3

    async def script() -> None:
        await asyncio.sleep(10.0)

    written = [
        action
        for _, action in at_work_during(stage, script)
        if isinstance(action, DeletePod | PatchStatus | CreatePod)
    ]
    assert isinstance(written[0], DeletePod)
