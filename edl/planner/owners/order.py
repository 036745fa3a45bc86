"""Plans for workloads whose own controller chooses the victims: what it will delete is predicted, not wished for.

The planner chooses trainers by the node whose capacity is needed. The controller of a `batch/v1` Job does not ask: it
deletes its youngest pods, wherever they are. So a plan that shrinks such a workload is made a second time. In the
second one the pods that its controller will delete are terminating, and the workload keeps the rest. Whatever
capacity comes of it is shared as any other.

A shrink for capacity on certain nodes takes as many pods as it needs until that capacity is free. If even the
minimum of the workload would not free it, the second plan finds the capacity elsewhere, or stops the workload as it
stops any job whose minimum is in the way. If that stops a job that runs, the plans are made once more, and each
workload gives what it can, wherever the capacity is; the plans that stop less are taken. A prediction that fails
costs time only: pods are created where capacity is free, not where it was expected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.sizes import at_most, fewer
from edl.model.status import Reason
from edl.planner.scores import admitted
from edl.planner.trial_packing import SERVING, TrialPacking

MOST_PLANS = 4
"""The most plans in a series; then a workload whose own order of deletion does not help keeps its pods."""

FOR_ROOM = frozenset({Reason.SERVING_NEEDS_ROOM.value, Reason.ADMITTED.value, Reason.MIN_UNSATISFIED.value})
"""The reasons of shrinks that are of no use unless capacity becomes free on certain nodes."""

Victims = dict[JobKey, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Chain:
    """The position of a plan in the series that is made for workloads whose own controller deletes pods.

    Attributes:
        plan: its number, from 1.
        evicts_anyway: a workload that cannot free capacity where it is needed loses pods above its minimum all the
            same; else it keeps them, and the capacity has to be found elsewhere.
    """

    plan: int = 1
    evicts_anyway: bool = False

    @property
    def next(self) -> Chain:
        """Return the position of the next plan in the series."""
        return replace(self, plan=self.plan + 1)

    @property
    def may_evict_anyway(self) -> bool:
        """True if another series of plans may begin, in which workloads lose more pods."""
        return self.plan == 1 and not self.evicts_anyway


def in_deletion_order(job: Job) -> tuple[Pod, ...]:
    """The live trainers in the order in which the workload's own controller deletes them."""
    return tuple(sorted(job.live_trainers, key=lambda pod: (-(pod.index or 0), pod.name)))


def to_predict(plan: ScalePlan, packing: TrialPacking, chain: Chain) -> Victims:
    """The workloads that the plan shrinks in part or moves, and what their controllers delete.

    A workload that should keep its pods has no victims here. A controller moves no pod: if the capacity of a pod is
    needed, the pod goes, and another one comes with a later plan.

    Args:
        plan: the plan.
        packing: the packing that it was written from.
        chain: after the last plan there is nothing left to decide, and in the last one every workload keeps its pods.
    """
    found: Victims = {}
    if chain.plan > MOST_PLANS:
        return found
    for j in packing.members:
        job = packing.problem.demands[j].job
        decision = plan.decision(job.key) if job.owner_count is not None else None
        if decision is not None and (decision.target < decision.current or _bound_victims(job, decision)):
            is_last = chain.plan == MOST_PLANS
            found[job.key] = (
                () if is_last else _predicted(job, decision, packing, j, evicts_anyway=chain.evicts_anyway)
            )
    return found


def stopped(first: ScalePlan, last: ScalePlan) -> frozenset[JobKey]:
    """The running jobs that the first plan of the series keeps and the last one stops."""
    running = frozenset(decision.job for decision in first.decisions if decision.current)
    return (running & admitted(first)) - admitted(last)


def disruption(first: ScalePlan, last: ScalePlan, predicted: Collection[JobKey]) -> tuple[int, int, int]:
    """Score what it costs other jobs that other controllers choose the victims; smaller is better.

    Scores are compared as tuples, smaller is better.

    Serving pods without capacity come first, then running jobs that stop because of what predicted workloads keep,
    then predicted workloads that stop: these could free no capacity above their minimum where it is needed.
    """
    gone = stopped(first, last)
    return last.serving.short, len(gone.difference(predicted)), len(gone)


