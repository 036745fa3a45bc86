"""Transfers of policy `utility`: trainers go from jobs that lose little to jobs that gain much, if that pays.

A linear program finds the worth of the best sharing. Trades stop as soon as a sharing is worth nearly as much. On
small clusters an integer program also packs the pods anew that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edl.model.names import Role
from edl.planner.packing import grow
from edl.planner.programs.fair_share import read_share_problem
from edl.planner.programs.packing_anew import pack_anew
from edl.planner.programs.utility import SLACK, fewest_shrinks, most_useful
from edl.planner.quota import QuotaRow
from edl.planner.reallocation import Terms, allowed_beyond, give_one, kept, take_fair_shares
from edl.planner.scores import EPSILON, gain_of_worst, is_felt, packing_score, total_worth
from edl.planner.speedup import Worth
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import HORIZON_S

TRADES = 64
MOST_GROWN_TWICE = 20_000
"""Growth by more trainers than this is tried in one order alone: they are given out one by one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The total worth that a division should reach, and the counts that reach it with the fewest deletions."""

    value: float
    wanted: Mapping[int, int]


def set_goal(
    packing: TrialPacking, now: Mapping[int, int], terms: Terms, worths: Mapping[int, Worth], deadline_s: float
) -> Goal:
    """Find the highest total worth of any division, less what may be lost so that more trainers keep running.

    Args:
        packing: not changed.
        now: by job, the trainers that it has.
        terms: the ceiling and the floor of each job.
        worths: the worth of each job's trainers.
        deadline_s: time for each of two programs.
    """
    cluster = read_share_problem(packing)
    best = most_useful(cluster, worths, terms.fair_share, deadline_s)
    value = best.value - SLACK * abs(best.value)
    calm = fewest_shrinks(cluster, worths, terms.fair_share, now, goal=value, deadline_s=deadline_s)
    wanted = {j: max(terms.fair_share[j], int(n + EPSILON)) for j, n in calm.counts.items()}
    return Goal(value, {j: min(terms.ceiling[j], n) for j, n in wanted.items()})


def grown_by_worth(
    packing: TrialPacking, terms: Terms, wanted: Mapping[int, int], worths: Mapping[int, Worth], deadline_s: float
) -> TrialPacking:
    """Grow into free capacity: up to the floor, then up to the goal, then by the worth of one more trainer."""
    grown = packing.copy()
    grow(grown, {j: min(terms.ceiling[j], n) for j, n in wanted.items()}, terms.fair_share, worths=worths)
    grow(grown, terms.ceiling, terms.fair_share, worths=worths)
    trials = [grown]
    if sum(grown.count[j] - packing.count[j] for j in packing.members) <= MOST_GROWN_TWICE:
        plain = packing.copy()
        grow(plain, terms.ceiling, terms.fair_share, worths=worths)
        trials.append(plain)
    anew = pack_anew(grown, terms.ceiling, terms.fair_share, deadline_s, worths)
    if anew is not None:
        grow(anew, terms.ceiling, terms.fair_share, worths=worths)
        trials.append(anew)
    return max(trials, key=lambda trial: packing_score(trial, terms.fair_share, worths))


def traded(
    packing: TrialPacking,
    terms: Terms,
    goal: Goal,
    keep: Mapping[int, int],
    worths: Mapping[int, Worth],
    *,
    deadline_s: float,
) -> TrialPacking:
    """Transfer trainers until the goal is reached, or until no single transfer gains anything.

    Args:
        packing: before any growth; not changed.
        terms: the ceiling and the floor of each job.
        goal: what to reach.
        keep: by job that may lose trainers, how many live ones it must keep.
        worths: the worth of each job's trainers.
        deadline_s: time for each program.
    """
    start = take_fair_shares(packing.copy(), replace(terms, fair_share=goal.wanted), keep)
    best = grown_by_worth(start, terms, goal.wanted, worths, deadline_s)
    for _ in range(TRADES):
        packing.problem.clock.check("trades")
        lacks = any(best.count[j] < min(terms.fair_share[j], terms.ceiling[j]) for j in best.members)
        if not lacks and total_worth(best, worths) >= goal.value - EPSILON:
            break
        trade = _best_trade(best, terms, keep, worths)
        if trade is None:
            break
        grow(trade, terms.ceiling, terms.fair_share, worths=worths)
        best = trade
    return best


def _best_trade(
    packing: TrialPacking, terms: Terms, keep: Mapping[int, int], worths: Mapping[int, Worth]
) -> TrialPacking | None:
    """The packing after the best transfer: one more trainer for the job that gains most, from jobs that lose less."""
    demands = packing.problem.demands
    takers = [j for j in packing.members if packing.count[j] < terms.ceiling[j]]
    takers.sort(
        key=lambda j: (packing.count[j] >= terms.fair_share[j], -worths[j].next(packing.count[j]), demands[j].job.key)
    )
    seen: set[tuple[int, tuple[QuotaRow, ...], bool]] = set()
    for j in takers:
        lacks = packing.count[j] < terms.fair_share[j]
        kind = (demands[j].shape, tuple(use.row for use in demands[j].quota_uses), lacks)
        if kind in seen:
            continue
        seen.add(kind)
        gain = worths[j].next(packing.count[j])
        least = {
            d: terms.fair_share[d] if lacks else _least(packing, d, terms, worths[d], gain) for d in keep if d != j
        }
        trial = packing.copy()
        allowance = allowed_beyond(trial, {d: n for d, n in keep.items() if d != j}, least)
        if not allowance or not give_one(trial, j, allowance):
            continue
        if lacks or total_worth(trial, worths) > total_worth(packing, worths) + EPSILON:
            return trial
    return None


def _least(packing: TrialPacking, d: int, terms: Terms, worth: Worth, gain: float) -> int:
    """How far a job may shrink so that each trainer that it loses is worth less than `gain`.

    Never below its floor.
    """
    count = packing.count[d]
    while count > terms.fair_share[d] and worth.next(count - 1) < gain - EPSILON:
        count -= 1
    return count


def pays(packing: TrialPacking, taken: TrialPacking, still: TrialPacking, worths: Mapping[int, Worth]) -> bool:
    """True if the gain over the horizon exceeds the cost of the additional resizes.

    Both are counted in parts of each job's own speed, times its weight: a resize that stops a job for 30 s costs 30 s
    of that, and a tenth more speed for 600 s gains 60 s. A trainer that restarts elsewhere counts as a deletion and
    a start.

    Args:
        packing: before either.
        taken: with more resizes.
        still: what it is compared with.
        worths: the worth of each job's trainers.
    """
    gain = total_worth(taken, worths) - total_worth(still, worths)
    cost_s = sum(
        (_resizes(packing, taken, j) - _resizes(packing, still, j))
        * demand.job.weight
        * (demand.job.resize_cost_s or 0.0)
        for j in packing.members
        for demand in (packing.problem.demands[j],)
    )
    return is_felt(gain) and gain * HORIZON_S > cost_s


def _resizes(before: TrialPacking, after: TrialPacking, j: int) -> int:
    """How often a job is interrupted: once if trainers are deleted, once if new ones start."""
    shrinks = kept(after, j) < kept(before, j)
    grows = any(place.owner == j and place.role is Role.TRAINER for place in after.placed)
    return shrinks + grows


def lacking_gain(taken: TrialPacking, still: TrialPacking, terms: Terms) -> float:
    """How much `taken` raises the worst-off job that `still` leaves below its floor, in fulfilment; 0 without one."""
    lacking = [j for j in still.members if still.count[j] < min(terms.fair_share[j], taken.count[j])]
    return gain_of_worst(still, taken, lacking)
