"""Chooses the domains of jobs that start: decides for one choice after the other and keeps the best decision.

With few choices all of them are tried, so the best is found. With many, the domains of one job after the other are
changed as long as decisions get better. A large cluster gets the first guess alone, because a decision takes long
there; and a second one if a job waits that was limited to few domains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import TypeVar

from edl.errors import PlanError
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.planner.scores import PlanScore
from edl.planner.topology.choices import Assignment, Choice, Choices

MOST_TRIED = 16  # decisions for one snapshot
MOST_CELLS = 10_000  # nodes times jobs; a larger cluster gets the first guess
PART = 0.3  # of the deadline: no other choice is tried after it

Made = TypeVar("Made")


def decide_together(
    choices: Choices,
    limits: Limits,
    decide: Callable[[Assignment], Made],
    score: Callable[[Made], PlanScore],
    spent_s: Callable[[], float],
) -> Made:
    """Decide once for each promising assignment of topology domains to jobs, and return the best of these decisions.

    Args:
        choices: the domains that its jobs may have.
        limits: what the operator allows.
        decide: makes a decision in which each job has its domains.
        score: how good a decision is.
        spent_s: seconds since the decision began.

    Raises:
        PlanError: no decision was made for the first guess.
    """
    best = decide(choices.guess)
    value = score(best)
    snapshot = choices.snapshot
    is_large = len(snapshot.nodes) * len(snapshot.jobs) > MOST_CELLS
    others: Iterable[Assignment] = _without_areas(choices) if is_large else _Others(choices)
    for assignment in others:
        if value.is_best or spent_s() > PART * limits.deadline_s or (is_large and all(value.admitted)):
            break
        try:
            made = decide(assignment)
        except PlanError:  # the first guess has a decision
            continue
        if score(made) > value:
            best, value = made, score(made)
            if isinstance(others, _Others):
                others.keep(assignment)
    return best


def _without_areas(choices: Choices) -> Iterator[Assignment]:
    """The first guess in which no job is limited to few domains, if any was."""
    if any(choice.area for choice in choices.guess.values()):
        yield {key: replace(choice, area=()) for key, choice in choices.guess.items()}


class _Others:
    """Iterates over further choices of domains, at most MOST_TRIED, next to the best one so far."""

    def __init__(self, choices: Choices) -> None:
        self._choices, self._best = choices, choices.guess
        self._tried: set[tuple[tuple[JobKey, Choice], ...]] = {_id(self._best)}

    def keep(self, assignment: Assignment) -> None:
        """Change domains of this assignment from now on."""
        self._best = dict(assignment)

    def __iter__(self) -> Iterator[Assignment]:
        options = {key: tuple(some) for key, some in self._choices.options.items() if len(some) > 1}
        if prod(map(len, options.values())) <= MOST_TRIED:
            for chosen in product(*options.values()):
                yield from self._untried(self._best | dict(zip(options, chosen, strict=True)))
            return
        for key, some in options.items():
            for one in some:
                yield from self._untried(self._best | {key: one})

    def _untried(self, assignment: dict[JobKey, Choice]) -> Iterator[Assignment]:
        if _id(assignment) not in self._tried and len(self._tried) < MOST_TRIED:
            self._tried.add(_id(assignment))
            yield assignment


def _id(assignment: Assignment) -> tuple[tuple[JobKey, Choice], ...]:
    return tuple(sorted(assignment.items(), key=lambda item: item[0]))
