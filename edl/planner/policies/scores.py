"""Scores by which a policy chooses between packings of the same jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edl.planner.trial_packing import TrialPacking

DIGITS = 9  # of a fulfilment; what differs by less is equal


def from_worst(packing: TrialPacking) -> list[float]:
    """The fulfilment of all jobs, from the worst off upwards."""
    return sorted(round(packing.fulfilment(j), DIGITS) for j in packing.members)


def promises_kept(packing: TrialPacking, promised: Mapping[int, int]) -> tuple[float, ...]:
    """The same, each job counted only up to the trainers that it is promised."""
    demands = packing.problem.demands
    held = (min(packing.fulfilment(j), demands[j].fulfilment(promised[j])) for j in packing.members)
    return tuple(sorted(round(fulfilment, DIGITS) for fulfilment in held))


def gain_of_worst(before: TrialPacking, after: TrialPacking, jobs: Iterable[int]) -> float:
    """How much fulfilment that of some jobs gains which was worst off; 0 if there are none."""
    worst = min(jobs, key=lambda j: (before.fulfilment(j), j), default=None)
    return 0.0 if worst is None else after.fulfilment(worst) - before.fulfilment(worst)
