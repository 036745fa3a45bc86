"""Which of two plans is better, and what counts as a gain: of packings of the same jobs, and of whole plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.planner.guard import DEAD_BAND
from edl.planner.speedup import Worth
from edl.planner.trial_packing import TrialPacking

DIGITS = 9  # of a fulfilment; what differs by less is equal
EPSILON = 1e-6  # of a fulfilment, a count or a worth; no smaller difference is a gain


def from_worst(packing: TrialPacking) -> list[float]:
    """The fulfilments of all jobs of a packing, in ascending order."""
    return sorted(round(packing.fulfilment(j), DIGITS) for j in packing.members)


def total_worth(packing: TrialPacking, worths: Mapping[int, Worth]) -> float:
    """The sum of the worths of all jobs of a packing."""
    return sum(worths[j].value(packing.count[j]) for j in packing.members)


def packing_score(
    packing: TrialPacking, fair_share: Mapping[int, int], worths: Mapping[int, Worth] | None = None
) -> tuple[list[float], list[float]]:
    """How good a packing is; the larger one is better.

    Args:
        packing: not changed.
        fair_share: the trainers up to which each job counts first, from the worst off upwards.
        worths: the worth of each job's trainers, whose total then counts; by default every fulfilment counts, from
            the worst off upwards.
    """
    demands = packing.problem.demands
    held = (min(packing.fulfilment(j), demands[j].fulfilment(fair_share[j])) for j in packing.members)
    kept = sorted(round(fulfilment, DIGITS) for fulfilment in held)
    return kept, from_worst(packing) if worths is None else [round(total_worth(packing, worths), DIGITS)]


def gain_of_worst(before: TrialPacking, after: TrialPacking, jobs: Iterable[int] | None = None) -> float:
    """The fulfilment that the worst off of some jobs gains, by default of all that get more trainers; 0 if none."""
    among = (j for j in after.members if after.count[j] > before.count[j]) if jobs is None else jobs
    worst = min(among, key=lambda j: (before.fulfilment(j), j), default=None)
    return 0.0 if worst is None else after.fulfilment(worst) - before.fulfilment(worst)


def is_felt(gain: float) -> bool:
    """Return True if a gain (of fulfilment, or in the unit of `Worth`) is large enough to restart trainers for it."""
    return gain > DEAD_BAND + EPSILON


class PlanScore(NamedTuple):
    """How good a decision is; the larger one is better.

    Attributes:
        placed: serving pods.
        admitted: for each job by tier and age, 0 if it waits, 1 if it is pinned to more trainers than it has, else 2.
        pinned: for each pinned job by tier and age, its trainers.
        worst: the lowest fulfilment.
        achieved: what the objective counts.
        kept: minus the trainers that are deleted.
        gathered: minus the domains of Preferred levels that jobs use.
    """

    placed: int
    admitted: tuple[int, ...]
    pinned: tuple[int, ...]
    worst: float
    achieved: float
    kept: int
    gathered: int = 0

    @property
    def is_best(self) -> bool:
        """True if no decision can be better: each job has all that it may have, and no trainer ends for that."""
        return all(self.admitted) and self.worst >= 1.0 and not self.kept


def admitted(plan: ScalePlan) -> frozenset[JobKey]:
    """The jobs that run in a plan."""
    return frozenset(decision.job for decision in plan.decisions if decision.admitted)
