"""Policy `utility`: trainers go to whom they are worth most, and move between jobs only where that pays.

The linear program says what the best sharing would be worth. A sharing that is worth nearly as much stands as it is;
else trainers change hands, the best trades first, until it is. On small clusters an integer program packs what is not
created yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edl.model.names import Role
from edl.planner.guard import DEAD_BAND
from edl.planner.packing import grow
from edl.planner.programs.fair_share import read_share_problem
from edl.planner.programs.integer import pack_anew
from edl.planner.programs.utility import SLACK, fewest_shrinks, most_useful
from edl.planner.reallocation import EPSILON, Terms, allowed_beyond, give_one, kept, take_promised
from edl.planner.speedup import Worth
from edl.planner.trial_packing import TrialPacking

HORIZON_S = 600.0  # what a resize gains is counted over this time, against the time that it costs
TRADES = 64


@dataclass(frozen=True, slots=True)
class Goal:
    """What a sharing should be worth, and by which counts of the members it would be, with the fewest shrinks."""

    value: float
    wanted: Mapping[int, int]


def total_worth(packing: TrialPacking, worths: Mapping[int, Worth]) -> float:
    """The sum of the members' worths."""
    return sum(worths[j].value(packing.count[j]) for j in packing.members)


def standing(packing: TrialPacking, terms: Terms, worths: Mapping[int, Worth]) -> tuple[tuple[float, ...], float]:
    """How good a trial is: fulfilments up to the floor, from the worst off upwards; then the worth of all."""
    demands = packing.problem.demands
    held = sorted(
        round(min(packing.fulfilment(j), demands[j].fulfilment(terms.promised[j])), 9) for j in packing.members
    )
    return tuple(held), round(total_worth(packing, worths), 9)


def set_goal(
    packing: TrialPacking, now: Mapping[int, int], terms: Terms, worths: Mapping[int, Worth], deadline_s: float
) -> Goal:
    """What the best sharing of all the members' trainers is worth, less what may be given up for staying.

    Args:
        packing: the trial; not changed.
        now: trainers that each member has.
        terms: see there.
        worths: of each member.
        deadline_s: time for each of two programs.
    """
    cluster = read_share_problem(packing)
    best = most_useful(cluster, worths, terms.promised, deadline_s)
    value = best.value - SLACK * abs(best.value)
    calm = fewest_shrinks(cluster, worths, terms.promised, now, goal=value, deadline_s=deadline_s)
    wanted = {j: max(terms.promised[j], int(n + EPSILON)) for j, n in calm.counts.items()}
    return Goal(value, {j: min(terms.ceiling[j], n) for j, n in wanted.items()})


def grown_by_worth(
    packing: TrialPacking, terms: Terms, wanted: Mapping[int, int], worths: Mapping[int, Worth], deadline_s: float
) -> TrialPacking:
    """Grow into free room: up to the floor, then as the goal wants it, then by what one more is worth."""
    grown = packing.copy()
    grow(grown, {j: min(terms.ceiling[j], n) for j, n in wanted.items()}, terms.promised, worths=worths)
    grow(grown, terms.ceiling, terms.promised, worths=worths)
    plain = packing.copy()
    grow(plain, terms.ceiling, terms.promised, worths=worths)
    trials = [grown, plain]
    anew = pack_anew(grown, terms.ceiling, terms.promised, deadline_s, worths)
    if anew is not None:
        grow(anew, terms.ceiling, terms.promised, worths=worths)
        trials.append(anew)
    return max(trials, key=lambda trial: standing(trial, terms, worths))


