"""Raises the worst-off jobs of a small cluster: bounds tell how far, then one search over whole pods does it.

A draft is a packing that can be had, with further ones that no bound excludes. Drafts are compared before anything is
searched for, and only the one that is chosen is searched: a search takes longer than all bounds of a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edl.planner.clock import OutOfTimeError
from edl.planner.packing import grow
from edl.planner.programs.packing_anew import could_place_anew, pack_anew
from edl.planner.reallocation import Terms
from edl.planner.scores import EPSILON, packing_score
from edl.planner.trial_packing import TrialPacking

RAISES_TRIED = 8
SEARCHES = 2  # packings that the worst off would gain by and that are searched for, the best first
FEW_JOBS = 20  # up to so many jobs, the worst off is raised even if that takes a new packing or a transfer

Take = Callable[
    [TrialPacking, int, Terms], bool
]  # frees capacity for one more trainer of a job at the cost of others
Step = tuple[TrialPacking, Terms]


@dataclass(frozen=True, slots=True)
class Draft:
    """A packing, and the further packings that may be reached from it.

    Attributes:
        steps: packings with what each is to reach, every one further than the one before it. The first can be had; of
            the others, no bound says that they cannot.
    """

    steps: Sequence[Step]

    @property
    def _sure(self) -> Step:
        return next((step for step in reversed(self.steps) if keeps(*step)), self.steps[0])

    @property
    def packing(self) -> TrialPacking:
        """The best packing that needs no search."""
        return self._sure[0]

    @property
    def aim(self) -> Terms:
        """The targets that this packing reaches."""
        return self.steps[-1][1]

    def searched(self, deadline_s: float) -> TrialPacking:
        """The best packing that a search reaches, with its new pods placed differently if that is better.

        Args:
            deadline_s: time for each program.
        """
        if self.packing.problem.plans_in_bulk:
            return self.packing
        try:
            return _searched(self.steps, deadline_s)
        except OutOfTimeError:
            self.packing.problem.clock.cut_short("raising the worst off")
            return self.packing


def _searched(steps: Sequence[Step], deadline_s: float) -> TrialPacking:
    for number, (packing, terms) in enumerate(reversed(steps[1:])):
        if keeps(packing, terms):
            return _improved(packing, terms, deadline_s)
        anew = pack_anew(packing, terms.ceiling, terms.fair_share, deadline_s) if number < SEARCHES else None
        if anew is not None and keeps(anew, terms):
            grow(anew, terms.ceiling, terms.fair_share)
            return anew
    return _improved(*steps[0], deadline_s)


def _improved(grown: TrialPacking, terms: Terms, deadline_s: float) -> TrialPacking:
    """Return a better packing with all new pods placed differently, or the same one if none is found."""
    anew = pack_anew(grown, terms.ceiling, terms.fair_share, deadline_s)
    if anew is None:
        return grown
    grow(anew, terms.ceiling, terms.fair_share)
    return max((grown, anew), key=lambda trial: packing_score(trial, terms.fair_share))


def keeps(packing: TrialPacking, terms: Terms) -> bool:
    """True if every job has its fair share."""
    return all(packing.count[j] >= n for j, n in terms.fair_share.items())


def taking(take: Take | None, terms: Terms) -> Callable[[TrialPacking, int], bool] | None:
    """Return the function by which `grow` frees capacity for a job below its fair share."""
    return (lambda trial, j: take(trial, j, terms)) if take else None


def raised_as_far_as_possible(packing: TrialPacking, best: Step, deadline_s: float, take: Take | None) -> Draft:
    """Raise the fair share of the worst-off jobs trainer by trainer, as long as no upper bound excludes it.

    Where a raise is too much, the fair share of the best-off jobs is lowered.

    Args:
        packing: the packing before growth; not changed.
        best: the packing after it, and what it was to reach.
        deadline_s: time for each program.
        take: frees capacity for one more trainer of a job; without it, only free capacity counts.

    Raises:
        OutOfTimeError: the time of the stage is over.
    """
    grown, terms = best
    refused: list[Mapping[int, int]] = []
    if not keeps(grown, terms):
        refused.append(terms.fair_share)
        terms = Terms(terms.ceiling, {j: min(n, grown.count[j]) for j, n in terms.fair_share.items()})

    def reach(wanted: Terms) -> TrialPacking | None:
        if any(all(wanted.fair_share[j] >= n for j, n in less.items()) for less in refused):
            return None
        reached = _reached(packing, steps[-1][0], wanted, deadline_s, take)
        if reached is None:
            refused.append(wanted.fair_share)
        return reached

    steps = [(grown, terms)]  # those that gave are the worst off now, and may be raised in turn
    for _ in range(RAISES_TRIED):
        further = furthest(raises(packing, steps[-1][1], may_take=take is not None), reach)
        if not further:
            break
        steps += further
    return Draft(steps)


def raises(packing: TrialPacking, terms: Terms, *, may_take: bool) -> list[list[Terms]]:
    """List the targets to try: each raise of the worst-off jobs, then with ever lower targets of the best-off.

    Args:
        packing: the packing before growth.
        terms: what can be had in any case.
        may_take: trainers of others may free capacity.
    """
    can_repack = len({place.shape for place in packing.placed}) > 1
    is_settled = len(packing.members) > FEW_JOBS or not (may_take or can_repack)
    demands, found = packing.problem.demands, list[list[Terms]]()
    while len(found) < RAISES_TRIED and (raised := _raised(packing, terms, is_settled=is_settled)) is not None:
        level = min(demands[j].fulfilment(min(n, terms.ceiling[j])) for j, n in terms.fair_share.items())
        found.append([raised, *_lower(packing, raised, level, RAISES_TRIED * (len(found) + 1))])
        terms = raised
    return found


def furthest(tries: Sequence[Sequence[Terms]], reach: Callable[[Terms], TrialPacking | None]) -> list[Step]:
    """Find the target with the most raises that can be reached, and with the least loss of best-off jobs.

    Less is never harder to reach. So the last terms of a raise say whether it is possible at all.

    Returns:
        What was reached on the way, each further than the one before it; empty if no raise is possible.
    """
    reached, low, high, at = list[Step](), 0, len(tries) + 1, 1
    while high - low > 1:
        if (packing := reach(tries[at - 1][-1])) is None:
            high = at
        else:
            reached.append((packing, tries[at - 1][-1]))
            low = at
        at = (low + high) // 2
    if low:
        steps, fails, works = tries[low - 1], -1, len(tries[low - 1]) - 1
        at = 0
        while works - fails > 1:
            if (packing := reach(steps[at])) is None:
                fails = at
            else:
                reached.append((packing, steps[at]))
                works = at
            at = (fails + works) // 2
    return reached


def _reached(
    packing: TrialPacking, best: TrialPacking, terms: Terms, deadline_s: float, take: Take | None
) -> TrialPacking | None:
    """A packing in which every job has its fair share, possibly after new pods are placed differently.

    Returns:
        The packing, `best` itself if it keeps the promises; None if a bound says that there is none.
    """
    if keeps(best, terms):
        return best
    trial = packing.copy()
    grow(trial, terms.ceiling, terms.fair_share, taking(take, terms))
    is_possible = keeps(trial, terms) or could_place_anew(trial, terms.ceiling, terms.fair_share, deadline_s)
    return trial if is_possible else None


def _lower(packing: TrialPacking, terms: Terms, level: float, most: int) -> list[Terms]:
    """List targets with the fair share of the best-off job lowered by one each time, but not down to `level`."""
    demands = packing.problem.demands
    steps: list[Terms] = []
    for _ in range(most if len(packing.members) <= FEW_JOBS else 0):
        fair_share = (steps[-1] if steps else terms).fair_share
        rich = [
            j
            for j, n in fair_share.items()
            if n > demands[j].min_trainers and demands[j].fulfilment(n - 1) > level + EPSILON
        ]
        if not rich:
            break
        giver = max(rich, key=lambda j: (demands[j].fulfilment(fair_share[j]), demands[j].job.key))
        steps.append(Terms(terms.ceiling, {j: n - (j == giver) for j, n in fair_share.items()}))
    return steps


def _raised(packing: TrialPacking, terms: Terms, *, is_settled: bool) -> Terms | None:
    """Raise the fair share of each worst-off job by one; None if a job cannot have that.

    `is_settled`: nothing can be repacked and no trainer may be deleted, so only free capacity counts.
    """
    demands = packing.problem.demands
    level = {j: demands[j].fulfilment(min(terms.fair_share[j], terms.ceiling[j])) for j in packing.members}
    worst = [j for j in packing.members if level[j] <= min(level.values()) + EPSILON]
    can_grow = {shape: bool(packing.slots(shape).any()) for shape in {demands[j].shape for j in worst}}
    if not worst or any(terms.fair_share[j] >= terms.ceiling[j] for j in worst):
        return None
    if is_settled and any(packing.count[j] <= terms.fair_share[j] and not can_grow[demands[j].shape] for j in worst):
        return None
    return Terms(terms.ceiling, {j: n + (j in worst) for j, n in terms.fair_share.items()})
