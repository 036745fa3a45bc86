"""How much the tests with many cases try.

By default a part of the cases runs, chosen the same way in each run. `make unit` (the profile `quick`) runs half
of that part, `make thorough` (the profile `thorough`) all cases, `make campaign` (the profile `explore`) new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")

ALL = 100  # max_examples of a profile that leaves no case out


def examples(count: int, **more: Any) -> settings:
    """Settings of a property test: `count` examples, or a part or a multiple of them by the profile.

    Args:
        count: the number of examples in the profile `thorough`.
        more: further settings of Hypothesis, such as `stateful_step_count`.
    """
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    scaled = max(1, count * settings().max_examples // ALL)
    return settings(max_examples=scaled, suppress_health_check=slow, **more)


def some(cases: Sequence[T], *, one_in: int = 5) -> Sequence[T]:
    """Every `one_in`-th case, beginning with the first; all cases in the profile `thorough` and above."""
    return cases if settings().max_examples >= ALL else cases[::one_in]
