"""Two weeks of serving with days and nights, for `benchmarks.headroom`.

The bursts are real: requests a minute of an Azure LLM service (Azure LLM inference trace 2023, conversations, CC BY
4.0; Patel et al., Splitwise, ISCA 2024). That is under an hour, so the hour is repeated from random starts, and
day and night are put on it: a sine between `NIGHT` and 1, and a batch of requests from 9:00 to 9:20 of each day.
After 8 days the regime changes: the load grows by half, and all moves by six hours.
"""

from __future__ import annotations

import random
from math import ceil, cos, pi

REQUESTS_A_MINUTE = (
    191,
    265,
    329,
    353,
    307,
    273,
    268,
    261,
    322,
    298,
    301,
    302,
    345,
    326,
    283,
    279,
    280,
    308,
    343,
    351,
    351,
    343,
    408,
    396,
    386,
    398,
    432,
    480,
    476,
    453,
    448,
    507,
    438,
    413,
    423,
    418,
    465,
    311,
    329,
    316,
    333,
    355,
    319,
    360,
    334,
    375,
    330,
    249,
    221,
    249,
    265,
    280,
    256,
    254,
    242,
    260,
    246,
    225,
)
DAY_S, STEP_S = 86_400, 180
NIGHT, BATCH, GROWTH, SHIFT_S = 0.25, 0.4, 1.5, 6 * 3600
CHANGE_DAY = 8
DAYS = 14
PODS = 24
"""Pods for the mean of the hour by day."""

TOLERANCE = 0.1
"""A HorizontalPodAutoscaler leaves the number of pods while it is wrong by no more."""


def replicas(days: int, seed: int = 0) -> tuple[tuple[float, int], ...]:
    """(second, pods from then on), as an autoscaler sets them every three minutes.

    Args:
        days: how many.
        seed: of where in the hour each hour starts.
    """
    rng = random.Random(f"headroom {seed}")  # noqa: S311 - a simulation, no secret
    mean = sum(REQUESTS_A_MINUTE) / len(REQUESTS_A_MINUTE)
    found: list[tuple[float, int]] = []
    start = 0
    for at_s in range(0, days * DAY_S, STEP_S):
        if at_s % 3600 == 0:
            start = rng.randrange(len(REQUESTS_A_MINUTE))
        minute = start + at_s % 3600 // 60
        minutes = [REQUESTS_A_MINUTE[(minute + i) % len(REQUESTS_A_MINUTE)] for i in range(STEP_S // 60)]
        load = sum(minutes) / len(minutes) / mean * _of_day(at_s)
        wanted = max(1, ceil(PODS * load))
        if not found or abs(wanted - found[-1][1]) > TOLERANCE * found[-1][1]:
            found.append((float(at_s), wanted))
    return tuple(found)


def _of_day(at_s: int) -> float:
    """The load at that time, against the most that a day of the first week has without its batch."""
    is_changed = at_s >= CHANGE_DAY * DAY_S
    clock_s = (at_s + (SHIFT_S if is_changed else 0)) % DAY_S
    sine = NIGHT + (1.0 - NIGHT) * (1.0 - cos(2 * pi * clock_s / DAY_S)) / 2
    batch = BATCH if 9 * 3600 <= clock_s < 9 * 3600 + 1200 else 0.0
    return (sine + batch) * (GROWTH if is_changed else 1.0)
