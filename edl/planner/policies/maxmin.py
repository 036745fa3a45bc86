"""Policy `maxmin`: the job that is worst off gets the next trainer.

Growth into free room goes to the job with the lowest fulfilment that it fits. A running trainer is deleted for
another job's share in the plan that admits a job; else only if jobs that are out of their cooldown give it, and the
worst off gains more than a dead band or stays more than a dead band below the job that gives.

Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edl.errors import PlanError
from edl.model.jobs import Job
from edl.planner.clock import OutOfTimeError
from edl.planner.guard import DEAD_BAND
from edl.planner.objective import Division, Exchange, Trade, TradeVerdict
from edl.planner.packing import grow
from edl.planner.policies.base import Policy
from edl.planner.policies.filling import fill
from edl.planner.policies.scores import from_worst, gain_of_worst, promises_kept
from edl.planner.policies.transfers import (
    givers,
    has_arrivals,
    is_at_rest,
    levelled,
    once_terminated,
    without_restarts,
)
from edl.planner.programs.fair_share import Proof, could_reach, fluid_targets, prove, read_share_problem
from edl.planner.programs.integer import could_place_anew, pack_anew
from edl.planner.reallocation import EPSILON, Terms, take_one, take_promised
from edl.planner.speedup import as_useful
from edl.planner.swaps.search import Wanted, fill_by_swaps
from edl.planner.trial_packing import TrialPacking

RAISES_TRIED = 8
SEARCHES = 2  # packings that the worst off would gain by and that are searched for, the best first
FEW_JOBS = 20  # up to so many jobs, the worst off is raised even if that takes a new packing or a transfer

Take = Callable[[TrialPacking, int, Terms], bool]  # makes room for one more trainer of a job at the cost of others


class Fulfilment:
    """Maximises the lowest (n - min) / (max - min), then the next lowest, and so on."""

    name = "fulfilment"
    reserves_for_yielded = True

    def divide(
        self, packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float], deadline_s: float
    ) -> Division:
        """See `Objective.divide`."""
        ceiling = _reserve_for_yielded(packing, ceiling, level)
        terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in packing.members})
        grown, _ = _grown(packing, terms, deadline_s)
        try:
            shared = _reshare(packing, grown, terms, deadline_s)
        except OutOfTimeError:
            packing.problem.clock.cut_short("transfers")
            return Division(grown, level, ceiling)
        if packing.problem.is_large:
            return Division(shared, level, ceiling)
        shared = levelled(shared, ceiling, {}, band=0.0)
        admits = has_arrivals(packing)
        if admits or is_at_rest(packing):
            shared = levelled(shared, ceiling, givers(packing, admits=admits))
        return Division(shared, level, ceiling)

    def gain(self, packing: TrialPacking, j: int) -> float:
        """See `Objective.gain`."""
        demand = packing.problem.demands[j]
        return demand.job.weight / max(1, demand.max_trainers - demand.min_trainers)

    def grow(self, packing: TrialPacking, division: Division) -> None:
        """See `Objective.grow`."""
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
        """See `Objective.prove`."""
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
        elif after - taker_after <= DEAD_BAND + EPSILON:
            verdict = TradeVerdict.DEAD_BAND
        loss = packing.fulfilment(best.donor) - after
        return Trade(best.donor, loss, "fulfilment", verdict, after=after, taker_after=taker_after)


class MaxMin(Policy):
    """Max-min fair shares of each job's span between its minimum and its maximum."""

    name = "maxmin"

    def adapt(self, job: Job) -> Job:
        """See `as_useful`: what is known of its speed limits the job itself, and no other one."""
        return as_useful(job)

    def objective(self, _: TrialPacking) -> Fulfilment:
        """Fulfilment, whatever is known of the speeds of the jobs."""
        return Fulfilment()


