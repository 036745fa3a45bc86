"""`status.lastResize` of a TrainingJob: the last change of its trainer count.

In the planner the cooldown and the hold after a shrink start at this entry. A growth therefore does not replace a
shrink while one of these periods lasts.
"""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.pod_events import preempted_trainers
from edl.lifecycle.step import Stage, Step
from edl.model.jobs import Job
from edl.model.limits import GROWTH_HOLD_S
from edl.model.names import Role
from edl.model.plan import VOLUNTARY_SHRINKS
from edl.model.status import JobStatus, Reason, Resize, RoleCount


def last_resize(
    job: Job, step: Step, trainer: RoleCount, stamp: float, master_view: MasterView | None
) -> Resize | None:
    """The last resize of a job after a step, with its measured cost.

    Args:
        job: the job with its stored status and its pods.
        step: what edl decided.
        trainer: the trainers of the job now.
        stamp: the time of a new resize, in whole seconds since the epoch.
        master_view: what the job's master reports; None if nothing is known.
    """
    resize = _resize(job, step, trainer, stamp)
    if resize is None or master_view is None or master_view.lost_s is None or resize.lost_s is not None:
        return resize
    return replace(resize, lost_s=round(master_view.lost_s, 1))


def _resize(job: Job, step: Step, trainer: RoleCount, stamp: float) -> Resize | None:
    old = job.status or JobStatus()
    was, live = old.trainer.ready + old.trainer.pending, trainer.ready + trainer.pending
    before, last = old.trainer.desired, old.last_resize
    voluntary_s = last.voluntary_s if last is not None else None
    if voluntary_s is not None and stamp - voluntary_s >= job.cooldown_s:
        voluntary_s = None
    if preempted_trainers(job) and live < was:
        return Resize(stamp, was, live, Reason.SERVING_NEEDS_ROOM.value, voluntary_s)
    if step.stage is Stage.RUNNING and not job.was_admitted:
        before = min(step.target, job.min_trainers)
    is_planned = step.stage in {Stage.RUNNING, Stage.WAITING} and not (step.unplanned or step.finishing)
    if not is_planned or step.target == before:
        return last
    if step.target > before:
        hold_s = max(job.cooldown_s, GROWTH_HOLD_S)
        is_held = last is not None and last.to_count < last.from_count and stamp - last.time_s < hold_s
        return last if is_held else Resize(stamp, before, step.target, step.reason, voluntary_s)
    if step.stage is Stage.RUNNING and not step.shrink_reason and max(was, live) <= step.target:
        return _lower_growth(last, step, stamp)
    reason = _shrink_reason(job, step)
    is_voluntary = step.stage is Stage.RUNNING and reason in VOLUNTARY_SHRINKS and not step.never_ran
    return Resize(stamp, before, step.target, reason, stamp if is_voluntary else voluntary_s)


def _lower_growth(last: Resize | None, step: Step, stamp: float) -> Resize | None:
    """Correct the last resize after a lower target that deletes no trainer: the growth only ended earlier."""
    if last is None or last.to_count <= max(last.from_count, step.target):
        return last
    return replace(last, time_s=stamp, from_count=min(last.from_count, step.target), to_count=step.target)


def _shrink_reason(job: Job, step: Step) -> str:
    """The reason of the plan or, after a restart of the controller, the intent on the terminating trainers."""
    if step.shrink_reason:
        return step.shrink_reason
    intents = sorted(p.intent for p in job.pods if p.role is Role.TRAINER and p.terminating and p.intent)
    return next((intent for intent in intents if intent in set(Reason)), step.reason)
