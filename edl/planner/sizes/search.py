"""Jobs that may have certain counts only (sizes): turns a division with any counts into one with these.

Every other stage counts single trainers. What it gives a job is more than one of its sizes and less than the next as
a rule. Here a size is chosen for each such job, and the rest is divided again beside it, by the same objective and
with the same rules for trainers that change hands. Choices are tried in the order of what they could reach without
whole pods, so the search ends once no other choice can be better. If there are too many, sizes are raised one by one,
of the job that is worst off first.

The bound of the plan is that of all counts, so it holds for these, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from edl.errors import PlanError
from edl.model.sizes import above, at_most, within
from edl.planner.clock import OutOfTimeError
from edl.planner.objective import Division, Objective
from edl.planner.packing import grow
from edl.planner.problem import Problem
from edl.planner.programs.fair_share import fair_shares, read_share_problem
from edl.planner.reallocation import (
    allowed_beyond,
    give_one,
    givers,
    has_arrivals,
    is_at_rest,
    kept,
)
from edl.planner.scores import EPSILON, gain_of_worst, is_felt
from edl.planner.sizes.rounding import in_sizes, lower
from edl.planner.trial_packing import TrialPacking

MOST_TRIED = 64  # choices of sizes in one decision
WORK = 20_000  # choices times jobs times nodes of one decision, so that it stays quick

Chosen = Mapping[int, int]
"""A size for each member that may not have every count."""


def divide_in_sizes(
    packing: TrialPacking,
    objective: Objective,
    ceiling: Mapping[int, int],
    level: Mapping[int, float],
    deadline_s: float,
) -> Division:
    """Divide the capacity that the minimums left, so that each job with sizes has one of them.

    Raises:
        PlanError: a program found no answer in time.
    """
    free = objective.divide(packing, ceiling, level, deadline_s)
    sized = [j for j in packing.members if packing.problem.demands[j].job.sizes]
    count = free.packing.count
    if all(count[j] >= packing.problem.demands[j].max_trainers for j in sized):
        return free
    admits = has_arrivals(packing)
    keep = givers(packing, admits=admits) if admits or is_at_rest(packing) else {}
    search = _Search(packing, objective, ceiling, deadline_s, tuple(sized), keep, admits)
    best = search.best({j: at_most(packing.problem.demands[j].job.sizes, count[j]) for j in sized})
    if best is None:  # the deadline; whatever fits whole
        best = replace(free, packing=in_sizes(free.packing))
        objective.grow(best.packing, _closed(best, sized))
    return _closed(replace(best, level=free.level), sized)


def _closed(division: Division, sized: list[int]) -> Division:
    """Forbid these jobs to grow further: they have one of their sizes, and a single trainer more is of no use."""
    most = {j: division.packing.count[j] if j in sized else n for j, n in division.ceiling.items()}
    return replace(division, ceiling=most)


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches the best combination of sizes for the jobs that have sizes.

    Attributes:
        packing: every admitted job at its minimum at least; not changed.
        objective: what the trainers are divided by.
        ceiling: the most trainers that each job may have now.
        deadline_s: time for each program.
        sized: the members that may not have every count.
        keep: the members that may lose running trainers to others, and how many each must keep.
        admits: a job was just admitted, and may claim its share at once.
    """

    packing: TrialPacking
    objective: Objective
    ceiling: Mapping[int, int]
    deadline_s: float
    sized: tuple[int, ...]
    keep: Mapping[int, int]
    admits: bool

    def best(self, floor: Chosen) -> Division | None:
        """The best division; None if there was no time for any.

        Args:
            floor: a choice that fits.
        """
        options = {j: self._options(j) for j in self.sized}
        tries = max(2, min(MOST_TRIED, WORK // (len(self.packing.members) * len(self.packing.free))))
        try:
            if prod(map(len, options.values())) <= tries:
                choices = (dict(zip(options, one, strict=True)) for one in product(*options.values()))
                return self._best_of_all(choices)
            return self._climbed(floor, tries)
        except OutOfTimeError:
            self.packing.problem.clock.cut_short("sizes")
            return None

    def _options(self, j: int) -> list[int]:
        demand = self.packing.problem.demands[j]
        most = max(demand.min_trainers, min(self.ceiling[j], demand.max_trainers))
        return list(within(demand.job.sizes, demand.min_trainers, most)) or [demand.min_trainers]

    def _best_of_all(self, choices: Iterator[Chosen]) -> Division | None:
        """Try choices from the one that could reach most, until none of the others can be better."""
        known = [(level, chosen) for chosen in choices if (level := self._levels(chosen)) is not None]
        reached = [(self._reach(level), number) for number, (level, _) in enumerate(known)]
        best, bounds = None, self.objective.name == "fulfilment"
        calm: Division | None = None
        for reach, number in sorted(reached, key=lambda one: (one[0], -one[1]), reverse=True):
            if calm is not None and bounds and _coarse(reach) <= _coarse(self.objective.score(calm.packing)):
                break
            level, chosen = known[number]
            made = self._made(chosen, level)
            if made is None:
                continue
            if best is None or self._rank(made) > self._rank(best):
                best = made
            if not self._restarts(made) and (calm is None or self._rank(made) > self._rank(calm)):
                calm = made
        return self._worth_it(calm, best)

    def _climbed(self, floor: Chosen, tries: int) -> Division | None:
        """Begin with a choice, and raise the jobs by one size each, from the worst off, as long as that is better."""
        level = self._levels(floor)
        best = None if level is None else self._made(floor, level)
        at, refused, demands = dict(floor), set[int](), self.packing.problem.demands
        for _ in range(tries - 1):
            worst = sorted((j for j in self.sized if j not in refused), key=lambda j: demands[j].fulfilment(at[j]))
            j = next((j for j in worst if self._next(j, at[j])), None)
            if best is None or j is None:
                break
            tried = {**at, j: self._next(j, at[j])}
            level = self._levels(tried)
            made = None if level is None else self._made(tried, level)
            if made is not None and self._rank(made) > self._rank(best) and self._worth_it(best, made) is made:
                best, at = made, tried
                refused.clear()
            else:
                refused.add(j)
        return best

    def _restarts(self, division: Division) -> int:
        """How many running trainers end so that others get their capacity."""
        return len(division.packing.victims) - len(self.packing.victims)

    def _worth_it(self, calm: Division | None, other: Division | None) -> Division | None:
        """Return the division that evicts trainers if it gains enough for that, else the one that evicts fewer."""
        if calm is None or other is None or self._restarts(other) <= self._restarts(calm) or self.admits:
            return calm if other is None else other
        return other if is_felt(gain_of_worst(calm.packing, other.packing)) else calm

    def _next(self, j: int, now: int) -> int:
        size = above(self.packing.problem.demands[j].job.sizes, now)
        return size if size <= max(self._options(j)) else 0

    def _levels(self, chosen: Chosen) -> dict[int, float] | None:
        """The fair share of each job beside the chosen sizes, in fractions; None if these do not fit together."""
        cluster = replace(read_share_problem(self.packing), problem=self._fixed(chosen))
        try:
            return fair_shares(cluster, self.deadline_s)
        except OutOfTimeError:
            raise
        except PlanError:
            return None

    def _reach(self, level: Mapping[int, float]) -> list[float]:
        """The fulfilments that fractional counts mean, from the worst off upwards."""
        return sorted(self.packing.problem.demands[j].fulfilment(count) for j, count in level.items())

    def _made(self, chosen: Chosen, level: Mapping[int, float]) -> Division | None:
        """Build the division in which each chosen job has its size; None if the pods do not fit on the nodes."""
        problem = self.packing.problem
        packing = self.packing.copy()
        packing.problem = self._fixed(chosen)
        for j, size in chosen.items():
            if packing.count[j] > size and not self._may_give(j, packing.count[j] - size):
                return None
            lower(packing, j, size)
        least = {j: int(n + EPSILON) for j, n in level.items()}
        for j in sorted(chosen, key=lambda j: (-problem.demands[j].job.weight, problem.demands[j].job.key)):
            if not self._raised(packing, j, chosen[j], least):
                return None
        most = {j: chosen.get(j, n) for j, n in self.ceiling.items()}
        made = self.objective.divide(packing, most, level, self.deadline_s)
        if any(made.packing.count[j] != size for j, size in chosen.items()):
            return None
        made.packing.problem = problem
        return made

    def _fixed(self, chosen: Chosen) -> Problem:
        """The problem with minimum and maximum of each chosen job set to its chosen size."""
        problem = self.packing.problem
        demands = tuple(
            replace(d, min_trainers=chosen[d.index], max_trainers=chosen[d.index]) if d.index in chosen else d
            for d in problem.demands
        )
        return replace(problem, demands=demands)

    def _may_give(self, j: int, count: int) -> bool:
        """True if a job may lose so many running trainers to other jobs in this plan."""
        return j in self.keep and kept(self.packing, j) - self.keep[j] >= count

    def _raised(self, packing: TrialPacking, j: int, size: int, least: Mapping[int, int]) -> bool:
        """Raise a job to a size, in free capacity first, then at others' cost; False if it fails.

        Changes the packing.
        """
        grow(packing, {j: size}, {j: size})
        while packing.count[j] < size:
            self.packing.problem.clock.check("sizes")
            if not give_one(packing, j, allowed_beyond(packing, self.keep, least)):
                return False
        return True

    def _rank(self, division: Division) -> tuple[list[float], int]:
        """Sort key of a division: its score, then the fewer deleted trainers the better."""
        return self.objective.score(division.packing), -len(division.packing.victims)


def _coarse(fulfilments: list[float]) -> list[float]:
    """Round fulfilments to the precision of the linear programs."""
    return [round(one, 6) for one in fulfilments]