def traded(
    packing: TrialPacking,
    terms: Terms,
    goal: Goal,
    keep: Mapping[int, int],
    worths: Mapping[int, Worth],
    *,
    deadline_s: float,
) -> TrialPacking:
    """Let trainers change hands until the goal is reached, or no single trade is worth anything.

    Args:
        packing: the trial before any growth; not changed.
        terms: see there.
        goal: what to reach.
        keep: who may lose trainers, and how many of those that exist each must keep.
        worths: of each member.
        deadline_s: time for each program.
    """
    start = take_promised(packing.copy(), replace(terms, promised=goal.wanted), keep)
    best = grown_by_worth(start, terms, goal.wanted, worths, deadline_s)
    for _ in range(TRADES):
        lacks = any(best.count[j] < min(terms.promised[j], terms.ceiling[j]) for j in best.members)
        if not lacks and total_worth(best, worths) >= goal.value - EPSILON:
            break
        trade = _best_trade(best, terms, keep, worths)
        if trade is None:
            break
        grow(trade, terms.ceiling, terms.promised, worths=worths)
        best = trade
    return best


def _best_trade(
    packing: TrialPacking, terms: Terms, keep: Mapping[int, int], worths: Mapping[int, Worth]
) -> TrialPacking | None:
    """The room after one more trainer for whom it is worth most, taken from those to whom theirs are worth less."""
    demands = packing.problem.demands
    takers = [j for j in packing.members if packing.count[j] < terms.ceiling[j]]
    takers.sort(
        key=lambda j: (packing.count[j] >= terms.promised[j], -worths[j].next(packing.count[j]), demands[j].job.key)
    )
    seen: set[tuple[int, str, bool]] = set()
    for j in takers:
        lacks = packing.count[j] < terms.promised[j]
        kind = (demands[j].shape, demands[j].job.queue if demands[j].quota_uses else "", lacks)
        if kind in seen:
            continue
        seen.add(kind)
        gain = worths[j].next(packing.count[j])
        least = {
            d: terms.promised[d] if lacks else _least(packing, d, terms, worths[d], gain) for d in keep if d != j
        }
        trial = packing.copy()
        allowance = allowed_beyond(trial, {d: n for d, n in keep.items() if d != j}, least)
        if not allowance or not give_one(trial, j, allowance):
            continue
        if lacks or total_worth(trial, worths) > total_worth(packing, worths) + EPSILON:
            return trial
    return None


def _least(packing: TrialPacking, d: int, terms: Terms, worth: Worth, gain: float) -> int:
    """The count down to which each trainer of a job is worth less than the gain; never below its floor."""
    count = packing.count[d]
    while count > terms.promised[d] and worth.next(count - 1) < gain - EPSILON:
        count -= 1
    return count


def pays(packing: TrialPacking, taken: TrialPacking, still: TrialPacking, worths: Mapping[int, Worth]) -> bool:
    """True where what is gained over the horizon exceeds what the additional resizes cost.

    Both are counted in parts of each job's own speed, times its weight: a resize that stops a job for 30 s costs it
    30 s of that, and a tenth more speed for 600 s gains it 60 s. A trainer that dies and starts elsewhere counts as
    both, a death and a start.

    Args:
        packing: before either.
        taken: the trial with more resizes.
        still: the trial that it is compared with.
        worths: of each member.
    """
    gain = total_worth(taken, worths) - total_worth(still, worths)
    cost_s = sum(
        (_resizes(packing, taken, j) - _resizes(packing, still, j))
        * demand.job.weight
        * (demand.job.resize_cost_s or 0.0)
        for j in packing.members
        for demand in (packing.problem.demands[j],)
    )
    return gain > DEAD_BAND + EPSILON and gain * HORIZON_S > cost_s


def _resizes(before: TrialPacking, after: TrialPacking, j: int) -> int:
    """How often a job is interrupted: once where trainers of it die, once where new ones come."""
    dies = kept(after, j) < kept(before, j)
    comes = any(place.owner == j and place.role is Role.TRAINER for place in after.placed)
    return dies + comes


def lacking_gain(taken: TrialPacking, still: TrialPacking, terms: Terms) -> float:
    """What the worst off of those below their floor gains in fulfilment."""
    lacking = [j for j in still.members if still.count[j] < min(terms.promised[j], taken.count[j])]
    worst = min(lacking, key=lambda j: (still.fulfilment(j), j), default=None)
    return 0.0 if worst is None else taken.fulfilment(worst) - still.fulfilment(worst)
