"""Jobs that lack nothing: while what they depend on stays the same, nobody has to look at them again.

What a job lacks follows from the job with its pods, its decision, what may start, the facts around it, and the time.
The time enters through a few ends: of the deadline, of the time to live, of a hold or cooldown, and of the patience
with a pod that kube-scheduler does not bind to its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from edl.lifecycle.conditions import has_reason
from edl.lifecycle.desired_state import JobContext
from edl.lifecycle.node_pinning import REFUSED_AFTER_S
from edl.lifecycle.pod_events import FAILED, steady_s
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import GROWTH_HOLD_S, ScaleDecision
from edl.model.status import JobStatus

TROUBLE_S = 1.0
"""How often a job is looked at that had trouble with a node: its other trainers confirm that once they do well."""
LOOK_AFTER_S = 300.0
"""A job is looked at again after this time at most in any case, and after half of it at least: each in its turn."""


@dataclass(frozen=True, slots=True)
class Given:
    """What decides what a job lacks, besides the time."""

    job: Job
    decision: ScaleDecision | None
    places: Sequence[tuple[Role, str]]
    context: JobContext


class SettledJobs:
    """Remembers the jobs that lacked nothing."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Given, float, float]] = {}

    def has(self, given: Given, now_s: float) -> bool:
        """True if the job lacked nothing with the same facts, and no time has ended since.

        Args:
            given: the facts.
            now_s: seconds since the epoch.
        """
        known = self._known.get(given.job.uid)
        return known is not None and known[1] <= now_s < known[2] and known[0] == given

    def lasts(self, job_uid: str, now_s: float) -> bool:
        """True if the job lacked nothing, and no time has ended since; `now_s` is in seconds since the epoch."""
        known = self._known.get(job_uid)
        return known is not None and known[1] <= now_s < known[2]

    def note(self, given: Given, now_s: float, *, lacks: bool) -> None:
        """Remember whether the job lacks something."""
        if lacks:
            self._known.pop(given.job.uid, None)
        else:
            end_s = min(end_s for end_s in _ends(given.job, now_s) if end_s > now_s)
            self._known[given.job.uid] = (given, now_s, end_s)

    def keep_only(self, job_uids: set[str]) -> None:
        """Forget all other jobs."""
        self._known = {uid: known for uid, known in self._known.items() if uid in job_uids}


def turn_of(job_uid: str) -> float:
    """A number from 0 to 1 by the UID, so that jobs take turns, and two simulations with one seed do the same."""
    return crc32(job_uid.encode()) / 2**32


def _ends(job: Job, now_s: float) -> Iterator[float]:
    """When each time ends that what a job lacks depends on; in seconds since the epoch."""
    is_troubled = job.status is not None and job.status.troubles
    yield now_s + (TROUBLE_S if is_troubled else LOOK_AFTER_S * (0.5 + 0.5 * turn_of(job.uid)))
    for pod in job.pods:
        if pod.pinned and pod.answered_s is not None:
            yield pod.answered_s + REFUSED_AFTER_S
    if job.status is not None:
        yield from _ends_of(job, job.status)
        if has_reason(job.status, "Degraded", FAILED):
            yield steady_s(job)


def _ends_of(job: Job, status: JobStatus) -> Iterator[float]:
    if job.active_deadline_s is not None and status.start_s is not None:
        yield status.start_s + job.active_deadline_s
    if job.ttl_s is not None and status.completion_s is not None:
        yield status.completion_s + job.ttl_s
    if (resize := status.last_resize) is not None:
        yield resize.time_s + max(job.cooldown_s, GROWTH_HOLD_S)
        if resize.voluntary_s is not None:
            yield resize.voluntary_s + job.cooldown_s