def _reshare(packing: TrialPacking, grown: TrialPacking, terms: Terms, deadline_s: float) -> TrialPacking:
    """Choose between growth alone and transfers from jobs that are better off."""
    demands = packing.problem.demands
    admits = has_arrivals(packing)
    if not admits and not is_at_rest(packing):
        return grown
    short = [j for j in packing.members if terms.promised[j] > grown.count[j]]
    gain = max((demands[j].fulfilment(terms.promised[j]) - grown.fulfilment(j) for j in short), default=0.0)
    is_fine = not short and len(packing.members) > FEW_JOBS
    if is_fine or (not admits and gain <= DEAD_BAND + EPSILON):
        return grown

    def take(keep: Mapping[int, int]) -> tuple[TrialPacking, Terms]:
        start = take_promised(packing.copy(), terms, keep)
        if not packing.problem.is_large:
            return _grown(start, terms, deadline_s, lambda trial, j, now: take_one(trial, j, now, keep))
        lost = {j: n if (n := start.count[j]) < packing.count[j] else terms.ceiling[j] for j in packing.members}
        return _grown(start, Terms(lost, terms.promised), deadline_s)

    def take_again(keep: Mapping[int, int]) -> TrialPacking:
        if packing.problem.is_large:
            return take(keep)[0]
        start = take_promised(packing.copy(), aim, keep)
        filled = _filled(start, aim, deadline_s, lambda trial, j, now: take_one(trial, j, now, keep))
        return _searched([(filled, aim)], deadline_s)[0]

    keep = givers(packing, admits=admits)
    if not any(
        packing.count[d] > min(terms.promised[d], demands[d].min_trainers) and demands[d].live_trainers for d in keep
    ):
        return grown
    taken, aim = take(keep)
    still = without_restarts(packing, grown, taken, keep, take_again)
    if _worst_gain(still, taken) <= DEAD_BAND + EPSILON:
        taken = still
    if packing.problem.leaving.any():
        enough = EPSILON if admits else DEAD_BAND + EPSILON
        if _worst_gain(_grown(once_terminated(packing), terms, deadline_s)[0], taken) <= enough:
            return grown
    if admits:
        return max((grown, taken), key=lambda trial: (from_worst(trial)[:1], _standing(trial, terms)))
    is_worth_it = _worst_gain(grown, taken) > DEAD_BAND + EPSILON and from_worst(taken) > from_worst(grown)
    return taken if is_worth_it else grown


def _reserve_for_yielded(
    packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float]
) -> Mapping[int, int]:
    """Ceilings while a job below its fair share may not grow yet: other jobs get no more than their fair share.

    Otherwise they would take its room for seconds, and lose the trainers again as soon as it may grow.
    """
    promised = {j: int(level[j] + EPSILON) for j in packing.members}
    if all(ceiling[j] >= promised[j] for j in packing.members):
        return ceiling
    return {j: min(ceiling[j], max(packing.count[j], promised[j])) for j in packing.members}


def _grown(
    packing: TrialPacking, terms: Terms, deadline_s: float, take: Take | None = None
) -> tuple[TrialPacking, Terms]:
    """Grow, then raise the promise of the worst off by one trainer as long as all of them get it.

    In a small cluster, a search for a better packing of the new pods comes last, when it is known what to reach.

    Returns:
        The packing, and the terms that it was to reach.
    """
    best = _filled(packing, terms, deadline_s, take)
    if packing.problem.is_large:
        return best, terms
    try:
        return _searched(_raised_as_far_as_possible(packing, best, terms, deadline_s, take), deadline_s)
    except OutOfTimeError:
        packing.problem.clock.cut_short("raising the worst off")
        return best, terms


