"""How a job ends: by its spec, a policy, its failures or the report of its master; and what is deleted then."""

from __future__ import annotations

from collections.abc import Sequence

from edl.lifecycle.container_end import logs_command
from edl.lifecycle.data_progress import FINISH_GRACE_S, LEDGER_LOST, MasterView, ledger_loss, quarantine_failure
from edl.lifecycle.pod_actions import delete
from edl.lifecycle.pod_events import PodEvent, event_of
from edl.lifecycle.step import Stage, Step
from edl.model.actions import Action, DeleteJob, Intent
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.status import JobPhase, JobStatus, Reason
from edl.model.units import count


def end_or_suspension(
    job: Job, failures: int, events: Sequence[PodEvent], master_view: MasterView | None, now_s: float
) -> Step | None:
    """The step of a job that ends or is suspended; None if it continues.

    Args:
        job: the job and its pods, as observed.
        failures: pod failures so far.
        events: what happened to its pods; the first one decides.
        master_view: what the job's master reports; None if it has none.
        now_s: seconds since the epoch.
    """
    start_s = job.status.start_s if job.status else None
    if job.problem:
        return Step(Stage.FAILED, 0, Reason.INVALID_SPEC.value, job.problem)
    if job.suspended:
        message = "spec.suspend is true, so the job has no pods; set it to false to start the job again"
        return Step(Stage.SUSPENDED, 0, Reason.SUSPENDED.value, message)
    ended = _end_by_policy(events) or _end_by_ledger(job, master_view)
    if ended is not None:
        return ended
    if failures > job.backoff_limit:
        message = f"the job had {count(failures, 'pod failure')}, more than spec.backoffLimit {job.backoff_limit}"
        last = [e.message for e in events if e.event is JobEvent.POD_FAILED]
        message += f": {'; '.join(last)}" if last else ""
        failed = next((p for p in job.pods if event_of(p, frozenset()) is JobEvent.POD_FAILED), None)
        message += f"; `{logs_command(failed)}` shows more" if failed and "edl logs" not in message else ""
        return Step(Stage.FAILED, 0, "BackoffLimitExceeded", message)
    if job.active_deadline_s is not None and start_s is not None and now_s - start_s >= job.active_deadline_s:
        message = f"the job ran longer than spec.activeDeadlineSeconds {job.active_deadline_s}, so edl ended it"
        return Step(Stage.FAILED, 0, "DeadlineExceeded", message)
    return None


def _end_by_ledger(job: Job, master_view: MasterView | None) -> Step | None:
    """The end of a job that follows from its master's report; None if it continues."""
    if lost := ledger_loss(job):
        return Step(Stage.FAILED, 0, LEDGER_LOST, lost)
    if too_many := quarantine_failure(master_view):
        return Step(Stage.FAILED, 0, "TooManyQuarantined", too_many)
    if master_view is not None and master_view.is_finished and master_view.finished_for_s >= FINISH_GRACE_S:
        message = f"the last epoch ended {FINISH_GRACE_S:g} s ago; edl deletes the trainers that still run"
        return Step(Stage.SUCCEEDED, 0, Reason.FINISHED.value, message)
    return None


def _end_by_policy(events: Sequence[PodEvent]) -> Step | None:
    """Return how a job ends by the `policies` of its spec, after the first of these events; None if it continues."""
    if not events:
        return None
    first = events[0]
    message = first.message
    if (first.event, first.role) != (JobEvent.TASK_COMPLETED, Role.TRAINER):
        message += f"; the policy for {first.event} of the {first.role.value} is {first.action}"
    if first.action is JobAction.ABORT_JOB:
        return Step(Stage.FAILED, 0, "Aborted", message)
    if first.action is JobAction.COMPLETE_JOB:
        return Step(Stage.SUCCEEDED, 0, Reason.FINISHED.value, message)
    return None


def cleanup(
    job: Job, status: JobStatus, in_the_way: frozenset[str], unreachable: frozenset[str]
) -> tuple[Action, ...]:
    """Delete the pods of an ended job, except those that it keeps for their logs.

    Args:
        job: the ended job and its pods.
        status: its status.
        in_the_way: UIDs of finished pods that are deleted although their logs would be kept.
        unreachable: UIDs of pods whose end no kubelet will confirm.
    """
    if status.phase is JobPhase.SUCCEEDED:
        going = [p for p in job.pods if p.role is not Role.TRAINER or not p.is_finished]
        intent = Reason.FINISHED.value
    elif status.reason == Reason.INVALID_SPEC:
        going, intent = list(job.pods), status.reason
    else:
        going, intent = [p for p in job.pods if not p.is_finished], Intent.JOB_FAILED.value
    others = [p for p in job.pods if p.uid in in_the_way and p not in going]
    of_others = delete(others, job, Reason.QUOTA_REACHED.value, unreachable)
    return (*delete(going, job, intent, unreachable), *of_others)


def expire(job: Job, status: JobStatus, now_s: float) -> tuple[Action, ...]:
    """The deletion of an ended job, once it is older than `spec.ttlSecondsAfterFinished`."""
    if job.ttl_s is None or status.completion_s is None or now_s - status.completion_s < job.ttl_s:
        return ()
    return (DeleteJob(job.key, job.uid),)
