"""Decides when a status is written: at once, or a little later if more changes are likely to follow.

While many pods start, only the counts of a status change, and each pod would cost a write. And a job that came or was
edited gets its first plan within moments, unless plans take long: then its status need not be written twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from edl.controller.pending_writes import Lane, Write
from edl.model.actions import EmitEvent, Outcome
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.status import JobStatus

DEBOUNCE_S, LONGEST_S = 0.2, 1.0
"""New counts are written the first time after the last change, and the second time after the first one at most."""
PLAN_WITHIN_S = 0.35
"""How long the status of a job waits for the plan that takes the job into account."""
BRIEF_S = 0.1
"""A plan that takes no longer than this is waited for."""


class StatusPace:
    """Keeps the times of the last changes of jobs, and from them when each status is due.

    Attributes:
        plan_s: how long the last plan took.
        unexplained: the jobs of a new plan that has no sentences for them yet: their statuses wait for these.
        oversized_s: when the next status of a job that is too large to be read may be sent, in monotonic seconds;
            infinity while one is under way.
    """

    def __init__(self) -> None:
        self.plan_s, self.oversized_s = 0.0, -inf
        self.unexplained: frozenset[JobKey] = frozenset()
        self._changed_s: dict[str, float] = {}
        self._counted_s: dict[str, tuple[float, float]] = {}

    def explained(self) -> frozenset[JobKey]:
        """Let the statuses be sent that waited for sentences; returns their jobs."""
        waited, self.unexplained = self.unexplained, frozenset()
        return waited

    def changed(self, job_uid: str, now_s: float) -> None:
        """Note that a job was created or changed."""
        self._changed_s[job_uid] = now_s
        if job_uid in self._counted_s:
            self.counted(job_uid, now_s)

    def counted(self, job_uid: str, now_s: float) -> float:
        """Note that only the counts of a job have changed; returns when its status is due."""
        first_s, _ = self._counted_s.get(job_uid, (now_s, now_s))
        self._counted_s[job_uid] = (first_s, now_s)
        return min(first_s + LONGEST_S, now_s + DEBOUNCE_S)

    def is_counted(self, job_uid: str) -> bool:
        """True if the job's status does not show its latest pod counts yet."""
        return job_uid in self._counted_s

    def sent(self, job_uid: str) -> None:
        """Note that the status of a job was sent."""
        self._counted_s.pop(job_uid, None)

    def begins(self, write: Write) -> None:
        """Note that a write is being sent."""
        if write.lane is Lane.OVERSIZED:
            self.oversized_s = inf

    def ended(self, write: Write, outcomes: Iterable[Outcome], now_s: float) -> None:
        """Note that a write has ended; after one of an oversized job, the next such write waits for as long."""
        if write.lane is Lane.OVERSIZED:
            self.oversized_s = now_s + sum(outcome.seconds for outcome in outcomes)

    def may_send_oversized(self, now_s: float, *, at_once: bool) -> bool:
        """Return True if an oversized status may be sent: none is under way, and the pause after the last is over.

        Args:
            now_s: the time.
            at_once: without a pause.
        """
        return self.oversized_s <= now_s or (at_once and self.oversized_s < inf)

    def forget(self, job_uid: str) -> None:
        """Forget a job that no longer exists."""
        self._changed_s.pop(job_uid, None)
        self._counted_s.pop(job_uid, None)

    def due_s(self, job: Job, write: Write, now_s: float, *, is_planned: bool) -> float:
        """When a write may be sent, in monotonic seconds; minus infinity for one that need not wait.

        It is infinity until the decision of the job is explained.

        Args:
            job: the job of the write.
            write: a status or anything else.
            now_s: the time.
            is_planned: the last plan takes the job into account as it is.
        """
        patch = write.status
        if patch is None or patch.status.phase.is_final:
            return -inf
        if job.key in self.unexplained:
            return inf
        is_same_phase = job.status is None or job.status.phase is patch.status.phase
        if not is_planned and is_same_phase and self.plan_s <= BRIEF_S:
            return self._changed_s.get(job.uid, -inf) + PLAN_WITHIN_S
        has_event = any(isinstance(a, EmitEvent) for a in write.actions)
        if write.lane is Lane.REPORT or has_event or not _differs_in_counts(job.status, patch.status):
            return -inf
        first_s, last_s = self._counted_s.setdefault(job.uid, (now_s, now_s))
        if write.lane is Lane.LOSS:  # pods that start meanwhile do not delay it
            last_s = self._changed_s.get(job.uid, last_s)
        return min(first_s + LONGEST_S, last_s + DEBOUNCE_S)


def _differs_in_counts(before: JobStatus | None, now: JobStatus) -> bool:
    """Return True if two statuses differ only in the numbers of ready and pending pods, and in what these lend."""
    if before is None:
        return False
    roles = [(before.trainer, now.trainer), (before.pserver, now.pserver), (before.master, now.master)]
    if any(old.desired != new.desired for old, new in roles):
        return False
    same = replace(now, trainer=before.trainer, pserver=before.pserver, master=before.master, lending=before.lending)
    return same == before