def _raised_as_far_as_possible(
    packing: TrialPacking, best: TrialPacking, terms: Terms, deadline_s: float, take: Take | None
) -> list[tuple[TrialPacking, Terms]]:
    """Raise the promise of the worst off by one trainer as long as no bound speaks against it.

    Returns:
        Packings with what they are to reach, each further than the one before it.
    """
    can_repack = len({place.shape for place in packing.placed}) > 1
    is_settled = len(packing.members) > FEW_JOBS or (take is None and not can_repack)

    refused: list[Mapping[int, int]] = []

    def reach(wanted: Terms) -> TrialPacking | None:
        if any(all(wanted.promised[j] >= n for j, n in less.items()) for less in refused):
            return None
        reached = _reached(packing, steps[-1][0], wanted, deadline_s, take)
        if reached is None:
            refused.append(wanted.promised)
        return reached

    if not _keeps(best, terms):
        refused.append(terms.promised)
        terms = replace(terms, promised={j: min(n, best.count[j]) for j, n in terms.promised.items()})
    steps = [(best, terms)]
    for _ in range(RAISES_TRIED):
        terms = steps[-1][1]
        raised = _raised(packing, terms, is_settled=is_settled)
        if raised is None:
            break
        reached = reach(raised)
        level = min(
            packing.problem.demands[j].fulfilment(min(terms.promised[j], terms.ceiling[j])) for j in packing.members
        )
        step = (reached, raised) if reached else lowered(packing, raised, level, reach)
        if step is None:
            break
        steps.append(step)
    return steps


def _keeps(packing: TrialPacking, terms: Terms) -> bool:
    """True if every job has what it is promised."""
    return all(packing.count[j] >= n for j, n in terms.promised.items())


def _reached(
    packing: TrialPacking, best: TrialPacking, terms: Terms, deadline_s: float, take: Take | None
) -> TrialPacking | None:
    """A packing in which every job has what it is promised, or would if its new pods were placed anew.

    Returns:
        The packing, `best` itself if it keeps the promises; None if a bound says that there is none.
    """
    if _keeps(best, terms):
        return best
    if not could_reach(read_share_problem(best), terms.promised, deadline_s):
        return None
    trial = packing.copy()
    grow(trial, terms.ceiling, terms.promised, _taking(take, terms))
    is_possible = _keeps(trial, terms) or could_place_anew(trial, terms.ceiling, terms.promised, deadline_s)
    return trial if is_possible else None


def _searched(steps: list[tuple[TrialPacking, Terms]], deadline_s: float) -> tuple[TrialPacking, Terms]:
    """The furthest of some packings that can be had, with its new pods placed anew where that is better."""
    for number, (packing, terms) in enumerate(reversed(steps[1:])):
        if _keeps(packing, terms):
            return _improved(packing, terms, deadline_s), terms
        anew = pack_anew(packing, terms.ceiling, terms.promised, deadline_s) if number < SEARCHES else None
        if anew is not None and _keeps(anew, terms):
            grow(anew, terms.ceiling, terms.promised)
            return anew, terms
    packing, terms = steps[0]
    return _improved(packing, terms, deadline_s), terms


def lowered(
    packing: TrialPacking, terms: Terms, level: float, reach: Callable[[Terms], TrialPacking | None]
) -> tuple[TrialPacking, Terms] | None:
    """Promise less to the job that is best off, trainer by trainer and not down to `level`, until all fits.

    Less is never harder to reach: the first step is tried, then the last, then those between by bisection.
    """
    steps = _lower(packing, terms, level)
    if not steps:
        return None
    if (reached := reach(steps[0])) is not None:
        return reached, steps[0]
    if len(steps) == 1 or (reached := reach(steps[-1])) is None:
        return None
    fails, works = 0, len(steps) - 1
    while works - fails > 1:
        middle = (fails + works) // 2
        if (tried := reach(steps[middle])) is None:
            fails = middle
        else:
            works, reached = middle, tried
    return reached, steps[works]


def _lower(packing: TrialPacking, terms: Terms, level: float) -> list[Terms]:
    """The terms with one trainer less promised to the job that is then best off, step by step."""
    demands = packing.problem.demands
    steps: list[Terms] = []
    for _ in range(RAISES_TRIED if len(packing.members) <= FEW_JOBS else 0):
        promised = (steps[-1] if steps else terms).promised
        rich = [
            j
            for j, n in promised.items()
            if n > demands[j].min_trainers and demands[j].fulfilment(n - 1) > level + EPSILON
        ]
        if not rich:
            break
        giver = max(rich, key=lambda j: (demands[j].fulfilment(promised[j]), demands[j].job.key))
        steps.append(Terms(terms.ceiling, {j: n - (j == giver) for j, n in promised.items()}))
    return steps


