"""`status.conditions` of a TrainingJob: Admitted, Running, Resizing, Degraded, Complete and Failed.

A condition carries the full account of a decision; `status.explanation` and events carry the short form. A condition
keeps its transition time until its status changes, so equal facts give equal conditions.
"""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.pod_events import RESTARTING, TRAINER_LOST, rerun_reason
from edl.lifecycle.step import Stage, Step
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.status import Condition, JobPhase, JobStatus
from edl.model.units import count

_MAX_DEGRADED_MESSAGE = 1024
"""Longest message of condition Degraded: the API server repeats messages of webhooks, which have any length."""

_NOT_RUNNING = "the job does not run"
_FINISHING = "some trainers have completed; the others go on to the end, and those that never began are withdrawn"
_RUNNING_MESSAGES = {
    JobPhase.PENDING.value: "the job has no pods",
    JobPhase.CREATING.value: "the master, a pserver or a trainer of the minimum is not ready yet",
    JobPhase.RUNNING.value: "every pod of the job is ready",
    JobPhase.SCALING.value: "the minimum of trainers is ready, and the number of trainers is changing",
    RESTARTING: "edl deletes every pod, then it restarts the job",
    **{
        rerun_reason(role): f"every {role.value} exited with code 0, and a policy of the job starts them again"
        for role in Role
    },
}


def conditions(job: Job, step: Step, phase: JobPhase, stamp: float) -> tuple[Condition, ...]:
    """The conditions of a job after a step.

    Args:
        job: the job with its stored conditions.
        step: what edl decided.
        phase: the phase of the job after the step.
        stamp: the transition time of a condition whose status changes, in whole seconds since the epoch.
    """
    facts = (
        ("Admitted", step.stage is Stage.RUNNING, step.reason, step.account),
        ("Running", phase in {JobPhase.RUNNING, JobPhase.SCALING}, *_running(step, phase)),
        ("Resizing", phase is JobPhase.SCALING, *_resizing(step, phase)),
        ("Degraded", step.degraded is not None, *_degraded(step)),
        ("Complete", phase is JobPhase.SUCCEEDED, *_complete(job, step, phase)),
        ("Failed", phase is JobPhase.FAILED, *_failed(step, phase)),
    )
    return tuple(
        Condition(
            kind,
            "True" if holds else "False",
            reason,
            message,
            _since(job, kind, holds=holds, stamp=stamp),
            job.generation,
        )
        for kind, holds, reason, message in facts
    )


def with_degraded_of(old: JobStatus, new: JobStatus) -> JobStatus:
    """Return the old status with the new condition Degraded, for a new status that may not be stored yet."""
    degraded = new.condition("Degraded")
    kept = (degraded if degraded is not None and c.type == "Degraded" else c for c in old.conditions)
    return replace(old, conditions=tuple(kept))


def has_reason(status: JobStatus, kind: str, reason: str) -> bool:
    """True if the condition of that type has that reason."""
    condition = status.condition(kind)
    return condition is not None and condition.reason == reason


def is_true(status: JobStatus, kind: str) -> bool:
    """True if the condition of that type exists and is True."""
    condition = status.condition(kind)
    return condition is not None and condition.status == "True"


def _running(step: Step, phase: JobPhase) -> tuple[str, str]:
    reason = rerun_reason(step.rerun) if step.rerun is not None else phase.value
    reason = RESTARTING if step.restarting else reason
    if step.finishing and reason == JobPhase.SCALING:
        return reason, _FINISHING
    return reason, _RUNNING_MESSAGES.get(reason, _NOT_RUNNING)


def _resizing(step: Step, phase: JobPhase) -> tuple[str, str]:
    if phase is JobPhase.SCALING:
        return step.reason, f"the number of trainers is changing to {step.target}"
    return "Settled", "the number of trainers is not changing"


def _degraded(step: Step) -> tuple[str, str]:
    if step.degraded is None:
        return "AsExpected", "edl found no problem"
    reason, message = step.degraded
    is_short = len(message) <= _MAX_DEGRADED_MESSAGE
    return reason, message if is_short else f"{message[: _MAX_DEGRADED_MESSAGE - 3]}..."


def _complete(job: Job, step: Step, phase: JobPhase) -> tuple[str, str]:
    if phase is JobPhase.SUCCEEDED:
        return step.reason, step.account
    if step.trainer_lost:
        return TRAINER_LOST, "the last trainer was lost before it completed; edl replaces it"
    if step.finishing:
        return "Finishing", f"{count(job.completed_trainers, 'trainer')} exited with code 0"
    return "NotFinished", "no trainer has completed"


def _failed(step: Step, phase: JobPhase) -> tuple[str, str]:
    return (step.reason, step.account) if phase is JobPhase.FAILED else ("NotFailed", "the job has not failed")


def _since(job: Job, kind: str, *, holds: bool, stamp: float) -> float:
    before = job.status.condition(kind) if job.status else None
    unchanged = before is not None and before.status == ("True" if holds else "False")
    return before.since_s if before is not None and unchanged else stamp
