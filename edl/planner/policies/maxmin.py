"""Policy `maxmin`: the job that is worst off gets the next trainer.

Growth into free capacity goes to the job with the lowest fulfilment that it fits. A running trainer is deleted for
another job's share in the plan that admits a job; else only if jobs that are out of their cooldown give it, and the
worst off gains more than a dead band or stays more than a dead band below the job that gives.

Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.errors import PlanError
from edl.model.jobs import Job
from edl.planner.clock import OutOfTimeError
from edl.planner.objective import Division, Exchange, Trade, TradeVerdict
from edl.planner.packing import grow
from edl.planner.policies.base import Policy
from edl.planner.policies.filling import fill
from edl.planner.policies.raising import FEW_JOBS, Draft, Take, raised_as_far_as_possible, taking
from edl.planner.policies.transfers import (
    levelled,
    once_terminated,
    without_restarts,
)
from edl.planner.programs.fair_share import Proof, fluid_targets, prove, read_share_problem
from edl.planner.reallocation import (
    Terms,
    givers,
    has_arrivals,
    is_at_rest,
    movable_trainers,
    take_fair_shares,
    take_one,
    undo_restarts,
)
from edl.planner.scores import EPSILON, from_worst, gain_of_worst, is_felt, packing_score
from edl.planner.speedup import as_useful
from edl.planner.swaps.search import Wanted, fill_by_swaps
from edl.planner.trial_packing import TrialPacking


class Fulfilment:
    """Maximises the lowest fulfilment (n - min) / (max - min) of n trainers, then the next lowest, and so on."""

    name = "fulfilment"
    reserves_for_yielded = True
    charges_growth = False

    def divide(
        self, packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float], deadline_s: float
    ) -> Division:
        """Divide the capacity that the minimums left; see `Objective.divide`."""
        ceiling = _reserve_for_yielded(packing, ceiling, level)
        terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in packing.members})
        grown = _grown(packing, terms, deadline_s)
        try:
            shared = _reshare(packing, grown, terms, deadline_s)
        except OutOfTimeError:
            packing.problem.clock.cut_short("transfers")
            return Division(grown.packing, level, ceiling)
        if packing.problem.plans_in_bulk:
            return Division(shared, level, ceiling)
        shared = levelled(shared, ceiling, {}, band=0.0)
        admits = has_arrivals(packing)
        if admits or is_at_rest(packing):
            shared = levelled(shared, ceiling, givers(packing, admits=admits))
        return Division(shared, level, ceiling)

    def gain(self, packing: TrialPacking, j: int) -> float:
        """What one more trainer of a job adds to the sum of fulfilments; see `Objective.gain`."""
        demand = packing.problem.demands[j]
        return demand.job.weight / max(1, demand.max_trainers - demand.min_trainers)

    def score(self, packing: TrialPacking) -> list[float]:
        """The fulfilments of all jobs, from the worst off upwards; see `Objective.score`."""
        return from_worst(packing)

    def grow(self, packing: TrialPacking, division: Division) -> None:
        """Give free slots to the worst-off job first; see `Objective.grow`."""
        grow(packing, division.ceiling, {j: int(n + EPSILON) for j, n in division.level.items()})

    def prove(
        self,
        packing: TrialPacking,
        level: Mapping[int, float],
        deadline_s: float,
        *,
        least: Mapping[int, int] | None = None,
        stays: bool = False,
    ) -> Proof:
        """Bound from above the sum of fulfilments of any division; see `Objective.prove`."""
        return prove(packing, level, deadline_s, least=least, stays=stays)

    def cheapest_trade(self, packing: TrialPacking, taker: int, exchanges: Sequence[Exchange]) -> Trade:
        """The donor that is best off after having given; see `Objective.cheapest_trade`."""

        def left_with(exchange: Exchange) -> float:
            return packing.fulfilment(exchange.donor, -exchange.deletions)

        best = max(exchanges, key=lambda e: (left_with(e), -e.deletions, -e.donor))
        after, taker_after = left_with(best), packing.fulfilment(taker, 1)
        verdict = TradeVerdict.NOT_CHEAPER
        if after < taker_after - EPSILON:
            verdict = TradeVerdict.LEAVES_LESS
        elif not is_felt(after - taker_after):
            verdict = TradeVerdict.DEAD_BAND
        loss = packing.fulfilment(best.donor) - after
        return Trade(best.donor, loss, "fulfilment", verdict, after=after, taker_after=taker_after)


class MaxMin(Policy):
    """Max-min fair shares of each job's span between its minimum and its maximum."""

    name = "maxmin"

    def adapt(self, job: Job) -> Job:
        """Limit the job to the trainers that do not slow it, as far as its speed is known; see `as_useful`."""
        return as_useful(job)

    def objective(self, _: TrialPacking) -> Fulfilment:
        """The objective `Fulfilment`, whatever is known of the speeds of the jobs."""
        return Fulfilment()