def _raised(packing: TrialPacking, terms: Terms, *, is_settled: bool) -> Terms | None:
    """The terms with one more trainer promised to each of the worst off; None if one of them cannot have it.

    `is_settled`: nothing can be packed anew and no trainer may be deleted, so only free room counts.
    """
    demands = packing.problem.demands
    level = {j: demands[j].fulfilment(min(terms.promised[j], terms.ceiling[j])) for j in packing.members}
    worst = [j for j in packing.members if level[j] <= min(level.values()) + EPSILON]
    can_grow = {shape: bool(packing.slots(shape).any()) for shape in {demands[j].shape for j in worst}}
    if not worst or any(terms.promised[j] >= terms.ceiling[j] for j in worst):
        return None
    if is_settled and any(packing.count[j] <= terms.promised[j] and not can_grow[demands[j].shape] for j in worst):
        return None
    return Terms(terms.ceiling, {j: n + (j in worst) for j, n in terms.promised.items()})


def _filled(packing: TrialPacking, terms: Terms, deadline_s: float, take: Take | None) -> TrialPacking:
    """Grow; in bulk, all new pods are placed anew by a program or by a search."""
    if packing.problem.is_many:
        return _filled_by_swaps(packing, terms, deadline_s)
    filled = fill(packing, terms.ceiling, terms.promised, deadline_s) if packing.problem.is_large else packing.copy()
    grow(filled, terms.ceiling, terms.promised, _taking(take, terms))
    return filled


def _taking(take: Take | None, terms: Terms) -> Callable[[TrialPacking, int], bool] | None:
    """What makes capacity for a member below its promise, for `grow`."""
    return (lambda trial, j: take(trial, j, terms)) if take else None


def _improved(grown: TrialPacking, terms: Terms, deadline_s: float) -> TrialPacking:
    """The packing, or a better one in which all pods that do not exist yet are placed anew."""
    anew = pack_anew(grown, terms.ceiling, terms.promised, deadline_s)
    if anew is None:
        return grown
    grow(anew, terms.ceiling, terms.promised)
    return max((grown, anew), key=lambda trial: _standing(trial, terms))


def _filled_by_swaps(packing: TrialPacking, terms: Terms, deadline_s: float) -> TrialPacking:
    """Place the new trainers by a search over swaps, towards the counts of the fluid program."""
    demands, jobs = packing.problem.demands, packing.members
    gain = {j: d.job.weight / max(1, d.max_trainers - d.min_trainers) for j in jobs for d in (demands[j],)}
    most = {j: max(terms.ceiling[j], demands[j].min_trainers) for j in jobs}
    least = {j: min(max(terms.promised[j], demands[j].min_trainers), most[j]) for j in jobs}
    cluster = read_share_problem(packing)
    try:
        target, price = fluid_targets(cluster, gain, least, most, deadline_s)
    except OutOfTimeError:
        raise
    except PlanError:  # the promises do not fit together any more
        least = {j: demands[j].min_trainers for j in jobs}
        target, price = fluid_targets(cluster, gain, least, most, deadline_s)
    return fill_by_swaps(packing, most, terms.promised, Wanted(target, price, gain))


def _worst_gain(grown: TrialPacking, taken: TrialPacking) -> float:
    """How much fulfilment the worst off of the jobs that gain gains."""
    return gain_of_worst(grown, taken, (j for j in grown.members if taken.count[j] > grown.count[j]))


def _standing(packing: TrialPacking, terms: Terms) -> tuple[tuple[float, ...], list[float]]:
    """How good a packing is: fulfilments from the worst off upwards, first only up to the promised share."""
    return promises_kept(packing, terms.promised), from_worst(packing)
