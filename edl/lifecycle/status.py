"""The status of a TrainingJob after a step, and what a stored status says about the end of a job.

`desired_state` decides what happens to a job (a `Step`); this module turns the step into a status and events.
Everything follows from the stored status and the present pods, so the same step twice gives an equal status and no
events. Times are whole seconds, as the API server stores them.
"""

from __future__ import annotations

from edl.lifecycle.conditions import conditions, is_true
from edl.lifecycle.data_progress import MasterView, progress_to_store
from edl.lifecycle.job_events import job_events
from edl.lifecycle.last_resize import last_resize
from edl.lifecycle.pod_events import FAILED
from edl.lifecycle.step import Stage, Step
from edl.model.actions import EmitEvent
from edl.model.jobs import Job
from edl.model.names import LABEL_JOB, LABEL_ROLE, Role
from edl.model.progress import Progress
from edl.model.status import (
    POD_CANNOT_START,
    POD_DELETED,
    POD_REJECTED,
    JobPhase,
    JobStatus,
    LentCpu,
    Reason,
    RoleCount,
)

_PHASES = {
    Stage.WAITING: JobPhase.PENDING,
    Stage.SUSPENDED: JobPhase.SUSPENDED,
    Stage.SUCCEEDED: JobPhase.SUCCEEDED,
    Stage.FAILED: JobPhase.FAILED,
}


def describe(
    job: Job, step: Step, now_s: float, master_view: MasterView | None = None
) -> tuple[JobStatus, tuple[EmitEvent, ...]]:
    """The status of a job after a step, and the events for what changes with it.

    Args:
        job: the job with its stored status and its pods.
        step: what edl decided.
        now_s: seconds since the epoch; the time of every entry that changes.
        master_view: what the job's master reports; None if nothing is known.
    """
    stamp = float(int(now_s))
    old = job.status or JobStatus()
    counts = _counts(job, step)
    phase = _phase(job, step, counts)
    measured = master_view.measured if master_view is not None else None
    status = JobStatus(
        phase=phase,
        reason=_shown_reason(step),
        selector=f"{LABEL_JOB}={job.key.name},{LABEL_ROLE}={Role.TRAINER.value}",
        observed_generation=job.generation,
        conditions=conditions(job, step, phase, stamp),
        trainer=counts[Role.TRAINER],
        pserver=counts[Role.PSERVER],
        master=counts[Role.MASTER],
        start_s=_start_s(old, step, stamp),
        completion_s=(old.completion_s or stamp) if phase.is_final else None,
        last_resize=last_resize(job, step, counts[Role.TRAINER], stamp, master_view),
        failures=step.failures,
        explanation=step.message,
        dataset=_progress(job, step, master_view),
        measured=measured if measured is not None else old.measured,
        completed=_completed(job, step),
        lending=_lending(job, step),
        qos=None if job.problem else job.qos,
    )
    return status, job_events(job, step, status)


def is_over(job: Job) -> bool:
    """True if the job has ended. An invalid spec that never ran is checked again once it changes.

    Two of phase, condition and completion time must agree, so that a forged value in one of them has no effect. If
    there are no conditions, as in a file written by hand, the phase alone decides.
    """
    status = job.status
    if status is None:
        return False
    step = ended_as(job)
    signs = (status.phase.is_final, is_true(status, "Complete") or is_true(status, "Failed"), status.completion_s)
    if sum(map(bool, signs)) < 2 and (status.conditions or not status.phase.is_final):
        return False
    if step.reason == Reason.INVALID_SPEC and status.start_s is None:
        return bool(job.problem) and status.observed_generation >= job.generation
    return True


def ended_as(job: Job) -> Step:
    """How an ended job ended, from its stored condition or, without one, from the rest of its status."""
    status = job.status or JobStatus()
    succeeded = is_true(status, "Complete")
    if not succeeded and not is_true(status, "Failed"):
        succeeded = status.phase is JobPhase.SUCCEEDED
    ending = status.condition("Complete" if succeeded else "Failed")
    reason, message = status.reason, status.explanation
    if ending is not None and ending.status == "True":
        reason, message = ending.reason, ending.message
    return Step(Stage.SUCCEEDED if succeeded else Stage.FAILED, 0, reason, message, status.failures)


