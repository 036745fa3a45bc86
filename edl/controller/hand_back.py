"""When a round stops writing, because a newer plan is due, and how long a round waits after the first change.

A newer plan is due a little after a change that cannot wait, when the grace of a serving pod ends, when a round has
written for an interval, and when the controller stops. Over a while a third as much time goes into writing as into
thinking, so that changes without end cannot keep the controller deciding and never acting. A lone change during a
long growth need not wait for that: the time before it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from edl.clock import Clock
from edl.controller.ports import Cluster

LOOK_EVERY_S = 0.05
"""How often a round that waits looks whether changes still come."""
WRITING_PART = 1 / 3
"""So much of the time that rounds think is owed to writing."""
OWES_S = 0.1
"""A round that has to write for less than this is not interrupted: the next one answers as soon."""
MOST_OWED = 0.5
"""A serving pod cuts short a round that owes writing, unless it owes more than this part of an interval."""
RELIEF_QUIET_S = 0.05
"""From the last change to the reaction, if a serving pod that only edl may help can get room ahead of the plan."""


class _Phase(Enum):
    """What the time is counted as."""

    THINK = auto()
    WRITE = auto()
    REST = auto()


class HandBack:
    """Says when a round hands its remaining writes back, and waits for changes that follow a change.

    Args:
        cluster: reports changes that cannot wait.
        clock: for the times.
        debounce_s: at most from a change to the reaction, because changes come in groups.
        quiet_s: from the last change that cannot wait to the reaction, if that is sooner.
        interval_s: the longest time that a round writes.
        relieves: True if serving pods without room get it ahead of the next plan.

    Attributes:
        known_changes: how many urgent changes there had been before the snapshot of the round.
        is_urgent: there were some since the snapshot of the round before.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        debounce_s: float,
        quiet_s: float,
        interval_s: float,
        relieves: Callable[[], bool] = lambda: False,
    ) -> None:
        self._relieves = relieves
        self._cluster, self._clock = cluster, clock
        self._debounce_s, self._quiet_s, self._interval_s = debounce_s, quiet_s, interval_s
        self.is_stopping: Callable[[], bool] = lambda: False
        self._may = self.is_urgent = False
        self.known_changes = self._latest_changes = self._known_in_need = 0
        self._noticed_s: float | None = None
        self._latest_s = 0.0
        self._phase, self._phase_s = _Phase.WRITE, clock.monotonic_s()
        self._wake_s = 0.0
        self._owed_s = 0.0
        """How long rounds had yet to write at the last change of phase; negative if they had written more."""

    def begin(self, *, may: bool) -> None:
        """A round begins; `may` is False if it must carry out all its writes."""
        self._change_to(_Phase.THINK)
        self._may, self._noticed_s, self.is_urgent = may, None, False
        self._wake_s = float("inf")

    def observe(self) -> None:
        """The round is about to take the snapshot that its plan is made from."""
        self.is_urgent |= self._cluster.urgent_changes() != self.known_changes
        self.known_changes = self._latest_changes = self._cluster.urgent_changes()
        self._known_in_need = self._cluster.serving_in_need()

    def has_news(self) -> bool:
        """True if something has changed since the snapshot that cannot wait."""
        return self._may and self._cluster.urgent_changes() != self.known_changes

    def wake(self, left_s: float | None) -> None:
        """A new decision is due in that many seconds, whatever happens; None for never."""
        self._wake_s = float("inf") if left_s is None else self._clock.monotonic_s() + left_s

    def write(self) -> None:
        """The round begins to write what it knows that jobs lack."""
        self._change_to(_Phase.WRITE)

    def think(self) -> None:
        """The round has written for now, and computes what else is to be written."""
        self._change_to(_Phase.THINK)

    def pause(self, seconds: float) -> None:
        """The round has interrupted its writes for so long, which does not count as writing."""
        if self._phase is _Phase.WRITE:
            self._phase_s += seconds

    def end(self) -> None:
        """The round ends; what comes until the next one counts as writing if it has written."""
        if self._phase is _Phase.THINK:
            self._change_to(_Phase.REST)

    def owes(self) -> bool:
        """True if the round may not hand back for a while, whatever happens."""
        return self.may_pause() and self._owed_now_s(self._clock.monotonic_s()) > OWES_S

    def may_pause(self) -> bool:
        """True unless the round must carry out all its writes, or the controller stops."""
        return self._may and not self.is_stopping()

    def _change_to(self, phase: _Phase) -> None:
        now_s = self._clock.monotonic_s()
        least_s = -WRITING_PART * self._interval_s
        self._owed_s = min(self._interval_s, max(least_s, self._owed_now_s(now_s)))
        self._phase, self._phase_s = phase, now_s

    def _owed_now_s(self, now_s: float) -> float:
        """How long the round has yet to write for what was thought until now."""
        passed_s = now_s - self._phase_s
        match self._phase:
            case _Phase.THINK:
                return self._owed_s + WRITING_PART * passed_s
            case _Phase.WRITE:
                return self._owed_s - passed_s
            case _Phase.REST:
                return self._owed_s

    def is_due(self) -> bool:
        """True once the round must send nothing more."""
        if not self._may:
            return False
        if self.is_stopping():
            return True
        now_s = self._clock.monotonic_s()
        since_s = self._phase_s if self._phase is _Phase.WRITE else now_s
        if now_s < min(self._wake_s, self._reaction_s(now_s), since_s + self._interval_s):
            return False
        return self._owed_now_s(now_s) <= 0.0 or self._hurries(now_s)

    def _hurries(self, now_s: float) -> bool:
        """True if a serving pod may wait for edl alone, unless rounds owe much: they must write at times."""
        return self._wants_relief() and self._owed_now_s(now_s) <= MOST_OWED * self._interval_s

    def _wants_relief(self) -> bool:
        """True if a serving pod came or was tried lately that only edl may help, and the next round makes room."""
        return self._cluster.serving_in_need() != self._known_in_need and self._relieves()

    async def settle(self) -> None:
        """Wait for the changes that follow a change."""
        end_s = self._clock.monotonic_s() + self._debounce_s
        self._noticed_s = None
        while (now_s := self._clock.monotonic_s()) < (due_s := min(end_s, self._reaction_s(now_s))):
            await self._clock.sleep(min(LOOK_EVERY_S, due_s - now_s))

    def _reaction_s(self, now_s: float) -> float:
        """When the changes that cannot wait should be reacted to; never if there are none since the snapshot."""
        changes = self._cluster.urgent_changes()
        if changes != self._latest_changes:
            self._latest_changes, self._latest_s = changes, now_s
        if changes == self.known_changes:
            return float("inf")
        if self._noticed_s is None:
            self._noticed_s = now_s
        quiet_s = min(self._quiet_s, RELIEF_QUIET_S) if self._wants_relief() else self._quiet_s
        return min(self._noticed_s + self._debounce_s, self._latest_s + quiet_s)
