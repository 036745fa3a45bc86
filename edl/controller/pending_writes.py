"""Orders the writes that may be sent: by lane (kind of write), then by namespace and job; repeated ones wait.

A job's writes are replaced as a whole whenever they are computed anew, so a superseded write is not here any more.
Which write must wait for another one of its job is decided where they are computed (`job_writes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from math import inf

from edl.model.actions import Action, PatchStatus

STATUS_EVERY = 8
"""Every eighth write is a status, so that endless growth never delays the statuses of other jobs for long."""

REPEAT_S = 1.0
"""The same write is sent again after this time at the earliest, if it succeeded and the cache does not show it."""


class Lane(IntEnum):
    """The purpose of a write; writes of the lane with the lowest number are sent first."""

    EVICT = 0  # deletions so that serving pods fit
    REPORT = 1  # the first status of a job, and its last one
    END = 2  # other deletions, and the marks of failed pods
    BASE = 3  # probes, what pods need, masters and pservers
    MINIMUM = 4  # trainers up to the minimum
    LOSS = 5  # the status of a job that has lost ready pods
    SURPLUS = 6  # the other trainers
    STATUS = 7  # other statuses, with their events
    OVERSIZED = 8  # the same of jobs that are too large to be read, one after the other


STARTS = (Lane.END, Lane.BASE, Lane.MINIMUM)
"""The lanes that in every second turn come before the first statuses of jobs."""
URGENT = tuple(lane for lane in Lane if lane < Lane.SURPLUS)


def lanes_in_turn(turn: int, *, background: bool, is_held: bool) -> list[Lane]:
    """The order of lanes in which to look for the next write.

    Args:
        turn: counts the writes, from 0 to `STATUS_EVERY`.
        background: also surplus growth and events, which nobody waits for.
        is_held: no surplus grows.
    """
    lanes = [lane for lane in Lane if (background or lane in URGENT) and not (is_held and lane is Lane.SURPLUS)]
    if turn % 2:  # hundreds of new jobs do not keep pods from others
        lanes.sort(key=lambda lane: (lane is not Lane.EVICT and lane not in STARTS, lane))
    return [Lane.STATUS, *lanes] if background and (turn + 1) % STATUS_EVERY == 0 else lanes


@dataclass(frozen=True, slots=True)
class Write:
    """Actions that are carried out one after the other; the first failure ends them.

    Attributes:
        actions: at least one.
        lane: what they are for.
        generation: that of the job when they were sent.
    """

    actions: tuple[Action, ...]
    lane: Lane
    generation: int = 0

    @property
    def job_uid(self) -> str:
        """The UID of the job that the write is for."""
        return self.actions[0].job_uid

    @property
    def status(self) -> PatchStatus | None:
        """The status that the write contains; None if it contains none."""
        return next((action for action in self.actions if isinstance(action, PatchStatus)), None)


class PendingWrites:
    """The writes of all jobs that are not sent yet, by lane; within a lane namespaces take turns, and their jobs."""

    def __init__(self) -> None:
        self._ready: dict[Lane, dict[str, dict[str, deque[Write]]]] = {lane: {} for lane in Lane}
        self._namespaces: dict[str, str] = {}  # by UID of the job

    def replace(self, job_uid: str, writes: Iterable[Write]) -> None:
        """Replace all writes of a job; the job keeps its position among the others."""
        by_lane: dict[Lane, deque[Write]] = {}
        for write in writes:
            by_lane.setdefault(write.lane, deque()).append(write)
            self._namespaces[job_uid] = write.actions[0].job.namespace
        namespace = self._namespaces.get(job_uid)
        if namespace is None:  # it has never had any
            return
        for lane, namespaces in self._ready.items():
            if lane in by_lane:
                namespaces.setdefault(namespace, {})[job_uid] = by_lane[lane]
            elif job_uid in (jobs := namespaces.get(namespace, {})):
                del jobs[job_uid]
                if not jobs:
                    del namespaces[namespace]
        if not by_lane:
            del self._namespaces[job_uid]

    def empty(self, job_uid: str) -> None:
        """Remove the writes of a job, because they are computed again soon; the job keeps its position."""
        for jobs in self._of(job_uid):
            jobs[job_uid] = deque()

    def take(self, lanes: Iterable[Lane]) -> Write | None:
        """Remove and return the next write of the first of these lanes that has one; None if none has."""
        for lane in lanes:
            namespaces = self._ready[lane]
            for namespace, jobs in namespaces.items():
                uid = next((uid for uid, writes in jobs.items() if writes), None)
                if uid is None:
                    continue
                writes = jobs.pop(uid)
                write = writes.popleft()
                if writes:
                    jobs[uid] = writes  # behind the other jobs
                del namespaces[namespace]
                if jobs:
                    namespaces[namespace] = jobs  # behind the other namespaces
                return write
        return None

    def has(self, lanes: Iterable[Lane]) -> bool:
        """Return True if a write is pending in one of the given lanes."""
        return any(any(jobs.values()) for lane in lanes for jobs in self._ready[lane].values())

    def has_of(self, job_uid: str) -> bool:
        """True if a job has a write."""
        return any(jobs[job_uid] for jobs in self._of(job_uid))

    def clear(self) -> None:
        """Remove every write."""
        self._namespaces.clear()
        for namespaces in self._ready.values():
            namespaces.clear()

    def _of(self, job_uid: str) -> list[dict[str, deque[Write]]]:
        """The jobs of each lane and namespace in which a job has a place."""
        namespace = self._namespaces.get(job_uid)
        if namespace is None:  # it has none, as nearly all jobs
            return []
        found = (namespaces.get(namespace, {}) for namespaces in self._ready.values())
        return [jobs for jobs in found if job_uid in jobs]


class DoneWrites:
    """The last write of each job that succeeded; if the cache does not show its effect, it is computed again."""

    def __init__(self) -> None:
        self._of_job: dict[str, tuple[Write, float]] = {}  # and when it may be sent again

    def add(self, write: Write, now_s: float) -> None:
        """Note that a write has succeeded; monotonic seconds."""
        self._of_job[write.job_uid] = write, now_s + REPEAT_S

    def repeated_s(self, write: Write) -> float:
        """When a write may be sent, in monotonic seconds; minus infinity if it was not sent just now."""
        done = self._of_job.get(write.job_uid)
        return done[1] if done is not None and done[0].actions == write.actions else -inf

    def forget(self, job_uid: str) -> None:
        """Forget a job that no longer exists."""
        self._of_job.pop(job_uid, None)
