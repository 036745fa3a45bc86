"""Bugs that bring storms, hoards, silence or false statements; an hour of random troubles shows each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.status import JobPhase, Reason
from tests.planted import Right, bug, targets

STORMS = "controller/loop/test_loop_storms.py"
HOURS = f"{STORMS}::test_an_hour_of_troubles_brings_no_storm_no_hoard_no_silence_and_no_false_statement"


@bug("the pauses after refusals do not grow", at=targets.REFUSE, caught_by=f"{HOURS}[19]")
def refusals_without_pauses(right: Right) -> Right:
    def wrong(self: Any, job_uid: str, kind: Any, outcome: Any, now_s: float, **more: Any) -> None:
        right(self, job_uid, kind, outcome, now_s, **more)
        refused = self._of_job[job_uid][kind]
        self._of_job[job_uid][kind] = replace(refused, pause_s=5.0, until_s=min(refused.until_s, now_s + 5.0))

    return wrong


@bug("who refuses pods is not said", at=targets.REFUSE, caught_by=f"{HOURS}[19]")
def nameless_refusals(right: Right) -> Right:
    def wrong(self: Any, job_uid: str, kind: Any, outcome: Any, *rest: Any, **more: Any) -> None:
        right(self, job_uid, kind, replace(outcome, message="the API server refuses the pod"), *rest, **more)

    return wrong


@bug("pods that fail are replaced at once", at=targets.NOTE_ENDS, caught_by=f"{HOURS}[1]")
def crashes_without_pauses(right: Right) -> Right:
    def wrong(self: Any, job: Job, now_s: float, time_s: float) -> None:
        right(self, job, now_s, time_s)
        self.forget(job.uid)

    return wrong


@bug("trainers that do not start keep their capacity", at=targets.WITHDRAW_GROWTH, caught_by=f"{HOURS}[23]")
def hoarded_capacity(right: Right) -> Right:
    def wrong(self: Any, view: ClusterSnapshot, *rest: Any) -> ClusterSnapshot:
        right(self, view, *rest)
        return view

    return wrong


@bug("pods that only exist count as ready", at=targets.DESCRIBE, caught_by=f"{HOURS}[1]")
def pods_ready_too_soon(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        status, events = right(job, *rest)
        if status.phase is not JobPhase.CREATING:
            return status, events
        trainer = replace(status.trainer, ready=status.trainer.ready + status.trainer.pending, pending=0)
        return replace(status, trainer=trainer, phase=JobPhase.RUNNING), events

    return wrong


@bug("a job that grows no more is said to be at its maximum", at=targets.DESCRIBE, caught_by=f"{HOURS}[1]")
def maximum_claimed(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        status, events = right(job, *rest)
        if status.reason != Reason.INSUFFICIENT_CAPACITY:
            return status, events
        count = f"{status.trainer.desired} of {status.trainer.desired}"
        return replace(status, reason=Reason.AT_MAX, explanation=f"{count}: at its maximum"), events

    return wrong


@bug("whatever stops a job, its cpu is said to be full", at=targets.DESCRIBE, caught_by=f"{HOURS}[1]")
def cpu_claimed_to_be_full(right: Right) -> Right:
    def wrong(job: Job, *rest: Any) -> Any:
        status, events = right(job, *rest)
        if status.phase.is_final or status.trainer.desired >= job.max_trainers:
            return status, events
        text = f"{status.trainer.desired} of {job.max_trainers}: cpu is full on all nodes that accept its trainers"
        return replace(status, reason=Reason.INSUFFICIENT_CAPACITY, explanation=text), events

    return wrong