def _shown_reason(step: Step) -> str:
    """The reason in the status: pods that cannot start, fail or are rejected, if that is what the job suffers from.

    A job that has all its trainers lacks nothing else. More capacity does not help a job whose pods cannot start.
    """
    trouble = step.degraded[0] if step.degraded is not None else ""
    held = Reason.PODS_NOT_STARTED
    hidden = {
        POD_CANNOT_START: {Reason.AT_MAX, Reason.INSUFFICIENT_CAPACITY, held},
        held.value: {Reason.AT_MAX, Reason.INSUFFICIENT_CAPACITY},
        FAILED: {Reason.AT_MAX, held},
        POD_REJECTED: {Reason.AT_MAX, held},
        POD_DELETED: {Reason.AT_MAX, held},
        Reason.PODS_DO_NOT_END.value: {Reason.AT_MAX, held},
    }
    return trouble if step.reason in hidden.get(trouble, ()) else step.reason


def _completed(job: Job, step: Step) -> tuple[int, ...]:
    """The trainers that completed in this run; a run ends with a restart, a suspension or the job's admission."""
    if step.restarting or step.rerun is Role.TRAINER or step.stage in {Stage.SUSPENDED, Stage.WAITING}:
        return ()
    return tuple(sorted(job.completed_indexes))


def _lending(job: Job, step: Step) -> LentCpu | None:
    """The CPU that the trainers of a job lend now."""
    lent_milli = sum(pod.lent_cpu_milli for pod in job.live_trainers)
    return LentCpu(lent_milli, step.slowed) if lent_milli else None


def _start_s(old: JobStatus, step: Step, stamp: float) -> float | None:
    """When the job started; a suspension resets it."""
    if step.stage is Stage.SUSPENDED:
        return None
    return stamp if step.stage is Stage.RUNNING and old.start_s is None else old.start_s


def _counts(job: Job, step: Step) -> dict[Role, RoleCount]:
    runs = step.stage is Stage.RUNNING
    desired = {f.role: f.count if runs else 0 for f in job.fixed} | {Role.TRAINER: step.target}
    counts = {}
    for role in Role:
        live = [p for p in job.pods if p.role is role and p.is_live]
        ready = sum(p.ready for p in live)
        counts[role] = RoleCount(desired.get(role, 0), ready, len(live) - ready)
    return counts


def _phase(job: Job, step: Step, counts: dict[Role, RoleCount]) -> JobPhase:
    if step.stage is not Stage.RUNNING:
        return _PHASES[step.stage]
    if not job.pods:
        return JobPhase.PENDING
    if step.restarting or step.rerun or not _has_minimum(job, step, counts):
        return JobPhase.CREATING
    trainer = counts[Role.TRAINER]
    is_leaving = any(p.role is Role.TRAINER and p.terminating for p in job.pods)
    is_settled = step.finishing or trainer.ready == trainer.desired
    return JobPhase.RUNNING if is_settled and not trainer.pending and not is_leaving else JobPhase.SCALING


def _has_minimum(job: Job, step: Step, counts: dict[Role, RoleCount]) -> bool:
    """True if enough pods are ready for the job to work.

    Completed trainers count as ready, and so do the completed pservers of a gang. A fault-tolerant job whose trainers
    have begun to complete needs no minimum, because they are not replaced; but while it has trainers, one is ready.
    """
    for fixed in job.fixed:
        completed = 0 if job.fault_tolerant else len(job.completed(fixed.role))
        if counts[fixed.role].ready + completed < fixed.count:
            return False
    trainer = counts[Role.TRAINER]
    if step.finishing and job.fault_tolerant:
        return trainer.ready > 0 or not trainer.pending
    return trainer.ready + job.completed_trainers >= job.min_trainers


def _progress(job: Job, step: Step, master_view: MasterView | None) -> Progress | None:
    """The progress to store; an ended job keeps the last known one."""
    if step.stage in {Stage.SUCCEEDED, Stage.FAILED}:
        reported = master_view.progress if master_view is not None else None
        return reported or (job.status.dataset if job.status else None)
    return progress_to_store(job, master_view, runs=step.stage is Stage.RUNNING and not step.restarting)
