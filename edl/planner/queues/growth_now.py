"""How far the growth of a plan still has quota of Kueue.

A plan takes time, and its growth is sent after it. If somebody else has come to hold or claim the quota meanwhile, a
larger size would wait for it, and Kueue may evict a whole job for what waits: of a lower priority, or one that
borrows.
"""

from __future__ import annotations

from collections.abc import Mapping

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.quota_trees import Pool, QuotaTrees, SizedQueue
from edl.planner.queues.kueue_quotas import present_tree, request_of_each
from edl.planner.queues.pool_tree import PoolTree

Trees = Mapping[Pool, PoolTree]


def askable(snapshot: ClusterSnapshot, targets: Mapping[JobKey, int]) -> dict[JobKey, int]:
    """Return for how many trainers jobs may ask Kueue now: those of the targets whose quota is unused and unclaimed.

    Args:
        snapshot: the cluster now.
        targets: of jobs that a plan lets grow. What one of them may ask for, those after it may not.

    Returns:
        The jobs among them that run in a queue of Kueue. What a job has asked for already it may ask for.
    """
    queues = {queue.name: queue for queue in snapshot.kueue.queues}
    running = [
        (job, queues[job.queue]) for job in snapshot.jobs_of_queues if _is_running(job) and job.queue in queues
    ]
    trees = _trees(snapshot.kueue)
    for job, queue in running:
        _take(trees, job, queue, max(0, asked_trainers(job) - _held(job)))
    found: dict[JobKey, int] = {}
    for job, queue in running:
        if job.key in targets:
            asked = asked_trainers(job)
            more = min(max(0, targets[job.key] - asked), _left(trees, job, queue))
            _take(trees, job, queue, more)
            found[job.key] = asked + more
    return found


def asked_trainers(job: Job) -> int:
    """For how many trainers a job of Kueue holds quota or waits."""
    state = job.kueue
    if state is not None and state.is_owned:
        return sum(one.trainers for one in state.workloads if not one.is_finished)
    return max(job.owner_count or 0, _held(job))


def _held(job: Job) -> int:
    return (job.kueue.reserved or 0) if job.kueue is not None else 0


def _is_running(job: Job) -> bool:
    return job.is_schedulable and job.kueue is not None and job.kueue.reserved is not None


def _trees(kueue: QuotaTrees) -> Trees:
    reserved: dict[Pool, list[tuple[str, int]]] = {}
    for queue in kueue.queues:
        amounts = dict(queue.reserved)
        for resource, flavor in queue.flavors:
            reserved.setdefault(Pool(flavor, resource), []).append((queue.node, amounts.get(resource, 0)))
    return {pool: present_tree(kueue.nodes, pool, amounts) for pool, amounts in reserved.items()}


def _left(trees: Trees, job: Job, queue: SizedQueue) -> int:
    """How many more trainers of a job have quota."""
    left = job.bounds.max_trainers
    for resource, flavor in queue.flavors:
        if each := request_of_each(job, resource):
            left = min(left, max(0, trees[Pool(flavor, resource)].available(queue.node)) // each)
    return left


def _take(trees: Trees, job: Job, queue: SizedQueue, trainers: int) -> None:
    for resource, flavor in queue.flavors if trainers else ():
        trees[Pool(flavor, resource)].take(queue.node, trainers * request_of_each(job, resource))
