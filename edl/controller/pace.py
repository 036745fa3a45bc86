"""When the next plan is due: a little after a change, because changes come in groups.

A change that cannot wait (`ports.Cluster.urgent_changes`) brings a plan soon. What the controller's own growth causes
brings one once the growth is sent, or after an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Pace:
    """How often plans are made, and how many requests are sent at once.

    Attributes:
        interval_s: the longest time between the beginnings of two plans.
        debounce_s: from the first change to the plan that takes it into account, at most.
        urgent_debounce_s: from the last change that cannot wait to that plan, if that is sooner.
        unreachable_s: how long a pod must have been unreachable before it is deleted by force.
        retry_s, retry_at_most_s: how long a job backs off after a write of it failed; doubled each time.
        writes: the most requests that may be under way at once; fewer if the API server is slow or too busy.
    """

    interval_s: float = 5.0
    debounce_s: float = 0.5
    urgent_debounce_s: float = 0.2
    unreachable_s: float = 30.0
    retry_s: float = 1.0
    retry_at_most_s: float = 30.0
    writes: int = 64


class PlanTimer:
    """Says when the next plan is due; all times are monotonic seconds.

    Args:
        pace: the pauses.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._changed_s = self._urgent_s = inf  # the first change that no plan takes into account
        self._last_urgent_s = self._began_s = -inf
        self._wake_s = -inf

    def changed(self, now_s: float, *, is_urgent: bool) -> None:
        """Something has changed that a plan depends on."""
        self._changed_s = min(self._changed_s, now_s)
        if is_urgent:
            self._urgent_s, self._last_urgent_s = min(self._urgent_s, now_s), now_s

    def began(self, now_s: float) -> bool:
        """Note that a plan is begun; True if an urgent change has caused it."""
        is_urgent = self._urgent_s < inf
        self._changed_s = self._urgent_s = self._wake_s = inf
        self._began_s = now_s
        return is_urgent

    def wake(self, at_s: float) -> None:
        """Make a plan due at that time in any case."""
        self._wake_s = at_s

    def due_s(self, *, is_growing: bool) -> float:
        """When the next plan is due.

        Args:
            is_growing: trainers that the last plan granted have yet to be created.
        """
        due_s = min(self._began_s + self._pace.interval_s, self._wake_s)
        if self._urgent_s < inf:
            due_s = min(
                due_s, self._urgent_s + self._pace.debounce_s, self._last_urgent_s + self._pace.urgent_debounce_s
            )
        return due_s if is_growing else min(due_s, self._changed_s + self._pace.debounce_s)
