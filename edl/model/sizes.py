"""Which numbers of trainers a job may have, if not every one between its bounds.

A model that divides its batch among 2, 4 or 8 trainers cannot use a third one. Pods that are of use in pairs
only come two by two. Both are the same thing: a list of allowed counts. The hosts of a TPU slice are such pods: they
work together or not at all.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import pairwise
from math import prod

Sizes = tuple[int, ...]
"""The allowed counts, ascending, with the minimum and the maximum of the job; empty if every count is allowed."""

MOST_SIZES = 64
"""How many counts a list may name."""

NAMED = 8  # sizes in a sentence
SLICE_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
"""The label of GKE's nodes with the chips of a TPU slice, such as `4x4`."""

TPU = "google.com/tpu"
_SIDE = re.compile(r"[0-9]{1,4}")
_NUMBERS = tuple(range(10_001))  # that all jobs share: those of 1,000 jobs would take 200 MB


def at_most(sizes: Sizes, count: int) -> int:
    """The largest allowed number of trainers up to `count`; 0 if there is none."""
    if not sizes:
        return max(0, count)
    place = bisect_right(sizes, count)
    return sizes[place - 1] if place else 0


def above(sizes: Sizes, count: int) -> int:
    """The smallest allowed number of trainers above `count`; 0 if there is none."""
    if not sizes:
        return count + 1
    place = bisect_right(sizes, count)
    return sizes[place] if place < len(sizes) else 0


def allows(sizes: Sizes, count: int) -> bool:
    """True if a job may have `count` trainers."""
    return not sizes or at_most(sizes, count) == count


def within(sizes: Sizes, low: int, high: int) -> Sizes:
    """The allowed numbers from `low` to `high`, both included."""
    return sizes[bisect_left(sizes, low) : bisect_right(sizes, high)]


def fewer(sizes: Sizes, count: int) -> Sizes:
    """Subtract from each size the `count` trainers that stay in any case."""
    return tuple(size - count for size in sizes)


def in_steps(low: int, high: int, step: int) -> Sizes:
    """The multiples of `step` between two bounds up to 10,000; empty for a step of 1, which allows every number."""
    return _NUMBERS[-(-low // step) * step : high + 1 : step] if step > 1 else ()


def named(sizes: Sizes) -> str:
    """The sizes for a sentence: `4 and 8`, or `multiples of 4`."""
    if len(sizes) > NAMED:
        gaps = {second - first for first, second in pairwise(sizes)}
        if len(gaps) == 1 and sizes[0] % (step := gaps.pop()) == 0:
            return f"multiples of {step}"
        return f"{', '.join(map(str, sizes[: NAMED - 1]))}, ... and {sizes[-1]}"
    *first, last = map(str, sizes)
    return f"{', '.join(first)} and {last}" if first else last


def hosts_of_slice(topology: str, chips: int) -> int:
    """How many pods have the chips of one slice; 1 if a pod is of use alone.

    Args:
        topology: the value of the label; what is none has one host.
        chips: the chips that one pod requests; 0 or more.
    """
    return max(1, -(-chips_of_slice(topology) // chips)) if chips > 0 else 1


def chips_of_slice(topology: str) -> int:
    """The chips of a slice; 0 if the value of the label is none."""
    sides = topology.split("x")
    return prod(int(side) for side in sides) if all(map(_SIDE.fullmatch, sides)) else 0
