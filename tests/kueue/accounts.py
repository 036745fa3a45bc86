"""What happened in a cohort around something that should not happen: one line for each change."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tests.kueue.history import Change, held_by
from tests.kueue.programs import WORKLOADS
from tests.kueue.scene import Object, owner_of, true_of

_KEPT = 2000
BEFORE_S = 6.0
"""An account begins so long before what it is about."""


class Account:
    """Keeps the last changes of a cohort."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=_KEPT)

    def note(self, change: Change) -> None:
        """Keep a change; they come in the order of the API server."""
        self._changes.append(change)

    def of(self, what: str, since_s: float, until_s: float) -> str:
        """Return what happened from a while before one moment until another one, in monotonic seconds."""
        found = (change for change in self._changes if since_s - BEFORE_S <= change.at_s <= until_s)
        return "\n".join([what, *lines(found, since_s)])


def lines(changes: Iterable[Change], since_s: float) -> list[str]:
    """Return a line for each change: when it was seen, and in which second the API server stored it."""
    return [f"  {change.at_s - since_s:+7.2f} s {_line(change)}" for change in changes]


def _line(change: Change) -> str:
    body = change.body
    if body is None:
        return f"         {change.kind.partition('.')[0]} {change.name} is gone"
    times = [one["time"] for one in body["metadata"].get("managedFields", ()) if "time" in one]
    return (
        f"{max(times, default='')[11:19]} {change.kind.partition('.')[0]} {change.name}: {_said(change.kind, body)}"
    )


def _said(kind: str, body: Object) -> str:
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    if kind == WORKLOADS:
        asked = sum(one["count"] for one in spec["podSets"])
        return f"of {owner_of(body)}, asks {asked}, holds {held_by(body)}, {' '.join(sorted(true_of(body)))}"
    if kind == "jobs":
        record = (metadata.get("annotations") or {}).get("paddlepaddle.org/last-resize", "")
        return (
            f"asks {spec.get('parallelism')}, suspend {spec.get('suspend')}, active {status.get('active')} {record}"
        )
    if kind == "pods":
        gates = "gated " if spec.get("schedulingGates") else ""
        ends = f"ends by {metadata['deletionTimestamp'][11:19]} " if "deletionTimestamp" in metadata else ""
        return f"of {owner_of(body)}, {gates}{ends}{spec.get('nodeName', 'no node')} {status.get('phase')}"
    about = body.get("involvedObject", {}).get("name")
    return f"{body.get('reason')} of {about}: {body.get('message', '')[:160]}"
