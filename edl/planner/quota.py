"""Quotas of queues: what the jobs of a queue may request together, and how much of it they use at given counts.

A quota limits requests, resource by resource: those of the trainers, masters and pservers of all jobs of the queue
that run. Terminating pods do not count. A queue, or a resource of it, that is not named has no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import Quota
from edl.model.pods import Pod


class QuotaRow(NamedTuple):
    """One limit.

    Attributes:
        queue: name of the queue.
        resource: name of the resource.
        limit: the most that the jobs of the queue may request together, in the units of `Resources`.
    """

    queue: str
    resource: str
    limit: int


class QuotaUse(NamedTuple):
    """What a job uses of one limit.

    Attributes:
        row: the limit.
        each: the request of one trainer.
        fixed: the requests of all its masters and pservers.
    """

    row: QuotaRow
    each: int
    fixed: int

    def total(self, count: int) -> int:
        """What the job uses with `count` trainers."""
        return self.fixed + self.each * count


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A limit that keeps a job from having more.

    Attributes:
        row: the limit.
        used: what is used of it already.
        needs: what the job would use in addition.
    """

    row: QuotaRow
    used: int
    needs: int


def quota_uses_of(job: Job, quotas: Iterable[Quota]) -> tuple[QuotaUse, ...]:
    """What a job uses of each limit of its queue.

    Trainers differ if the job's resources were changed while it runs. All of them then count as the largest, so that
    no choice of victims can exceed a limit.
    """
    quota_uses = []
    for quota in quotas:
        if quota.queue != job.queue:
            continue
        live = [pod for pod in job.pods if pod.is_live]
        for resource, limit in quota.amounts:
            trainers = [pod.shape.request[resource] for pod in live if pod.role is Role.TRAINER]
            each = max([job.trainer.request[resource], *trainers])
            quota_uses.append(QuotaUse(QuotaRow(quota.queue, resource, limit), each, _fixed(job, live, resource)))
    return tuple(quota_uses)


def _fixed(job: Job, live: list[Pod], resource: str) -> int:
    """The requests of masters and pservers: of the live ones, and of those that the job still lacks."""
    total = sum(pod.shape.request[resource] for pod in live if pod.role is not Role.TRAINER)
    for fixed in job.fixed:
        missing = max(0, fixed.count - sum(pod.role is fixed.role for pod in live))
        total += missing * fixed.shape.request[resource]
    return total


def most_alone(quota_uses: Iterable[QuotaUse]) -> float:
    """The most trainers that the limits allow a job if no other job of its queue runs.

    Infinite without a limit; minus infinity if the masters and pservers alone exceed one.
    """
    most = (
        float("-inf")
        if quota_use.fixed > quota_use.row.limit
        else (quota_use.row.limit - quota_use.fixed) // quota_use.each
        for quota_use in quota_uses
        if quota_use.each or quota_use.fixed > quota_use.row.limit
    )
    return min(most, default=float("inf"))


class QuotaMeter:
    """How much of each limit some jobs use at their counts.

    The caller keeps it up to date: `add` for each further trainer, `start` for each further job.

    Attributes:
        used: the sum of requests for each limit.
    """

    def __init__(self, quota_uses: Mapping[int, tuple[QuotaUse, ...]], counts: Mapping[int, int]) -> None:
        """Add up what jobs use.

        Args:
            quota_uses: what each job uses of each limit, by index of the job.
            counts: trainers of each job, by index of the job.
        """
        self._uses = quota_uses
        self.used: dict[QuotaRow, int] = {}
        for j, count in counts.items():
            for quota_use in quota_uses[j]:
                self.used[quota_use.row] = self.used.get(quota_use.row, 0) + quota_use.total(count)

    def add(self, j: int) -> None:
        """Count one more trainer of a job."""
        for quota_use in self._uses.get(j, ()):
            self.used[quota_use.row] += quota_use.each

    def start(self, quota_uses: Iterable[QuotaUse], low: int) -> None:
        """Count a job that was not counted yet, with `low` trainers, its minimum."""
        for quota_use in quota_uses:
            self.used[quota_use.row] = self.used.get(quota_use.row, 0) + quota_use.total(low)

    def quota_shortage(self, j: int) -> QuotaShortage | None:
        """The first limit that one more trainer of the job would exceed; None if it may have one."""
        for quota_use in self._uses.get(j, ()):
            if quota_use.each and self.used[quota_use.row] + quota_use.each > quota_use.row.limit:
                return QuotaShortage(quota_use.row, self.used[quota_use.row], quota_use.each)
        return None

    def short_of_start(self, quota_uses: Iterable[QuotaUse], low: int) -> QuotaShortage | None:
        """The first limit that a job, not counted yet, would exceed with `low` trainers; None if it may start."""
        for quota_use in quota_uses:
            used = self.used.get(quota_use.row, 0)
            if quota_use.total(low) and used + quota_use.total(low) > quota_use.row.limit:
                return QuotaShortage(quota_use.row, used, quota_use.total(low))
        return None

    def passed(self) -> tuple[QuotaRow, ...]:
        """The limits that are exceeded already, sorted."""
        return tuple(sorted(row for row, used in self.used.items() if used > row.limit))
