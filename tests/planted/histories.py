"""Bugs that only a history shows: something goes wrong, and the controller does not recover from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edl.controller.allotment import Usable
from edl.controller.pending_writes import Write
from edl.model.actions import CreatePod, DeletePod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from tests.planted import Right, bug, targets

HISTORIES = "controller/loop/test_loop_random_histories.py"


@bug("trainers never give way to serving", at=targets.GRANTED, caught_by=HISTORIES)
def serving_waits_for_ever(right: Right) -> Right:
    def wrong(self: Any, job: Job, waits: frozenset[str], now: ClusterSnapshot) -> Usable:
        allotment = self.by_job.get(job.key)
        granted: Usable = right(self, job, waits, now)
        return Usable() if allotment is not None and allotment.ends_for_serving else granted

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


@bug("a job that had a failed pod gets no more decisions", at=targets.GRANTED, caught_by=HISTORIES)
def job_lost_after_a_failure(right: Right) -> Right:
    def wrong(self: Any, job: Job, waits: frozenset[str], now: ClusterSnapshot) -> Usable:
        granted: Usable = right(self, job, waits, now)
        return Usable() if job.status is not None and job.status.failures else granted

    return wrong


@bug("a job that a write failed of is not looked at again", at=targets.CORE_ENDED, caught_by=HISTORIES)
def failures_forgotten(right: Right) -> Right:
    def wrong(self: Any, write: Write, outcomes: Sequence[Outcome]) -> None:
        right(self, write, outcomes)
        if not all(outcome.is_ok for outcome in outcomes):
            self._due._now.pop(write.job_uid, None)
            self._due._later.pop(write.job_uid, None)

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
