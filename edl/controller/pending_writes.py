"""The writes that may be sent now: which kind comes first, and which job is next.

A job's writes are replaced as a whole whenever they are computed anew, so a superseded write is not here any more.
Which write must wait for another one of its job is decided where they are computed (`job_writes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from edl.model.actions import Action

STATUS_EVERY = 8
"""Every eighth write is a status, so that endless growth never delays the statuses of other jobs for long."""


class Lane(IntEnum):
    """What a write is for; the lowest number is sent first."""

    EVICT = 0  # deletions so that serving pods fit
    REPORT = 1  # the first status of a job, and its last one
    END = 2  # other deletions, and the marks of failed pods
    BASE = 3  # probes, what pods need, masters and pservers
    MINIMUM = 4  # trainers up to the minimum
    LOSS = 5  # the status of a job that has lost ready pods
    SURPLUS = 6  # the other trainers
    STATUS = 7  # other statuses, with their events


@dataclass(frozen=True, slots=True)
class Write:
    """Actions that are carried out one after the other; the first failure ends them.

    Attributes:
        actions: at least one.
        lane: what they are for.
    """

    actions: tuple[Action, ...]
    lane: Lane

    @property
    def job_uid(self) -> str:
        """The UID of the job that the write is for."""
        return self.actions[0].job_uid


class PendingWrites:
    """The writes of all jobs that have not been sent, by lane; in a lane the jobs take turns."""

    def __init__(self) -> None:
        self._ready: dict[Lane, dict[str, deque[Write]]] = {lane: {} for lane in Lane}

    def replace(self, job_uid: str, writes: Iterable[Write]) -> None:
        """Replace all writes of a job; the job keeps its place among the others."""
        by_lane: dict[Lane, deque[Write]] = {}
        for write in writes:
            by_lane.setdefault(write.lane, deque()).append(write)
        for lane, jobs in self._ready.items():
            if lane in by_lane:
                jobs[job_uid] = by_lane[lane]
            else:
                jobs.pop(job_uid, None)

    def empty(self, job_uid: str) -> None:
        """Remove the writes of a job whose writes are computed anew soon; the job keeps its place."""
        for jobs in self._ready.values():
            if job_uid in jobs:
                jobs[job_uid] = deque()

    def take(self, lanes: Iterable[Lane]) -> Write | None:
        """Remove and return the next write of the first of these lanes that has one; None if none has."""
        for lane in lanes:
            jobs = self._ready[lane]
            uid = next((uid for uid, writes in jobs.items() if writes), None)
            if uid is not None:
                writes = jobs.pop(uid)
                write = writes.popleft()
                if writes:
                    jobs[uid] = writes  # behind the other jobs
                return write
        return None

    def has(self, lanes: Iterable[Lane]) -> bool:
        """True if one of these lanes has a write."""
        return any(any(self._ready[lane].values()) for lane in lanes)

    def has_of(self, job_uid: str) -> bool:
        """True if a job has a write."""
        return any(jobs.get(job_uid) for jobs in self._ready.values())

    def clear(self) -> None:
        """Remove every write."""
        for jobs in self._ready.values():
            jobs.clear()
