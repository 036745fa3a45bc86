"""Policy `edl-2017`: what the EDL controller of 2017 would decide, to compare with.

That controller compared the sum of all requests with the sum of all capacity and ignored nodes. It sorts elastic jobs
once by fulfilment. In every pass each job gets one more trainer while the totals allow it; then, from the best off,
each job loses one while a total is above its limit. It stops when a pass changes nothing. Pods that do not fit stay
pending.

Such a plan breaks the rules of edl, so it is never carried out. Its targets are what the old controller would set,
its nodes what first fit finds capacity for, and its certificate counts only trainers that have capacity.

Source: PaddlePaddle EDL of November 2017, pkg/autoscaler.go (scaleAllDryRun, scaleDryRun), Apache-2.0; ideas only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import Certificate, ScaleDecision, ScalePlan, ServingReport
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, GPU, MEMORY
from edl.model.status import Reason
from edl.planner.admission.capping import cap
from edl.planner.findings.reasons import excluded
from edl.planner.minimums.serving import count_serving
from edl.planner.packing import place
from edl.planner.policies.base import Comparison
from edl.planner.problem import JobDemand, Problem
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import with_engine
from edl.planner.programs.fair_share import Proof, fair_shares, prove, read_share_problem
from edl.planner.trial_packing import SERVING, TrialPacking

MAX_LOAD_DESIRED = 0.97
"""Part of a total at which growth by cpu stops, and above which trainers go; memory and GPUs grow up to the total."""

_TOTALS = (CPU, MEMORY, GPU)


@dataclass(slots=True)
class Totals:
    """What the controller of 2017 knew of a cluster: sums over nodes and pods, by resource."""

    capacity: Counter[str]
    asked: Counter[str]


def rescale(
    jobs: Sequence[Job], sizes: dict[JobKey, int], totals: Totals, max_load: float = MAX_LOAD_DESIRED
) -> dict[JobKey, int]:
    """Compute the trainer counts that the controller of 2017 would set.

    Args:
        jobs: those that it would consider; a job that is not elastic keeps its size.
        sizes: trainers that each has now, whether or not they have capacity.
        totals: sums; `asked` is brought up to date.
        max_load: part of the total that requests may reach.
    """
    elastic = [job for job in jobs if not job.pinned and job.min_trainers < job.max_trainers]
    ranked = sorted(elastic, key=lambda job: _order(job, sizes[job.key]))
    wanted = dict(sizes)
    seen: set[tuple[int, ...]] = set()
    while (state := tuple(wanted[job.key] for job in ranked)) not in seen:
        seen.add(state)  # if growth and shrinking undo each other, the old controller went on forever
        for job in ranked:
            _change(job, _growth(job, wanted[job.key], totals, max_load), wanted, totals)
        for job in reversed(ranked):
            _change(job, -_shrinks(job, wanted[job.key], totals, max_load), wanted, totals)
    return wanted


def _order(job: Job, size: int) -> tuple[float, int, int, int, JobKey]:
    """Sort key of jobs: the least fulfilment first, then the smaller trainer."""
    request = job.trainer.request
    fulfilment = (size - job.min_trainers) / (job.max_trainers - job.min_trainers)
    return (fulfilment, request[GPU], request[CPU], request[MEMORY], job.key)


def _change(job: Job, more: int, wanted: dict[JobKey, int], totals: Totals) -> None:
    wanted[job.key] += more
    for name in _TOTALS:
        totals.asked[name] += more * job.trainer.request[name]


def _growth(job: Job, size: int, totals: Totals, max_load: float) -> int:
    """Return 1 if the totals allow one more trainer, else 0; or the negative number of trainers above the maximum."""
    request, capacity, asked = job.trainer.request, totals.capacity, totals.asked
    if size >= job.max_trainers:
        return job.max_trainers - size
    if capacity[MEMORY] - asked[MEMORY] <= request[MEMORY]:
        return 0
    if int(capacity[CPU] * max_load) - asked[CPU] < request[CPU]:
        return 0
    return int(not request[GPU] or capacity[GPU] - asked[GPU] >= request[GPU])


def _shrinks(job: Job, size: int, totals: Totals, max_load: float) -> bool:
    is_over = any(totals.asked[name] > int(totals.capacity[name] * max_load) for name in _TOTALS)
    return size > job.max_trainers or (is_over and size > job.min_trainers)


class Edl2017(Comparison):
    """The controller of 2017, for `edl plan --policy edl-2017`."""

    name = "edl-2017"

    def plan(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """Return the counts that the controller of 2017 would set, and which of these trainers fit.

        Args:
            snapshot: the cluster.
            limits: only `deadline_s` is used, for the certificate; the old controller had its own limit.

        Raises:
            PlanError: the certificate could not be computed in time.
        """
        started_s = time.perf_counter()
        problem = with_engine(read_problem(snapshot, limits))
        served = count_serving(problem, limits.deadline_s)
        problem, _ = cap(problem, served, limits.deadline_s)
        jobs = [demand.job for demand in problem.demands]
        sizes = {job.key: max(len(job.live_trainers), job.bounds.min_trainers) for job in jobs}
        targets = {**sizes, **rescale(looked_at(jobs), sizes, totals_of(snapshot, jobs, sizes))}
        trial = _FirstFit(problem, targets)
        waiting, needy = (
            sum(p.is_waiting_serving for p in snapshot.pods),
            sum(p.needs_capacity for p in snapshot.pods),
        )
        placeable = sum(served.due.values()) + sum(served.in_grace.values())
        proof = trial.prove(limits.deadline_s)
        return ScalePlan(
            decisions=tuple(_decision(job, trial, targets) for job in snapshot.jobs),
            certificate=Certificate("fulfilment", min(trial.achieved(), proof.bound), proof.bound),
            serving=ServingReport(waiting, min(trial.serving, placeable), served.short + waiting - needy),
            seconds=time.perf_counter() - started_s,
            policy=self.name,
            is_comparison=True,
        )


def looked_at(jobs: Sequence[Job]) -> list[Job]:
    """The jobs that the old controller changes: those whose trainers all run; every job if one has none."""
    running = {job.key: sum(p.phase is PodPhase.RUNNING for p in job.live_trainers) for job in jobs}
    if any(not running[job.key] for job in jobs):
        return list(jobs)
    return [job for job in jobs if running[job.key] == len(job.live_trainers)]


def totals_of(snapshot: ClusterSnapshot, jobs: Sequence[Job], sizes: dict[JobKey, int]) -> Totals:
    """Add up all nodes, whatever pods they accept, and all pods, bound or not."""
    capacity: Counter[str] = Counter()
    for node in snapshot.nodes:
        capacity.update(node.allocatable.as_dict())
    asked: Counter[str] = Counter()
    pods: Iterable[Pod] = (*snapshot.pods, *(p for job in snapshot.jobs for p in job.pods))
    for pod in pods:
        if not pod.is_finished:
            asked.update(pod.shape.request.as_dict())
    for job in jobs:
        asked.update((job.trainer.request * (sizes[job.key] - len(job.live_trainers))).as_dict())
        for fixed in job.fixed:
            missing = fixed.count - sum(p.role is fixed.role and p.is_live for p in job.pods)
            asked.update((fixed.shape.request * max(0, missing)).as_dict())
    return Totals(capacity, asked)


class _FirstFit:
    """Places the counts of the old controller: each pod on the first node with capacity, others stay pending.

    Attributes:
        packing: with every job in it, complete or not, because their pods use capacity.
        pending: trainers of each demand without capacity; incomplete: demands that lack more than surplus trainers.
        serving: waiting serving pods that have capacity.
    """

    def __init__(self, problem: Problem, targets: dict[JobKey, int]) -> None:
        self.problem, self.targets = problem, targets
        self.deleted = {c.index: self._dying(c) for c in problem.demands}
        self.packing = self._start(range(len(problem.demands)))
        self.placed: list[tuple[int, tuple[int, Role | None], int]] = []
        self.serving = sum(self._fit(g.shape, (SERVING, None), g.due + g.in_grace) for g in problem.waiting)
        lacking = {c.index: self._fit_fixed(c) for c in problem.demands}
        self.pending = {c.index: self._fit_trainers(c) for c in sorted(problem.demands, key=_age)}
        self.incomplete = {
            c.index for c in problem.demands if lacking[c.index] or self.packing.count[c.index] < c.min_trainers
        }

    def achieved(self) -> float:
        """Weighted fulfilment of the jobs that have all they need, counting only trainers that have capacity."""
        demands = [c for c in self.problem.demands if c.index not in self.incomplete]
        return sum(c.job.weight * min(1.0, c.fulfilment(self.packing.count[c.index])) for c in demands)

    def prove(self, deadline_s: float) -> Proof:
        """Bound the plan from above as every other policy does, for the jobs that have all they need."""
        packing = self._start(c.index for c in self.problem.demands if c.index not in self.incomplete)
        for shape, owner, node in self.placed:
            if owner[0] not in self.incomplete:
                place(packing, shape, owner, node)
        level = fair_shares(read_share_problem(packing), deadline_s) if packing.members else {}
        return prove(packing, level, deadline_s)

    def _start(self, members: Iterable[int]) -> TrialPacking:
        """Begin with the bound pods that stay."""
        packing = TrialPacking(self.problem, members, place_unbound=False)
        for j in packing.members:
            for index in self.deleted[j]:
                if self.problem.live_trainers[index].pod.node:
                    packing.delete(index)
                else:
                    packing.without_node[j].remove(index)
        return packing

    def _dying(self, demand: JobDemand) -> list[int]:
        order = sorted(demand.live_trainers, key=lambda i: self.problem.live_trainers[i].order)
        return order[: max(0, len(demand.live_trainers) - self.targets[demand.job.key])]

    def _fit(self, shape: int, owner: tuple[int, Role | None], wanted: int) -> int:
        """Place pods on the first nodes that have capacity; returns how many were placed."""
        left = wanted
        slots = self.packing.slots(shape) if left > 0 else self.packing.slots(shape)[:0]
        for node in slots.nonzero()[0].tolist():
            for _ in range(min(left, int(slots[node]))):
                place(self.packing, shape, owner, node)
                self.placed.append((shape, owner, node))
                left -= 1
            if not left:
                break
        return wanted - left

    def _fit_fixed(self, demand: JobDemand) -> int:
        """Place masters and pservers; returns how many lack capacity."""
        wanted = Counter((need.role, need.shape) for need in demand.needs for _ in range(need.missing))
        wanted.update((pod.role or Role.MASTER, shape) for shape, pod in demand.unbound_fixed)
        return sum(n - self._fit(shape, (demand.index, role), n) for (role, shape), n in sorted(wanted.items()))

    def _fit_trainers(self, demand: JobDemand) -> int:
        wanted = self.targets[demand.job.key] - self.packing.count[demand.index]
        return wanted - self._fit(demand.shape, (demand.index, Role.TRAINER), wanted)


def _age(demand: JobDemand) -> tuple[float, JobKey]:
    return (demand.job.created_s, demand.job.key)


def _decision(job: Job, trial: _FirstFit, targets: dict[JobKey, int]) -> ScaleDecision:
    live = tuple(sorted(p.name for p in job.live_trainers))
    demand = next((c for c in trial.problem.demands if c.job.key == job.key), None)
    base = ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(live),
        target=targets.get(job.key, 0),
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=demand is not None,
        reason=Reason.INSUFFICIENT_CAPACITY,
        message="",
    )
    if demand is None:
        reason = excluded(job).reason
        if job.is_left_alone:
            return replace(base, reason=reason, target=len(live))
        return replace(base, reason=reason, victims=live, shrink_reason=reason if live else "")
    names, new = (
        [n.name for n in trial.problem.snapshot.nodes],
        [p for p in trial.packing.placed if p.owner == demand.index],
    )
    victims = tuple(sorted(trial.problem.live_trainers[i].pod.name for i in trial.deleted[demand.index]))
    reason = _reason(demand, trial, base.target)
    return replace(
        base,
        reason=reason,
        victims=victims,
        nodes=tuple(sorted(Counter(names[p.node] for p in new if p.role is Role.TRAINER).items())),
        fixed_nodes=tuple(sorted((p.role, names[p.node]) for p in new if p.role and p.role is not Role.TRAINER)),
        shrink_reason=reason if victims else "",
        pending=trial.pending[demand.index],
    )


def _reason(demand: JobDemand, trial: _FirstFit, target: int) -> Reason:
    if demand.index in trial.incomplete:
        return Reason.MIN_UNSATISFIED
    if demand.job.pinned:
        return Reason.PINNED
    return Reason.AT_MAX if target >= demand.job.max_trainers else Reason.INSUFFICIENT_CAPACITY
