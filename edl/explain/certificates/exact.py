"""The bound that prices give, without rounding.

For any prices >= 0, no plan under the rules is worth more than

    sum over jobs of max over n of (worth(n) - price of a trainer * trainers that take a slot)
    - price of each pod that must have a place
    + sum over nodes of the most that the node earns by offering slots at these prices.

Worth is fulfilment, or the logarithm of a speed, rounded up. A node earns what an integer knapsack is worth. It is
bounded by prices of its resources, with its capacity rounded to what sets of pods can use, or by a table of whole
pods on a grid. Both are relaxations, whatever the numbers.

Source: Lagrangian relaxation and its bound, Geoffrion, Mathematical Programming Study 2 (1974). Exact numbers instead
of a trusted solver: Cheung, Gleixner, Steffy, Verifying Integer Programming Results, IPCO 2017 (VIPR).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import floor, gcd, lcm
from operator import sub

from edl.explain.certificates.rules import JobRule, NodeKind, Rules

DENOMINATOR = 10**24
"""The denominator of every price; it is so large because a byte has a price."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The set of plans that an upper bound covers.

    Attributes:
        least: for each job, the fewest trainers that it has in such a plan.
        has_worth: trainers are worth something. If they are not, such a plan is worth 0, so a bound below 0 says
            that there is none.
    """

    least: tuple[int, ...]
    has_worth: bool = True


@dataclass(frozen=True, slots=True)
class Prices:
    """Numerators of prices over DENOMINATOR.

    Attributes:
        slots: for each shape, the price of a place for one pod.
        vectors: prices of one unit of each resource.
        vector_of: for each kind of nodes, the index of its vector; None without one.
        steps: by resource, the grid of the table over whole pods; empty without a table.
    """

    slots: tuple[int, ...]
    vectors: tuple[tuple[int, ...], ...] = ()
    vector_of: tuple[int | None, ...] = ()
    steps: Mapping[str, int] = field(default_factory=dict)


def bound_of(rules: Rules, prices: Prices, claim: Claim) -> Fraction:
    """Compute the upper bound that some prices prove. A sum of fulfilments is rounded down to whole trainers.

    Args:
        rules: what plans may do.
        prices: the prices.
        claim: the plans that it covers.
    """
    bound = most_of_jobs(rules, prices, claim) + most_of_nodes(rules, prices)
    if not claim.has_worth or rules.worth != "fulfilment":
        return bound
    steps = lcm(*(j.span or 1 for j in rules.jobs))
    return Fraction(floor(bound * steps), steps)


def most_of_jobs(rules: Rules, prices: Prices, claim: Claim) -> Fraction:
    """The jobs' part of the upper bound: the value of each job's trainers, less the price of their slots."""
    jobs = zip(rules.jobs, claim.least, strict=True)
    return sum((_most_of_job(rules, job, prices, n, has_worth=claim.has_worth) for job, n in jobs), Fraction(0))


def most_of_nodes(rules: Rules, prices: Prices) -> Fraction:
    """The nodes' part of the upper bound: the price of all their slots, less that of pods that must be placed."""
    paid = sum(price * need for price, need in zip(prices.slots, rules.needs, strict=True))
    return Fraction(_Nodes(rules, prices).earned() - paid, DENOMINATOR)


def _most_of_job(rules: Rules, job: JobRule, prices: Prices, least: int, *, has_worth: bool) -> Fraction:
    cost = Fraction(prices.slots[rules.row(job)], DENOMINATOR)

    def value(count: int) -> Fraction:
        worth = job.most(count) if has_worth else Fraction(0)
        return worth - cost * max(0, count - job.immovable)

    bends = {n for n, _ in job.knots if least < n < job.high} if has_worth else set()
    return max(value(count) for count in bends | {least, job.high, min(max(least, job.immovable), job.high)})


class _Nodes:
    """The value of the pods that fit on the nodes, at given prices."""

    def __init__(self, rules: Rules, prices: Prices) -> None:
        self.rules, self.prices = rules, prices
        self.columns = [(rules.resources.index(name), step) for name, step in prices.steps.items()]
        self.sizes = [tuple(request[c] // step for c, step in self.columns) for request in rules.request]
        self.packed = lru_cache(None)(self._packed)

    def earned(self) -> int:
        """The sum of the values over all nodes, as a numerator over DENOMINATOR."""
        return sum(len(kind.names) * self._earned_by(index, kind) for index, kind in enumerate(self.rules.kinds))

    def _earned_by(self, index: int, kind: NodeKind) -> int:
        rules, slots = self.rules, self.prices.slots
        number = self.prices.vector_of[index] if self.prices.vector_of else None
        vector = self.prices.vectors[number] if number is not None else (0,) * len(rules.resources)
        fits = tuple(s for s in fitting(rules, kind) if slots[s])
        capacity = rounded(rules, kind, fits)
        total = sum(price * have for price, have in zip(vector, capacity, strict=True))
        for s in fits:
            cost = sum(price * n for price, n in zip(vector, rules.request[s], strict=True))
            total += count_in(capacity, rules.request[s]) * max(0, slots[s] - cost)
        if self.columns and all(any(self.sizes[s]) for s in fits):
            total = min(total, self.packed(fits, tuple(capacity[c] // step for c, step in self.columns)))
        return total

    def _packed(self, fits: tuple[int, ...], left: tuple[int, ...]) -> int:
        """Bound the value of any whole pods that fit into the rounded capacity of a node."""
        best = 0
        for s in fits:
            after = tuple(map(sub, left, self.sizes[s]))
            if min(after) >= 0:
                best = max(best, self.prices.slots[s] + self.packed(fits, after))
        return best


def fitting(rules: Rules, kind: NodeKind) -> tuple[int, ...]:
    """The shapes of which a node of the kind takes a pod."""
    return tuple(s for s, request in enumerate(rules.request) if kind.taken[s] and count_in(kind.capacity, request))


def rounded(rules: Rules, kind: NodeKind, fits: tuple[int, ...]) -> tuple[int, ...]:
    """The capacity of a node, rounded down to multiples of what fitting pods request: no set of pods uses more."""
    return tuple(
        have - have % (gcd(*(rules.request[s][r] for s in fits)) or 1) for r, have in enumerate(kind.capacity)
    )


def count_in(capacity: tuple[int, ...], request: tuple[int, ...]) -> int:
    """How many pods of one request fit into the capacity."""
    return min(have // amount for have, amount in zip(capacity, request, strict=True) if amount)
