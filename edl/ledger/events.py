"""The events of a journal: each change of a ledger is one of them.

Applying the events of a journal in order rebuilds the ledger exactly. Heartbeats, cursors and measured rates are not
events, and a restart may lose them. The serial number of an event is its place in the journal, from 1. The number of
a `Granted` is the fence of its lease, that of a `SessionOpened` identifies the session, and that of a
`CheckpointBegun` identifies the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from edl.errors import EdlError
from edl.ledger.permutation import BLOCK


class DatasetSet(NamedTuple):
    """The data set of the job; it is set once and never changes."""

    source: str
    version: str  # changes when a file changes
    total: int  # positions of each epoch
    epochs: int
    seed: int
    shard_size: int | None
    max_quarantined_fraction: float
    first_epoch: int  # above 0 if an epoch starts again after the ledger was lost
    block: int = BLOCK  # neighbouring records that are permuted together; the default is for old journals


class SessionOpened(NamedTuple):
    """A trainer process made its first request; it replaces an older process of the same pod."""

    pod_uid: str
    incarnation: int | str
    name: str


class SessionForgotten(NamedTuple):
    """A session without leases made no request for a long time."""

    session: int


class Granted(NamedTuple):
    """A session got a lease of the positions `[start, end)`."""

    session: int
    start: int
    end: int


class Done(NamedTuple):
    """The holder reported the whole lease as consumed."""

    fence: int


class Failed(NamedTuple):
    """A record in `[cursor, end)` of a lease failed; the positions before the cursor are consumed."""

    fence: int
    cursor: int
    error: str


class Returned(NamedTuple):
    """A lease ended early without a failure; the positions before the cursor are consumed, the rest is to do."""

    fence: int
    cursor: int
    why: str


class TruncateOffered(NamedTuple):
    """The holder was asked to stop at `end`, because other trainers have no work."""

    fence: int
    end: int


class TruncateAccepted(NamedTuple):
    """The lease now ends at `end`; the rest is to do."""

    fence: int
    end: int


class EpochClosed(NamedTuple):
    """An epoch ended, as none of its positions is to do or leased; the next one opens, or the job is finished."""

    epoch: int
    quarantined: list[list[int]]


class CheckpointBegun(NamedTuple):
    """A trainer starts to save a model that was trained on everything reported so far."""

    session: int
    step: int
    cursors: list[list[int]]  # (fence, cursor) of each lease that is partly consumed


class CheckpointCommitted(NamedTuple):
    """The model of the checkpoint is saved."""

    checkpoint: int


class Restored(NamedTuple):
    """Training continues from a checkpoint; the number 0 means from the start of the epoch, or of the first epoch."""

    checkpoint: int
    from_first_epoch: bool = False  # the model of trainers in step is lost; the default is for old journals


class Elected(NamedTuple):
    """The session is elected to save the model of a step."""

    session: int
    step: int
    ttl_s: float


class RosterSet(NamedTuple):
    """The pods that may hold leases: their UIDs, sorted."""

    generation: int
    pod_uids: list[str]


class Replied(NamedTuple):
    """The reply to a sync call; it is stored, so that a repeated call gets the same reply after a restart too."""

    session: int
    seq: int
    leases: list[list[int]]  # epoch, start, end, fence
    results: list[str]
    truncate: list[list[int]]  # fence, end
    revoked: list[int]
    epoch: int
    status: str


class WorldFormed(NamedTuple):
    """The trainers that train in step from now on; `positions` are those of their models, None without a state.

    A position here counts through all epochs: epoch * total + position in the epoch.
    """

    generation: int
    position: int  # where the first step begins
    sessions: list[int]  # rank -> session
    positions: list[int | None]
    checkpoint: int | None  # what the first rank loads; 0 is a new model, None if a trainer has the state


class StepsDone(NamedTuple):
    """Every trainer of the world has applied the steps on `[start, end)` of the open epoch."""

    generation: int
    start: int
    end: int


class TrainingStopped(NamedTuple):
    """Trainers in step have ended the training before its last epoch; the remaining records are not used."""

    position: int  # of the model, counted through all epochs
    error: str  # why the job has failed; empty if it has succeeded


Event = (
    DatasetSet
    | SessionOpened
    | SessionForgotten
    | Granted
    | Done
    | Failed
    | Returned
    | TruncateOffered
    | TruncateAccepted
    | EpochClosed
    | CheckpointBegun
    | CheckpointCommitted
    | Restored
    | Elected
    | RosterSet
    | Replied
    | WorldFormed
    | StepsDone
    | TrainingStopped
)

_KINDS: dict[str, Any] = {
    "dataset": DatasetSet,
    "session": SessionOpened,
    "forget": SessionForgotten,
    "grant": Granted,
    "done": Done,
    "fail": Failed,
    "return": Returned,
    "offer": TruncateOffered,
    "cut": TruncateAccepted,
    "close": EpochClosed,
    "begin": CheckpointBegun,
    "commit": CheckpointCommitted,
    "restore": Restored,
    "elect": Elected,
    "roster": RosterSet,
    "reply": Replied,
    "world": WorldFormed,
    "steps": StepsDone,
    "stop": TrainingStopped,
}
_KIND_NAMES: dict[type, str] = {kind: name for name, kind in _KINDS.items()}
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class JournalError(EdlError):
    """A journal is damaged, or another program wrote it."""


def encode_events(events: Iterable[Event]) -> bytes:
    """Encode the events of one command as one record of a journal; they are stored together or not at all."""
    return _encode([(_KIND_NAMES[type(event)], *event) for event in events]).encode()


def decode_events(record: bytes) -> list[Event]:
    """Decode the events of one record of a journal.

    Raises:
        JournalError: the record has another format.
    """
    with understood(f"the record {record[:80]!r}"):
        return [_KINDS[name](*fields) for name, *fields in json.loads(record)]


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Turn every error of a `with` block into a JournalError: the block reads values of a damaged or foreign journal.

    Who may write the volume of a journal may write a record with a right checksum that no ledger has ever written.

    Args:
        what: is read in the block, for the message.
    """
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise JournalError(
            f"journal: this version of edl cannot read {what} ({error}); use the version of edl that wrote the"
            " journal"
        ) from error
