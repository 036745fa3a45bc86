"""Quotas of queues: what the jobs of a queue may ask for together, and how much of it a set of counts uses.

A quota is a limit on requests, resource by resource: of the trainers, masters and pservers of all jobs of the queue
that run. Pods that are on their way out do not count; a queue, or a resource of it, that is not named has no limit.
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
    """One limit: an amount of a resource, in the units of `Resources`, for one queue."""

    queue: str
    resource: str
    limit: int


class QuotaUse(NamedTuple):
    """What a job takes of a limit: for each trainer, and for its masters and pservers together."""

    row: QuotaRow
    each: int
    fixed: int

    def total(self, count: int) -> int:
        """What the job takes with that many trainers."""
        return self.fixed + self.each * count


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A limit that keeps a job from having more: what others and itself use of it, and what it would need besides."""

    row: QuotaRow
    used: int
    needs: int


def quota_uses_of(job: Job, quotas: Iterable[Quota]) -> tuple[QuotaUse, ...]:
    """What a job takes of each limit of its queue.

    A trainer whose request differs from that of new ones (the job's resources were changed since) counts as the
    larger of both, so that no choice of who dies can pass a limit.
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
    """What the masters and pservers ask for: those that live, and those that the job still lacks."""
    total = sum(pod.shape.request[resource] for pod in live if pod.role is not Role.TRAINER)
    for fixed in job.fixed:
        missing = max(0, fixed.count - sum(pod.role is fixed.role for pod in live))
        total += missing * fixed.shape.request[resource]
    return total


def most_alone(quota_uses: Iterable[QuotaUse]) -> float:
    """The most trainers that the limits leave a job if no other job of its queue ran; infinite without a limit."""
    most = (
        float("-inf")
        if quota_use.fixed > quota_use.row.limit
        else (quota_use.row.limit - quota_use.fixed) // quota_use.each
        for quota_use in quota_uses
        if quota_use.each or quota_use.fixed > quota_use.row.limit
    )
    return min(most, default=float("inf"))


class QuotaMeter:
    """How much of each limit some jobs use with some counts; counts are kept up to date by whoever changes them."""

    def __init__(self, quota_uses: Mapping[int, tuple[QuotaUse, ...]], counts: Mapping[int, int]) -> None:
        """Add up what jobs ask for; both mappings are by index of the claim."""
        self._asks = quota_uses
        self.used: dict[QuotaRow, int] = {}
        for j, count in counts.items():
            for quota_use in quota_uses[j]:
                self.used[quota_use.row] = self.used.get(quota_use.row, 0) + quota_use.total(count)

    def add(self, j: int) -> None:
        """Count one more trainer of a job."""
        for quota_use in self._asks.get(j, ()):
            self.used[quota_use.row] += quota_use.each

    def start(self, quota_uses: Iterable[QuotaUse], low: int) -> None:
        """Count a job that was not counted yet, with its minimum."""
        for quota_use in quota_uses:
            self.used[quota_use.row] = self.used.get(quota_use.row, 0) + quota_use.total(low)

    def quota_shortage(self, j: int) -> QuotaShortage | None:
        """The first limit that one more trainer of the job would pass; None where it may have one."""
        for quota_use in self._asks.get(j, ()):
            if quota_use.each and self.used[quota_use.row] + quota_use.each > quota_use.row.limit:
                return QuotaShortage(quota_use.row, self.used[quota_use.row], quota_use.each)
        return None

    def short_of_start(self, quota_uses: Iterable[QuotaUse], low: int) -> QuotaShortage | None:
        """The first limit that a job, not counted yet, would pass with its minimum; None where it may start."""
        for quota_use in quota_uses:
            used = self.used.get(quota_use.row, 0)
            if quota_use.total(low) and used + quota_use.total(low) > quota_use.row.limit:
                return QuotaShortage(quota_use.row, used, quota_use.total(low))
        return None

    def passed(self) -> tuple[QuotaRow, ...]:
        """The limits that are passed already, sorted."""
        return tuple(sorted(row for row, used in self.used.items() if used > row.limit))
