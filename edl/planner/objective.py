"""The interface between the stages of the planner that all policies share and the objective of one policy.

The stages place serving, admit jobs and place their minimums. An objective divides what is left, bounds from above
what any division could reach, and says what a trainer that changes hands would cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from edl.planner.programs.fair_share import Proof
from edl.planner.trial_packing import TrialPacking


@dataclass(frozen=True, slots=True)
class Exchange:
    """Trainers of one job on one node that would have to be deleted for one more pod of another job."""

    donor: int
    deletions: int


@dataclass(frozen=True, slots=True)
class Division:
    """How many trainers each admitted job gets.

    Attributes:
        packing: every pod of the plan on its node.
        level: by job, its fair share of trainers, in fractions: no less than its minimum.
        ceiling: by job, the most trainers that it may still grow to; empty if free capacity is left to others.
        not_worth_it: jobs that would get more if the gain paid for the restarts.
        resting: jobs that would get more if they had not been resized a moment ago.
    """

    packing: TrialPacking
    level: Mapping[int, float]
    ceiling: Mapping[int, int]
    not_worth_it: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()


class TradeVerdict(StrEnum):
    """The reasons for which a plan does not transfer a trainer from one job to another."""

    NOT_CHEAPER = "not_cheaper"  # it would only turn the difference around, or is kept by a cooldown
    LEAVES_LESS = "leaves_less"  # the giver would have less than the taker
    DEAD_BAND = "dead_band"  # the two would then be within the dead band
    TOO_LITTLE = "too_little"  # the gain is too small to restart trainers for it
    LOSS = "loss"  # all jobs together would have less


@dataclass(frozen=True, slots=True)
class Trade:
    """The cheapest way to give a job one more trainer at the cost of another job.

    Attributes:
        donor: the job that gives; `loss` is what it loses, in `unit`.
        after, taker_after: what donor and taker would have then; 0 if the unit is a speed.
        gain: what the taker would win; None if it is not counted in the same unit.
    """

    donor: int
    loss: float
    unit: str
    verdict: TradeVerdict
    gain: float | None = None
    after: float = 0.0
    taker_after: float = 0.0


class Objective(Protocol):
    """The objective that a policy maximises once every admitted job has its minimum.

    Attributes:
        name: what the certificate counts: `fulfilment`, `utility`.
        reserves_for_yielded: free capacity is left to a job that yielded to serving and may not grow yet.
        charges_growth: free capacity is left free if what a job gains by it does not pay for its resize.
    """

    name: str
    reserves_for_yielded: bool
    charges_growth: bool

    def divide(
        self, packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float], deadline_s: float
    ) -> Division:
        """Divide the capacity that remains once every admitted job has its minimum.

        Args:
            packing: every admitted job at its minimum at least; not changed.
            ceiling: the most trainers that each job may have now.
            level: the max-min fair share of each job, in fractions of trainers.
            deadline_s: time for each program.

        Raises:
            PlanError: a program found no answer in time.
        """

    def gain(self, packing: TrialPacking, j: int) -> float:
        """What one more trainer of a job adds to the objective, as the certificate counts it."""

    def score(self, packing: TrialPacking) -> list[float]:
        """Score a division for all jobs together; scores are compared as lists, larger is better."""

    def grow(self, packing: TrialPacking, division: Division) -> None:
        """Give free slots to the jobs, in the order that the objective decides; the packing is changed."""

    def prove(
        self,
        packing: TrialPacking,
        level: Mapping[int, float],
        deadline_s: float,
        *,
        least: Mapping[int, int] | None = None,
        stays: bool = False,
    ) -> Proof:
        """Bound from above what any division could reach that gives each job its fair share or its planned count.

        Args:
            packing: the finished plan.
            level: as `divide` returned it.
            deadline_s: time for the program.
            least: trainers that some jobs are to have in any case; the bound is then that of another plan.
            stays: bound only plans in which the trainers that this plan keeps stay on their nodes.
        """

    def cheapest_trade(self, packing: TrialPacking, taker: int, exchanges: Sequence[Exchange]) -> Trade:
        """Find the exchange that costs the losing job least, and why the plan does not make it.

        `exchanges` is not empty.
        """
