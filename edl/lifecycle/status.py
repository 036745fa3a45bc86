"""What a user reads about a job: its status, its conditions and the events that tell a change once.

`lifecycle` decides what happens to a job (a `Step`); this module says it. Everything is derived from the stored
status and the present pods, so that saying the same thing twice gives an equal status and no event. Times are whole
seconds, as the API server stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from edl.lifecycle.data_progress import MasterView, stored_progress
from edl.lifecycle.pod_events import (
    RESTARTING,
    TRAINER_LOST,
    again_reason,
    failure_of,
    preempted_trainers,
)
from edl.model.actions import EmitEvent, EventKind, Intent
from edl.model.jobs import Job
from edl.model.names import LABEL_JOB, LABEL_ROLE, Role
from edl.model.plan import VOLUNTARY_SHRINKS, Limits
from edl.model.pods import PodPhase
from edl.model.progress import Progress
from edl.model.status import Condition, JobPhase, JobStatus, Reason, Resize, RoleCount

_LONGEST_WORDS = 1024
"""Of the API server, which repeats what webhooks say at any length."""


class Stage(StrEnum):
    """What the controller wants of a job in this round."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Step:
    """What was decided for one job in one round.

    Attributes:
        target: trainers wanted.
        reason: a word of `model.Reason`, or why the job failed.
        message: one sentence for the user.
        failures: failures counted so far, those of this round included.
        shrink_reason: why trainers die in this round; empty where none does by the plan.
        restarting: why the job is being taken down to start anew; empty where it is not.
        again: the role whose pods have all exited 0 and are to run again.
        moving: names of the pservers that end so that they start elsewhere.
        finishing: trainers have begun to exit 0; no more growth.
        trainer_lost: the last trainer that had not finished was lost, and is replaced.
        never_ran: those that die by the plan have no node yet.
        held: no plan says anything about the job: it stays as it is.
        trouble: (reason, sentence) of what keeps the job from its full count through no decision of ours.
    """

    stage: Stage
    target: int
    reason: str
    message: str
    failures: int = 0
    shrink_reason: str = ""
    restarting: str = ""
    again: Role | None = None
    moving: tuple[str, ...] = ()
    finishing: bool = False
    trainer_lost: bool = False
    never_ran: bool = False
    held: bool = False
    trouble: tuple[str, str] | None = None


def describe(
    job: Job, step: Step, now_s: float, master_view: MasterView | None = None
) -> tuple[JobStatus, tuple[EmitEvent, ...]]:
    """The status that says what `step` decided, and the events that tell what is new in it.

    Args:
        job: the job with its stored status and its pods.
        step: what was decided.
        now_s: the stamp of whatever changed; unchanged entries keep theirs.
        master_view: what the job's master says; None where nothing was heard.
    """
    stamp = float(int(now_s))
    old = job.status or JobStatus()
    counts = _counts(job, step)
    phase = _phase(job, step, counts)
    started = old.start_s if old.start_s is not None else stamp
    status = JobStatus(
        phase=phase,
        reason=step.reason,
        selector=f"{LABEL_JOB}={job.key.name},{LABEL_ROLE}={Role.TRAINER.value}",
        observed_generation=job.generation,
        conditions=_conditions(job, step, phase, stamp),
        trainer=counts[Role.TRAINER],
        pserver=counts[Role.PSERVER],
        master=counts[Role.MASTER],
        start_s=_start(old, step, started),
        completion_s=(old.completion_s or stamp) if phase.is_final else None,
        last_resize=_with_cost(_resize(job, old, step, counts[Role.TRAINER], stamp), master_view),
        failures=step.failures,
        explanation=step.message,
        dataset=_progress(job, step, master_view),
        measured=master_view.measured
        if master_view is not None and master_view.measured is not None
        else old.measured,
    )
    return status, _events(job, old, status, step)


def with_trouble_of(old: JobStatus, new: JobStatus) -> JobStatus:
    """The old status with condition Degraded of the new one, where nothing else of the new may be stored yet."""
    degraded = new.condition("Degraded")
    conditions = (degraded if degraded is not None and c.type == "Degraded" else c for c in old.conditions)
    return replace(old, conditions=tuple(conditions))