def evicted_in_vain(plan: ScalePlan, predicted: Collection[JobKey]) -> Victims:
    """Find predicted workloads that would lose pods for the start of a job although the plan starts or grows no job.

    They are to keep these pods: otherwise they would get the capacity back with the next plan, and so on for ever.
    """
    if any(d.target > d.current for d in plan.decisions):
        return {}
    return {
        d.job: ()
        for d in plan.decisions
        if d.job in predicted and d.admitted and d.victims and d.shrink_reason == Reason.ADMITTED.value
    }


def without_replacements(snapshot: ClusterSnapshot, plan: ScalePlan) -> ScalePlan:
    """Return the plan without swaps, in which a workload with an owner would lose pods and get as many new ones.

    A pod without a node that the plan would delete and create elsewhere waits for kube-scheduler.
    """
    decisions = tuple(
        _without_replacements(decision)
        if job.owner_count is not None and decision.admitted and not _bound_victims(job, decision)
        else decision
        for job, decision in zip(snapshot.jobs, plan.decisions, strict=True)
    )
    return plan if decisions == plan.decisions else replace(plan, decisions=decisions)


def as_predicted(snapshot: ClusterSnapshot, predicted: Victims) -> ClusterSnapshot:
    """The snapshot in which these victims are terminating, and no plan moves what their workloads keep.

    A workload that keeps no more than its minimum may still grow; any other one has exactly what it keeps.
    """
    return snapshot.with_changed(
        _as_predicted(job, predicted) if job.key in predicted else job for job in snapshot.jobs
    )


def with_owner_order(snapshot: ClusterSnapshot, first: ScalePlan, last: ScalePlan, predicted: Victims) -> ScalePlan:
    """Turn the last plan of the series into one for the snapshot in which no victim terminates yet.

    Args:
        snapshot: the cluster as observed.
        first: the plan that was made for it.
        last: the plan for the snapshot in which the victims are terminating.
        predicted: these victims.
    """
    decisions = tuple(
        _merged(job, old, new, predicted[job.key]) if job.key in predicted else new
        for job, old, new in zip(snapshot.jobs, first.decisions, last.decisions, strict=True)
    )
    return replace(last, decisions=decisions, given=first.given)


def _without_replacements(decision: ScaleDecision) -> ScaleDecision:
    if not decision.victims or decision.target < decision.current:
        return decision
    left, nodes = decision.target - decision.current, []
    for node, count in decision.nodes:
        if taken := min(count, left):
            nodes.append((node, taken))
            left -= taken
    return replace(decision, victims=(), shrink_reason="", nodes=tuple(nodes))


def _bound_victims(job: Job, decision: ScaleDecision) -> bool:
    """Return True if one of the victims has a node, so that its deletion frees capacity."""
    victims = set(decision.victims)
    return any(pod.node and pod.name in victims for pod in job.live_trainers)


def _predicted(
    job: Job, decision: ScaleDecision, packing: TrialPacking, j: int, *, evicts_anyway: bool
) -> tuple[str, ...]:
    """The pods that the job's own controller deletes: enough that the planned pods fit in their place, else none."""
    order = in_deletion_order(job)
    count = max(0, decision.current - decision.target)
    if decision.shrink_reason in FOR_ROOM:
        spare = max(0, decision.current - job.bounds.min_trainers)
        most = spare if evicts_anyway else 0
        count = _enough(_FreedCapacity(packing, j, frozenset(decision.victims)), order, count, spare) or most
    kept = at_most(job.sizes, decision.current - count)
    return tuple(pod.name for pod in order[: decision.current - kept if count else 0])


