"""How fast a job of a scenario truly runs, which policies may know only roughly.

The planner takes the upper concave envelope of the speeds that it knows. The truth may have steps, or fall where
trainers disturb each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from edl.planner.speedup import Curve, Point


@dataclass(frozen=True, slots=True)
class TrueSpeed:
    """Speed by number of trainers: straight lines between the points of the scenario.

    Attributes:
        points: (trainers, samples per second), ascending; empty if the scenario names none.
        known: what a policy makes of these; beyond the points the true speed grows in the same proportion.
    """

    points: tuple[Point, ...]
    known: Curve

    def at(self, count: int) -> float:
        """Samples per second of so many trainers, >= 1; relative to one trainer if there are no points."""
        if not self.points:
            return self.known.speed(count)
        first, last = self.points[0], self.points[-1]
        if count <= first[0] or count >= last[0]:
            end, speed = first if count <= first[0] else last
            known = self.known.speed(end)
            return self.known.speed(count) * (speed / known)
        at = bisect_right(self.points, (count, float("inf")))
        (left, slow), (right, fast) = self.points[at - 1 : at + 1]
        return slow + (fast - slow) * (count - left) / (right - left)


def true_speed(throughput: Iterable[Point], known: Curve) -> TrueSpeed:
    """The true speed of a job with this `throughput`, of which policies know this curve."""
    return TrueSpeed(tuple(sorted(throughput)), known)