def is_over(job: Job) -> bool:
    """True where the job has ended; a spec that was refused before any pod ran is judged afresh once it changes.

    Phase, condition and completion time must agree, two of three: what somebody else wrote into one is recomputed.
    Where there are no conditions, as in a file written by hand, the phase alone decides.
    """
    status = job.status
    if status is None:
        return False
    step = ended_as(job)
    said = (status.phase.is_final, _holds(status, "Complete") or _holds(status, "Failed"), bool(status.completion_s))
    if sum(said) < 2 and (status.conditions or not status.phase.is_final):
        return False
    if step.reason == Reason.INVALID_SPEC and status.start_s is None:
        return bool(job.problem) and status.observed_generation >= job.generation
    return True


def ended_as(job: Job) -> Step:
    """How a job that is over ended, by its stored condition; by the rest of the status where that is missing."""
    status = job.status or JobStatus()
    succeeded = _holds(status, "Complete")
    if not succeeded and not _holds(status, "Failed"):
        succeeded = status.phase is JobPhase.SUCCEEDED
    ending = status.condition("Complete" if succeeded else "Failed")
    reason, message = status.reason, status.explanation
    if ending is not None and ending.status == "True":
        reason, message = ending.reason, ending.message
    return Step(Stage.SUCCEEDED if succeeded else Stage.FAILED, 0, reason, message, status.failures)


def _holds(status: JobStatus, kind: str) -> bool:
    condition = status.condition(kind)
    return condition is not None and condition.status == "True"


def _start(old: JobStatus, step: Step, started: float) -> float | None:
    if step.stage is Stage.SUSPENDED:
        return None
    return started if step.stage is Stage.RUNNING else old.start_s


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
    fixed = {
        Stage.WAITING: JobPhase.PENDING,
        Stage.SUSPENDED: JobPhase.SUSPENDED,
        Stage.SUCCEEDED: JobPhase.SUCCEEDED,
        Stage.FAILED: JobPhase.FAILED,
    }
    if step.stage is not Stage.RUNNING:
        return fixed[step.stage]
    if not job.pods:
        return JobPhase.PENDING
    if step.restarting or step.again or not _has_base(job, step, counts):
        return JobPhase.CREATING
    trainer = counts[Role.TRAINER]
    leaving = any(p.role is Role.TRAINER and p.terminating for p in job.pods)
    settled = step.finishing or trainer.ready == trainer.desired
    return JobPhase.RUNNING if settled and not trainer.pending and not leaving else JobPhase.SCALING


def _has_base(job: Job, step: Step, counts: dict[Role, RoleCount]) -> bool:
    """True where the job can work: without its minimum only where trainers that finish are not replaced.

    A pserver of a gang that has exited 0 is not replaced either, and the job goes on without it.
    """
    for fixed in job.fixed:
        done = 0 if job.fault_tolerant else len(job.completed(fixed.role))
        if counts[fixed.role].ready + done < fixed.count:
            return False
    return (step.finishing and job.fault_tolerant) or counts[Role.TRAINER].ready + len(
        job.completed(Role.TRAINER)
    ) >= job.min_trainers


