"""Where the time of an owner goes that waits until Kueue has taken pods back from jobs whose Workloads edl makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tests.kueue.history import Change, has_ended
from tests.kueue.programs import WORKLOADS
from tests.kueue.scene import owner_of, true_of

STAMPS = {
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
"""What happens one after the other, each with who did it since the one before."""


@dataclass
class _Trace:
    """What one owner waits for, in seconds.

    Attributes:
        stamps: by `STAMPS`, when each was seen.
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
    """Follows the owners of waves, change by change."""

    def __init__(self) -> None:
        self._found: list[dict[str, float]] = []
        self._traces: dict[str, _Trace] = {}
        self._counts: dict[str, int] = {}

    def follow(self, owner: str) -> None:
        """Follow a Job from its creation on."""
        self._traces[owner] = _Trace(owner)

    def note(self, change: Change) -> None:
        """Take a change into account; they come in the order of the API server."""
        for trace in list(self._traces.values()):
            trace.note(change, self._counts)
            if trace.stamps.keys() == STAMPS.keys():
                stamps = self._traces.pop(trace.owner).stamps
                self._found.append({after: stamps[after] - stamps[before] for before, after in pairwise(STAMPS)})
        if change.kind == "jobs" and change.body is None:
            self._traces.pop(change.name, None)
            self._counts.pop(change.name, None)
        elif change.kind == "jobs" and change.body is not None:
            self._counts[change.name] = int(change.body["spec"]["parallelism"])

    def found(self) -> list[dict[str, float]]:
        """The seconds of each leg, by `STAMPS`, of every owner for which Kueue evicted Workloads of edl."""
        return self._found


def legs_table(legs: Sequence[Mapping[str, float]]) -> str:
    """Return the median of each leg as a table of Markdown."""
    if not legs:
        return "no owner waited for an eviction"
    rows = [f"| of {len(legs)} owners for which Kueue evicted Workloads of edl | median, ms |", "|---|---|"]
    rows += [f"| {what} | {median(leg[name] for leg in legs) * 1000:.0f} |" for name, what in STAMPS.items() if what]
    total = median(sum(leg.values()) for leg in legs) * 1000
    return "\n".join([*rows, f"| all | {total:.0f} |"])
