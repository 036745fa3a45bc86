"""The speed of a job over the course of its training: the real one, and the one that policies know.

A job that may change its global batch takes the best one for the trainers that it has. How good that is changes as it
trains, because the noise of its gradients grows. The training is therefore a series of phases, each with one curve.
A job with one batch has a single phase.

Source: Qiao et al., Pollux, OSDI 2021, section 3.1: goodput is throughput times efficiency, and the efficiency of a
batch m is (noise + base) / (noise + m); McCandlish et al., An Empirical Model of Large-Batch Training, 2018, for the
noise scale.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from edl.planner.speedup import Curve, Point, SeenSpeed, curve_of, seen_speed
from edl.sim.scenario import BatchSpec, JobGroup
from edl.worker.goodput.rates import efficiency


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the training in which the speed of a number of trainers stays the same.

    Attributes:
        until: samples after which it ends; infinite for the last one.
        truth: useful samples per second.
        known: (trainers, useful samples per second) as policies know them.
        processed: (trainers, samples per second) as policies know them; the same for a job with one batch.
        curve: what policies make of `known`.
    """

    until: float
    truth: SeenSpeed
    known: tuple[Point, ...]
    processed: tuple[Point, ...]
    curve: Curve


def phases_of(group: JobGroup) -> tuple[Phase, ...]:
    """The phases of each job of a group, in their order."""
    if group.batch is None:
        return (_phase(group, float("inf"), group.throughput, group.throughput),)
    work = group.work or 0.0
    begins = [part for part, _ in group.batch.noise]
    ends = [after * work for _, after in pairwise(begins)] + [float("inf")]
    return tuple(
        _phase(group, until, *_best(group.batch, noise))
        for until, (_, noise) in zip(ends, group.batch.noise, strict=True)
    )


def _phase(group: JobGroup, until: float, useful: Sequence[Point], processed: Sequence[Point]) -> Phase:
    known = tuple(_misjudged(group, point) for point in useful)
    return Phase(
        until,
        seen_speed(useful, curve_of(useful)),
        known,
        tuple(_misjudged(group, point) for point in processed),
        curve_of(known),
    )


def _misjudged(group: JobGroup, point: Point) -> Point:
    """Falsify a speed as policies know it, by another factor for each count and each group."""
    count, speed = point
    if not group.misjudged:
        return point
    chance = random.Random(f"{group.name} {count}").uniform(-1.0, 1.0)  # noqa: S311 - a simulation, no secret
    return count, speed * (1.0 + group.misjudged * chance)


def _best(spec: BatchSpec, noise: Sequence[float]) -> tuple[list[Point], list[Point]]:
    """By number of trainers, the goodput of the best batch, and the speed with that batch."""
    best: dict[int, tuple[float, float]] = {}
    for (batch, points), scale in zip(spec.speeds, noise, strict=True):
        for count, speed in points:
            useful = speed * efficiency(scale, spec.base, batch)
            best[count] = max(best.get(count, (0.0, 0.0)), (useful, speed))
    counts = sorted(best)
    return [(n, best[n][0]) for n in counts], [(n, best[n][1]) for n in counts]
