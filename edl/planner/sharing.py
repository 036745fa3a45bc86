"""How many trainers each job gets beyond its minimum: the fair share, and whether it is worth a death.

Growth into free room goes to whoever is worst off. A running trainer dies for another job's share only in the plan
that admits a job, or where the worst off would gain more than a dead band from jobs that are out of their cooldown. A
trainer that would die only to start anew elsewhere dies where that gain is made by it, and not without.

Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edl.model.names import Role
from edl.planner.filling import fill
from edl.planner.guard import DEAD_BAND, growth_hold_left_s, restrain
from edl.planner.minimums import Served, for_serving, spare_victims
from edl.planner.packing import grow, make_room
from edl.planner.problem import JobDemand, Problem
from edl.planner.programs.fair_share import could_reach, fair_shares, read_share_problem
from edl.planner.programs.integer import pack_anew
from edl.planner.reallocation import EPSILON, Terms, kept, restarted_elsewhere, take_one, take_promised, undo_restarts
from edl.planner.speedup import Worth
from edl.planner.trading import (
    Goal,
    grown_by_worth,
    has_arrivals,
    lacking_gain,
    pays,
    set_goal,
    standing,
    total_worth,
    traded,
)
from edl.planner.trial_packing import TrialPacking

RAISES_TRIED = 8
FEW_JOBS = 20  # up to so many, raising the worst off is tried even where only packing anew or a death could do it
STAYS_TRIED = 3  # how often trainers are taken anew, without those that would only have moved


@dataclass(frozen=True, slots=True)
class Share:
    """The finished packing.

    Attributes:
        packing: everything placed.
        level: of each member, the trainers that its fair share promises, in fractions; under `utility` its floor.
        young_placed: serving pods that nobody dies for and that have room all the same.
        for_quota: seats that die because their queue has passed a quota.
        not_worth_it: members that would have more if their gain paid for the resizes.
        worths: what trainers are worth to each member; None where it is the fulfilment.
    """

    packing: TrialPacking
    level: Mapping[int, float]
    in_grace_placed: int
    for_quota: frozenset[int] = frozenset()
    not_worth_it: frozenset[int] = frozenset()
    worths: Mapping[int, Worth] | None = None

    @property
    def objective(self) -> str:
        """What the certificate is about."""
        return "fulfilment" if self.worths is None else "utility"


def share(
    packing: TrialPacking, served: Served, deadline_s: float, worths: Mapping[int, Worth] | None = None
) -> Share:
    """Give each admitted job its share of what the minimums left.

    Args:
        packing: every admitted job at its minimum at least; not changed.
        served: the serving pods; those that nobody dies for keep free room from growth.
        deadline_s: time for each program.
        worths: what trainers are worth to each member, under policy `utility`; else its fulfilment counts.
    """
    packing = packing.copy()
    for_quota = _trim(packing)
    ceiling = {j: _ceiling(packing.problem, packing.problem.demands[j]) for j in packing.members}
    resettled = {j: min(ceiling[j], packing.count[j] + len(packing.without_node[j])) for j in packing.members}
    grow(packing, resettled, resettled)
    in_grace = sum(make_room(packing, for_serving(s, n), {}) for s, n in sorted(served.in_grace.items()) if n)
    extra = packing.problem.limits.serving_headroom
    for shape in packing.problem.headroom:
        make_room(packing, for_serving(shape, extra), {})
    level = fair_shares(read_share_problem(packing), deadline_s)
    refused: frozenset[int] = frozenset()
    if worths is None:
        ceiling = _leave_to_held(packing, ceiling, level)
        terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in packing.members})
        best = _reshare(packing, _grown(packing, terms, deadline_s), terms, deadline_s)
    else:
        low = {j: packing.problem.demands[j].min_trainers for j in packing.members}
        level = {j: low[j] + (level[j] - low[j]) / 2 for j in packing.members}
        terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in packing.members})
        best, refused = _reshare_by_worth(packing, terms, worths, deadline_s)
    best = undo_restarts(best)
    spare_victims(best)
    return Share(best, level, in_grace, for_quota & frozenset(best.victims), refused, worths)


Take = Callable[[TrialPacking, int, Terms], bool]  # makes room for one more trainer of a job at the cost of others


def _grown(packing: TrialPacking, terms: Terms, deadline_s: float, take: Take | None = None) -> TrialPacking:
    """Grow; then raise whoever is worst off by one more trainer as long as all who are worst off get it."""
    best = _filled(packing, terms, deadline_s, take)
    if packing.problem.is_large:
        return best
    can_repack = len({place.shape for place in packing.placed}) > 1
    is_settled = len(packing.members) > FEW_JOBS or (take is None and not can_repack)

    refused: list[Mapping[int, int]] = []

    def reach(wanted: Terms) -> TrialPacking | None:
        if any(all(wanted.promised[j] >= n for j, n in less.items()) for less in refused):
            return None
        reached = _reached(packing, best, wanted, deadline_s, take)
        if reached is None:
            refused.append(wanted.promised)
        return reached

    if any(best.count[j] < terms.promised[j] for j in packing.members):
        refused.append(terms.promised)
        best, terms = lowered(packing, terms, _worst(best), reach) or (best, terms)
    for _ in range(RAISES_TRIED):
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
        best, terms = step
    return best


def _reached(
    packing: TrialPacking, best: TrialPacking, terms: Terms, deadline_s: float, take: Take | None
) -> TrialPacking | None:
    """A trial in which everybody has what is promised, `best` itself where it does; None where none is found."""
    if all(best.count[j] >= terms.promised[j] for j in packing.members):
        return best
    if not could_reach(read_share_problem(best), terms.promised, deadline_s):
        return None
    trial = _filled(packing, terms, deadline_s, take)
    return trial if all(trial.count[j] >= terms.promised[j] for j in packing.members) else None


def lowered(
    packing: TrialPacking, terms: Terms, level: float, reach: Callable[[Terms], TrialPacking | None]
) -> tuple[TrialPacking, Terms] | None:
    """Promise less to whoever is best off, trainer by trainer and never down to that level, until all can be had.

    What can be had with less promised can be had: the first step is tried, then the last, then those between.
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
    """The terms with one trainer less promised to whoever is then best off, again and again."""
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
    """The terms with one more trainer promised to each of the worst off; None where one of them cannot have it.

    `is_settled` says that nothing can be packed anew and nobody dies: then there is no room but what is free.
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
    """Grow, and where that falls short of what is possible, pack anew all pods that are not created yet."""
    taking = (lambda trial, j: take(trial, j, terms)) if take else None
    if packing.problem.is_large:
        filled = fill(packing, terms.ceiling, terms.promised, deadline_s)
        grow(filled, terms.ceiling, terms.promised, taking)
        return filled
    grown = packing.copy()
    grow(grown, terms.ceiling, terms.promised, taking)
    anew = pack_anew(grown, terms.ceiling, terms.promised, deadline_s)
    if anew is None:
        return grown
    grow(anew, terms.ceiling, terms.promised)
    return max((grown, anew), key=lambda trial: _standing(trial, terms))


def _trim(packing: TrialPacking) -> frozenset[int]:
    """Let trainers above a maximum die, in their dying order; then those above a quota, of whoever is best off.

    Returns:
        The seats that die for a quota.
    """
    deleted_ones = set()
    for j in packing.members:
        demand = packing.problem.demands[j]
        above = packing.count[j] - demand.max_trainers
        for index in _dying(packing, j)[:above] if above > 0 else ():
            if packing.count[j] <= demand.job.bounds.max_trainers:
                deleted_ones.add(index)
            packing.delete(index)
    while passed := packing.meter().passed():
        givers = [
            j
            for j in packing.members
            if packing.count[j] > packing.problem.demands[j].min_trainers
            and any(quota_use.row in passed and quota_use.each for quota_use in packing.problem.demands[j].quota_uses)
        ]
        giver = max(givers, key=lambda j: (packing.fulfilment(j), packing.problem.demands[j].job.created_s, j))
        deleted_ones.add(_dying(packing, giver)[0])
        packing.delete(_dying(packing, giver)[0])
    return frozenset(deleted_ones)


def _dying(packing: TrialPacking, j: int) -> list[int]:
    """The trainers of a member that count, in their dying order."""
    gone = {*packing.victims, *packing.without_node[j]}
    return sorted(
        (i for i in packing.problem.demands[j].live_trainers if i not in gone),
        key=lambda i: packing.problem.live_trainers[i].order,
    )


def _ceiling(problem: Problem, demand: JobDemand) -> int:
    """The most trainers a job may have now: after a shrink for serving it does not grow at once."""
    if growth_hold_left_s(demand.job, problem.limits, problem.snapshot.observed_at_s) <= 0:
        return demand.max_trainers
    resize = demand.job.status.last_resize if demand.job.status is not None else None
    shrunk_to = resize.to_count if resize is not None else 0
    return min(demand.max_trainers, max(demand.min_trainers, len(demand.live_trainers), shrunk_to))


def _leave_to_held(packing: TrialPacking, ceiling: dict[int, int], level: Mapping[int, float]) -> dict[int, int]:
    """The ceilings while a job below its fair share may not grow yet: the others get no more than theirs.

    What they took of its room in these seconds would be taken back by deaths as soon as it may grow.
    """
    promised = {j: int(level[j] + EPSILON) for j in packing.members}
    if all(ceiling[j] >= promised[j] for j in packing.members):
        return ceiling
    return {j: min(ceiling[j], max(packing.count[j], promised[j])) for j in packing.members}


def _reshare(packing: TrialPacking, grown: TrialPacking, terms: Terms, deadline_s: float) -> TrialPacking:
    """Choose between growth alone and taking from those that are better off."""
    demands = packing.problem.demands
    admits = has_arrivals(packing)
    if not admits and not _is_at_rest(packing):
        return grown
    short = [j for j in packing.members if terms.promised[j] > grown.count[j]]
    gain = max((demands[j].fulfilment(terms.promised[j]) - grown.fulfilment(j) for j in short), default=0.0)
    is_fine = not short and len(packing.members) > FEW_JOBS
    if is_fine or (not admits and gain <= DEAD_BAND + EPSILON):
        return grown

    def take(keep: Mapping[int, int]) -> TrialPacking:
        start = take_promised(packing.copy(), terms, keep)
        if not packing.problem.is_large:
            return _grown(start, terms, deadline_s, lambda trial, j, now: take_one(trial, j, now, keep))
        lost = {j: n if (n := start.count[j]) < packing.count[j] else terms.ceiling[j] for j in packing.members}
        return _grown(start, Terms(lost, terms.promised), deadline_s)

    keep = _givers(packing, admits=admits)
    if not any(
        packing.count[d] > min(terms.promised[d], demands[d].min_trainers) and demands[d].live_trainers for d in keep
    ):
        return grown
    taken = take(keep)
    still = _staying(packing, grown, taken, keep, take)
    if _worst_gain(still, taken) <= DEAD_BAND + EPSILON:
        taken = still
    if packing.problem.leaving.any():
        enough = EPSILON if admits else DEAD_BAND + EPSILON
        if _worst_gain(_grown(_when_left(packing), terms, deadline_s), taken) <= enough:
            return grown
    if admits:
        return max((grown, taken), key=lambda trial: (_worst(trial), _standing(trial, terms)))
    is_worth_it = _worst_gain(grown, taken) > DEAD_BAND + EPSILON and _worst(taken) >= _worst(grown)
    return taken if is_worth_it else grown


def _reshare_by_worth(
    packing: TrialPacking, terms: Terms, worths: Mapping[int, Worth], deadline_s: float
) -> tuple[TrialPacking, frozenset[int]]:
    """Choose between growth alone and trades; also tells who would gain by trades that do not pay for the resizes."""
    goal = set_goal(packing, packing.count, terms, worths, deadline_s)
    grown = grown_by_worth(packing, terms, goal.wanted, worths, deadline_s)
    admits = has_arrivals(packing)
    if _is_good_enough(grown, terms, goal, worths) or not (admits or _is_at_rest(packing)):
        return grown, frozenset()

    def take(keep: Mapping[int, int]) -> TrialPacking:
        return traded(packing, terms, goal, keep, worths, deadline_s=deadline_s)

    keep = _givers(packing, admits=admits)
    taken = take(keep)
    still = _staying(packing, grown, taken, keep, take)
    if lacking_gain(taken, still, terms) <= DEAD_BAND + EPSILON and not pays(packing, taken, still, worths):
        taken = still
    if standing(taken, terms, worths) <= standing(grown, terms, worths):
        return grown, frozenset()
    if packing.problem.leaving.any():
        later = grown_by_worth(_when_left(packing), terms, goal.wanted, worths, deadline_s)
        if standing(taken, terms, worths) <= standing(later, terms, worths):
            return grown, frozenset()
    if admits or lacking_gain(taken, grown, terms) > DEAD_BAND + EPSILON or pays(packing, taken, grown, worths):
        return taken, frozenset()
    gains = total_worth(taken, worths) > total_worth(grown, worths) + EPSILON
    return grown, frozenset(j for j in packing.members if gains and taken.count[j] > grown.count[j])


def _is_good_enough(packing: TrialPacking, terms: Terms, goal: Goal, worths: Mapping[int, Worth]) -> bool:
    """True where everybody has its floor, and all together what they should."""
    lacks = any(packing.count[j] < min(terms.promised[j], terms.ceiling[j]) for j in packing.members)
    return not lacks and total_worth(packing, worths) >= goal.value - EPSILON


def _givers(packing: TrialPacking, *, admits: bool) -> dict[int, int]:
    """Who may lose trainers to others: in the plan that admits a job all, else those out of their cooldown."""
    now_s = packing.problem.snapshot.observed_at_s
    restrained = frozenset() if admits else restrain(packing.problem.snapshot.jobs, now_s)
    return {j: 0 for j in packing.members if packing.problem.demands[j].job.key not in restrained}


def _staying(
    packing: TrialPacking,
    grown: TrialPacking,
    taken: TrialPacking,
    keep: Mapping[int, int],
    take: Callable[[Mapping[int, int]], TrialPacking],
) -> TrialPacking:
    """The same taking without moves: whoever would get back elsewhere what it gives keeps that much."""
    for _ in range(STAYS_TRIED):
        moves = restarted_elsewhere(taken, packing)
        if not moves:
            return taken
        keep = {d: kept(taken, d) + moves[d] if d in moves else n for d, n in keep.items()}
        taken = take(keep)
    return taken if not restarted_elsewhere(taken, packing) else grown


def _worst_gain(grown: TrialPacking, taken: TrialPacking) -> float:
    """What the worst off of those that gain gains in fulfilment."""
    gainers = [j for j in grown.members if taken.count[j] > grown.count[j]]
    worst = min(gainers, key=lambda j: (grown.fulfilment(j), j), default=None)
    return 0.0 if worst is None else taken.fulfilment(worst) - grown.fulfilment(worst)


def _is_at_rest(packing: TrialPacking) -> bool:
    """True where nobody dies for serving now, and nobody is still dying."""
    jobs = packing.problem.snapshot.jobs
    return not packing.for_serving and not any(
        p.terminating and p.role is Role.TRAINER for job in jobs for p in job.pods
    )


def _when_left(packing: TrialPacking) -> TrialPacking:
    """The room once those pods of others are gone that terminate: it is waited for rather than taken from jobs."""
    later = packing.copy()
    later.free += packing.problem.leaving
    return later


def _worst(packing: TrialPacking) -> float:
    """How well off the worst off is."""
    return round(min((packing.fulfilment(j) for j in packing.members), default=1.0), 9)


def _standing(packing: TrialPacking, terms: Terms) -> tuple[tuple[float, ...], float]:
    """How good a trial is: fulfilments up to the promised share, from the worst off upwards; then the whole sum."""
    demands = packing.problem.demands
    held = sorted(
        round(min(packing.fulfilment(j), demands[j].fulfilment(terms.promised[j])), 9) for j in packing.members
    )
    return tuple(held), round(sum(demands[j].job.weight * packing.fulfilment(j) for j in packing.members), 9)
