"""Finds jobs whose pods all run: nearly every job of a large cluster, and pauses need not look at them."""

from __future__ import annotations

from collections.abc import Sequence

from edl.model.jobs import Job


class CalmJobs:
    """Caches which jobs are calm, so that a plan looks only at the pods of jobs that have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Job, bool]] = {}

    def among(self, jobs: Sequence[Job]) -> frozenset[str]:
        """The UIDs of the calm jobs among these."""
        known = self._known = self._known if len(self._known) <= 2 * len(jobs) else {}
        found = []
        for job in jobs:
            judged = known.get(job.uid)
            if judged is None or judged[0] is not job:
                judged = known[job.uid] = (job, is_calm(job))
            if judged[1]:
                found.append(job.uid)
        return frozenset(found)


def is_calm(job: Job) -> bool:
    """True if every pod of a job has a node and has begun, none terminates, and no failure is reported.

    What holds for such a job holds until it changes, whatever time it is.
    """
    degraded = job.status.condition("Degraded") if job.status is not None else None
    is_degraded = degraded is not None and degraded.status == "True"
    return not is_degraded and all(pod.node and pod.has_begun and not pod.terminating for pod in job.pods)
