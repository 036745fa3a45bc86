"""The Kubernetes events of a TrainingJob: each reports one change of its status, once, with the short form.

Events follow from the difference between the stored status and the new one, so without a change there are none.
"""

from __future__ import annotations

from edl.lifecycle.conditions import has_reason, is_true
from edl.lifecycle.pod_events import FAILED, RESTARTING, failure_message, preempted_trainers
from edl.lifecycle.step import Stage, Step
from edl.model.actions import EmitEvent, EventKind, Intent
from edl.model.jobs import Job
from edl.model.status import JobPhase, JobStatus, Reason
from edl.model.units import count, listed

_Event = tuple[EventKind, str, str]
"""(kind, reason, message)"""

_MOVED = Intent.MOVED.value
_WAITING_KINDS = {
    Reason.UNSCHEDULABLE.value: EventKind.WARNING,
    Reason.MIN_UNSATISFIED.value: EventKind.NORMAL,
    Reason.QUOTA_REACHED.value: EventKind.NORMAL,
    Reason.PODS_REFUSED.value: EventKind.WARNING,
    Reason.QUEUE_NOT_ALLOWED.value: EventKind.WARNING,
    Reason.BEST_EFFORT_NOT_ALLOWED.value: EventKind.WARNING,
}


def job_events(job: Job, step: Step, new: JobStatus) -> tuple[EmitEvent, ...]:
    """The events of a step.

    Args:
        job: the job with its stored status and its pods.
        step: what edl decided.
        new: the status after the step.
    """
    old = job.status or JobStatus()
    events: list[_Event] = []
    if new.phase is not old.phase:
        events += _phase_events(new, step)
    events += _trainer_events(job, old, new, step)
    if new.failures > old.failures:
        events.append((EventKind.WARNING, FAILED, failure_message(job, new.failures)))
    if step.restarting and not has_reason(old, "Running", RESTARTING):
        message = f"{step.restarting}; edl deletes every pod, then it restarts the job"
        events.append((EventKind.WARNING, RESTARTING, message))
    if step.degraded and step.degraded[0] != FAILED and not has_reason(old, "Degraded", step.degraded[0]):
        events.append((EventKind.WARNING, *step.degraded))
    return tuple(EmitEvent(job.key, job.uid, *event) for event in events)


def _phase_events(new: JobStatus, step: Step) -> list[_Event]:
    if new.phase is JobPhase.SUCCEEDED:
        return [(EventKind.NORMAL, "Succeeded", step.message)]
    if new.phase is JobPhase.FAILED:
        return [(EventKind.WARNING, "Failed", f"{step.reason}: {step.message}")]
    if new.phase is JobPhase.SUSPENDED:
        return [(EventKind.NORMAL, "Suspended", step.message)]
    return []


def _trainer_events(job: Job, old: JobStatus, new: JobStatus, step: Step) -> list[_Event]:
    if step.unplanned or step.finishing or step.stage not in {Stage.RUNNING, Stage.WAITING}:
        return []
    events: list[_Event] = []
    was, live = old.trainer.ready + old.trainer.pending, new.trainer.ready + new.trainer.pending
    preempted = preempted_trainers(job) and live < was
    if preempted:
        message = f"{was} -> {live} trainers: kube-scheduler preempted trainers for a pod of higher priority"
        events.append((EventKind.WARNING, "Preempted", message))
    before, after = old.trainer.desired, new.trainer.desired
    if step.stage is Stage.RUNNING and not is_true(old, "Admitted"):
        before = min(after, job.min_trainers)
        message = f"the job is admitted with its minimum of {count(before, 'trainer')}"
        events.append((EventKind.NORMAL, Reason.ADMITTED.value, message))
    if after > before:
        events.append((EventKind.NORMAL, "ScaledUp", f"{before} -> {after} trainers; {step.message}"))
    elif after < before and not (preempted and after == live):
        events.append((EventKind.NORMAL, "ScaledDown", f"{before} -> {after} trainers; {step.message}"))
    elif step.shrink_reason and after == before and step.stage is Stage.RUNNING:
        message = f"edl deletes trainers and starts them again on other nodes; {step.message}"
        events.append((EventKind.NORMAL, _MOVED, message))
    elif step.stage is Stage.WAITING and new.reason != old.reason and new.reason in _WAITING_KINDS:
        events.append((_WAITING_KINDS[new.reason], new.reason, step.message))
    if step.moving:
        nodes = "another node" if len(step.moving) == 1 else "other nodes"
        message = f"edl moves {listed(step.moving)} to {nodes}, so that more trainers fit"
        events.append((EventKind.NORMAL, _MOVED, message))
    return events
