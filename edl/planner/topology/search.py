"""Chooses the domains of jobs that start: decides for one choice after the other and keeps the best decision.

With few choices all of them are tried, so the best is found. With many, the domains of one job after the other are
changed as long as decisions get better. A large cluster gets the first guess alone: a decision takes long there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any, TypeVar

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.planner.scores import PlanScore
from edl.planner.topology.choices import Assignment, Choices

MOST_TRIED = 16  # decisions for one snapshot
MOST_CELLS = 10_000  # nodes times jobs; a larger cluster gets the first guess
PART = 0.3  # of the deadline: no other choice is tried after it

Made = TypeVar("Made")


def decide_together(
    choices: Choices,
    limits: Limits,
    decide: Callable[[ClusterSnapshot], Made],
    score: Callable[[Made], PlanScore],
    spent_s: Callable[[], float],
) -> Made:
    """Decide with the best domains that are found for the jobs that ask for one.

    Args:
        choices: the domains that its jobs may have.
        limits: what the operator allows.
        decide: makes a decision for a snapshot in which each job has its domain.
        score: how good a decision is.
        spent_s: seconds since the decision began.

    Raises:
        PlanError: no decision was made for the first guess.
    """
    best = decide(choices.applied(choices.guess))
    value = score(best)
    snapshot = choices.snapshot
    if len(snapshot.nodes) * len(snapshot.jobs) > MOST_CELLS:
        return best
    others = _Others(choices)
    for assignment in others:
        if value.is_best or spent_s() > PART * limits.deadline_s:
            break
        try:
            made = decide(choices.applied(assignment))
        except PlanError:  # the first guess has a decision
            continue
        if score(made) > value:
            best, value = made, score(made)
            others.keep(assignment)
    return best


class _Others:
    """The choices besides the first guess, at most MOST_TRIED; those of the best one so far come next."""

    def __init__(self, choices: Choices) -> None:
        self._choices, self._best = choices, choices.guess
        self._tried: set[tuple[tuple[JobKey, str], ...]] = {_id(self._best)}

    def keep(self, assignment: Assignment) -> None:
        """Change domains of this assignment from now on."""
        self._best = dict(assignment)

    def __iter__(self) -> Iterator[Assignment]:
        domains = {key: tuple(names) for key, names in self._choices.domains.items() if len(names) > 1}
        if prod(map(len, domains.values())) <= MOST_TRIED:
            for names in product(*domains.values()):
                yield from self._untried(self._best | dict(zip(domains, names, strict=True)))
            return
        for key, names in domains.items():
            for name in names:
                yield from self._untried(self._best | {key: name})

    def _untried(self, assignment: dict[JobKey, str]) -> Iterator[Assignment]:
        if _id(assignment) not in self._tried and len(self._tried) < MOST_TRIED:
            self._tried.add(_id(assignment))
            yield assignment


def _id(assignment: Assignment) -> tuple[Any, ...]:
    return tuple(sorted(assignment.items()))
