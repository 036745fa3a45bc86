"""Pods that somebody else deletes soon after edl has created them: made anew after growing pauses.

A program that ends pods which break a rule does so within seconds, and with every pod that comes after. The first
deletion costs no pause, because a person who deletes a pod wants another one. A pod that lives for a minute ends the
row. What kube-scheduler preempts counts elsewhere: the planner knows its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from edl.lifecycle.pod_events import PREEMPTED, STEADY_AFTER_S
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import POD_DELETED
from edl.model.units import count

SOON_S = STEADY_AFTER_S
"""A deletion within this time from the pod's creation counts."""
FIRST_S, LONGEST_S = 10.0, 360.0
"""The pause after the second deletion in a row, and the longest one, in seconds: those of a `batch/v1` Job."""
FORGOTTEN_AFTER_S = 2.0 * LONGEST_S
"""A row of deletions is over so long after its last pause, whether or not there was a pod since."""

Slot = tuple[Role, int]


@dataclass(frozen=True, slots=True)
class _Row:
    """Deletions in a row of pods of one name.

    Attributes:
        pod: the name.
        uid: of the last pod that was deleted.
        times: how many there were.
        until_s: no pod of the name is created before, in monotonic seconds.
        over_s: when the row is over unless there is another deletion, in monotonic seconds.
    """

    pod: str
    uid: str
    times: int
    until_s: float
    over_s: float


class DeletedByOthers:
    """The young pods of one job, and those that others deleted."""

    def __init__(self) -> None:
        self._young: dict[Slot, Pod] = {}
        self._rows: dict[Slot, _Row] = {}

    def __bool__(self) -> bool:
        return bool(self._young or self._rows)

    def note(self, slots: Iterable[tuple[Slot, Pod]], now_s: float, time_s: float) -> None:
        """Note which young pods others have deleted since the last call, and which pods have lasted.

        Args:
            slots: all pods of the job with their role and index.
            now_s: monotonic seconds.
            time_s: seconds since the epoch.
        """
        pods = list(slots)
        exist = {pod.uid for _, pod in pods}
        gone = [(slot, pod) for slot, pod in self._young.items() if pod.uid not in exist]
        for slot, pod in [*gone, *((slot, pod) for slot, pod in pods if _is_taken(pod, time_s))]:
            row = self._rows.get(slot)
            if row is None or row.uid != pod.uid:
                times = row.times + 1 if row is not None else 1
                until_s = now_s + (min(LONGEST_S, FIRST_S * 2.0 ** min(times - 2, 10)) if times > 1 else 0.0)
                self._rows[slot] = _Row(pod.name, pod.uid, times, until_s, until_s + FORGOTTEN_AFTER_S)
        lived_s = {slot: time_s - pod.created_s for slot, pod in pods if pod.is_live and not pod.intent}
        self._young = {slot: pod for slot, pod in pods if lived_s.get(slot, inf) < SOON_S}
        for slot, row in list(self._rows.items()):
            if slot in lived_s:
                self._rows[slot] = replace(row, over_s=now_s + SOON_S - lived_s[slot])
            if now_s >= self._rows[slot].over_s:
                del self._rows[slot]

    def ended(self, pod_uid: str) -> None:
        """Note that edl itself has deleted a pod."""
        self._young = {slot: pod for slot, pod in self._young.items() if pod.uid != pod_uid}

    def paused(self, now_s: float) -> Iterator[Slot]:
        """The roles and indexes for which no pod is created now."""
        return (slot for slot, row in self._rows.items() if now_s < row.until_s)

    def problem(self) -> tuple[str, str] | None:
        """(reason, message) for condition Degraded while pods are deleted again and again."""
        rows = sorted((row for row in self._rows.values() if row.times > 1), key=lambda row: (-row.times, row.pod))
        if not rows:
            return None
        first = rows[0]
        more = f", and pods of {count(len(rows) - 1, 'other name')} as well" if len(rows) > 1 else ""
        return POD_DELETED, (
            f"somebody else deleted pod {first.pod} within {SOON_S:.0f} s of its creation, {first.times} times in a"
            f" row{more}; edl creates it again after growing pauses: find the program that deletes it, in the events"
            " of the namespace or the audit log of the API server, and exempt the job's pods from its rule"
        )

    def next_end_s(self, now_s: float) -> float:
        """When the next pause or row ends, in monotonic seconds; infinity if there is none."""
        ends = (end_s for row in self._rows.values() for end_s in (row.until_s, row.over_s))
        return min((end_s for end_s in ends if end_s > now_s), default=inf)


def _is_taken(pod: Pod, time_s: float) -> bool:
    """True if others are ending a young pod."""
    is_ending = pod.terminating or (pod.phase is PodPhase.FAILED and bool(pod.disruption))
    return is_ending and not pod.intent and pod.disruption != PREEMPTED and time_s - pod.created_s < SOON_S
