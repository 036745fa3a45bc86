"""Orders the jobs whose writes are to be computed: changed ones and those whose time has come, none in a backoff.

To look at a job is to compute its writes again. What a job needs follows from the job with its pods, its allotment,
the facts around it, and the time. The time enters only through the ends that are listed in `next_end_s`: of the
deadline, of the time to live, of a cooldown or growth hold, of the time in which kube-scheduler must bind a pod to
its node, and of those in which a pod must start and end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from zlib import crc32

from edl.lifecycle.conditions import has_reason
from edl.lifecycle.node_pinning import REFUSED_AFTER_S
from edl.lifecycle.pod_events import FAILED, steady_s
from edl.lifecycle.trials.unstarted import NOT_STARTED_AFTER_S
from edl.model.actions import Outcome, Result
from edl.model.jobs import Job
from edl.model.limits import GROWTH_HOLD_S
from edl.model.pods import OVERDUE_S
from edl.model.status import JobStatus

TROUBLE_S = 1.0
"""How often the writes of a job with trouble on a node are computed again: its other trainers may confirm it."""
LOOK_AFTER_S = 300.0
"""The longest time after which the writes of a job are computed again; the shortest is half of it."""

JOBS_AT_ONCE = 5
"""The writes of so many jobs are computed between two sends; one job takes some milliseconds at worst."""
LEAST_SWEPT = 1000
"""Times and places that are out of date are swept out once they are more than this and than the jobs."""
CONFLICT_S = 0.1
"""The backoff of a job after its first conflict: the watch shows soon what has changed."""


Rank = tuple[bool, bool]
RANKS: tuple[Rank, ...] = ((False, False), (False, True), (True, False), (True, True))
"""The lowest first."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a job in the order in which jobs are looked at.

    Attributes:
        rank: whether it has not changed itself, and whether it comes after those that have changed as much; jobs of
            a lower rank come first.
        namespace: of the job.
        number: counts the jobs in the order in which they came.
    """

    rank: Rank
    namespace: str
    number: int


class _InTurn:
    """The jobs of one rank; namespaces take turns, and each gives its jobs by their numbers.

    Both heaps may have entries that are out of date. They go once they come first, so to find the next jobs costs as
    much as these are, and not as all are.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, list[tuple[int, str]]] = {}  # by namespace: a heap of numbers and UIDs
        self._heads: list[tuple[int, str]] = []  # a heap with the first number of each namespace

    def push(self, namespace: str, number: int, uid: str) -> None:
        """Add a job."""
        jobs = self._jobs.setdefault(namespace, [])
        heappush(jobs, (number, uid))
        if jobs[0][0] == number:
            heappush(self._heads, (number, namespace))

    def first(self, most: int, judge: Callable[[int, str], bool | None]) -> list[str]:
        """Return the next jobs without removing them.

        Args:
            most: so many at most.
            judge: of the number and the UID of a job: True if it may be looked at now, None if it is gone.
        """
        found: list[str] = []
        kept: list[tuple[str, int, str]] = []
        heads, turned = self._heads, set[str]()
        while heads and len(found) < most:
            number, namespace = heappop(heads)
            jobs = self._jobs.get(namespace, [])
            if namespace not in turned and jobs and jobs[0][0] == number:
                _, uid = heappop(jobs)
                if (may_be := judge(number, uid)) is not None:
                    kept.append((namespace, number, uid))
                if may_be:
                    found.append(uid)
                    turned.add(namespace)
                elif jobs:
                    heappush(heads, (jobs[0][0], namespace))
                else:
                    del self._jobs[namespace]
            if not heads:
                heads, turned = [(self._jobs[one][0][0], one) for one in turned if self._jobs[one]], set()
                heapify(heads)
        for namespace, number, uid in kept:
            self.push(namespace, number, uid)
        return found


