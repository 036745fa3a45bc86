"""Workloads that the API server does not let edl resize: they are planned with the pods that they have.

A webhook, or a missing right, may refuse each change of `spec.parallelism`. What such a workload would gain is
capacity that it cannot use, and what it would give comes to nobody. So it counts as one that edl does not resize, and
event NotResized has the words of the API server. After each pause it may try for its next size, and not for more: the
attempt may cost others a trainer.
"""

from __future__ import annotations

from dataclasses import replace

from edl.controller.backoff import RefusedAction
from edl.model.jobs import Job, Refusal
from edl.model.sizes import above
from edl.model.status import Reason


def as_refused(job: Job, refused: RefusedAction | None, now_s: float) -> Job:
    """Return the workload for the planner with its count fixed to the pods that it has.

    Args:
        job: with the bounds that it would have otherwise.
        refused: the last refusal to resize it; None if there is none.
        now_s: monotonic seconds.
    """
    count = job.owner_count
    if refused is None or count is None or not job.is_schedulable:
        return job
    if now_s < refused.until_s:
        return replace(job, problem=f"{refused.message}; edl tries again after growing pauses")
    tried = max(job.min_trainers, above(job.sizes, count) or count)
    if job.refusal is not None or tried >= job.max_trainers:
        return job
    return replace(
        job, refusal=Refusal(tried, is_tried=True, reason=Reason.PODS_REFUSED, message=refused.message, details="")
    )
