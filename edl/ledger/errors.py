"""What a ledger refuses, in sentences for people."""

from __future__ import annotations

from edl.errors import ConflictError, PermanentError
from edl.ledger.events import DatasetSet
from edl.ledger.request import SessionKey


class UnknownCheckpointError(PermanentError):
    """No such checkpoint is kept, or what it saw was undone by a restore."""


def replaced(who: SessionKey) -> ConflictError:
    """A newer process of the same pod has come."""
    return ConflictError(
        f"session {who.name}: incarnation {who.incarnation!r} of pod {who.pod_uid} was replaced by a newer process;"
        " this one must stop, or begin anew with a greater incarnation"
    )


def differs(known: DatasetSet, given: DatasetSet) -> ConflictError:
    """Another data set than the one that is being trained on."""
    pairs = zip(DatasetSet._fields, known, given, strict=True)
    what = ", ".join(f"{name} is {a!r}, not {b!r}" for name, a, b in pairs if a != b and name != "first_epoch")
    return ConflictError(
        f"dataset: another one is being trained on: {what}; give the same again, or begin a job of its own"
    )