class _FreedCapacity:
    """The pods that a plan puts in the place of victims, and the free capacity if the victims stay.

    Args:
        packing: the packing of the plan.
        j: the index of the workload.
        victims: the names of its victims.
    """

    def __init__(self, packing: TrialPacking, j: int, victims: frozenset[str]) -> None:
        problem = packing.problem
        self._problem, self._free = problem, packing.free.copy()
        self.request = problem.request[problem.demands[j].shape]
        nodes = set[int]()
        for i in problem.demands[j].live_trainers:
            trainer = problem.live_trainers[i]
            if trainer.pod.name in victims and trainer.node >= 0:
                self._free[trainer.node] -= problem.request[trainer.shape]
                nodes.add(trainer.node)
        is_for_serving = any(p.owner == SERVING and p.node in nodes for p in packing.placed)
        self._groups: dict[int, list[int]] = {node: [] for node in sorted(nodes)}
        for place in packing.placed:
            if place.node in nodes and place.owner != j and (place.owner == SERVING or not is_for_serving):
                self._groups[place.node].append(place.shape)
                self._free[place.node] += problem.request[place.shape]

    def holds(self, deleted: Iterable[Pod]) -> bool:
        """True if each group fits on some node, all at once, when these pods of the workload are deleted."""
        problem, free = self._problem, self._free.copy()
        for pod in deleted:
            if (node := problem.node_index.get(pod.node, -1)) >= 0:
                free[node] += self.request
        needs = {node: problem.request[shapes].sum(axis=0) for node, shapes in self._groups.items() if shapes}
        for node in sorted(needs, key=lambda n: (-float((needs[n] / problem.largest).sum()), n)):
            opened = problem.opened[self._groups[node]].all(axis=0)
            homes = np.flatnonzero(opened & (free >= needs[node]).all(axis=1)).tolist()
            if not homes:
                return False
            free[node if node in homes else homes[0]] -= needs[node]
        return True


def _enough(freed: _FreedCapacity, order: tuple[Pod, ...], least: int, most: int) -> int:
    """How many of the first pods must end so that the planned pods fit; 0 if that takes more than `most`."""
    return next((n for n in range(least, most + 1) if freed.holds(order[:n])), 0)


def _is_small(job: Job, predicted: Victims) -> bool:
    """True if a predicted workload has no more trainers than its minimum, and loses none."""
    return job.key in predicted and len(job.live_trainers) <= job.bounds.min_trainers and not predicted[job.key]


def _in_place(job: Job, victims: Collection[str]) -> frozenset[str]:
    """The trainers that stay where they are: all that have a node, but for the victims."""
    return frozenset(pod.name for pod in job.live_trainers if pod.node and pod.name not in victims)


def _as_predicted(job: Job, predicted: Victims) -> Job:
    """Return the workload with bounds for the pods that a plan may place: new ones and those without a node.

    The others have no role, so no plan moves one of them. Pods without a node may find none: they are no reason to
    stop a workload that has its minimum.
    """
    victims = frozenset(predicted[job.key])
    stay = _in_place(job, victims)
    most = job.bounds.max_trainers if _is_small(job, predicted) else len(job.live_trainers) - len(victims)
    pods = tuple(
        replace(pod, role=None if pod.name in stay else pod.role, terminating=pod.terminating or pod.name in victims)
        for pod in job.pods
    )
    low, high = max(0, job.bounds.min_trainers - len(stay)), most - len(stay)
    sizes = fewer(job.sizes, len(stay)) if _is_small(job, predicted) else ()
    return replace(job, pods=pods, min_trainers=low, max_trainers=high, sizes=sizes, pinned=0)


def _merged(job: Job, old: ScaleDecision, new: ScaleDecision, victims: tuple[str, ...]) -> ScaleDecision:
    """Combine two decisions on a workload whose victims are predicted; without admission it loses every pod."""
    whole = replace(new, current=old.current, min_trainers=old.min_trainers, max_trainers=old.max_trainers)
    if not new.admitted:
        names = tuple(sorted(pod.name for pod in job.live_trainers))
        return replace(whole, victims=names, shrink_reason=new.shrink_reason or new.reason)
    if _is_small(job, {job.key: victims}):
        return replace(whole, target=len(_in_place(job, ())) + new.target)
    return replace(
        whole,
        reason=old.reason,
        victims=tuple(sorted(victims)),
        nodes=(),
        target=old.current - len(victims),
        shrink_reason=old.shrink_reason if victims else "",
    )
