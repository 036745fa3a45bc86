"""Statuses that are written while a plan is being made. Virtual time; a plan takes two seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from edl.controller.early_answers import MOST_ANSWERS, Answered
from edl.controller.loop import Controller
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, Outcome, PatchStatus, ProbePod, Result
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, JobStatus, Reason
from tests.controller.loop_stage import NODE, A, Stage, at_work, plan_of, play
from tests.worlds.builders import make_job, make_serving, make_snapshot

PLAN_S = 2.0
Diary = list[tuple[float, Action]]


def run(stage: Stage, script: Callable[[], Awaitable[None]]) -> Diary:
    """Let the controller work during the script; returns what it wrote, with the seconds since the start."""
    diary: Diary = []

    async def main(controller: Controller) -> None:
        began_s = asyncio.get_running_loop().time()

        def note(action: Action) -> Outcome | None:
            diary.append((round(asyncio.get_running_loop().time() - began_s, 2), action))
            return None

        stage.cluster.policies = note
        async with at_work(controller):
            await script()

    play(stage, main)
    return diary


def at_rest(trainers: int = 4, plan_s: float = PLAN_S) -> Stage:
    """A job of some running trainers, and a controller that has looked at it."""
    stage = Stage(targets={"a": trainers}, plan_s=plan_s)
    stage.world.add(make_job("a", trainers=trainers, min_trainers=1, on=(NODE.name,)))
    return stage


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

    diary = run(stage, script)
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

    diary = run(stage, script)
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

    diary = run(stage, script)
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

    diary = run(stage, script)
    assert [action.index for _, action in diary if isinstance(action, CreatePod)] == [4]
    assert statuses(diary)[-1][1].observed_generation == stage.world.jobs[A].generation


@pytest.mark.parametrize(
    ("change", "stay"),
    [
        (lambda _: None, True),
        (lambda job: replace(job, deleting=True), True),
        (lambda job: replace(job, generation=job.generation + 1), True),
        (lambda job: replace(job, status=JobStatus(explanation="as planned")), False),
    ],
    ids=["gone", "being deleted", "edited", "as it was"],
)
def test_no_trainer_ends_for_a_job_that_has_changed_since(change: Callable[[Job], Job | None], stay: bool) -> None:
    giving = make_job("a", trainers=4, min_trainers=1, on=(NODE.name,))
    new = make_job("b", min_trainers=2, max_trainers=2)
    snapshot = make_snapshot((NODE,), (giving, new))
    plan = plan_of(snapshot, {"a": 2, "b": 2}, Reason.ADMITTED)
    now = change(new)
    answered = Answered(latest=replace(snapshot, jobs=(giving, now) if now is not None else (giving,)))
    _, kept, left = answered.applied_to(snapshot, {decision.job: decision for decision in plan.decisions})
    assert left == ({new.uid} if stay else frozenset())
    assert set(kept) == ({giving.key} if stay else {giving.key, new.key})
    assert answered.spared(snapshot, plan.decisions) == ({giving.key} if stay else frozenset())


def test_trainers_end_for_serving_although_another_job_has_changed_since() -> None:
    giving, other = make_job("a", trainers=4, min_trainers=1, on=(NODE.name,)), make_job("b", max_trainers=2)
    snapshot = make_snapshot((NODE,), (giving, other))
    plan = plan_of(snapshot, {"a": 2, "b": 2}, Reason.SERVING_NEEDS_ROOM)
    assert not Answered(latest=replace(snapshot, jobs=(giving,))).spared(snapshot, plan.decisions)


def test_jobs_that_keep_changing_spare_nobody_in_two_rounds_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answered, "spared", lambda *_: frozenset({A}))
    stage = at_rest(plan_s=0.0)
    stage.targets["a"], stage.reason = 2, Reason.ADMITTED

    async def script() -> None:
        await asyncio.sleep(20.0)

    deleted = [at for at, action in run(stage, script) if isinstance(action, DeletePod)]
    assert len(deleted) == 2
    assert deleted[0] > 4.0, "the second round"


def test_what_was_observed_after_a_probe_was_refused_is_not_taken_for_a_change() -> None:
    stage, key = at_rest(), JobKey("default", "new")

    async def script() -> None:
        note = stage.cluster.policies

        def refuse(action: Action) -> Outcome | None:
            is_refused = isinstance(action, ProbePod) and action.job.name == "refused"
            return Outcome(action, Result.REFUSED, "Forbidden", "no") if is_refused else note(action)

        stage.cluster.policies = refuse
        await asyncio.sleep(23.0)  # between two rounds
        come(stage)
        come(stage, "refused")
        await asyncio.sleep(0.5)
        lose_trainer(stage)  # the controller looks again
        await asyncio.sleep(1.5)
        stage.world.jobs[key] = replace(stage.world.jobs[key], generation=2)  # it sees that after the probe
        await asyncio.sleep(10.0)

    created = [at for at, action in run(stage, script) if isinstance(action, CreatePod) and action.job == key]
    assert created[0] < 25.5 + 2 * PLAN_S, "the plan after the probe, and what may start"


def test_a_plan_that_is_made_at_once_is_waited_for() -> None:
    stage, key = at_rest(plan_s=0.05), JobKey("default", "new")

    async def script() -> None:
        await asyncio.sleep(20.0)
        come(stage)
        await asyncio.sleep(10.0)

    assert statuses(run(stage, script), key)[0][1].explanation == "as planned"


def test_a_mass_of_new_jobs_is_not_written_twice() -> None:
    stage = at_rest()

    async def script() -> None:
        await asyncio.sleep(20.0)
        for number in range(3 * MOST_ANSWERS):
            come(stage, f"new-{number:02}")
        await asyncio.sleep(10.0)

    diary = run(stage, script)
    early = [action for at, action in diary if isinstance(action, PatchStatus) and 20.0 < at < 21.0]
    assert len(early) == MOST_ANSWERS


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

    diary = run(stage, script)
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

    written = [action for _, action in run(stage, script) if isinstance(action, DeletePod | PatchStatus | CreatePod)]
    assert isinstance(written[0], DeletePod)


def test_a_snapshot_that_is_taken_again_beside_an_answer_is_not_made_older() -> None:
    old = make_job("a", trainers=4, min_trainers=1, on=(NODE.name,))
    told = JobStatus(explanation="told")
    newer = replace(old, pods=old.pods[:-1])
    answered = Answered(jobs={old.uid: replace(old, status=told)}, before={old.uid: old})

    def applied(job: Job) -> tuple[Job, bool]:
        snapshot, _, left = answered.applied_to(make_snapshot((NODE,), (job,)), {})
        return snapshot.jobs[0], bool(left)

    assert applied(old) == (replace(old, status=told), False)
    assert applied(newer) == (newer, True), "nobody knows whether its status is the one that was written"
    assert applied(replace(newer, status=told)) == (replace(newer, status=told), False)
