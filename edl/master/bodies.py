"""The bodies of the master's HTTP API: what is accepted, field by field, and what is answered.

The OpenAPI document is made from these classes, so that it cannot say anything else. Fields that are not named here,
NaN, infinities and a key that stands twice in an object are refused.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from edl.ledger.events import Replied
from edl.ledger.request import SessionKey

MOST_ITEMS = 1000
_Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Body = TypeVar("_Body")


class MalformedError(ValueError):
    """A body that cannot be used; the message says what is wrong where."""


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process of a trainer; a later one of the same pod has a greater incarnation, or one never seen."""

    pod_uid: _Name
    incarnation: _Whole | _Name
    name: _Name

    @property
    def key(self) -> SessionKey:
        """For the ledger."""
        return SessionKey(self.pod_uid, self.incarnation, self.name)


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease, as it was granted; after a `truncate` with the end where its holder stops."""

    epoch: _Whole
    start: _Whole
    end: _Whole
    fence: _Whole

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"the end {self.end} is before the start {self.start}")


class FailedItem(Item, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease that could not be finished; with an empty error it is just given back."""

    error: Annotated[str, Meta(max_length=4096)]


class ProgressItem(Item, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease in work; what is before the cursor was consumed, and what is before `hand` is in the loop's hands."""

    cursor: _Whole
    hand: _Whole = 0

    def __post_init__(self) -> None:
        if not self.start <= self.cursor <= self.end:
            raise ValueError(f"the cursor {self.cursor} is outside [{self.start}, {self.end}]")
        if self.hand > self.end:
            raise ValueError(f"what is in hand ends at {self.hand}, behind the end {self.end}")


class SyncBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Heartbeat, renewal, report and lease in one."""

    session: Session
    seq: _Whole
    done: Annotated[list[Item], Meta(max_length=MOST_ITEMS)] = []
    failed: Annotated[list[FailedItem], Meta(max_length=MOST_ITEMS)] = []
    progress: Annotated[list[ProgressItem], Meta(max_length=MOST_ITEMS)] = []
    want: Annotated[int, Meta(ge=0, le=MOST_ITEMS)] = 0
    wait_s: Annotated[float, Meta(ge=0, le=3600, description="the master holds a request for at most 25 s")] = 0.0


class LeaseAnswer(msgspec.Struct, frozen=True):
    """A range to train on."""

    epoch: int
    start: int
    end: int
    fence: int
    ttl_s: float


class TruncateAnswer(msgspec.Struct, frozen=True):
    """Stop at `end`; the rest goes to others with the next `seq`."""

    fence: int
    end: int


class SyncAnswer(msgspec.Struct, frozen=True):
    """The same for the same `seq`."""

    leases: list[LeaseAnswer]
    results: list[str]
    truncate: list[TruncateAnswer]
    revoked: list[int]
    epoch: int
    status: str


class DatasetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What is sharded."""

    source: Annotated[str, Meta(min_length=1, max_length=4096, pattern="^(index|lines|parquet):")]
    epochs: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    seed: _Whole = 0
    shard_size: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    max_quarantined_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.01


class PieceAnswer(msgspec.Struct, frozen=True):
    """Neighbouring records of one file: some lines, or a row group.

    `place` is the byte where the lines begin, or the number of the row group; `length` counts the lines' bytes.
    """

    path: str
    size: int
    stamp: str
    first: int
    count: int
    place: int
    length: int


class BeginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session starts to save the model."""

    session: Session
    step: _Whole


class CommitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model is saved."""

    id: _Whole


class RestoreBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Training goes on from that checkpoint, or from the last one."""

    id: _Whole | Annotated[str, Meta(pattern="^latest$")]


class IdAnswer(msgspec.Struct, frozen=True):
    """A checkpoint; 0 for the start of the epoch."""

    id: int


class ElectionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who saves the model of a step."""

    session: Session
    step: _Whole
    ttl_s: Annotated[float, Meta(gt=0, le=86_400)]


class ElectionAnswer(msgspec.Struct, frozen=True):
    """Whether it is the one who asked."""

    elected: bool


class RosterPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trainer that may hold leases."""

    uid: _Name
    name: _Name
    index: _Whole


class RosterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every trainer that may hold leases; the others lose theirs at once."""

    generation: _Whole
    pods: Annotated[list[RosterPod], Meta(max_length=20_000)]


class ErrorDetail(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    code: str
    message: str


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Every refusal."""

    error: ErrorDetail


def read_body(data: bytes, kind: type[_Body]) -> _Body:
    """A body as the class says.

    Raises:
        MalformedError: it is not JSON, or not such a body.
    """
    try:
        body = msgspec.json.decode(data, type=kind)
        _find_duplicate_keys(data.decode())  # the decoder above takes the last of two equal keys
        return body
    except RecursionError as error:
        raise MalformedError("the body is nested too deeply") from error
    except ValueError as error:  # msgspec's, json's and our own
        raise MalformedError(str(error)[:500]) from error


def sync_answer(reply: Replied, ttl_s: float) -> bytes:
    """A ledger's reply as it is sent."""
    answer = SyncAnswer(
        [LeaseAnswer(epoch, start, end, fence, ttl_s) for epoch, start, end, fence in reply.leases],
        reply.results,
        [TruncateAnswer(*cut) for cut in reply.truncate],
        reply.revoked,
        reply.epoch,
        reply.status,
    )
    return msgspec.json.encode(answer)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedError(f"the key {twice[:100]!r} stands twice in one object")


_find_duplicate_keys = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys).decode
