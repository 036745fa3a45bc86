"""Pods that somebody else deletes soon after edl has created them: made anew after growing pauses.

A program that ends pods which break a rule does so within seconds, and with every pod that comes after. The first
deletion costs no pause, because a person who deletes a pod wants another one. A pod that lives for a minute ends the
row. What kube-scheduler preempts, and what ends because its node fails or is full, has a cause that others know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from edl.lifecycle.pod_events import STEADY_AFTER_S
from edl.lifecycle.trials.pauses import LONGEST_S, Slot, pause_s
from edl.model.pods import Pod, PodPhase
from edl.model.status import POD_DELETED
from edl.model.units import count

SOON_S = STEADY_AFTER_S
"""A deletion within this time from the start of a pod, or from its creation if it has not started, counts."""
FORGOTTEN_AFTER_S = 2.0 * LONGEST_S
"""A row of deletions is over so long after its last pause, whether or not there was a pod since."""

_EVICTED = "EvictionByEvictionAPI"


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


@dataclass(slots=True)
class DeletedByOthers:
    """The young pods of one job with one spec, and those that others deleted.

    Attributes:
        generation: the generation of the job's spec; a new one starts anew.
        young: by UID: the slot and the name of a pod, and when it started or was created, in seconds since the epoch.
        rows: the deletions in a row.
    """

    generation: int
    young: dict[str, tuple[Slot, str, float]] = field(default_factory=dict)
    rows: dict[Slot, _Row] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.young or self.rows)

    def note(self, slots: Iterable[tuple[Slot, Pod]], now_s: float, time_s: float) -> None:
        """Note which young pods others have deleted since the last call, and which pods have lasted.

        Args:
            slots: all pods of the job with their role and index.
            now_s: monotonic seconds.
            time_s: seconds since the epoch.
        """
        pods = list(slots)
        exist = {pod.uid for _, pod in pods}
        gone = [(uid, *found) for uid, found in self.young.items() if uid not in exist]
        taken = [(pod.uid, slot, pod.name, _since_s(pod)) for slot, pod in pods if _is_taken(pod)]
        for uid, slot, name, since_s in [*gone, *taken]:
            row = self.rows.get(slot)
            if time_s - since_s < SOON_S and (row is None or row.uid != uid):
                times = row.times + 1 if row is not None else 1
                until_s = now_s + (pause_s(times - 2) if times > 1 else 0.0)
                self.rows[slot] = _Row(name, uid, times, until_s, until_s + FORGOTTEN_AFTER_S)
        live = [(slot, pod) for slot, pod in pods if pod.is_live and not pod.intent]
        self.young = {
            pod.uid: (slot, pod.name, _since_s(pod)) for slot, pod in live if time_s - _since_s(pod) < SOON_S
        }
        if self.rows:
            began_s = {slot: pod.started_s for slot, pod in live if pod.started_s is not None}
            self.rows = {slot: _later(row, began_s.get(slot), now_s - time_s) for slot, row in self.rows.items()}
            self.rows = {slot: row for slot, row in self.rows.items() if now_s < row.over_s}

    def expect_end(self, pod_uids: Iterable[str]) -> None:
        """Note that edl itself is about to delete pods."""
        for uid in pod_uids:
            self.young.pop(uid, None)

    def paused(self, now_s: float) -> Iterator[Slot]:
        """The roles and indexes for which no pod is created now."""
        return (slot for slot, row in self.rows.items() if now_s < row.until_s)

    def problem(self) -> tuple[str, str] | None:
        """(reason, message) for condition Degraded while pods are deleted again and again."""
        rows = sorted((row for row in self.rows.values() if row.times > 1), key=lambda row: (-row.times, row.pod))
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
        ends = (end_s for row in self.rows.values() for end_s in (row.until_s, row.over_s))
        return min((end_s for end_s in ends if end_s > now_s), default=inf)


def _is_taken(pod: Pod) -> bool:
    """Return True if somebody ends a pod that runs, or has evicted one; nodes that fail or are full do not count."""
    is_ending = (pod.terminating and not pod.is_finished) or (
        pod.phase is PodPhase.FAILED and pod.disruption == _EVICTED
    )
    return is_ending and not pod.intent and pod.disruption in ("", _EVICTED)


def _since_s(pod: Pod) -> float:
    """When a pod started, or was created if it has not started."""
    return pod.created_s if pod.started_s is None else pod.started_s


def _later(row: _Row, began_s: float | None, ahead_s: float) -> _Row:
    """A row that is over once the pod that runs has lasted; `ahead_s` is the clock less the time of the cluster."""
    return row if began_s is None else replace(row, over_s=began_s + ahead_s + SOON_S)