def _reshare(packing: TrialPacking, grown: Draft, terms: Terms, deadline_s: float) -> TrialPacking:
    """Choose between growth alone and transfers from jobs that are better off."""
    demands = packing.problem.demands
    admits = has_arrivals(packing)
    if not admits and not is_at_rest(packing):
        return grown.searched(deadline_s)
    now = grown.packing
    short = [j for j in packing.members if terms.fair_share[j] > now.count[j]]
    gain = max((demands[j].fulfilment(terms.fair_share[j]) - now.fulfilment(j) for j in short), default=0.0)
    is_fine = not short and len(packing.members) > FEW_JOBS
    if is_fine or not (admits or is_felt(gain)):
        return grown.searched(deadline_s)

    keep = givers(packing, admits=admits)
    if not any(
        packing.count[d] > min(terms.fair_share[d], demands[d].min_trainers) and demands[d].live_trainers
        for d in keep
    ):
        return grown.searched(deadline_s)
    taken = _taken(packing, terms, keep, deadline_s)
    still = _without_restarts(packing, grown, taken, terms, keep, deadline_s=deadline_s)
    if not is_felt(gain_of_worst(still.packing, taken.packing)):
        taken = still
    if packing.problem.leaving.any():
        more = gain_of_worst(_grown(once_terminated(packing), terms, deadline_s).packing, taken.packing)
        if not (more > EPSILON if admits else is_felt(more)):
            return grown.searched(deadline_s)
    if admits:
        best = max(
            (grown, taken),
            key=lambda one: (from_worst(one.packing)[:1], packing_score(one.packing, terms.fair_share)),
        )
        return best.searched(deadline_s)
    is_worth_it = is_felt(gain_of_worst(grown.packing, taken.packing)) and from_worst(taken.packing) > from_worst(
        grown.packing
    )
    return (taken if is_worth_it else grown).searched(deadline_s)


def _taken(packing: TrialPacking, terms: Terms, keep: Mapping[int, int], deadline_s: float) -> Draft:
    """Evict trainers of jobs above their fair share until each job has its own, then grow."""
    start = take_fair_shares(packing.copy(), terms, keep)
    if not packing.problem.plans_in_bulk:
        return _grown(start, terms, deadline_s, lambda trial, j, now: take_one(trial, j, now, keep))
    lost = {j: n if (n := start.count[j]) < packing.count[j] else terms.ceiling[j] for j in packing.members}
    return _grown(start, Terms(lost, terms.fair_share), deadline_s)


def _without_restarts(
    packing: TrialPacking,
    grown: Draft,
    taken: Draft,
    terms: Terms,
    keep: Mapping[int, int],
    *,
    deadline_s: float,
) -> Draft:
    """The draft without trainers that only move; `grown` if there is none."""

    def take_again(keep: Mapping[int, int]) -> TrialPacking:
        if packing.problem.plans_in_bulk:
            return _taken(packing, terms, keep, deadline_s).packing
        start = take_fair_shares(packing.copy(), taken.aim, keep)
        return _filled(start, taken.aim, deadline_s, lambda trial, j, now: take_one(trial, j, now, keep))

    furthest = undo_restarts(taken.steps[-1][0])
    if not movable_trainers(furthest, packing):
        return taken
    still = without_restarts(packing, grown.packing, furthest, keep, take_again)
    return grown if still is grown.packing else Draft(((still, taken.aim),))


def _reserve_for_yielded(
    packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float]
) -> Mapping[int, int]:
    """Limit other jobs to their fair shares while a job below its fair share may not grow yet.

    Otherwise they would take its capacity for seconds, and lose the trainers again as soon as it may grow.
    """
    fair_share = {j: int(level[j] + EPSILON) for j in packing.members}
    if all(ceiling[j] >= fair_share[j] for j in packing.members):
        return ceiling
    return {j: min(ceiling[j], max(packing.count[j], fair_share[j])) for j in packing.members}


def _grown(packing: TrialPacking, terms: Terms, deadline_s: float, take: Take | None = None) -> Draft:
    """Give out free slots; in a small cluster, then raise the worst-off jobs by searches."""
    best = _filled(packing, terms, deadline_s, take), terms
    if packing.problem.plans_in_bulk:
        return Draft((best,))
    try:
        return raised_as_far_as_possible(packing, best, deadline_s, take)
    except OutOfTimeError:
        packing.problem.clock.cut_short("raising the worst off")
        return Draft((best,))


def _filled(packing: TrialPacking, terms: Terms, deadline_s: float, take: Take | None) -> TrialPacking:
    """Give out free slots; in a large cluster, place all new pods by a linear program or by swaps."""
    if packing.problem.is_many and not packing.problem.few_shapes:
        return _filled_by_swaps(packing, terms, deadline_s)
    filled = (
        fill(packing, terms.ceiling, terms.fair_share, deadline_s)
        if packing.problem.plans_in_bulk
        else packing.copy()
    )
    grow(filled, terms.ceiling, terms.fair_share, taking(take, terms))
    return filled


def _filled_by_swaps(packing: TrialPacking, terms: Terms, deadline_s: float) -> TrialPacking:
    """Place the new trainers by a search over swaps, towards the counts of the fluid program."""
    demands, jobs = packing.problem.demands, packing.members
    gain = {j: d.job.weight / max(1, d.max_trainers - d.min_trainers) for j in jobs for d in (demands[j],)}
    most = {j: max(terms.ceiling[j], demands[j].min_trainers) for j in jobs}
    least = {j: min(max(terms.fair_share[j], demands[j].min_trainers), most[j]) for j in jobs}
    cluster = read_share_problem(packing)
    try:
        target, price = fluid_targets(cluster, gain, least, most, deadline_s)
    except OutOfTimeError:
        raise
    except PlanError:  # the promises do not fit together any more
        least = {j: demands[j].min_trainers for j in jobs}
        target, price = fluid_targets(cluster, gain, least, most, deadline_s)
    return fill_by_swaps(packing, most, terms.fair_share, Wanted(target, price, gain))