def _conditions(job: Job, step: Step, phase: JobPhase, stamp: float) -> tuple[Condition, ...]:
    runs = phase in {JobPhase.RUNNING, JobPhase.SCALING}
    running_reason = again_reason(step.again) if step.again is not None else phase.value
    running_reason = RESTARTING if step.restarting else running_reason
    complete = "Finishing" if step.finishing else "NotFinished"
    complete = TRAINER_LOST if step.trainer_lost else complete
    complete_message = {
        "Finishing": f"{len(job.completed(Role.TRAINER))} trainers have exited 0",
        TRAINER_LOST: "the last trainer was lost before it finished; it is replaced",
        "NotFinished": "no trainer has finished",
    }[complete]
    done, failed = phase is JobPhase.SUCCEEDED, phase is JobPhase.FAILED
    facts = (
        ("Admitted", step.stage is Stage.RUNNING, step.reason, step.message),
        ("Running", runs, running_reason, _RUNNING_MESSAGES.get(running_reason, "the job has no pods")),
        ("Resizing", phase is JobPhase.SCALING, *_resizing(step, phase)),
        ("Degraded", step.trouble is not None, *_trouble(step)),
        ("Complete", done, *((step.reason, step.message) if done else (complete, complete_message))),
        ("Failed", failed, *((step.reason, step.message) if failed else ("NotFailed", "the job has not failed"))),
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


_RUNNING_MESSAGES = {
    JobPhase.PENDING.value: "the job has no pods",
    JobPhase.CREATING.value: "waiting for the master, the pservers and the minimum of trainers",
    JobPhase.RUNNING.value: "every pod that is wanted is ready",
    JobPhase.SCALING.value: "the minimum is ready and the number of trainers is changing",
    RESTARTING: "every pod is taken down before the job starts anew",
    **{again_reason(role): f"every {role.value} exited 0 and is to run again" for role in Role},
}


def _trouble(step: Step) -> tuple[str, str]:
    if step.trouble is None:
        return "AsExpected", "nothing is wrong"
    reason, message = step.trouble
    return reason, message if len(message) <= _LONGEST_WORDS else f"{message[: _LONGEST_WORDS - 3]}..."


def _resizing(step: Step, phase: JobPhase) -> tuple[str, str]:
    if phase is JobPhase.SCALING:
        return step.reason, f"going to {step.target} trainers"
    return "Settled", "the number of trainers is not changing"


def _since(job: Job, kind: str, *, holds: bool, stamp: float) -> float:
    before = job.status.condition(kind) if job.status else None
    unchanged = before is not None and before.status == ("True" if holds else "False")
    return before.since_s if before is not None and unchanged else stamp


def _resize(job: Job, old: JobStatus, step: Step, trainer: RoleCount, stamp: float) -> Resize | None:
    """The last resize; a shrink stands as long as a rule counts from it, even if the job grows meanwhile."""
    was, live = old.trainer.ready + old.trainer.pending, trainer.ready + trainer.pending
    before, last = old.trainer.desired, old.last_resize
    voluntary_s = last.voluntary_s if last is not None else None
    if voluntary_s is not None and stamp - voluntary_s >= job.cooldown_s:
        voluntary_s = None
    if preempted_trainers(job) and live < was:
        return Resize(stamp, was, live, Reason.SERVING_NEEDS_ROOM.value, voluntary_s)
    if step.stage is Stage.RUNNING and not job.was_admitted:
        before = min(step.target, job.min_trainers)
    if step.held or step.target == before or step.stage not in {Stage.RUNNING, Stage.WAITING} or step.finishing:
        return last
    is_shrink = step.target < before
    if is_shrink and step.stage is Stage.RUNNING and not step.shrink_reason and max(was, live) <= step.target:
        return _less_wanted(last, step, stamp)
    if is_shrink:
        reason = _shrink_reason(job, step)
        is_voluntary = step.stage is Stage.RUNNING and reason in VOLUNTARY_SHRINKS and not step.never_ran
        return Resize(stamp, before, step.target, reason, stamp if is_voluntary else voluntary_s)
    hold_s = max(job.cooldown_s, Limits().growth_hold_s)
    if last is not None and last.to_count < last.from_count and stamp - last.time_s < hold_s:
        return last
    return Resize(stamp, before, step.target, step.reason, voluntary_s)


def _less_wanted(last: Resize | None, step: Step, stamp: float) -> Resize | None:
    """The last resize once less is wanted than it had in view: nobody dies, so a growth only ends earlier."""
    if last is None or last.to_count <= max(last.from_count, step.target):
        return last
    return replace(last, time_s=stamp, from_count=min(last.from_count, step.target), to_count=step.target)


def _with_cost(resize: Resize | None, master_view: MasterView | None) -> Resize | None:
    """The resize with what it has cost, once that is measured."""
    if resize is None or master_view is None or master_view.lost_s is None or resize.lost_s is not None:
        return resize
    return replace(resize, lost_s=round(master_view.lost_s, 1))


def _progress(job: Job, step: Step, master_view: MasterView | None) -> Progress | None:
    """A job that has ended keeps what was last heard."""
    if step.stage in {Stage.SUCCEEDED, Stage.FAILED}:
        return (master_view.progress if master_view is not None else None) or (
            job.status.dataset if job.status else None
        )
    return stored_progress(job, master_view, runs=step.stage is Stage.RUNNING and not step.restarting)


def _shrink_reason(job: Job, step: Step) -> str:
    """Of the plan; else what stands on the pods that are leaving, in case we were killed before we could say it."""
    if step.shrink_reason:
        return step.shrink_reason
    stated = sorted(p.intent for p in job.pods if p.role is Role.TRAINER and p.terminating and p.intent)
    return next((s for s in stated if s in set(Reason)), step.reason)


def _events(job: Job, old: JobStatus, new: JobStatus, step: Step) -> tuple[EmitEvent, ...]:
    told: list[tuple[EventKind, str, str]] = []
    if new.phase is not old.phase:
        told += _phase_events(new, step)
    told += _trainer_events(job, old, new, step)
    if new.failures > old.failures:
        told.append((EventKind.WARNING, Intent.POD_FAILED.value, _failure_message(job, new)))
    if step.restarting and not _had(old, "Running", RESTARTING):
        told.append((EventKind.WARNING, RESTARTING, f"{step.restarting}; every pod starts anew"))
    if step.trouble and not _had(old, "Degraded", step.trouble[0]):
        told.append((EventKind.WARNING, *step.trouble))
    return tuple(EmitEvent(job.key, job.uid, *event) for event in told)


def _had(old: JobStatus, kind: str, reason: str) -> bool:
    condition = old.condition(kind)
    return condition is not None and condition.reason == reason


def _phase_events(new: JobStatus, step: Step) -> list[tuple[EventKind, str, str]]:
    if new.phase is JobPhase.SUCCEEDED:
        return [(EventKind.NORMAL, "Succeeded", step.message)]
    if new.phase is JobPhase.FAILED:
        return [(EventKind.WARNING, "Failed", f"{step.reason}: {step.message}")]
    if new.phase is JobPhase.SUSPENDED:
        return [(EventKind.NORMAL, "Suspended", step.message)]
    return []


_MOVED = Intent.MOVED.value
_WAITING_KINDS = {
    Reason.UNSCHEDULABLE.value: EventKind.WARNING,
    Reason.MIN_UNSATISFIED.value: EventKind.NORMAL,
    Reason.QUOTA_REACHED.value: EventKind.NORMAL,
}


def _trainer_events(job: Job, old: JobStatus, new: JobStatus, step: Step) -> list[tuple[EventKind, str, str]]:
    if step.held or step.finishing or step.stage not in {Stage.RUNNING, Stage.WAITING}:
        return []
    told: list[tuple[EventKind, str, str]] = []
    was, live = old.trainer.ready + old.trainer.pending, new.trainer.ready + new.trainer.pending
    preempted = preempted_trainers(job) and live < was
    if preempted:
        message = f"{was} -> {live}: kube-scheduler gave the room to a pod of higher priority"
        told.append((EventKind.WARNING, "Preempted", message))
    before, after = old.trainer.desired, new.trainer.desired
    admitted = old.condition("Admitted")
    if step.stage is Stage.RUNNING and (admitted is None or admitted.status != "True"):
        before = min(after, job.min_trainers)
        told.append((EventKind.NORMAL, Reason.ADMITTED.value, f"the job gets its minimum of {before} trainers"))
    if after > before:
        told.append((EventKind.NORMAL, "ScaledUp", f"{before} -> {after}: {step.message}"))
    elif after < before and not (preempted and after == live):
        told.append((EventKind.NORMAL, "ScaledDown", f"{before} -> {after}: {step.message}"))
    elif step.shrink_reason and after == before and step.stage is Stage.RUNNING:
        told.append((EventKind.NORMAL, _MOVED, f"trainers make way and start anew elsewhere: {step.message}"))
    elif step.stage is Stage.WAITING and new.reason != old.reason and new.reason in _WAITING_KINDS:
        told.append((_WAITING_KINDS[new.reason], new.reason, step.message))
    if step.moving:
        names = ", ".join(step.moving)
        told.append((EventKind.NORMAL, _MOVED, f"{names}: start anew elsewhere; trainers get their room"))
    return told


def _failure_message(job: Job, new: JobStatus) -> str:
    failed = [p for p in job.pods if p.phase is PodPhase.FAILED and not p.intent and not p.disruption]
    said = ", ".join(failure_of(p) for p in failed)
    return f"{said or 'a pod failed'}; {new.failures} of {job.backoff_limit} tolerated failures"
