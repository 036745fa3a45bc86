"""Bugs that only a history shows: something goes wrong, and the controller does not recover from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from edl.controller.write_queue import Write

from edl.controller.loop import _deletes_for_serving
from edl.controller.ports import RoundResult
from edl.model.actions import CreatePod, DeletePod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision
from tests.planted import Right, bug, targets

HISTORIES = "controller/loop/test_loop_random_histories.py"


@bug("trainers never give way to serving", at=targets.POSTPONED, caught_by=HISTORIES)
def serving_waits_for_ever(_: Right) -> Right:
    async def wrong(_self: Any, _view: ClusterSnapshot, decisions: Iterable[ScaleDecision]) -> frozenset[JobKey]:
        return frozenset(decision.job for decision in decisions if _deletes_for_serving(decision))

    return wrong


@bug(
    "a pod whose creation was not answered is created again at once",
    at=targets.CARRY_OUT,
    caught_by="controller/loop/test_loop_quiet.py::test_a_pod_whose_creation_was_not_answered_is_created_once",
)
def created_again_without_an_answer(right: Right) -> Right:
    async def wrong(self: Any, write: Write) -> list[Outcome]:
        outcomes: list[Outcome] = await right(self, write)
        failed = [one.action for one in outcomes if one.result is Result.FAILED and isinstance(one.action, CreatePod)]
        again = tuple(replace(action, index=action.index + 10) for action in failed)
        return [*outcomes, *(await right(self, replace(write, actions=again)) if again else [])]

    return wrong


@bug("a job that had a failed pod gets no more decisions", at=targets.ACT, caught_by=HISTORIES)
def job_lost_after_a_failure(right: Right) -> Right:
    async def wrong(
        self: Any, snapshot: ClusterSnapshot, decisions: Mapping[JobKey, ScaleDecision], *rest: Any, **more: Any
    ) -> RoundResult:
        lost = {job.key for job in snapshot.jobs if job.status is not None and job.status.failures}
        kept = {key: decision for key, decision in decisions.items() if key not in lost}
        result: RoundResult = await right(self, snapshot, kept, *rest, **more)
        return result

    return wrong


@bug("a refused request is never tried again", at=targets.BACKOFF_RECORD, caught_by=HISTORIES)
def refusal_kept_for_ever(right: Right) -> Right:
    def wrong(self: Any, outcome: Outcome, now_s: float) -> None:
        right(self, outcome, now_s + 1e9 if outcome.result is Result.REFUSED else now_s)

    return wrong


@bug("a second trainer of an undisturbed job is deleted", at=targets.DESIRED_STATE, caught_by=HISTORIES)
def good_trainer_deleted(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        status, actions = right(job, *rest)
        if len(job.live_trainers) == 2 and not job.suspended:
            pod = job.live_trainers[-1]
            actions = (DeletePod(job.key, job.uid, pod.name, pod.uid, "InsufficientCapacity"), *actions)
        return status, actions

    return wrong
