"""Sentences about pending serving pods that no eviction can help: a rule keeps them, or no job is in their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from edl.explain.rejected.rejections import Rejections
from edl.explain.waiting_daemons import daemon_lines
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.model.resources import RULE_PREFIX
from edl.model.units import amount, count, listed, plain, rank_of
from edl.planner.clock import Clock
from edl.planner.findings.scarcity import scarce_of, slots_without_training
from edl.planner.minimums.gangs import with_whole_gangs
from edl.planner.minimums.serving import count_serving
from edl.planner.problem import Problem
from edl.planner.problem_reader import read_problem

NAMED = 3
"""The most pods that are named."""


def waiting_lines(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield a line for each group of waiting pods that no eviction of trainers would help."""
    seen = with_whole_gangs(snapshot, Limits(), Clock())
    yield from blocked_lines(seen)
    yield from oversized_lines(seen)
    yield from daemon_lines(seen)


def blocked_lines(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield a line for each of the first blocked pods, and one that counts the others."""
    blocked = [pod for pod in snapshot.waiting_serving if pod.blocked]
    for pod in blocked[:NAMED]:
        yield f"serving pod {pod.namespace}/{pod.name}: nobody frees capacity for it: {pod.blocked}"
    if (more := len(blocked) - NAMED) > 0:
        yield f"and {count(more, 'more serving pod')} for which nobody frees capacity"


def oversized_lines(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield a line for each of the first pod shapes of which serving asks for more than the cluster can hold."""
    waiting = [pod for pod in snapshot.waiting_serving if pod.needs_capacity]
    if not waiting:
        return
    limits = Limits()
    problem = read_problem(snapshot, limits)
    served = count_serving(problem, limits.deadline_s)
    placed = {group.shape: served.due[group.shape] + served.in_grace[group.shape] for group in problem.waiting}
    short = {shape: pods for shape, pods in placed.items() if pods < _wanted(problem, shape)}
    for shape, pods in islice(short.items(), NAMED):
        like = [pod for pod in waiting if pod.shape == problem.shapes[shape]]
        yield f"{_who(like, len(like) - pods)} would wait without any job, too: {_why(problem, shape)}"
    if (more := len(short) - NAMED) > 0:
        yield f"and serving pods of {count(more, 'more shape')} would wait without any job"


def _wanted(problem: Problem, shape: int) -> int:
    """How many serving pods of a shape wait."""
    return sum(group.due + group.in_grace for group in problem.waiting if group.shape == shape)


def _who(pods: Sequence[Pod], short: int) -> str:
    """Name the pods that would wait: all pods that are alike, or so many of them."""
    first = f"{pods[0].namespace}/{pods[0].name}"
    if short < len(pods):
        return f"{short} of the {len(pods)} serving pods like {first}"
    also = f" and {count(len(pods) - 1, 'pod')} like it" if len(pods) > 1 else ""
    return f"serving pod {first}{also}"


def _why(problem: Problem, shape: int) -> str:
    """Say what keeps pods of a shape from the nodes even without any job."""
    if why := _why_none(problem, shape):
        return why
    slots = slots_without_training(problem, shape)
    if slots >= _wanted(problem, shape):
        return "the serving pods that wait do not all fit on the nodes"
    named = scarce_of(problem, shape, problem.shapes[shape].request)
    by = f" ({listed(plain(name) for name in sorted(named, key=rank_of))})" if named else ""
    whys = dict.fromkeys(rule.why for rule in problem.shapes[shape].placement.rules)
    return f"the nodes that accept them have capacity for {slots}{by}{''.join(f'; {why}' for why in whys)}"


def _why_none(problem: Problem, shape: int) -> str:
    """Say what keeps a pod from every node even without any job; empty if some node could take it."""
    opened = problem.opened[shape]
    if not opened.any():
        why = Rejections(problem).of_all(problem.shapes[shape])
        return f"no node accepts it ({why})" if len(opened) else why
    lacks = problem.empty[opened] < problem.request[shape]
    lacks &= problem.request[shape] > 0
    if not lacks.any(axis=1).all():
        return ""
    nodes, times = len(lacks), lacks.sum(axis=0)
    missing = sorted(
        ((problem.names[r], int(times[r])) for r in np.flatnonzero(times).tolist()), key=lambda one: rank_of(one[0])
    )
    asked = dict(zip(problem.names, problem.request[shape].tolist(), strict=True))
    rules = [name for name, _ in missing if name.startswith(RULE_PREFIX)]
    if len(rules) == len(missing):
        where = "the one node that accepts it" if nodes == 1 else f"the {nodes} nodes that accept it"
        return f"{listed(rules)}: no more on {where}"
    if nodes == 1:
        return f"the one node that accepts it lacks {listed(amount(name, asked[name]) for name, _ in missing)}"
    if len(missing) == 1:
        return f"all {nodes} nodes that accept it lack {amount(missing[0][0], asked[missing[0][0]])}"
    parts = (
        f"{short_of} {'lacks' if short_of == 1 else 'lack'} {amount(name, asked[name])}" for name, short_of in missing
    )
    return f"of the {nodes} nodes that accept it, {listed(parts)}"
