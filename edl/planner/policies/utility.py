"""Policy `utility`: trainers go to the job whose speed grows most by them, and change hands only if that pays.

What a trainer is worth is the logarithm of a job's speed, declared or measured (`speedup`). Each job keeps its
minimum and half of what max-min fairness would give it above that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

from edl.model.jobs import Job
from edl.planner.objective import Division, Exchange, Trade, TradeVerdict
from edl.planner.packing import grow
from edl.planner.policies.base import Policy
from edl.planner.policies.trading import (
    Goal,
    grown_by_worth,
    lacking_gain,
    pays,
    set_goal,
    traded,
)
from edl.planner.policies.transfers import once_terminated, without_restarts
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.utility import prove_utility
from edl.planner.reallocation import Terms, givers, has_arrivals, is_at_rest
from edl.planner.scores import DIGITS, EPSILON, is_felt, packing_score, total_worth
from edl.planner.speedup import Worth, as_useful, worth_of
from edl.planner.trial_packing import TrialPacking


def floors(packing: TrialPacking, level: Mapping[int, float]) -> dict[int, float]:
    """How many trainers each job keeps in any case: its minimum, and half of its fair share above that."""
    low = {j: packing.problem.demands[j].min_trainers for j in packing.members}
    return {j: low[j] + (level[j] - low[j]) / 2 for j in packing.members}


class TotalUtility:
    """Maximises the sum of the jobs' utilities, each job keeping its floor.

    Attributes:
        worths: what trainers are worth to each job.
    """

    name = "utility"
    reserves_for_yielded = False
    charges_growth = False

    def __init__(self, worths: Mapping[int, Worth]) -> None:
        """Take what trainers are worth to each job of the plan, by the index of the job's demand."""
        self.worths = worths

    def divide(
        self, packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float], deadline_s: float
    ) -> Division:
        """Divide the capacity that the minimums left; see `Objective.divide`."""
        floor = floors(packing, level)
        terms = Terms(ceiling, {j: int(floor[j] + EPSILON) for j in packing.members})
        best, not_worth_it = _reshare(packing, terms, self.worths, deadline_s)
        return Division(best, floor, ceiling, not_worth_it)

    def gain(self, packing: TrialPacking, j: int) -> float:
        """What one more trainer of a job adds to the sum of utilities; see `Objective.gain`."""
        return self.worths[j].next(packing.count[j])

    def score(self, packing: TrialPacking) -> list[float]:
        """Score a division; see `Objective.score`."""
        return [round(total_worth(packing, self.worths), DIGITS)]

    def grow(self, packing: TrialPacking, division: Division) -> None:
        """Give free slots to the job that gains most by one more trainer; see `Objective.grow`."""
        fair_share = {j: int(n + EPSILON) for j, n in division.level.items()}
        grow(packing, division.ceiling, fair_share, worths=self.worths)

    def prove(
        self,
        packing: TrialPacking,
        level: Mapping[int, float],
        deadline_s: float,
        *,
        least: Mapping[int, int] | None = None,
        stays: bool = False,
    ) -> Proof:
        """Bound from above the sum of utilities of any division; see `Objective.prove`."""
        return prove_utility(
            packing, self.worths, {j: int(n) for j, n in level.items()}, deadline_s, least=least, stays=stays
        )

    def cheapest_trade(self, packing: TrialPacking, taker: int, exchanges: Sequence[Exchange]) -> Trade:
        """The donor that loses least speed; see `Objective.cheapest_trade`."""
        have, demands = packing.count, packing.problem.demands

        def loss(exchange: Exchange) -> float:
            worth, now = self.worths[exchange.donor], have[exchange.donor]
            return worth.value(now) - worth.value(now - exchange.deletions)

        best = min(exchanges, key=lambda e: (loss(e), e.deletions, e.donor))
        gain = self.worths[taker].next(have[taker])
        more = gain - loss(best)
        verdict = TradeVerdict.TOO_LITTLE if more > EPSILON else TradeVerdict.NOT_CHEAPER
        verdict = TradeVerdict.LOSS if more < -EPSILON else verdict
        return Trade(
            best.donor,
            loss=1 - exp(-loss(best) / demands[best.donor].job.weight),
            unit="speed",
            verdict=verdict,
            gain=exp(gain / demands[taker].job.weight) - 1,
        )


class Utility(Policy):
    """The most useful shares, by speeds that jobs declare or that edl measured."""

    name = "utility"

    def adapt(self, job: Job) -> Job:
        """Limit the job to the trainers that do not slow it; see `as_useful`."""
        return as_useful(job)

    def objective(self, packing: TrialPacking) -> TotalUtility:
        """The objective for the admitted jobs: what trainers are worth to each of them."""
        demands = [packing.problem.demands[j] for j in packing.members]
        return TotalUtility({d.index: worth_of(d.job, d.min_trainers, d.max_trainers) for d in demands})


def _reshare(
    packing: TrialPacking, terms: Terms, worths: Mapping[int, Worth], deadline_s: float
) -> tuple[TrialPacking, frozenset[int]]:
    """Choose between growth alone and trades; also return the jobs that would gain by trades that do not pay."""
    goal = set_goal(packing, packing.count, terms, worths, deadline_s)
    grown = grown_by_worth(packing, terms, goal.wanted, worths, deadline_s)
    admits = has_arrivals(packing)
    if _is_good_enough(grown, terms, goal, worths) or not (admits or is_at_rest(packing)):
        return grown, frozenset()

    def take(keep: Mapping[int, int]) -> TrialPacking:
        return traded(packing, terms, goal, keep, worths, deadline_s=deadline_s)

    keep = givers(packing, admits=admits)
    taken = take(keep)
    still = without_restarts(packing, grown, taken, keep, take)
    if not is_felt(lacking_gain(taken, still, terms)) and not pays(packing, taken, still, worths):
        taken = still
    if packing_score(taken, terms.fair_share, worths) <= packing_score(grown, terms.fair_share, worths):
        return grown, frozenset()
    if packing.problem.leaving.any():
        later = grown_by_worth(once_terminated(packing), terms, goal.wanted, worths, deadline_s)
        if packing_score(taken, terms.fair_share, worths) <= packing_score(later, terms.fair_share, worths):
            return grown, frozenset()
    if admits or is_felt(lacking_gain(taken, grown, terms)) or pays(packing, taken, grown, worths):
        return taken, frozenset()
    gains = total_worth(taken, worths) > total_worth(grown, worths) + EPSILON
    return grown, frozenset(j for j in packing.members if gains and taken.count[j] > grown.count[j])


def _is_good_enough(packing: TrialPacking, terms: Terms, goal: Goal, worths: Mapping[int, Worth]) -> bool:
    """True if every job has its floor and all jobs together reach the goal."""
    lacks = any(packing.count[j] < min(terms.fair_share[j], terms.ceiling[j]) for j in packing.members)
    return not lacks and total_worth(packing, worths) >= goal.value - EPSILON
