"""What a scenario makes happen, by its second. asyncio has no order for timers of the same moment; a timeline has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from edl.sim.world import Timer


class Timeline:
    """Events of a scenario; those of the same second happen in the order in which they were added."""

    def __init__(self) -> None:
        self._events: dict[float, list[Callable[[], None]]] = {}

    def add(self, at_s: float, event: Callable[[], None]) -> None:
        """Let something happen so many seconds after the start."""
        self._events.setdefault(at_s, []).append(event)

    def start(self, later: Timer) -> None:
        """Let the time begin; one timer for each second."""
        for at_s, events in self._events.items():
            later(at_s, partial(_all, events))


def _all(events: list[Callable[[], None]]) -> None:
    for event in events:
        event()
