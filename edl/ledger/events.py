"""What a journal is made of: everything that ever changes a ledger, one event each.

Applying a journal's events in their order rebuilds the ledger exactly; what is not told by an event (heartbeats,
cursors, measured rates) may be lost with the process. An event's number is its place in the journal, from 1: that of
a `Granted` is the fence of its lease, that of a `SessionOpened` names the session, that of a `CheckpointBegun` the
checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from edl.errors import EdlError
from edl.ledger.permutation import BLOCK


class DatasetSet(NamedTuple):
    """What is sharded, once and for ever."""

    source: str
    version: str  # changes when the files do
    total: int  # positions of each epoch
    epochs: int
    seed: int
    shard_size: int | None
    max_quarantined_fraction: float
    first_epoch: int  # above 0 where an epoch is begun again after its ledger was lost
    block: int = BLOCK  # records that stay neighbours in the order; journals without it had this one


class SessionOpened(NamedTuple):
    """A trainer's process was seen for the first time; it ends an older one of the same pod."""

    pod_uid: str
    incarnation: int | str
    name: str


class SessionForgotten(NamedTuple):
    """A process without leases was silent for long."""

    session: int


class Granted(NamedTuple):
    """`[start, end)` is leased."""

    session: int
    start: int
    end: int


class Done(NamedTuple):
    """The whole lease was reported as consumed."""

    fence: int


class Failed(NamedTuple):
    """Something in `[cursor, end)` of a lease cannot be trained on; what is before the cursor was consumed."""

    fence: int
    cursor: int
    error: str


class Returned(NamedTuple):
    """A lease ended early and nobody is to blame: what is before the cursor was consumed, the rest is to do."""

    fence: int
    cursor: int
    why: str


class CutOffered(NamedTuple):
    """The holder was asked to stop at `end`, because others have nothing to do."""

    fence: int
    end: int


class CutTaken(NamedTuple):
    """The holder's lease now ends at `end`; the rest is to do."""

    fence: int
    end: int


class EpochClosed(NamedTuple):
    """Nothing of the epoch is to do or leased; the next one is open, or the job is finished."""

    epoch: int
    quarantined: list[list[int]]


class CheckpointBegun(NamedTuple):
    """A model that has seen what is reported so far is being saved."""

    session: int
    step: int
    cursors: list[list[int]]  # fence, cursor: what is consumed of leases that are in work


class CheckpointCommitted(NamedTuple):
    """That model is saved."""

    checkpoint: int


class Restored(NamedTuple):
    """Training goes on from that checkpoint; 0: from the start of the epoch."""

    checkpoint: int


class Elected(NamedTuple):
    """The session saves the model of that step."""

    session: int
    step: int
    ttl_s: float


class RosterSet(NamedTuple):
    """Who may hold leases: the UIDs of the pods, sorted."""

    generation: int
    pod_uids: list[str]


class Replied(NamedTuple):
    """What a session was told, so that a repeated question gets the same answer after a restart, too."""

    session: int
    seq: int
    leases: list[list[int]]  # epoch, start, end, fence
    results: list[str]
    truncate: list[list[int]]  # fence, end
    revoked: list[int]
    epoch: int
    status: str


Event = (
    DatasetSet
    | SessionOpened
    | SessionForgotten
    | Granted
    | Done
    | Failed
    | Returned
    | CutOffered
    | CutTaken
    | EpochClosed
    | CheckpointBegun
    | CheckpointCommitted
    | Restored
    | Elected
    | RosterSet
    | Replied
)

_KINDS: dict[str, Any] = {
    "dataset": DatasetSet,
    "session": SessionOpened,
    "forget": SessionForgotten,
    "grant": Granted,
    "done": Done,
    "fail": Failed,
    "return": Returned,
    "offer": CutOffered,
    "cut": CutTaken,
    "close": EpochClosed,
    "begin": CheckpointBegun,
    "commit": CheckpointCommitted,
    "restore": Restored,
    "elect": Elected,
    "roster": RosterSet,
    "reply": Replied,
}
_WORDS: dict[type, str] = {kind: word for word, kind in _KINDS.items()}
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class JournalError(EdlError):
    """A journal is damaged, or was written by something else."""


def encode_events(events: Iterable[Event]) -> bytes:
    """One record of a journal: the events of one command, which stand or fall together."""
    return _encode([(_WORDS[type(event)], *event) for event in events]).encode()


def decode_events(record: bytes) -> list[Event]:
    """The events of a record.

    Raises:
        JournalError: it is none of ours.
    """
    try:
        return [_KINDS[word](*fields) for word, *fields in json.loads(record)]
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(
            f"journal: the record {record[:80]!r} cannot be read by this version of edl ({error}); use the version"
            " that wrote it"
        ) from error
