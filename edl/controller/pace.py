"""Decides when the next plan is due: a little after a change, because changes come in groups.

A change that cannot wait (`ports.Cluster.urgent_changes`) brings a plan soon. What the controller's own growth causes
brings one once the growth is sent, or after an interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

PROBES_S = 1.0
"""How long a plan waits for the answers of the API server about the pods of new jobs."""
NOTHING_ASKED: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Pace:
    """How often plans are made, and how many requests are sent at once.

    Attributes:
        interval_s: the longest time between the beginnings of two plans.
        debounce_s: from the first change to the plan that takes it into account, at most.
        urgent_debounce_s: from the last change that cannot wait in a group to that plan, if that is sooner.
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

    Urgent changes of a namespace come in groups. A plan waits for the end of the group, and for what the API server
    is asked about its jobs. The changes of one group never postpone a plan for another one. A plan that is due
    for another reason waits for what the API server was asked by then, whoever's job it is about.

    Args:
        pace: the pauses.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._changed_s = inf  # the first change that no plan takes into account
        self._urgent: dict[str, tuple[float, float]] = {}  # by group: the first and the last of those that are urgent
        self._began_s = self._ended_s = self._wake_s = -inf

    def changed(self, now_s: float, *, urgent: Collection[str] = ()) -> None:
        """Note that something has changed on which a plan depends.

        Args:
            now_s: the time.
            urgent: the groups of changes that cannot wait, see `ports.Cluster.urgent_changes`.
        """
        self._changed_s = min(self._changed_s, now_s)
        for group in urgent:
            first_s, _ = self._urgent.get(group, (now_s, now_s))
            self._urgent[group] = (first_s, now_s)

    def began(self, now_s: float) -> bool:
        """Note that a plan is begun; True if an urgent change has caused it."""
        is_urgent = bool(self._urgent)
        self._changed_s = self._wake_s = inf
        self._urgent, self._began_s = {}, now_s
        return is_urgent

    def ended(self, now_s: float) -> None:
        """Note that the plan which was begun has ended."""
        self._ended_s = now_s

    def wake(self, at_s: float) -> None:
        """Make a plan due at a given time, even without a change."""
        self._wake_s = at_s

    def due_s(self, *, is_growing: bool, asked_s: Mapping[str, float] = NOTHING_ASKED) -> float:
        """When the next plan is due, in monotonic seconds.

        Args:
            is_growing: trainers that the last plan granted have yet to be created.
            asked_s: by namespace, since when the API server is being asked about the pods of its jobs.
        """
        due_s = min(self._began_s + self._pace.interval_s, self._wake_s)
        due_s = due_s if is_growing else min(due_s, self._changed_s + self._pace.debounce_s)
        due_s = self._after_answers_s(due_s, min(asked_s.values(), default=inf))
        for group, (first_s, last_s) in self._urgent.items():
            group_s = min(first_s + self._pace.debounce_s, last_s + self._pace.urgent_debounce_s)
            due_s = min(due_s, self._after_answers_s(group_s, -inf if group in asked_s else inf))
        return due_s

    def _after_answers_s(self, due_s: float, asked_s: float) -> float:
        """Delay a plan by PROBES_S if the API server was asked about pods by then, so that the answers count."""
        at_s = max(due_s, self._ended_s)
        return at_s + PROBES_S if asked_s <= at_s else due_s
