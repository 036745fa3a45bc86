"""Checks a plan of policies `utility` and `goodput` without edl; exit codes and files as in `verify_certificate.py`.

That script lies beside this one, and checks the plan and the bounds. Here is what trainers are worth to a job: the
logarithm of its speed, compared with that of its minimum. Speeds are read from SNAPSHOT: those that the spec
declares, else those in the status. Logarithms are no rational numbers, so each lies between two that are: what the
plan is worth is known from both sides, and a bound counts the upper ones.
"""

import json
import sys
from argparse import ArgumentParser
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

from verify_certificate import at  # type: ignore[import-not-found] # lies beside it
from verify_certificate import verify as verify_by

UNIT, TERMS = 10**30, 40  # of a logarithm, and of its series: the next term is below 3^-81
POWER, SLOWER = Fraction(3, 4), Fraction(1, 20)
MOST_POINTS, MOST_TRAINERS, SLOWEST, FASTEST = 64, 10_000, Fraction(1e-9), 10**15
SINGLE_STEPS, STEP_RATIO = 8, Fraction(9, 8)


@cache
def log_of(x: Fraction) -> tuple[Fraction, Fraction]:
    """Two bounds of the natural logarithm of x > 0: 2 atanh((m - 1) / (m + 1)) + k log(2), where x is m 2^k."""
    if x < 1:
        least, most = log_of(1 / x)
        return -most, -least
    k = x.numerator.bit_length() - x.denominator.bit_length()
    k -= x < Fraction(2) ** k
    (low, high), (low2, high2) = (twice_atanh((m - 1) / (m + 1)) for m in (x / Fraction(2) ** k, Fraction(2)))
    return Fraction(low + k * low2, UNIT), Fraction(high + k * high2, UNIT)


def twice_atanh(z: Fraction) -> tuple[int, int]:
    """Two bounds of 2 (z + z^3/3 + z^5/5 + ...) for z from 0 to 1/3, in units.

    Every whole number here is too small by less than two units, so the sum by less than 4 for each of its terms; what
    z itself was rounded by, and the terms that are left out, are less than 4 more.
    """
    power = int(z * UNIT)
    square, total = power * power // UNIT, 0
    for i in range(TERMS):
        total += power // (2 * i + 1)
        power = power * square // UNIT
    return 2 * total, 2 * (total + 4 * TERMS + 4)


def points_of(job: Any, worth: str) -> tuple[dict[int, Fraction], int]:
    """Trainers -> speed, and the largest count that the job has had, or 0 if it has predicted none."""
    reported = usable(at(job, "status", "goodput")) if worth == "goodput" else {}
    if reported:
        seen = max((n for n, one in reported.items() if one.get("measured") is True), default=0)
        return {n: Fraction(one["samplesPerSecond"]) for n, one in reported.items()}, seen
    found = usable(at(job, "spec", "elasticity", "throughput"))
    if not found:
        found = usable(at(job, "status", "throughput"), weighed=True)
        found = found if len(found) > 1 else {}
    return {n: Fraction(one["samplesPerSecond"]) for n, one in found.items()}, 0


def usable(entries: Any, *, weighed: bool = False) -> dict[int, Any]:
    """Trainers -> entry, of those with possible numbers."""

    def is_possible(value: Any) -> bool:
        return type(value) in {int, float} and 0 < value < FASTEST

    known = entries[:MOST_POINTS] if isinstance(entries, list) else []
    known = [one for one in known if type(one.get("instances")) is int and 0 < one["instances"] <= MOST_TRAINERS]
    known = [one for one in known if is_possible(one.get("samplesPerSecond"))]
    return {one["instances"]: one for one in known if not weighed or is_possible(one.get("seconds"))}


