"""Proves in rationals how far the worst-off jobs could be.

A level has a bound B if no plan gives more than B to each job of the level and of the levels above it, while the jobs
below keep what they have. That is so if prices exist at which all nodes earn less than the trainers cost that such a
plan needs: the bound of `exact` is then below 0, although such a plan would be worth 0.

Source: the lemma of Farkas (1902), as in Schrijver, Theory of Linear and Integer Programming (1986), section 7.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from edl.explain.best_possible import Level
from edl.explain.certificates.exact import Claim, Prices, most_of_jobs, most_of_nodes
from edl.explain.certificates.rules import JobRule, Rules

ROUNDING = Fraction(1, 10**6)  # of the bounds that the planner states


@dataclass(frozen=True, slots=True)
class LevelClaim:
    """A claim about one level of fulfilment: no plan lifts it above a bound.

    Attributes:
        rules: what plans may do.
        level: fulfilment of the jobs at this level; those below it keep their trainers.
    """

    rules: Rules
    level: Fraction

    @property
    def _rising(self) -> list[JobRule]:
        return [job for job in self.rules.jobs if job.span and job.fulfilment(job.target) >= self.level]

    def steps(self, start: float) -> list[Fraction]:
        """List the upper bounds to try, ascending, from about `start` to the largest fulfilment that is possible."""
        jobs = self._rising
        last = min(Fraction(job.high - job.low, job.span) for job in jobs)
        found = {last}
        for span in {job.span for job in jobs}:
            first = ceil(Fraction(start) * span - ROUNDING * span)
            found |= {Fraction(n, span) for n in range(first, floor(last * span) + 1)}
        return sorted(found)

    def beyond(self, bound: Fraction) -> Claim:
        """Describe the plans that lift this level above a bound; the bound is proved if there is none."""
        rising = {job.key for job in self._rising}
        least = tuple(_beyond(job, bound, is_rising=job.key in rising) for job in self.rules.jobs)
        return Claim(least, has_worth=False)

    def proved(self, candidates: Sequence[Prices], start: float) -> tuple[Fraction, Prices]:
        """Find the lowest upper bound, not below about `start`, that one of the price vectors proves.

        Returns both.
        """
        steps, best = self.steps(start), candidates[0]
        lowest = len(steps) - 1
        for prices in candidates:
            earned, fails = most_of_nodes(self.rules, prices), -1
            while lowest - fails > 1:  # the higher a bound, the more trainers the plans above it need
                middle = (fails + lowest) // 2
                if self._is_proved(steps[middle], prices, earned):
                    lowest, best = middle, prices
                else:
                    fails = middle
        return steps[lowest], best

    def _is_proved(self, bound: Fraction, prices: Prices, earned: Fraction) -> bool:
        above = self.beyond(bound)
        is_beyond_maximum = any(n > job.high for job, n in zip(self.rules.jobs, above.least, strict=True))
        return is_beyond_maximum or most_of_jobs(self.rules, prices, above) + earned < 0


def levels_of(rules: Rules, levels: Sequence[Level]) -> tuple[LevelClaim, ...]:
    """The claims about the levels of a plan, from the lowest upwards."""
    firsts = [next(job for job in rules.jobs if job.key == level.jobs[0]) for level in levels]
    return tuple(LevelClaim(rules, job.fulfilment(job.target)) for job in firsts)


def as_fair(rules: Rules, levels: Sequence[LevelClaim]) -> Claim:
    """Describe the plans that are as fair as this one up to some levels."""
    last = levels[-1].level if levels else Fraction(0)
    return Claim(tuple(max(job.floor, _at_least(job, last)) for job in rules.jobs))


def _at_least(job: JobRule, level: Fraction) -> int:
    """The fewest trainers of a job in any plan as fair as this one: those of the level, or its count if lower."""
    return min(job.target, job.low + ceil(level * job.span))


def _beyond(job: JobRule, bound: Fraction, *, is_rising: bool) -> int:
    """The fewest trainers that a job has in a plan that lifts the level above a bound."""
    if is_rising:
        return job.low + floor(bound * job.span) + 1
    return job.target if job.span else job.low
