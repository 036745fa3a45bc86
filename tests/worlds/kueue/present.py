"""What is left of a plan in the cluster as it is now: the controller computes it before each write."""

from __future__ import annotations

from collections.abc import Iterable

from edl.controller.allotment import allotment_of
from edl.controller.allotments import Allotments
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision


def present_decision(job: Job, decisions: Iterable[ScaleDecision], now: ClusterSnapshot) -> ScaleDecision | None:
    """Return what a plan still grants to a job; None if it has no decision for it.

    Args:
        job: as it is now.
        decisions: of the plan, which may be old.
        now: what edl has read.
    """
    jobs = {one.key: one for one in now.jobs}
    by_job = {one.job: allotment_of(one, jobs[one.job], frozenset()) for one in decisions}
    return Allotments(by_job).of(job, frozenset(), now).decision
