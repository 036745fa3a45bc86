"""What the jobs that edl sizes may use of their ClusterQueues: what is unused and unclaimed within Kueue's quotas.

Two shares are computed for each pool. The goal: what workloads hold that edl does not size, and what waiting ones
would have of their own, is taken first; then the minimums of running jobs; then each ClusterQueue gets what its jobs
want of its own; and what is left is borrowed, by weighted max-min. So a borrower gives back as soon as an owner
waits, whatever the policy of reclaim says. The share of this moment: beyond what Kueue has reserved for its jobs, a
queue gets only what nobody has reserved yet. A growth that came before the shrink that frees capacity for it would
be a reason for Kueue to evict the other job as a whole.

Source: weighted max-min fairness, as `borrowing` has it; the words are those of Kueue
(https://kueue.sigs.k8s.io/docs/concepts/cohort/).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Quota
from edl.model.names import Role
from edl.model.quota_trees import Pool, QuotaNode, QuotaTrees, SizedQueue
from edl.planner.queues.pool_tree import PoolTree

_TURNS = 64
"""The approximate number of turns in which a queue gets all that it wants."""


@dataclass(frozen=True, slots=True)
class SizedUse:
    """One pool of one queue, in the units of `Resources`.

    Attributes:
        queue: the name of the queue.
        node: its ClusterQueue, as `QuotaNode.name` has it.
        weight: the weight of the ClusterQueue.
        least: what its running jobs need to keep their minimums.
        wanted: what its jobs would use at their maximums, >= least.
        reserved: what Kueue has reserved for its jobs.
        step: what one more trainer needs, > 0.
    """

    queue: str
    node: str
    weight: float
    least: int
    wanted: int
    reserved: int
    step: int


def kueue_quotas(snapshot: ClusterSnapshot) -> tuple[Quota, ...]:
    """The quota of each queue of jobs that Kueue admits and edl sizes, sorted by queue.

    What others have of the most that the ClusterQueue could ever have belongs to pods that no plan changes. What its
    jobs have on other flavors is theirs already.
    """
    elsewhere = {queue.name: dict(queue.elsewhere) for queue in snapshot.kueue.queues}
    found: dict[str, list[tuple[str, int]]] = {queue.name: [] for queue in snapshot.kueue.queues}
    others: dict[str, list[tuple[str, int]]] = {queue.name: [] for queue in snapshot.kueue.queues}
    for pool, uses in sized_uses(snapshot).items():
        tree, shares = PoolTree(snapshot.kueue.nodes, pool), allotted(snapshot.kueue.nodes, pool, uses)
        for use in uses:
            more = elsewhere[use.queue].get(pool.resource, 0)
            found[use.queue].append((pool.resource, shares[use.queue] + more))
            if (rest := tree.most(use.node) - shares[use.queue]) > 0:
                others[use.queue].append((pool.resource, rest))
    return tuple(
        Quota(queue, tuple(sorted(amounts)), others=tuple(sorted(others[queue])))
        for queue, amounts in sorted(found.items())
    )


def sized_uses(snapshot: ClusterSnapshot) -> dict[Pool, tuple[SizedUse, ...]]:
    """For each pool, the queues whose jobs use it, sorted by name."""
    trees: QuotaTrees = snapshot.kueue
    if not trees.queues:
        return {}
    weights = {node.name: node.weight for node in trees.nodes}
    jobs: dict[str, list[Job]] = {queue.name: [] for queue in trees.queues}
    for job in snapshot.jobs_of_queues:
        if job.queue in jobs and job.is_schedulable:
            jobs[job.queue].append(job)
    found: dict[Pool, list[SizedUse]] = {}
    for queue in trees.queues:
        for resource, flavor in queue.flavors:
            use = _use_of(queue, resource, weights.get(queue.node, 1.0), jobs[queue.name])
            found.setdefault(Pool(flavor, resource), []).append(use)
    return {pool: tuple(uses) for pool, uses in sorted(found.items())}


def allotted(nodes: Iterable[QuotaNode], pool: Pool, uses: Sequence[SizedUse]) -> dict[str, int]:
    """Return the quota of a pool that each queue may use now, by name; see the module."""
    nodes = tuple(nodes)
    goal = _goals(nodes, pool, uses)
    tree = present_tree(nodes, pool, ((use.node, use.reserved) for use in uses))
    more = _share(tree, uses, {use.queue: use.reserved for use in uses}, goal, own=False)
    return {
        use.queue: max(use.least, goal[use.queue] if goal[use.queue] <= use.reserved else more[use.queue])
        for use in uses
    }


def present_tree(nodes: Sequence[QuotaNode], pool: Pool, reserved: Iterable[tuple[str, int]]) -> PoolTree:
    """Return the tree with all that is reserved or claimed now.

    Args:
        nodes: with what others hold and claim, and what evicted workloads still hold.
        pool: of which the amounts are.
        reserved: (node, amount) of the jobs that edl sizes.
    """
    tree = _taken(nodes, pool)
    for node in nodes:
        tree.take(node.name, dict(node.leaving).get(pool, 0))
    for name, amount in reserved:
        tree.take(name, amount)
    return tree


def request_of_each(job: Job, resource: str) -> int:
    """The request of one trainer; the largest if they differ."""
    live = (pod.shape.request[resource] for pod in job.live_trainers if pod.role is Role.TRAINER)
    return max([job.trainer.request[resource], *live])


def _goals(nodes: Sequence[QuotaNode], pool: Pool, uses: Sequence[SizedUse]) -> dict[str, int]:
    """The use that each queue would reach once all borrowers have returned what is reclaimed."""
    tree = _taken(nodes, pool)
    for use in uses:
        tree.take(use.node, use.least)
    wanted = {use.queue: use.wanted for use in uses}
    given = _share(tree, uses, {use.queue: use.least for use in uses}, wanted, own=True)
    return _share(tree, uses, given, wanted, own=False)


def _taken(nodes: Sequence[QuotaNode], pool: Pool) -> PoolTree:
    """Return the quota tree with what others have reserved or ask for counted as used."""
    tree = PoolTree(nodes, pool)
    for node in nodes:
        tree.take(node.name, dict(node.held).get(pool, 0) + dict(node.claimed).get(pool, 0))
    return tree


def _share(
    tree: PoolTree, uses: Sequence[SizedUse], given: dict[str, int], wanted: dict[str, int], *, own: bool
) -> dict[str, int]:
    """Raise the queues in turn up to what they want and what the tree has, by whole trainers.

    Args:
        tree: with what is given already; it takes what is given here.
        uses: the queues.
        given: what each queue has.
        wanted: what it may have at most.
        own: only what is the ClusterQueue's own.
    """
    given, first = dict(given), dict(given)

    def turn(use: SizedUse) -> tuple[float, str]:
        return (given[use.queue] + use.step - first[use.queue]) / use.weight, use.queue

    hungry = [(*turn(use), use) for use in uses if given[use.queue] < wanted[use.queue]]
    heapify(hungry)
    while hungry:
        *_, use = heappop(hungry)
        left = wanted[use.queue] - given[use.queue]
        capacity = tree.available(use.node)
        if own:
            capacity = min(capacity, tree.nominal(use.node) - tree.used(use.node))
        wish = use.step * max(1, left // use.step // _TURNS)
        amount = next((part for part in (min(wish, left), min(use.step, left)) if part <= capacity), 0)
        if not amount:
            continue
        tree.take(use.node, amount)
        given[use.queue] += amount
        if given[use.queue] < wanted[use.queue]:
            heappush(hungry, (*turn(use), use))
    return given


def _use_of(queue: SizedQueue, resource: str, weight: float, jobs: Iterable[Job]) -> SizedUse:
    least, wanted, steps = 0, 0, set[int]()
    reserved = dict(queue.reserved).get(resource, 0)
    for job in jobs:
        base, each = _base(job, resource), request_of_each(job, resource)
        low, high = job.bounds
        if job.refusal is not None:
            high = max(low, min(high, job.refusal.allowed))
        wanted += base + each * high
        least += base + each * low if job.has_quota else 0
        steps.add(each)
    steps.discard(0)
    elsewhere = dict(queue.elsewhere).get(resource, 0)
    least, wanted = max(0, least - elsewhere), max(0, wanted - elsewhere)
    return SizedUse(queue.name, queue.node, weight, least, wanted, reserved, min(steps, default=1))


def _base(job: Job, resource: str) -> int:
    """The requests of a job's pods other than trainers."""
    return sum(fixed.count * fixed.shape.request[resource] for fixed in job.fixed)
