"""Finds the pods of a plan that can be created now, because their node has the capacity at this moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.sizes import at_most
from edl.planner.problem import Problem, count_slots
from edl.planner.problem_reader import read_problem, reads_alike
from edl.planner.quota import QuotaNow
from edl.planner.trial_packing import TrialPacking


@dataclass(frozen=True, slots=True)
class Start:
    """A pod of a plan whose node has the capacity for it now.

    Attributes:
        job: its job.
        role: its role.
        node: name of the node.
    """

    job: JobKey
    role: Role
    node: str


def startable(snapshot: ClusterSnapshot, plan: ScalePlan, problem: Problem | None = None) -> tuple[Start, ...]:
    """The pods of a plan that can be created now, because their node has the capacity at this moment.

    Terminating pods and victims still use their requests, and count for the ResourceQuota of their namespace. So do
    pods of edl that are not bound yet, and the serving pods that wait. Masters and pservers come first, then
    trainers up to each minimum, then the others in turn. Of a job that may have some counts only, no further trainer
    is created before there is capacity for all up to its next size.

    Args:
        snapshot: the cluster now; it may be newer than the one that the plan was made for.
        plan: the plan.
        problem: what the decision read; it is used if it was read from the same cluster.
    """
    if problem is None or not reads_alike(problem, snapshot):
        problem = read_problem(snapshot, Limits())
    demands = {demand.job.key: demand.index for demand in problem.demands}
    decisions = [d for d in plan.decisions if d.admitted and d.job in demands]
    deleted = {(d.job, name) for d in decisions for name in d.victims}
    members = [demands[d.job] for d in decisions]
    packing = TrialPacking(problem, members)
    for index, trainer in enumerate(problem.live_trainers):
        if (
            trainer.demand in packing.count
            and not trainer.pod.node
            and (problem.demands[trainer.demand].job.key, trainer.pod.name) in deleted
        ):
            packing.delete(index)
    wanted = _creations(decisions)
    _keep_for_serving(packing, {problem.node_index[node] for _, _, node in wanted if node in problem.node_index})
    most: dict[JobKey, int] = {}
    while True:
        started = _started(wanted, most, packing, QuotaNow(snapshot))
        partial = _partial(started, {d.job: problem.demands[demands[d.job]].job for d in decisions}, deleted)
        if not partial:
            return tuple(started)
        most |= partial


def _started(
    wanted: list[tuple[JobKey, Role, str]],
    most: Mapping[JobKey, int],
    packing: TrialPacking,
    quota: QuotaNow,
) -> list[Start]:
    """The pods that fit now, placed one after the other; for some jobs only a limited number of trainers."""
    problem, left = packing.problem, dict(most)
    demands = {demand.job.key: demand.index for demand in problem.demands}
    started, capacity = list[Start](), _CapacityNow(packing)
    for key, role, name in wanted:
        if role is Role.TRAINER and left.get(key) == 0:
            continue
        node = problem.node_index.get(name, -1)
        shape = _shape_of(problem, demands[key], role)
        if node >= 0 and capacity.holds(node, shape) and quota.take(problem.demands[demands[key]].job, role):
            capacity.take(node, shape)
            started.append(Start(key, role, name))
            if role is Role.TRAINER and key in left:
                left[key] -= 1
    return started


def _partial(
    started: list[Start], jobs: Mapping[JobKey, Job], deleted: Collection[tuple[JobKey, str]]
) -> dict[JobKey, int]:
    """The jobs that would get a part of the trainers to their next size, and how many they get instead."""
    counts = Counter(start.job for start in started if start.role is Role.TRAINER)
    found = {}
    for key, new in counts.items():
        job = jobs[key]
        if job.sizes:
            live = sum((key, pod.name) not in deleted for pod in job.live_trainers)
            enough = max(0, max(job.bounds.min_trainers, at_most(job.sizes, live + new)) - live)
            if enough < new:
                found[key] = enough
    return found


class _CapacityNow:
    """The free capacity of each node, as lists: small arrays are slower, and thousands of pods may start."""

    def __init__(self, packing: TrialPacking) -> None:
        self._now, self._request = packing.now, packing.problem.request
        self._rows: dict[int, list[int]] = {}
        self._needs: dict[int, list[tuple[int, int]]] = {}

    def holds(self, node: int, shape: int) -> bool:
        """True if the node has capacity for one more pod of the shape."""
        row = self._row(node)
        return all(row[column] >= amount for column, amount in self._need(shape))

    def take(self, node: int, shape: int) -> None:
        """Use the capacity of one pod."""
        row = self._row(node)
        for column, amount in self._need(shape):
            row[column] -= amount

    def _row(self, node: int) -> list[int]:
        if node not in self._rows:
            self._rows[node] = self._now[node].tolist()
        return self._rows[node]

    def _need(self, shape: int) -> list[tuple[int, int]]:
        if shape not in self._needs:
            amounts = enumerate(self._request[shape].tolist())
            self._needs[shape] = [(column, amount) for column, amount in amounts if amount]
        return self._needs[shape]


def _creations(decisions: list[ScaleDecision]) -> list[tuple[JobKey, Role, str]]:
    """Every pod that the plan creates, in the order of creation.

    Masters and pservers of a job whose pservers move are left out: the old pods still exist.
    """
    fixed = [(d.job, role, node) for d in decisions if not d.moves for role, node in d.fixed_nodes]
    base: list[tuple[JobKey, Role, str]] = []
    rest: list[tuple[int, JobKey, str]] = []
    for decision in decisions:
        nodes = [node for node, count in decision.nodes for _ in range(count)]
        kept = decision.target - len(nodes)
        for turn, node in enumerate(nodes):
            if kept + turn < decision.min_trainers:
                base.append((decision.job, Role.TRAINER, node))
            else:
                rest.append((turn, decision.job, node))
    return [*fixed, *base, *((job, Role.TRAINER, node) for _, job, node in sorted(rest))]


def _keep_for_serving(packing: TrialPacking, planned: set[int]) -> None:
    """Reserve the capacity that waiting serving pods could use now, first on nodes that the plan does not use."""
    for group in packing.problem.waiting:
        request = packing.problem.request[group.shape]
        slots = count_slots(packing.now, request) * packing.problem.opened[group.shape]
        left = group.due + group.in_grace
        for node in sorted(np.flatnonzero(slots).tolist(), key=lambda n: (n in planned, n)):
            used = min(left, int(slots[node]))
            packing.now[node] -= used * request
            left -= used


def _shape_of(problem: Problem, demand: int, role: Role) -> int:
    """The shape of the new pods of a job in one role."""
    if role is Role.TRAINER:
        return problem.demands[demand].shape
    return next(need.shape for need in problem.demands[demand].needs if need.role is role)