def curve_of(points: dict[int, Fraction], seen: int) -> Any:
    """The least concave curve above the points and the origin, and how it goes on before and beyond them."""
    known = sorted((n, v) for n, v in points.items() if v >= SLOWEST and n <= 2 * (seen or n))
    if not known:
        return [], POWER, POWER, 0
    top = max(v for _, v in known)
    first = min(n for n, v in known if v == top)
    rising = [point for point in known if point[0] <= first] + [(known[-1][0], top)] * (known[-1][0] > first)
    hull: list[tuple[int, Fraction]] = [(0, Fraction(0))]
    for n, v in rising:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (n - hull[-2][0]) <= (v - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((n, v))
    (low, slow), (high, fast) = hull[1], hull[-1]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull[1:])] or [POWER * slow / low]
    before = min(Fraction(1), max(POWER, slopes[0] * low / slow)) if low == known[0][0] else Fraction(1)
    return hull[1:], before, min(POWER, slopes[-1] * high / fast), max(high, 2 * (seen or high))


def log_speed(curve: Any, n: int) -> tuple[Fraction, Fraction]:
    """Two bounds of the logarithm of the speed of n trainers."""
    hull, before, beyond, flat = curve
    if not hull:
        hull = [(1, Fraction(1))]
        flat = n
    (low, slow), (high, fast) = hull[0], hull[-1]
    if low < n < high:
        (a, left), (b, right) = next((one, two) for one, two in pairwise(hull) if one[0] <= n < two[0])
        return log_of(left + (right - left) * (n - a) / (b - a))
    count, power, speed = (low, before, slow) if n <= low else (high, beyond, fast)
    sides = zip(log_of(speed), log_of(Fraction(min(n, flat) if n >= high else n, count)), strict=True)
    least, most = (one + power * more for one, more in sides)
    return least, most


def steps_to(counts: list[int], last: int) -> list[int]:
    """The counts at which the worth of trainers bends, after those that are known, up to the last one."""
    while counts[-1] < last:
        counts.append(min(last, max(counts[-1] + 1, ceil(counts[-1] * STEP_RATIO))))
    return counts


class Worth:
    """What trainers are worth to one job: linear between its knots.

    Attributes:
        knots: counts, ascending, from its minimum to its maximum; only the minimum if it cannot grow.
        most: for each of them, a number above its worth, by less than 10^-20.
    """

    def __init__(self, job: Any, facts: Any, curve: Any) -> None:
        low, cap, high = job["low"], facts["cap"], job["high"]
        steps = list(range(low, min(cap, low + SINGLE_STEPS) + 1))
        self.knots = steps_to(steps_to(steps, cap), high) if cap > low else [low]
        logs = [log_speed(curve, n) for n in self.knots]
        self.most = [most - logs[0][0] for _, most in logs]
        if any(most - least > Fraction(1, 10**20) for least, most in logs):
            raise ValueError("a logarithm is not known well enough")

    def between(self, count: int) -> Fraction:
        """A number above the worth of a count."""
        for (a, b), (less, more) in zip(pairwise(self.knots), pairwise(self.most), strict=True):
            if a <= count < b:
                return less + (more - less) * (count - a) / (b - a)
        return self.most[-1]


def by_speed(cluster: Any, cert: Any) -> Any:
    """What trainers are worth to the jobs of a cluster at most; their knots become known to the jobs."""
    if cert["worth"] not in {"speed", "goodput"}:
        raise ValueError(f"{cert['worth']} is not known here")
    worths = {}
    for key, facts in cert["jobs"].items():
        curve = curve_of(*points_of(cluster.found["TrainingJob"][key], cert["worth"]))
        worth = Worth(cluster.jobs[key], facts, curve)
        worths[id(cluster.jobs[key])] = worth
        cluster.jobs[key]["knots"] = worth.knots
    return lambda job, _, count: worths[id(job)].between(count)


def verify(snapshot: Any, plan: Any, cert: Any) -> Any:
    """What holds and what does not; see the other script."""
    return verify_by(snapshot, plan, cert, by_speed)


if __name__ == "__main__":
    parser = ArgumentParser(usage="python verify_speeds.py SNAPSHOT PLAN CERTIFICATE", description=__doc__)
    parser.add_argument("files", nargs=3, help="the three files, in JSON")
    try:
        right, wrong = verify(*(json.loads(Path(name).read_text()) for name in parser.parse_args().files))
    except Exception as error:
        parser.error(f"the files are not JSON, or do not belong together ({error})")
    print("\n".join(wrong or right))
    sys.exit(bool(wrong))
