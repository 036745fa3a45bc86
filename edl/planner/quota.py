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


class QuotaAsk(NamedTuple):
    """What a job takes of a limit: for each trainer, and for its masters and pservers together."""

    row: QuotaRow
    each: int
    fixed: int

    def total(self, count: int) -> int:
        """What the job takes with that many trainers."""
        return self.fixed + self.each * count


@dataclass(frozen=True, slots=True)
class Short:
    """A limit that keeps a job from having more: what others and itself use of it, and what it would need besides."""

    row: QuotaRow
    used: int
    needs: int


def asks_of(job: Job, quotas: Iterable[Quota]) -> tuple[QuotaAsk, ...]:
    """What a job takes of each limit of its queue.

    A trainer whose request differs from that of new ones (the job's resources were changed since) counts as the
    larger of both, so that no choice of who dies can pass a limit.
    """
    asks = []
    for quota in quotas:
        if quota.queue != job.queue:
            continue
        live = [pod for pod in job.pods if pod.is_live]
        for resource, limit in quota.amounts:
            trainers = [pod.shape.request[resource] for pod in live if pod.role is Role.TRAINER]
            each = max([job.trainer.request[resource], *trainers])
            asks.append(QuotaAsk(QuotaRow(quota.queue, resource, limit), each, _fixed(job, live, resource)))
    return tuple(asks)


def _fixed(job: Job, live: list[Pod], resource: str) -> int:
    """What the masters and pservers ask for: those that live, and those that the job still lacks."""
    total = sum(pod.shape.request[resource] for pod in live if pod.role is not Role.TRAINER)
    for fixed in job.fixed:
        missing = max(0, fixed.count - sum(pod.role is fixed.role for pod in live))
        total += missing * fixed.shape.request[resource]
    return total


def most_alone(asks: Iterable[QuotaAsk]) -> float:
    """The most trainers that the limits leave a job if no other job of its queue ran; infinite without a limit."""
    most = (
        float("-inf") if ask.fixed > ask.row.limit else (ask.row.limit - ask.fixed) // ask.each
        for ask in asks
        if ask.each or ask.fixed > ask.row.limit
    )
    return min(most, default=float("inf"))


class Meter:
    """How much of each limit some jobs use with some counts; counts are kept up to date by whoever changes them."""

    def __init__(self, asks: Mapping[int, tuple[QuotaAsk, ...]], counts: Mapping[int, int]) -> None:
        """Add up what jobs ask for; both mappings are by index of the claim."""
        self._asks = asks
        self.used: dict[QuotaRow, int] = {}
        for j, count in counts.items():
            for ask in asks[j]:
                self.used[ask.row] = self.used.get(ask.row, 0) + ask.total(count)

    def add(self, j: int) -> None:
        """Count one more trainer of a job."""
        for ask in self._asks.get(j, ()):
            self.used[ask.row] += ask.each

    def start(self, asks: Iterable[QuotaAsk], low: int) -> None:
        """Count a job that was not counted yet, with its minimum."""
        for ask in asks:
            self.used[ask.row] = self.used.get(ask.row, 0) + ask.total(low)

    def short_of(self, j: int) -> Short | None:
        """The first limit that one more trainer of the job would pass; None where it may have one."""
        for ask in self._asks.get(j, ()):
            if ask.each and self.used[ask.row] + ask.each > ask.row.limit:
                return Short(ask.row, self.used[ask.row], ask.each)
        return None

    def short_of_start(self, asks: Iterable[QuotaAsk], low: int) -> Short | None:
        """The first limit that a job, not counted yet, would pass with its minimum; None where it may start."""
        for ask in asks:
            used = self.used.get(ask.row, 0)
            if ask.total(low) and used + ask.total(low) > ask.row.limit:
                return Short(ask.row, used, ask.total(low))
        return None

    def passed(self) -> tuple[QuotaRow, ...]:
        """The limits that are passed already, sorted."""
        return tuple(sorted(row for row, used in self.used.items() if used > row.limit))