class DueJobs:
    """The jobs to look at, by UID; all times are monotonic seconds.

    Args:
        retry_s, retry_at_most_s: how long a job backs off after a write failed; doubled each time.
    """

    def __init__(self, retry_s: float, retry_at_most_s: float) -> None:
        self._retry_s, self._retry_at_most_s = retry_s, retry_at_most_s
        self._now: dict[str, _Place] = {}  # the jobs to look at
        self._in_turn = {rank: _InTurn() for rank in RANKS}
        self._numbers = count()
        self._gone = 0  # jobs that went while they were in a queue
        self._away: set[str] = set()  # those of `_now` that back off, and are in no queue
        self._returns: list[tuple[float, str]] = []  # a heap: when they come back
        self._later: dict[str, float] = {}  # when a job is looked at without a change
        self._ends: list[tuple[float, str]] = []  # a heap of these, and of some that are out of date
        self._backoffs: dict[str, tuple[int, float]] = {}  # failures in a row, and the end of the backoff

    def __contains__(self, uid: str) -> bool:
        """True if a job is to be looked at as soon as it may be."""
        return uid in self._now

    def add(self, uid: str, namespace: str, *, is_news: bool, is_after: bool) -> None:
        """Add a job, so that its writes are computed.

        Args:
            uid: its UID.
            namespace: its namespace.
            is_news: something has happened to the job itself: it comes first.
            is_after: it comes after those that have changed as much; this stays until it is looked at.
        """
        before = self._now.get(uid)
        if before is None:
            place = _Place((not is_news, is_after), namespace, next(self._numbers))
        elif is_news and before.rank[0]:
            place = replace(before, rank=(False, before.rank[1]))
        else:
            return
        self._now[uid] = place
        self._away.discard(uid)
        self._push(uid)

    def _push(self, uid: str) -> None:
        place = self._now[uid]
        self._in_turn[place.rank].push(place.namespace, place.number, uid)

    def later(self, uid: str, at_s: float, *, or_sooner: bool = False) -> None:
        """Add a job once a time has come; with `or_sooner` an earlier time that is set stays."""
        if or_sooner and self._later.get(uid, inf) <= at_s:
            return
        self._later[uid] = at_s
        heappush(self._ends, (at_s, uid))
        if len(self._ends) > 2 * len(self._later) + LEAST_SWEPT:
            self._ends = [(end_s, one) for one, end_s in self._later.items()]
            heapify(self._ends)

    def take_later(self, now_s: float) -> list[str]:
        """Return, once, the jobs whose time has come, the earliest first."""
        due = []
        while self._ends and self._ends[0][0] <= now_s:
            at_s, uid = heappop(self._ends)
            if self._later.get(uid) == at_s:
                del self._later[uid]
                due.append(uid)
        return due

    def has_more(self, closed: Callable[[], Collection[str]], now_s: float) -> bool:
        """True if a job may be looked at now; `closed` returns the jobs for which an answer is awaited."""
        return bool(self._now) and bool(self.first(closed(), now_s, 1))

    def first(self, closed: Collection[str], now_s: float, most: int = JOBS_AT_ONCE) -> list[str]:
        """Return the next jobs without removing them; among jobs of equal rank, namespaces take turns.

        Args:
            closed: the jobs for which an answer is awaited.
            now_s: the time.
            most: so many at most.
        """
        self._come_back(now_s)
        found: list[str] = []
        for rank, in_turn in self._in_turn.items():
            found += in_turn.first(most - len(found), partial(self._judge, rank, closed, now_s))
        return found

    def remove(self, uid: str) -> None:
        """Remove a job, because its writes are being computed."""
        del self._now[uid]
        self._away.discard(uid)

    def _judge(self, rank: Rank, closed: Collection[str], now_s: float, number: int, uid: str) -> bool | None:
        """Return whether the job may be looked at now; None to drop the entry: it is stale, or the job backs off."""
        place = self._now.get(uid)
        if place is None or (place.rank, place.number) != (rank, number):
            return None
        if self._backs_off(uid, now_s):
            self._away.add(uid)
            heappush(self._returns, (self._backoffs[uid][1], uid))
            return None
        return uid not in closed

    def _backs_off(self, uid: str, now_s: float) -> bool:
        return self._backoffs.get(uid, (0, -inf))[1] > now_s

    def _come_back(self, now_s: float) -> None:
        """Put the jobs back whose backoff is over."""
        while self._returns and self._returns[0][0] <= now_s:
            _, uid = heappop(self._returns)
            self._wake(uid)

    def _wake(self, uid: str) -> None:
        if uid in self._away:
            self._away.discard(uid)
            self._push(uid)

    def back_off(self, uid: str, failed: Sequence[Outcome], now_s: float) -> None:
        """Let a job back off after a failure or a conflict, longer each time; a success ends that.

        A write that ends during the backoff was sent before it, and says nothing new.
        """
        before, until_s = self._backoffs.get(uid, (0, -inf))
        if now_s < until_s:
            return
        if not failed:
            self._backoffs.pop(uid, None)
            return
        first_s = {Result.FAILED: self._retry_s, Result.CONFLICT: CONFLICT_S}.get(failed[-1].result)
        if first_s is not None:
            pause_s = min(self._retry_at_most_s, first_s * 2.0 ** min(before, 10))
            self._backoffs[uid] = (before + 1, now_s + pause_s)

    def end_backoffs(self, uids: Iterable[str] | None = None) -> None:
        """End the backoff of these jobs; None: of all."""
        for uid in list(self._backoffs) if uids is None else uids:
            self._backoffs.pop(uid, None)
            self._wake(uid)

    def next_s(self) -> list[float]:
        """The times at which a job may come up although nothing changes; some may be of no effect."""
        return [heap[0][0] for heap in (self._ends, self._returns) if heap]

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._away.discard(uid)
        self._gone += uid in self._now
        for known in (self._now, self._later, self._backoffs):
            known.pop(uid, None)
        if self._gone > len(self._now) + LEAST_SWEPT:  # a replica without the lease looks at none
            self._gone, self._in_turn = 0, {rank: _InTurn() for rank in RANKS}
            for one in self._now.keys() - self._away:
                self._push(one)


def spread(job_uid: str) -> float:
    """A number from 0 to 1 that depends on the UID alone, so that periodic work of many jobs does not coincide."""
    return crc32(job_uid.encode()) / 2**32


def next_end_s(job: Job, now_s: float) -> float:
    """The first time after now at which what the job needs may change by itself.

    Args:
        job: with its pods and its status.
        now_s: seconds since the epoch, as the result.
    """
    return min(end_s for end_s in _ends(job, now_s) if end_s > now_s)


def _ends(job: Job, now_s: float) -> Iterator[float]:
    is_troubled = job.status is not None and job.status.troubles
    yield now_s + (TROUBLE_S if is_troubled else LOOK_AFTER_S * (0.5 + 0.5 * spread(job.uid)))
    for pod in job.pods:
        if pod.pinned and pod.answered_s is not None:
            yield pod.answered_s + REFUSED_AFTER_S
        if not pod.has_begun and pod.created_s:  # else it is being created
            yield pod.created_s + NOT_STARTED_AFTER_S
        if pod.terminating and pod.ends_by_s is not None:
            yield pod.ends_by_s + OVERDUE_S
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
        if resize.unseen is not None:
            yield resize.unseen.until_s
