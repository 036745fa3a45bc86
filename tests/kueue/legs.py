"""Where the time of an owner goes that waits until others have given back what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tests.kueue.history import Change, has_ended
from tests.kueue.programs import WORKLOADS
from tests.kueue.scene import Object, owner_of, true_of

EVICTION = {
    "created": "",
    "workload": "Kueue makes its Workload",
    "evicted": "Kueue evicts surplus Workloads",
    "lowered": "edl lowers the count",
    "deleted": "the Job controller deletes the pods",
    "ended": "the pods end",
    "freed": "edl deletes the Workloads",
    "admitted": "Kueue admits the owner",
    "started": "Kueue starts the Job",
    "pods": "the Job controller makes the first pod",
}
"""What happens one after the other, each with who did it since the one before: jobs whose Workloads edl makes."""
SIZES = {
    "created": "",
    "workload": "Kueue makes its Workload",
    "lowered": "edl lowers counts",
    "shrunk": "Kueue lowers their Workloads",
    "admitted": "Kueue tries the owner again, and admits it",
}
"""The same for elastic Jobs of Kueue, which edl sizes."""


@dataclass
class _Trace:
    """What one owner waits for, in seconds.

    Attributes:
        stamps: by `EVICTION` or `SIZES`, when each was seen.
        victims: Workload -> its Job, of those that were evicted and are not deleted yet.
    """

    owner: str
    stamps: dict[str, float] = field(default_factory=dict)
    victims: dict[str, str] = field(default_factory=dict)

    def note(self, change: Change, counts: Mapping[str, int]) -> None:
        """Take a change into account; `counts` has what each Job asked for before it."""
        body = change.body
        if change.kind == "jobs" and change.name == self.owner and body is not None:
            self._first("created", change)
            if not body["spec"].get("suspend"):
                self._first("started", change)
        elif change.kind == WORKLOADS:
            self._note_workload(change)
        elif change.kind == "pods" and body is not None and owner_of(body) == self.owner:
            self._first("pods", change)
        elif "evicted" in self.stamps and "admitted" not in self.stamps:
            self._note_job(change, counts)

    def _note_workload(self, change: Change) -> None:
        body = change.body
        if body is None:
            if self.victims.pop(change.name, None) and "admitted" not in self.stamps:
                self.stamps["freed"] = change.at_s
        elif owner_of(body) == self.owner:
            self._first("workload", change)
            if "Admitted" in true_of(body):
                self._first("admitted", change)
        elif "workload" in self.stamps and "admitted" not in self.stamps and "Evicted" in true_of(body):
            self.victims.setdefault(change.name, owner_of(body))
            self._first("evicted", change)

    def note_sizes(self, change: Change, counts: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """The same for elastic Jobs; `sizes` has for how many pods each Workload asked before it."""
        body = change.body
        if change.name == self.owner or (body is not None and owner_of(body) == self.owner):
            self.note(change, counts)
        elif body is not None and "workload" in self.stamps and "admitted" not in self.stamps:
            if change.kind == "jobs" and int(body["spec"]["parallelism"]) < counts.get(change.name, 0):
                self._first("lowered", change)
            if change.kind == WORKLOADS and "lowered" in self.stamps and size_of(body) < sizes.get(change.name, 0):
                self.stamps["shrunk"] = change.at_s

    def _note_job(self, change: Change, counts: Mapping[str, int]) -> None:
        body = change.body
        if change.kind == "jobs" and change.name in self.victims.values() and body is not None:
            if int(body["spec"]["parallelism"]) < counts.get(change.name, 0):
                self._first("lowered", change)
        elif change.kind == "pods" and "lowered" in self.stamps and body is not None:
            if owner_of(body) not in self.victims.values():
                return
            if "deletionTimestamp" in body["metadata"]:
                self._first("deleted", change)
            if has_ended(body):
                self.stamps["ended"] = change.at_s

    def _first(self, stamp: str, change: Change) -> None:
        self.stamps.setdefault(stamp, change.at_s)


class Legs:
    """Follows the owners of waves, change by change.

    Args:
        stamps: what is to be seen of each, `EVICTION` or `SIZES`.
    """

    def __init__(self, stamps: Mapping[str, str]) -> None:
        self._stamps = stamps
        self._found: list[dict[str, float]] = []
        self._traces: dict[str, _Trace] = {}
        self._counts: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def follow(self, owner: str) -> None:
        """Follow a Job from its creation on."""
        self._traces[owner] = _Trace(owner)

    def note(self, change: Change) -> None:
        """Take a change into account; they come in the order of the API server."""
        for trace in list(self._traces.values()):
            if self._stamps is SIZES:
                trace.note_sizes(change, self._counts, self._sizes)
            else:
                trace.note(change, self._counts)
            if self._stamps.keys() <= trace.stamps.keys():
                at_s = self._traces.pop(trace.owner).stamps
                self._found.append({after: at_s[after] - at_s[before] for before, after in pairwise(self._stamps)})
        if change.kind == WORKLOADS and change.body is not None:
            self._sizes[change.name] = size_of(change.body)
        if change.kind == "jobs" and change.body is None:
            self._traces.pop(change.name, None)
            self._counts.pop(change.name, None)
        elif change.kind == "jobs" and change.body is not None:
            self._counts[change.name] = int(change.body["spec"]["parallelism"])

    def found(self) -> list[dict[str, float]]:
        """The seconds of each leg of every owner that waited for all of `stamps`."""
        return self._found


def size_of(workload: Object) -> int:
    """For how many pods a Workload asks."""
    return sum(one["count"] for one in workload["spec"]["podSets"])


def legs_table(legs: Sequence[Mapping[str, float]]) -> str:
    """Return the median of each leg, and the legs of the owner that waited longest, as a table of Markdown."""
    if not legs:
        return "no owner waited until others had given something back"
    longest = max(legs, key=lambda leg: sum(leg.values()))
    stamps = next(one for one in (EVICTION, SIZES) if longest.keys() < one.keys())
    amounts = {stamps[name]: (median(leg[name] for leg in legs), longest[name]) for name in longest}
    amounts["all"] = median(sum(leg.values()) for leg in legs), sum(longest.values())
    head = f"| of {len(legs)} owners for which others gave something back | median, ms | the longest wait, ms |"
    rows = (f"| {what} | {one * 1000:.0f} | {other * 1000:.0f} |" for what, (one, other) in amounts.items())
    return "\n".join([head, "|---|---|---|", *rows])
