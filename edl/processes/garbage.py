"""Limits how often Python searches for unused cycles in a process that holds a large cluster in memory.

By default Python searches after 700 new objects, and all objects after a hundred such searches. With a large cluster
a search of everything takes some tenths of a second, and it came three times a minute while nothing happened. edl's
decisions leave no cycles behind. So searches are rarer here, and a cluster at rest causes none.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (10_000, 10, 10)
"""The thresholds of `gc.set_threshold`: new objects, and searches of the younger generations."""


@contextmanager
def rare_searches() -> Iterator[None]:
    """Search rarely during a `with` block."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
