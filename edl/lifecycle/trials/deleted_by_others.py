"""Pods that somebody else deletes soon after edl has created them: made anew after growing pauses.

A program that ends pods which break a rule does so within seconds, and with every pod that comes after. The first
deletion costs no pause, because a person who deletes a pod wants another one. A pod that lives for a minute ends the
row. What kube-scheduler preempts, and what ends because its node fails or is full, has a cause that others know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from edl.lifecycle.pod_events import STEADY_AFTER_S
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import POD_DELETED
from edl.model.units import count

SOON_S = STEADY_AFTER_S
"""A deletion within this time from the start of a pod, or from its creation if it has not started, counts."""
FIRST_S, LONGEST_S = 10.0, 360.0
"""The pause after the second deletion in a row, and the longest one, in seconds: those of a `batch/v1` Job."""
EVICTED = "EvictionByEvictionAPI"
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
    """The young pods of one job with one spec, and those that others deleted.

    Args:
        generation: the generation of the job's spec; a new one starts anew.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._young: dict[str, tuple[Slot, Pod]] = {}  # by UID
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
        gone = [(slot, pod) for uid, (slot, pod) in self._young.items() if uid not in exist]
        taken = [(slot, pod) for slot, pod in pods if _is_taken(pod)]
        for slot, pod in [*gone, *taken]:
            row = self._rows.get(slot)
            if _lived_s(pod, time_s) < SOON_S and (row is None or row.uid != pod.uid):
                times = row.times + 1 if row is not None else 1
                until_s = now_s + (min(LONGEST_S, FIRST_S * 2.0 ** min(times - 2, 10)) if times > 1 else 0.0)
                self._rows[slot] = _Row(pod.name, pod.uid, times, until_s, until_s + FORGOTTEN_AFTER_S)
        live = [(slot, pod) for slot, pod in pods if pod.is_live and not pod.intent]
        self._young = {pod.uid: (slot, pod) for slot, pod in live if _lived_s(pod, time_s) < SOON_S}
        for slot, pod in live if self._rows else ():
            if slot in self._rows and pod.started_s is not None:
                self._rows[slot] = replace(self._rows[slot], over_s=now_s + SOON_S - _lived_s(pod, time_s))
        for slot in [slot for slot, row in self._rows.items() if now_s >= row.over_s]:
            del self._rows[slot]

    def expect_end(self, pod_uids: Iterable[str]) -> None:
        """Note that edl itself is about to delete pods."""
        for uid in pod_uids:
            self._young.pop(uid, None)

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
            f"somebody else deleted pod {first.pod} within {SOON_S:.0f} s of its start, {first.times} times in a"
            f" row{more}; edl creates it again after growing pauses: find the program that deletes it, in the events"
            " of the namespace or the audit log of the API server, and exempt the job's pods from its rule"
        )

    def next_end_s(self, now_s: float) -> float:
        """When the next pause or row ends, in monotonic seconds; infinity if there is none."""
        ends = (end_s for row in self._rows.values() for end_s in (row.until_s, row.over_s))
        return min((end_s for end_s in ends if end_s > now_s), default=inf)


def _is_taken(pod: Pod) -> bool:
    """Return True if somebody ends a pod that runs, or has evicted one; nodes that fail or are full do not count."""
    is_ending = (pod.terminating and not pod.is_finished) or (
        pod.phase is PodPhase.FAILED and pod.disruption == EVICTED
    )
    return is_ending and not pod.intent and pod.disruption in ("", EVICTED)


def _lived_s(pod: Pod, time_s: float) -> float:
    """How long a pod has run, or waited if it has not started."""
    return time_s - (pod.created_s if pod.started_s is None else pod.started_s)
