"""The ways to decide how much capacity to keep for serving: the controller's own, and others to compare with it.

All of them ask through the same port and are charged by the same rules: cooldown, dead band, surplus trainers only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

from edl.headroom.advisor import Advisor, Reservation
from edl.headroom.growth import TICK_S, Growth
from edl.headroom.learner import Answer
from edl.model.resources import CPU, PodShape
from edl.sim.scenario import DeploymentSpec, Scenario
from edl.sim.shapes import shape_of

PEAK_OVER_S = 3600.0
"""How long a peak counts, and how far back a conformal quantile looks, in seconds."""

ACI_RATE = 0.005
"""Step of adaptive conformal inference (Gibbs and Candes 2021, section 2)."""

PACE_GAIN = 0.5
"""How strongly the level reacts to the pace at which the budget of misses is used up."""


class _Past:
    """The growths within the last `PEAK_OVER_S`."""

    def __init__(self) -> None:
        self._growth = Growth()
        self.seen: deque[tuple[float, int]] = deque()

    def observe(self, at_s: float, pods: int, window: int) -> list[int]:
        """Note a count; return the growths that are known now."""
        new = list(self._growth.observe(at_s, pods, window))
        self.seen.extend(new)
        while self.seen and self.seen[0][0] < at_s - PEAK_OVER_S:
            self.seen.popleft()
        return [growth for _, growth in new]


class Peak:
    """Keeps capacity for the largest growth of the last hour."""

    def __init__(self) -> None:
        self._past = _Past()

    def observe(self, at_s: float, pods: int, window: int) -> Answer:
        """Note how many pods there are, and return for how many more to keep capacity."""
        self._past.observe(at_s, pods, window)
        return Answer(max((growth for _, growth in self._past.seen), default=0), "the peak of the last hour")


class Conformal:
    """Keeps capacity for a quantile of the last hour's growths; its level rises with each miss.

    Adaptive conformal inference corrects the level for each miss, and a proportional-integral controller for the pace
    at which the budget of misses is used up, as BACC does (arXiv 2606.20575). Its forecast is that nothing grows.
    """

    def __init__(self, cores: float, slo: float) -> None:
        self._past = _Past()
        self._budget = cores / (slo + cores)  # the part of the ticks that may be missed
        self._alpha, self._misses, self._ticks, self._kept = self._budget, 0, 0, 0

    def observe(self, at_s: float, pods: int, window: int) -> Answer:
        """Note how many pods there are, and return for how many more to keep capacity."""
        new = self._past.observe(at_s, pods, window)
        for growth in new:
            miss = growth > self._kept
            self._misses, self._ticks = self._misses + miss, self._ticks + 1
            self._alpha += ACI_RATE * (self._budget - miss)
        if new:
            pace = self._misses / self._ticks - self._budget
            level = 1.0 - min(1.0, max(0.0, self._alpha - PACE_GAIN * pace))
            growths = sorted(growth for _, growth in self._past.seen)
            self._kept = growths[min(len(growths) - 1, int(level * len(growths)))]
        return Answer(self._kept, "a conformal quantile of the last hour")


class Foresight:
    """Keeps capacity for the growth to come, which it reads from the timelines of the scenario."""

    def __init__(self, timelines: Sequence[Sequence[tuple[float, int]]], margin_s: float, *, pays: bool) -> None:
        self._timelines, self._margin_s, self._pays = timelines, margin_s, pays
        self._next = [0] * len(timelines)

    def observe(self, at_s: float, pods: int, window: int) -> Answer:  # noqa: ARG002 - it knows the count
        """Note how many pods there are, and return for how many more to keep capacity."""
        until_s, growth = at_s + window * TICK_S + self._margin_s, 0
        for number, steps in enumerate(self._timelines):
            while self._next[number] < len(steps) and steps[self._next[number]][0] <= at_s:
                self._next[number] += 1
            now = steps[self._next[number] - 1][1] if self._next[number] else 0
            most = now
            for step_s, replicas in islice(steps, self._next[number], None):
                if step_s > until_s:
                    break
                most = max(most, replicas)
            growth += most - now
        return Answer(growth if self._pays else 0, "what serving will add")


class NewReservation(Protocol):
    """Makes the reservation of a pod shape."""

    def __call__(self, shape: PodShape) -> Reservation:
        """Make the reservation of a pod shape that was not seen before."""


class Baseline(Advisor):
    """An advisor whose capacities are given."""

    def __init__(self, slo: float, make: NewReservation) -> None:
        super().__init__(slo)
        self._make = make

    def new_reservation(self, shape: PodShape) -> Reservation:
        """Make the reservation of a pod shape that was not seen before."""
        return self._make(shape)


def advisor_of(scenario: Scenario, start_s: float) -> Advisor | None:
    """The advisor of a scenario's `serving_headroom`; None if that is a number.

    Args:
        scenario: what runs.
        start_s: when its second 0 is.
    """
    spec = scenario.controller
    slo, margin_s = spec.serving_slo, spec.interval_s
    timelines = _by_shape(scenario.serving, start_s)

    def foresee(shape: PodShape) -> Reservation:
        return Foresight(timelines.get(shape, ()), margin_s, pays=slo * 1000 > shape.request[CPU])

    match spec.serving_headroom:
        case "auto":
            return Advisor(slo)
        case "peak":
            return Baseline(slo, lambda _: Peak())
        case "conformal":
            return Baseline(slo, lambda shape: Conformal(shape.request[CPU] / 1000, slo))
        case "foresight":
            return Baseline(slo, foresee)
        case _:
            return None


def _by_shape(
    serving: Sequence[DeploymentSpec], start_s: float
) -> Mapping[PodShape, Sequence[Sequence[tuple[float, int]]]]:
    found: dict[PodShape, list[list[tuple[float, int]]]] = {}
    for spec in serving:
        found.setdefault(shape_of(spec.resources), []).append([(start_s + at, count) for at, count in spec.replicas])
    return found
