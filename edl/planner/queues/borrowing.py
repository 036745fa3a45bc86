"""Computes what each queue may use now: its own quota that it needs, and a part of what other queues leave.

For each resource the queues of a cohort share one pool: the sum of what is theirs. A queue gets what its jobs want,
up to its own. What is left is shared by weighted max-min among the queues whose jobs want more, each up to its
borrowing limit. The result is a quota for each queue; those of a resource never add up to more than the pool. A queue
that needs its own again gets it: the quota of the borrowers falls, and their surplus goes first, as with any quota
that is lowered.

A queue that does not reclaim gets its own only as far as borrowers do not use it; they keep what they have.

Source: weighted max-min fairness, Bertsekas and Gallager: Data Networks (1992), section 6.5.2; the words are those of
Kueue (https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from heapq import heapify, heappop, heappush
from math import gcd
from typing import NamedTuple

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Quota
from edl.model.names import Role
from edl.model.pods import Pod
from edl.model.queues import Queue, Reclaim
from edl.model.resources import is_amount
from edl.planner.queues.shares import weighted_max_min

Pool = tuple[str, str]
"""A resource and a cohort."""


class Steps(NamedTuple):
    """The amounts that jobs can use: `base`, `base + step`, and so on."""

    base: int = 0
    step: int = 1

    def floor(self, amount: int) -> int:
        """The largest amount that jobs can use, not above a given one; below the first step, the amount itself."""
        return amount if amount < self.base else amount - (amount - self.base) % self.step


ANY_AMOUNT = Steps()


@dataclass(frozen=True, slots=True)
class QueueUse:
    """One resource of one queue, in the units of `Resources`.

    Attributes:
        nominal: what is its own.
        most: its own and the most that it may borrow.
        weight: see `Queue`.
        wanted: what its jobs would use at their maximums.
        used: what their live pods use.
        reclaims_from: the queues that must give back what they borrowed of it, by name; None for all.
        usable: its jobs can use no amount between two of these.
        whole: its jobs use these amounts if all of them run and have trainers of the smallest size.
    """

    queue: str
    nominal: int
    most: int
    weight: float
    wanted: int
    used: int
    reclaims_from: frozenset[str] | None = None
    usable: Steps = ANY_AMOUNT
    whole: Steps = ANY_AMOUNT

    @property
    def goal(self) -> int:
        """The most of the resource that the queue may have, that its jobs want, and that they can use."""
        return self.wanted if self.wanted <= self.most else self.usable.floor(self.most)

    @property
    def own(self) -> int:
        """The part of its own quota that the queue can use."""
        return self.wanted if self.wanted <= self.nominal else self.usable.floor(self.nominal)

    def reclaims(self, borrower: str) -> bool:
        """True if a queue must give back what it borrowed."""
        return self.reclaims_from is None or borrower in self.reclaims_from


def borrowing_quotas(snapshot: ClusterSnapshot) -> tuple[Quota, ...]:
    """The quota of each queue of the snapshot whose limits are known, sorted by queue."""
    limits: dict[str, list[tuple[str, int]]] = {queue.name: [] for queue in snapshot.queues if not queue.is_unknown}
    for (resource, _), uses in queue_uses(snapshot).items():
        for queue, amount in shares(uses).items():
            limits[queue].append((resource, amount))
    return tuple(Quota(queue, tuple(sorted(amounts))) for queue, amounts in sorted(limits.items()))


def queue_uses(snapshot: ClusterSnapshot) -> dict[Pool, tuple[QueueUse, ...]]:
    """By resource and cohort, the queues that own some of the resource, sorted by name."""
    queues = sorted(snapshot.queues, key=lambda queue: queue.name)
    if not queues:
        return {}
    jobs: dict[str, list[Job]] = {queue.name: [] for queue in queues}
    for job in snapshot.jobs_of_queues:
        if job.queue in jobs:
            jobs[job.queue].append(job)
    largest = _largest(snapshot)
    startable = {name: [job for job in own if _fits(job, largest)] for name, own in jobs.items()}
    tiers = {name: [job.tier for job in own] for name, own in startable.items()}
    pools: dict[Pool, int] = {}
    for queue in queues:
        for resource, nominal in queue.nominal:
            pools[resource, queue.cohort] = pools.get((resource, queue.cohort), 0) + nominal
    found: dict[Pool, list[QueueUse]] = {pool: [] for pool in sorted(pools)}
    for queue in queues:
        reclaims_from = _reclaims_from(queue, tiers)
        borrowing = dict(queue.borrowing)
        for resource, nominal in queue.nominal:
            pool = resource, queue.cohort
            most = min(pools[pool], nominal + borrowing.get(resource, pools[pool]))
            used = sum(_used(job.pods, resource) for job in jobs[queue.name])
            use = QueueUse(queue.name, nominal, most, queue.weight, 0, used, reclaims_from)
            kept = sum(pod.shape.request[resource] for job in jobs[queue.name] for pod in job.kept_by_owner)
            found[pool].append(_with_wishes(use, startable[queue.name], resource, kept))
    return {pool: tuple(uses) for pool, uses in found.items()}


def shares(uses: Sequence[QueueUse]) -> dict[str, int]:
    """Divide one resource among queues; the shares never sum to more than the queues own together."""
    pool = sum(use.nominal for use in uses)
    own = _claims(uses, pool)
    borrowers = [use for use in uses if own[use.queue] == use.own]  # who waits for its own borrows nothing
    more = weighted_max_min(
        pool - sum(own.values()), [(use.queue, use.goal - own[use.queue], use.weight) for use in borrowers]
    )
    return _in_steps(borrowers, own, {queue: amount + more.get(queue, 0) for queue, amount in own.items()})


def _in_steps(borrowers: Sequence[QueueUse], own: Mapping[str, int], found: dict[str, int]) -> dict[str, int]:
    """Round shares to whole trainers: the parts that single queues cannot use go to some of them as whole trainers.

    A queue that has all that it wants keeps its share, and nobody gets less than its own.
    """
    cut = [use for use in borrowers if own[use.queue] < found[use.queue] < use.goal]
    floors = {use.queue: max(own[use.queue], use.whole.floor(found[use.queue])) for use in cut}
    left = {use.queue: found[use.queue] - floors[use.queue] for use in cut}
    given, spare = found | floors, sum(left.values())

    def turn(use: QueueUse) -> tuple[float, str]:
        return (given[use.queue] + use.whole.step - own[use.queue]) / use.weight, use.queue

    hungry = [(*turn(use), use) for use in borrowers if given[use.queue] < use.goal] if spare else []
    heapify(hungry)
    while hungry:
        _, queue, use = heappop(hungry)
        if use.whole.step <= spare and given[queue] + use.whole.step <= use.goal:
            given[queue] += use.whole.step
            spare -= use.whole.step
            heappush(hungry, (*turn(use), use))
    for use in cut:
        back = min(spare, left[use.queue], max(0, found[use.queue] - given[use.queue]))
        given[use.queue] += back
        spare -= back
    return given


def _claims(uses: Sequence[QueueUse], pool: int) -> dict[str, int]:
    """Return how much of its own quota each queue gets: what it needs, less what borrowers may keep."""
    wanted = {use.queue: use.own for use in uses}
    borrowed = {use.queue: taken for use in uses if (taken := min(use.used, use.most) - use.nominal) > 0}
    protected = {
        use.queue: sum(amount for queue, amount in borrowed.items() if not use.reclaims(queue))
        for use in uses
        if wanted[use.queue] > use.used and use.reclaims_from is not None
    }
    waits = {queue for queue, amount in protected.items() if amount}
    sure = {use.queue: min(use.used, wanted[use.queue]) if use.queue in waits else wanted[use.queue] for use in uses}
    free = pool - sum(sure.values())
    wants = [
        (use.queue, min(wanted[use.queue] - sure[use.queue], max(0, free - protected[use.queue])), use.weight)
        for use in uses
        if use.queue in waits
    ]
    got = weighted_max_min(max((want for _, want, _ in wants), default=0), wants)
    return {queue: amount + got.get(queue, 0) for queue, amount in sure.items()}


def _reclaims_from(queue: Queue, tiers: Mapping[str, Sequence[int]]) -> frozenset[str] | None:
    if queue.reclaim is Reclaim.ANY:
        return None
    if queue.reclaim is Reclaim.NEVER or not tiers[queue.name]:
        return frozenset()
    highest = max(tiers[queue.name])
    return frozenset(name for name in tiers if all(tier < highest for tier in tiers[name]))


def _largest(snapshot: ClusterSnapshot) -> dict[str, int]:
    """The most of each resource that one node has."""
    largest: dict[str, int] = {}
    for capacity in {node.allocatable for node in snapshot.nodes}:
        for resource, amount in capacity.amounts:
            largest[resource] = max(amount, largest.get(resource, 0))
    return largest


def _fits(job: Job, largest: Mapping[str, int]) -> bool:
    """True if the planner may give the job pods, and some node has as much as each of them requests."""
    shapes = (job.trainer, *(fixed.shape for fixed in job.fixed if fixed.count))
    return job.is_schedulable and all(
        amount <= largest.get(resource, 0)
        for shape in shapes
        for resource, amount in shape.request.amounts
        if is_amount(resource)
    )


def _with_wishes(use: QueueUse, jobs: Iterable[Job], resource: str, kept: int) -> QueueUse:
    """Add to a queue's use what its jobs want; a job whose minimum the queue may never have wants nothing.

    `kept` is what workloads use that edl leaves alone: they have it, and want no more.
    """
    wanted, fixed, number, sizes, parts = kept, kept, 0, set[int](), {kept} - {0}
    for job in jobs:
        live = [pod.shape.request[resource] for pod in job.live_trainers]
        base, each = _base(job, resource), max([job.trainer.request[resource], *live])
        if base + each * job.bounds.min_trainers > use.most:
            continue
        wanted += base + each * job.bounds.max_trainers
        fixed += base
        number += 1
        sizes |= {job.trainer.request[resource], *live}
        parts.add(base)
    sizes.discard(0)
    usable = Steps(fixed, _divisor(sizes)) if number <= 1 else Steps(0, _divisor(sizes | parts))
    whole = Steps(fixed, min(sizes, default=1))
    return replace(use, wanted=wanted, usable=usable, whole=whole)


def _base(job: Job, resource: str) -> int:
    """The requests of a job's masters and pservers, those still missing included."""
    live = [pod for pod in job.pods if pod.is_live and pod.role is not Role.TRAINER]
    missing = sum(
        max(0, f.count - sum(pod.role is f.role for pod in live)) * f.shape.request[resource] for f in job.fixed
    )
    return missing + sum(pod.shape.request[resource] for pod in live)


def _divisor(amounts: Collection[int]) -> int:
    return reduce(gcd, amounts, 0) or 1


def _used(pods: Iterable[Pod], resource: str) -> int:
    return sum(pod.shape.request[resource] for pod in pods if pod.is_live)
