"""Weighted max-min shares of whole units: no queue gets more than it wants, and others get what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Want = tuple[str, int, float]
"""Who, how much at most, and its weight > 0."""


def weighted_max_min(amount: int, wants: Sequence[Want]) -> dict[str, int]:
    """Divide an amount: raise all shares in proportion to their weights, and stop each share at what is wanted.

    Args:
        amount: what there is to share; nothing if it is negative.
        wants: each name once; amounts >= 0.

    Returns:
        The share of each name, in whole units. What is left after rounding down goes one unit each to those whose
        exact share was cut most, and among equals by name.
    """
    first_full = sorted((want / Fraction(weight), name, want, Fraction(weight)) for name, want, weight in wants)
    left, weights = Fraction(max(0, amount)), sum((weight for *_, weight in first_full), Fraction(0))
    exact: dict[str, Fraction] = {}
    for level, name, want, weight in first_full:
        exact[name] = Fraction(want) if level * weights <= left else left * weight / weights
        left, weights = left - exact[name], weights - weight
    return _whole(exact)


def _whole(exact: dict[str, Fraction]) -> dict[str, int]:
    """The shares in whole units, with the same sum rounded down."""
    shares = {name: int(share) for name, share in exact.items()}
    spare = int(sum(exact.values())) - sum(shares.values())
    cut_most = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in cut_most[:spare]:
        shares[name] += 1
    return shares
