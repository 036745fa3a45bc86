"""Serving pods that start only as a group: no trainer is evicted for a part of a group, which could not start.

A plan frees capacity for as many waiting pods as fit without any training. Of a group that does not fit as a whole
even then, or of which too few pods wait, no pod starts. So its pods count as blocked.

Whether a group fits on empty nodes is counted for every group. Whether it fits beside what comes before it is
searched for a few groups of each namespace and for a small part of the deadline. Of the other groups each pod counts
for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf

from edl.model.cluster import ClusterSnapshot, Gang
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.model.units import count
from edl.planner.clock import Clock, OutOfTimeError
from edl.planner.minimums.serving import count_serving
from edl.planner.problem import Problem, WaitingServing, count_slots
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import with_engine
from edl.planner.reading.kept import KeptReading

MOST_TRIED = 32
"""The most groups that are tried; the namespaces take turns."""
TRIED_BY = 0.05
"""The part of the deadline that this may take."""


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


def with_whole_gangs(
    snapshot: ClusterSnapshot, limits: Limits, clock: Clock, kept: KeptReading | None = None
) -> ClusterSnapshot:
    """Return the snapshot in which the pods of each group are blocked that cannot start as a whole.

    Args:
        snapshot: the cluster.
        limits: what the operator allows.
        clock: that of the decision.
        kept: what the last plan has read.

    Raises:
        PlanError: there was no time to read the cluster.
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
    if complete:
        clock.begin("serving")
        read = with_engine(read_problem(snapshot, limits, clock=clock, kept=kept))
        problem = replace(read, clock=clock.again(TRIED_BY * limits.deadline_s))
        try:
            for group in _not_whole(snapshot, complete, problem):
                blocked |= {pod.uid: _no_capacity(group) for pod in group.pods}
        except OutOfTimeError:  # of the groups that are left each pod counts for itself
            clock.cut_short("groups of serving pods")
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
    return [group for group in groups if group.missing > 1 and not (group.gang.once and running[group.gang])]


def _not_whole(snapshot: ClusterSnapshot, groups: list[_Waiting], problem: Problem) -> Iterator[_Waiting]:
    """Yield the groups that do not fit as a whole beside earlier groups and pods, even if no training runs.

    Raises:
        OutOfTimeError: the time for it is over.
    """
    clock = problem.clock
    clock.check("reading groups of serving pods")
    if not count_serving(problem, clock.left_s(inf)).short:
        return
    number = {shape: index for index, shape in enumerate(problem.shapes)}
    slots_of = cache(partial(_slots, problem))
    wanted: dict[Gang, Counter[int]] = {}
    left = []
    for group in groups:
        clock.check("counting groups of serving pods")
        own = wanted[group.gang] = Counter(number[pod.shape] for pod in group.pods)
        if sum(min(pods, slots_of(shape)) for shape, pods in own.items()) >= group.missing:
            left.append(group)
        else:
            yield group
    grouped = {pod.uid for group in groups for pod in group.pods}
    singles = [pod for pod in snapshot.waiting_serving if pod.needs_capacity and pod.uid not in grouped]
    placed, accepted = cache(partial(_placed, problem)), Counter[int]()
    for group in sorted(_in_turns(left), key=lambda group: group.rank):
        clock.check("trying groups of serving pods")
        before = accepted + Counter(number[pod.shape] for pod in singles if pod.priority >= -group.rank[0])
        both = before + wanted[group.gang]
        if placed(frozenset(both.items())) - placed(frozenset(before.items())) >= group.missing:
            accepted += wanted[group.gang]
        else:
            yield group


def _slots(problem: Problem, shape: int) -> int:
    """How many pods of a shape the nodes could hold if there were nothing else to place."""
    return int((count_slots(problem.empty, problem.request[shape]) * problem.opened[shape]).sum())


def _in_turns(groups: list[_Waiting]) -> list[_Waiting]:
    """Order the groups to try: one of each namespace in turn."""
    turn: Counter[str] = Counter()
    turns: list[tuple[int, _Waiting]] = []
    for group in sorted(groups, key=lambda group: group.rank):
        turns.append((turn[group.gang.namespace], group))
        turn[group.gang.namespace] += 1
    return [group for _, group in sorted(turns, key=lambda one: one[0])[:MOST_TRIED]]


def _placed(problem: Problem, wanted: frozenset[tuple[int, int]]) -> int:
    """How many pods fit if no training runs; `wanted` has the pods of each shape."""
    waiting = tuple(WaitingServing(shape, pods, 0) for shape, pods in sorted(wanted))
    return sum(count_serving(replace(problem, waiting=waiting), problem.clock.left_s(inf)).due.values())


def _too_few(group: _Waiting) -> str:
    return f"{_starts_together(group)}, and there {_are(len(group.pods))} without a node"


def _no_capacity(group: _Waiting) -> str:
    return f"{_starts_together(group)}, and so many do not fit, even without any job"


def _starts_together(group: _Waiting) -> str:
    name = group.gang.name.partition("/")[2]
    return f"its scheduler starts {count(group.missing, 'pod')} of group {name} only together"


def _are(number: int) -> str:
    return f"is {number}" if number == 1 else f"are {number}"
