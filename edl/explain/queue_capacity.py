"""What a Queue may use of a resource, where that comes from, and which queues of its cohort hold the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from edl.model.cluster import ClusterSnapshot
from edl.model.units import amount, listed
from edl.planner.queues.borrowing import Pool, QueueUse, queue_uses, shares
from edl.planner.quota import QuotaRow

NAMED = 2
"""The most other queues that are named: those that use most."""


@dataclass(frozen=True, slots=True)
class QueueCapacity:
    """The capacity that one queue has of one resource.

    Attributes:
        share: what the queue may use now.
        others: (other queue of its cohort, its share), of those with the largest shares.
        pool: what belongs to the whole cohort.
    """

    resource: str
    use: QueueUse
    share: int
    others: tuple[tuple[QueueUse, int], ...]
    pool: int

    @property
    def is_scarce(self) -> bool:
        """True if the jobs of the queue want more than it may use."""
        return self.share < self.use.wanted

    @property
    def is_at_limit(self) -> bool:
        """True if the queue has borrowed all that its borrowing limit allows."""
        borrows_none = self.use.most == self.use.nominal
        return self.use.most < self.pool and (self.share == self.use.most or (borrows_none and self._is_filled))

    @property
    def _is_filled(self) -> bool:
        """Return True if the queue wants more than it may use, and what its share leaves of that takes no pod."""
        return self.share == self.use.goal < self.use.wanted

    def origin(self) -> str:
        """Say where the share comes from: `8 cores of its own and 4 cores borrowed`."""
        own, borrowed = min(self.share, self.use.nominal), max(0, self.share - self.use.nominal)
        if borrowed:
            return f"{self._amount(own)} of its own and {self._amount(borrowed)} borrowed"
        of_its_own = f"{self._amount(self.use.nominal)} of its own"
        if own < self.use.nominal and self._is_filled:
            return f"{of_its_own}, of which whole pods fill {self._amount(own)}"
        return f"{of_its_own}, and may use {'all of them' if own == self.use.nominal else self._amount(own)}"

    def holders(self) -> str:
        """Name who uses the rest: `queue green has 20 cores (12 cores borrowed)`; or the queue's own limit."""
        if self.is_at_limit:
            return f"its borrowing limit is {self._amount(self.use.most - self.use.nominal)}"
        return "; ".join(self._held_by(use, share) for use, share in self.others)

    def remedy(self) -> str:
        """Say what would give the queue a larger share."""
        raised = f"raise nominalQuota of queue {self.use.queue}"
        if self.is_at_limit:
            return f"{raised}, or its borrowingLimit"
        rivals = [f"queue {use.queue}" for use, share in self.others if share > use.nominal]
        borrow = "borrows" if len(rivals) == 1 else "borrow"
        return f"{raised}, or its weight: {listed(rivals)} {borrow} too" if rivals else raised

    def _held_by(self, use: QueueUse, share: int) -> str:
        borrowed = share - use.nominal
        beyond = f" ({self._amount(borrowed)} borrowed)" if borrowed > 0 else ""
        return f"queue {use.queue} has {self._amount(share)}{beyond}"

    def _amount(self, number: int) -> str:
        return amount(self.resource, number)


@dataclass(frozen=True, slots=True)
class _Cohort:
    """The shares of all queues of a cohort in one resource."""

    uses: Mapping[str, QueueUse]
    found: Mapping[str, int]
    largest: Sequence[tuple[QueueUse, int]]
    pool: int


class QueueCapacities:
    """The capacities of all Queue objects of a snapshot; they are computed when one is asked for."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        """Prepare to compute the capacities of the queues of one snapshot."""
        self._cohorts = {queue.name: queue.cohort for queue in snapshot.queues}
        self._snapshot = snapshot
        self._known: dict[Pool, _Cohort] = {}

    def of_row(self, row: QuotaRow) -> QueueCapacity | None:
        """The capacity behind a limit; None if no Queue object sets the limit."""
        return None if row.namespace or row.queue not in self._cohorts else self.of(row.queue, row.resource)

    def of(self, queue: str, resource: str) -> QueueCapacity | None:
        """The capacity of a queue; None if the queue does not limit the resource."""
        cohort = self._cohort(resource, self._cohorts[queue])
        use = cohort.uses.get(queue)
        if use is None:
            return None
        others = tuple((other, share) for other, share in cohort.largest if other is not use)[:NAMED]
        return QueueCapacity(resource, use, cohort.found[queue], others, cohort.pool)

    def _cohort(self, resource: str, name: str) -> _Cohort:
        if (resource, name) not in self._known:
            uses = self._uses.get((resource, name), ())
            found = shares(uses)
            ranked = sorted((u for u in uses if found[u.queue]), key=lambda u: (-found[u.queue], u.queue))
            largest = [(use, found[use.queue]) for use in ranked[: NAMED + 1]]
            by_name = {use.queue: use for use in uses}
            self._known[resource, name] = _Cohort(by_name, found, largest, sum(u.nominal for u in uses))
        return self._known[resource, name]

    @cached_property
    def _uses(self) -> Mapping[Pool, Sequence[QueueUse]]:
        return queue_uses(self._snapshot)
