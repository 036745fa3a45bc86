"""Bugs that bring storms, hoards, silence or false statements; an hour of random troubles shows each."""

from __future__ import annotations

from collections.abc import Iterable
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
    def wrong(self: Any, view: ClusterSnapshot, now_s: float) -> ClusterSnapshot:
        right(self, view, now_s)
        return view

    return wrong


@bug("a job is Running as soon as it is admitted", at=targets.PHASE_OF, caught_by=f"{HOURS}[8]")
def running_too_soon(right: Right) -> Right:
    def wrong(job: Job, step: Any, counts: Any) -> JobPhase:
        found: JobPhase = right(job, step, counts)
        return JobPhase.RUNNING if found in {JobPhase.PENDING, JobPhase.CREATING} and job.was_admitted else found

    return wrong


@bug("whatever holds a job back, it is said to be at its maximum", at=targets.SHOWN_REASON, caught_by=f"{HOURS}[19]")
def at_its_maximum_always(right: Right) -> Right:
    def wrong(step: Any) -> str:
        return str(right(replace(step, reason=Reason.AT_MAX.value, degraded=None)))

    return wrong


@bug(
    "pods without a controller belong to the job that their label names",
    at=targets.IS_OWNED_BY,
    caught_by=f"{HOURS}[29]",
)
def orphans_adopted(right: Right) -> Right:
    def wrong(owners: Iterable[Any], job: Any) -> bool:
        found = tuple(owners)
        return not found or bool(right(found, job))

    return wrong
