"""Serving pods that start only as a group: nobody ends for a part of a group, which could not start.

A plan frees capacity for as many waiting pods as fit without any training. Of a group that does not fit as a whole
even then, or of which too few pods wait, no pod starts. So its pods count as blocked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from edl.model.cluster import ClusterSnapshot, Gang
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.model.units import count
from edl.planner.minimums.serving import count_serving
from edl.planner.problem import Problem, WaitingServing
from edl.planner.problem_reader import read_problem

MOST_TRIED = 32
"""So many groups are tried as a whole, those of the highest priority first; of more, each pod counts for itself."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A group with the pods of it that wait.

    Attributes:
        missing: how many of them have to start together: the minimum less those that run.
    """

    gang: Gang
    pods: tuple[Pod, ...]
    missing: int

    @property
    def rank(self) -> tuple[int, float, str]:
        """Sort key: the order in which groups are tried."""
        return -max(pod.priority for pod in self.pods), min(pod.created_s for pod in self.pods), self.gang.name


def with_whole_gangs(snapshot: ClusterSnapshot, limits: Limits) -> ClusterSnapshot:
    """Return the snapshot in which the pods of each group are blocked that cannot start as a whole.

    Args:
        snapshot: the cluster.
        limits: what the operator allows.
    """
    waiting = _waiting(snapshot) if snapshot.gangs else []
    if not waiting:
        return snapshot
    blocked: dict[str, str] = {}
    complete = []
    for group in waiting:
        if len(group.pods) < group.missing:
            blocked |= {pod.uid: _too_few(group) for pod in group.pods}
        else:
            complete.append(group)
    for group in _not_whole(snapshot, complete, limits):
        blocked |= {pod.uid: _no_capacity(group) for pod in group.pods}
    if not blocked:
        return snapshot
    return replace(
        snapshot,
        pods=tuple(replace(pod, blocked=blocked[pod.uid]) if pod.uid in blocked else pod for pod in snapshot.pods),
    )


def _waiting(snapshot: ClusterSnapshot) -> list[_Waiting]:
    """The groups of which several pods have to start together."""
    minimums = {(gang.namespace, gang.name): gang for gang in snapshot.gangs}
    waiting: dict[Gang, list[Pod]] = {gang: [] for gang in snapshot.gangs}
    running: Counter[Gang] = Counter()
    for pod in snapshot.pods:
        gang = minimums.get((pod.namespace, pod.gang)) if pod.gang else None
        if gang is None or not pod.is_live:
            continue
        if pod.node or pod.nominated:
            running[gang] += 1
        elif pod.needs_capacity:
            waiting[gang].append(pod)
    groups = (_Waiting(gang, tuple(pods), gang.minimum - running[gang]) for gang, pods in waiting.items() if pods)
    return [group for group in groups if group.missing > 1]


def _not_whole(snapshot: ClusterSnapshot, groups: list[_Waiting], limits: Limits) -> list[_Waiting]:
    """The groups that do not fit as a whole beside what comes before them, even if no training runs."""
    if not groups:
        return []
    problem = read_problem(snapshot, limits)
    if not count_serving(problem, limits.deadline_s).short:
        return []
    grouped = {pod.uid for group in groups for pod in group.pods}
    singles = [pod for pod in snapshot.waiting_serving if pod.needs_capacity and pod.uid not in grouped]
    number = {shape: index for index, shape in enumerate(problem.shapes)}
    accepted: list[Pod] = []
    refused = []
    for group in islice(sorted(groups, key=lambda group: group.rank), MOST_TRIED):
        first = [pod for pod in singles if pod.priority >= -group.rank[0]]
        before = Counter(number[pod.shape] for pod in (*first, *accepted))
        own = Counter(number[pod.shape] for pod in group.pods)
        if _placed(problem, before + own, limits) - _placed(problem, before, limits) >= group.missing:
            accepted += group.pods
        else:
            refused.append(group)
    return refused


def _placed(problem: Problem, wanted: Mapping[int, int], limits: Limits) -> int:
    """How many pods of these shapes fit if no training runs."""
    waiting = tuple(WaitingServing(shape, pods, 0) for shape, pods in sorted(wanted.items()))
    served = count_serving(replace(problem, waiting=waiting), limits.deadline_s)
    return sum(served.due.values())


def _too_few(group: _Waiting) -> str:
    return f"{_starts_together(group)}, and there {_are(len(group.pods))} without a node"


def _no_capacity(group: _Waiting) -> str:
    return f"{_starts_together(group)}, and so many do not fit, even without any job"


def _starts_together(group: _Waiting) -> str:
    name = group.gang.name.partition("/")[2]
    return f"its scheduler starts {count(group.missing, 'pod')} of group {name} only together"


def _are(number: int) -> str:
    return f"is {number}" if number == 1 else f"are {number}"
