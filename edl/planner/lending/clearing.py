"""Plans with CPU lent to serving: how much of it counts as headroom, and from which nodes trainers move away.

A trainer that lends CPU requests less than it declares. kube-scheduler lets serving use the difference at once, and
the trainer is slowed while serving uses it. The planner itself counts what trainers declare, so it adds no trainer to
such a node. If serving stays, trainers that are slowed are deleted, so that each of the others has what it declares;
their jobs start new ones where there is capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import CPU
from edl.planner.problem import Problem, count_slots
from edl.planner.trial_packing import TrialPacking
from edl.planner.victims import deletion_order
from edl.planner.waits import cooldown_left_s


def reserve_lent_capacity(packing: TrialPacking, shape: int, count: int) -> int:
    """Keep capacity for serving pods whose CPU trainers lend: it takes none of the CPU that trainers may still use.

    What is not CPU, such as memory, is kept like other capacity. The packing is changed.

    Args:
        packing: the packing.
        shape: index of the pods' shape.
        count: how many pods.

    Returns:
        For how many capacity is kept.
    """
    if not packing.problem.lends or CPU not in packing.problem.names:
        return 0
    cpu = packing.problem.names.index(CPU)
    request, capacity = packing.problem.request[shape], packing.free.copy()
    capacity[:, cpu] = packing.lent[:, cpu] + packing.free[:, cpu].clip(max=0)
    if not request[cpu]:
        return 0
    slots = np.minimum(count_slots(capacity, request) * packing.problem.opened[shape], count)
    other = request.copy()
    other[cpu] = 0
    left = count
    for node in _cheapest_first(packing, np.flatnonzero(slots).tolist()):
        kept = min(left, int(slots[node]))
        packing.lent[node, cpu] -= kept * request[cpu]
        packing.free[node] -= kept * other
        packing.now[node] -= kept * other
        left -= kept
        if not left:
            break
    return count - left


def clear_lent_capacity(packing: TrialPacking) -> frozenset[int]:
    """Delete trainers that are slowed where serving has used lent CPU for long; the packing is changed.

    The nodes where slow trainers lose most speed come first, as far as that was measured. No job falls below its
    minimum, and each job gives trainers at most once in its cooldown.

    Returns:
        The deleted trainers, by index.
    """
    problem, after_s = packing.problem, packing.problem.limits.lending.clear_after_s
    if not after_s or not problem.lends or CPU not in problem.names:
        return frozenset()
    cpu, now_s = problem.names.index(CPU), problem.snapshot.observed_at_s
    over = -packing.free[:, cpu]
    slowed = np.flatnonzero((over > 0) & (packing.lent[:, cpu] > 0)).tolist()
    if not slowed:
        return frozenset()
    since_s = _used_since_s(packing, slowed)
    allowance = {j: n for j in packing.members if (n := _may_give(packing, j, now_s)) > 0}
    deleted: list[int] = []
    for node in sorted(slowed, key=lambda n: (-over[n] / packing.lent[n, cpu] * _price(packing, n), n)):
        if now_s - since_s[node] < after_s:
            continue
        for index in deletion_order(packing, node, allowance):
            if packing.free[node, cpu] >= 0:
                break
            if problem.trainer_lent[index, cpu]:
                packing.delete(index)
                deleted.append(index)
                allowance[problem.live_trainers[index].demand] -= 1
    return frozenset(deleted)


def _cheapest_first(packing: TrialPacking, nodes: list[int]) -> list[int]:
    """The nodes in the order of what a core costs that is lent there."""
    return sorted(nodes, key=lambda node: (_price(packing, node), node))


def _price(packing: TrialPacking, node: int) -> float:
    """The mean price of a core that trainers on a node lend; 1 if none is lent."""
    problem = packing.problem
    cpu = problem.names.index(CPU)
    lent = [(i, float(problem.trainer_lent[i, cpu])) for i in packing.at[node] if problem.trainer_lent[i, cpu]]
    jobs = {i: problem.demands[problem.live_trainers[i].demand].job for i, _ in lent}
    paid = sum(milli * jobs[i].lending_price for i, milli in lent)
    return paid / sum(milli for _, milli in lent) if lent else 1.0


def clearing_times_s(snapshot: ClusterSnapshot, limits: Limits) -> Iterator[float]:
    """When a node may become due for a clearing, and when a job may give trainers again, if nothing else changes."""
    nodes = {pod.node for job in snapshot.jobs for pod in job.pods if pod.lent_cpu_milli and pod.node}
    if not nodes or not limits.lending.clear_after_s:
        return
    for pod in chain(snapshot.pods, snapshot.pods_left_alone):
        if pod.node in nodes:
            yield _began_s(pod) + limits.lending.clear_after_s
    for job in snapshot.jobs:
        for trainer in job.live_trainers:
            yield trainer.created_s + job.cooldown_s


def count_slowed(problem: Problem) -> Counter[JobKey]:
    """By job, how many of its trainers lend CPU on nodes whose pods declare more than there is.

    They are slow if all these pods are busy. Jobs without any are left out.
    """
    slowed: Counter[JobKey] = Counter()
    if problem.lends:
        cpu = problem.names.index(CPU)
        over = (problem.now[:, cpu] < 0).tolist()
        for trainer, lent in zip(problem.live_trainers, problem.trainer_lent[:, cpu].tolist(), strict=True):
            if lent and over[trainer.node]:
                slowed[problem.demands[trainer.demand].job.key] += 1
    return slowed


def slowed_since_s(allocatable_milli: int, trainers_milli: int, serving: list[Pod]) -> float | None:
    """Since when serving pods of a node use CPU that trainers declare; None if they do not.

    Args:
        allocatable_milli: CPU of the node.
        trainers_milli: what the pods of jobs there declare.
        serving: the other pods there.
    """
    left = allocatable_milli - trainers_milli
    for pod in sorted(serving, key=_began_s):
        left -= pod.shape.request[CPU]
        if left < 0:
            return _began_s(pod)
    return None


def _began_s(pod: Pod) -> float:
    return pod.created_s if pod.started_s is None else pod.started_s


def _used_since_s(packing: TrialPacking, nodes: list[int]) -> dict[int, float]:
    """Since when bound serving pods have used lent CPU on some nodes; infinite if they do not."""
    problem = packing.problem
    cpu = problem.names.index(CPU)
    names = {problem.snapshot.nodes[node].name: node for node in nodes}
    serving: dict[int, list[Pod]] = {node: [] for node in nodes}
    for pod in chain(problem.snapshot.pods, problem.snapshot.pods_left_alone):
        if pod.node in names and not pod.is_finished:
            serving[names[pod.node]].append(pod)
    found = {}
    for node in nodes:
        declared = int(problem.empty[node, cpu] - packing.free[node, cpu])
        used = sum(pod.shape.request[CPU] for pod in serving[node])
        total = int(problem.empty[node, cpu]) + used
        since_s = slowed_since_s(total, declared, serving[node])
        found[node] = float("inf") if since_s is None else since_s
    return found


def _may_give(packing: TrialPacking, j: int, now_s: float) -> int:
    """How many trainers a job may lose to the clearing: none in its cooldown, or while its last trainers are new."""
    demand = packing.problem.demands[j]
    if cooldown_left_s(demand.job, now_s) > 0 or _has_new_trainers(demand.job, now_s):
        return 0
    return max(0, packing.count[j] - demand.min_trainers)


def _has_new_trainers(job: Job, now_s: float) -> bool:
    """Return True if the job has started trainers within its cooldown, so that it is too early to move them."""
    return any(now_s - pod.created_s < job.cooldown_s for pod in job.live_trainers)
