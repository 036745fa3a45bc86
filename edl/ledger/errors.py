"""The errors of a ledger."""

from __future__ import annotations

from edl.errors import ConflictError, PermanentError
from edl.ledger.events import DatasetSet
from edl.ledger.request import SessionKey


class UnknownCheckpointError(PermanentError):
    """A call names a checkpoint that is not stored, or that was not committed."""


def session_replaced(key: SessionKey) -> ConflictError:
    """Make the error for a session that a newer process of the same pod has replaced."""
    return ConflictError(
        f"session {key.name}: a newer process of pod {key.pod_uid} has replaced incarnation {key.incarnation!r}; stop"
        " this process, or start it again with a greater incarnation"
    )


def dataset_conflict(known: DatasetSet, requested: DatasetSet) -> ConflictError:
    """Make the error for a data set that differs from the one of the job."""
    pairs = zip(DatasetSet._fields, known, requested, strict=True)
    what = ", ".join(f"{name} is {a!r}, not {b!r}" for name, a, b in pairs if a != b and name != "first_epoch")
    return ConflictError(
        f"dataset: this job already trains on another data set: {what}; send the same data set, or create another job"
    )
