"""A chart of the report as SVG: what the cluster has, what it used, and what it would use with edl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from edl.model.times import seconds_of
from edl.shadow.document import Interval
from edl.shadow.timeline import INTERVAL_S

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 260, 44, 26, 10
MOST_POINTS = 300
_GAP_S = 5 * INTERVAL_S

Point = tuple[float, float]


def chart_of(intervals: Sequence[Interval], resource: str) -> str:
    """The chart of one resource, as a part of its capacity; empty without capacity."""
    seen = [one for one in intervals if one.capacity.get(resource)]
    if not seen:
        return ""
    most = max(one.capacity[resource] for one in seen)
    began_s, ended_s = _began_s(seen[0]), _began_s(seen[-1]) + INTERVAL_S
    parts = _runs(seen)

    def line(value: Callable[[Interval], float], kind: str, *, filled: bool = False) -> str:
        def at(time_s: float, one: Interval) -> Point:
            x = LEFT + (WIDTH - LEFT) * (time_s - began_s) / (ended_s - began_s)
            y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(1.2, value(one) / most)
            return round(x, 1), round(max(0.0, y), 1)

        return "".join(_path(_steps(run, at), kind, filled=filled) for run in parts)

    lines = (
        line(lambda one: one.used.get(resource, 0.0), "used", filled=True),
        line(lambda one: one.training.get(resource, 0.0), "training", filled=True),
        line(lambda one: one.capacity[resource], "capacity"),
        line(lambda one: one.with_edl.get(resource, 0.0), "with-edl"),
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{resource} over time">'
        f"{_scale()}{''.join(lines)}{_times(seen[0].start, seen[-1].start)}</svg>"
    )


def _runs(intervals: Sequence[Interval]) -> list[list[Interval]]:
    """Divide intervals into runs without long pauses, and thin out runs with very many points."""
    runs = [[intervals[0]]]
    for before, after in pairwise(intervals):
        if _began_s(after) - _began_s(before) > _GAP_S:
            runs.append([])
        runs[-1].append(after)
    every = -(-len(intervals) // MOST_POINTS)
    return [[*run[:-1:every], run[-1]] for run in runs]


def _steps(run: Sequence[Interval], at: Callable[[float, Interval], Point]) -> list[Point]:
    """The corners of steps: what was seen holds until the next interval."""
    ends = [*(_began_s(one) for one in run[1:]), _began_s(run[-1]) + INTERVAL_S]
    return [at(time_s, one) for one, end_s in zip(run, ends, strict=True) for time_s in (_began_s(one), end_s)]


def _path(points: Sequence[Point], kind: str, *, filled: bool) -> str:
    text = " L".join(f"{x} {y}" for x, y in points)
    if filled:
        ground = HEIGHT - BOTTOM
        return f'<path class="{kind}" d="M{points[0][0]} {ground} L{text} L{points[-1][0]} {ground} Z"/>'
    return f'<path class="line {kind}" d="M{text}"/>'


def _scale() -> str:
    rows = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share
        rows.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.0f}" y2="{y:.0f}"/>')
        rows.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{share:.0%}</text>')
    return "".join(rows)


def _times(first: str, last: str) -> str:
    y = HEIGHT - 6
    return f'<text x="{LEFT}" y="{y}">{first}</text><text x="{WIDTH}" y="{y}" text-anchor="end">{last}</text>'


def _began_s(interval: Interval) -> float:
    return seconds_of(interval.start) or 0.0
