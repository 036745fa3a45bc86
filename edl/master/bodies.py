"""The bodies of the master's HTTP API, requests and answers, field by field.

The OpenAPI document is generated from these classes, so the two always agree. The master rejects unknown fields, NaN,
infinity, and an object with the same key twice.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from edl.ledger.events import Replied
from edl.ledger.group_values import Goodput, Speed
from edl.ledger.request import SessionKey

MAX_ITEMS = 1000
_Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_WaitSeconds = Annotated[float, Meta(ge=0, le=3600, description="how long to hold the call; 10 s at most")]
_Body = TypeVar("_Body")


class MalformedError(ValueError):
    """A body that the master cannot use; the message names the field and the rule."""


class SessionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trainer process; each process of a pod sends a greater incarnation than the last one, or a new text."""

    pod_uid: _Name
    incarnation: _Whole | _Name
    name: _Name

    @property
    def key(self) -> SessionKey:
        """The session as the ledger identifies it."""
        return SessionKey(self.pod_uid, self.incarnation, self.name)


class ItemBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease as the master granted it; after a `truncate`, `end` is where its holder really stops."""

    epoch: _Whole
    start: _Whole
    end: _Whole
    fence: _Whole

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"the end {self.end} is before the start {self.start}")


class FailedItemBody(ItemBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease that the trainer cannot finish; an empty error only gives it back."""

    error: Annotated[str, Meta(max_length=4096)]


class ProgressItemBody(ItemBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease that the trainer keeps.

    The positions before `cursor` are consumed; the training loop has the positions before `hand`.
    """

    cursor: _Whole
    hand: _Whole = 0

    def __post_init__(self) -> None:
        if not self.start <= self.cursor <= self.end:
            raise ValueError(f"the cursor {self.cursor} is outside [{self.start}, {self.end}]")
        if self.hand > self.end:
            raise ValueError(f"the hand {self.hand} is after the end {self.end}")


class SyncBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Heartbeat, renewal, report and lease in one call."""

    session: SessionBody
    seq: _Whole
    done: Annotated[list[ItemBody], Meta(max_length=MAX_ITEMS)] = []
    failed: Annotated[list[FailedItemBody], Meta(max_length=MAX_ITEMS)] = []
    progress: Annotated[list[ProgressItemBody], Meta(max_length=MAX_ITEMS)] = []
    want: Annotated[int, Meta(ge=0, le=MAX_ITEMS)] = 0
    wait_s: Annotated[
        float, Meta(ge=0, le=3600, description="how long to wait for work; the master answers after 25 s at most")
    ] = 0.0


class LeaseAnswer(msgspec.Struct, frozen=True):
    """A range of positions to train on; the lease expires `ttl_s` seconds after the request was sent."""

    epoch: int
    start: int
    end: int
    fence: int
    ttl_s: float


class TruncateAnswer(msgspec.Struct, frozen=True):
    """Stop at `end`; with the next `seq` the rest becomes available to other trainers."""

    fence: int
    end: int


class SyncAnswer(msgspec.Struct, frozen=True):
    """The answer to a sync call; a repeated `seq` gets the same answer."""

    leases: list[LeaseAnswer]
    results: list[str]
    truncate: list[TruncateAnswer]
    revoked: list[int]
    epoch: int
    status: str


class DatasetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The data set of the job."""

    source: Annotated[str, Meta(min_length=1, max_length=4096, pattern="^(index|lines|parquet|tar|mix):")]
    epochs: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    seed: _Whole = 0
    shard_size: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    max_quarantined_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.01


class PieceAnswer(msgspec.Struct, frozen=True):
    """Neighbouring records of one file: some lines, a row group, or some samples of a tar file.

    `first` is the number of the first record and `count` the number of records. `place` is the byte where the lines
    or samples begin, or the number of the row group; `length` is the number of bytes of the lines or samples.
    """

    path: str
    size: int
    stamp: str
    first: int
    count: int
    place: int
    length: int


class SourceAnswer(msgspec.Struct, frozen=True):
    """One source of a mixture.

    `weight` is its part of the sum of all weights. `total` is the number of its records, and `planned` how many the
    whole training takes of it: it begins anew when it has no more. `done` counts those that are trained on so far.
    """

    source: str
    weight: float
    total: int
    planned: int
    done: int


class SourcesAnswer(msgspec.Struct, frozen=True):
    """The sources of a mixture, in its order."""

    sources: list[SourceAnswer]


class BeginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trainer starts to save the model."""

    session: SessionBody
    step: _Whole


class CommitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model of the checkpoint is saved."""

    id: _Whole


class RestoreBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Continue training from a checkpoint; `latest` is the last committed one."""

    id: _Whole | Annotated[str, Meta(pattern="^latest$")]


class IdAnswer(msgspec.Struct, frozen=True):
    """The number of a checkpoint; 0 is the start of the epoch, of trainers in step that of the first one."""

    id: int


class ElectionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trainer asks whether it should save the model of a step."""

    session: SessionBody
    step: _Whole
    ttl_s: Annotated[float, Meta(gt=0, le=86_400)]


class ElectionAnswer(msgspec.Struct, frozen=True):
    """True if the trainer that asks should save the model."""

    elected: bool


class EnterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A trainer that trains in step wants a world; null as position says that its model has no state of this job."""

    session: SessionBody
    generation: _Whole
    position: _Whole | None
    endpoint: _Name
    min_size: Annotated[int, Meta(ge=1, le=20_000)] = 1
    settings: Annotated[str, Meta(max_length=1000)] = ""
    wait_s: _WaitSeconds = 0.0


class MemberAnswer(msgspec.Struct, frozen=True):
    """A trainer of a world: its name, its address, and the position in the data that its model has reached."""

    name: str
    endpoint: str
    position: int | None


class EnterAnswer(msgspec.Struct, frozen=True):
    """The world of a trainer; with the status `wait` there is none yet, with `job_end` there will be none.

    `error` says why trainers have stopped a job that has failed.
    """

    status: str
    generation: int = 0
    rank: int = 0
    position: int = 0
    checkpoint: int | None = None
    members: list[MemberAnswer] = []
    error: str = ""


class SpeedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The useful progress of a number of trainers: records of the smallest batch to which a second is equal.

    `is_measured` is false for a number that the job has not had yet. `batch` is the records of a step that make this
    progress, and `efficiency` what one of them advances the training compared with a record of the smallest batch.
    """

    trainers: Annotated[int, Meta(ge=1, le=20_000)]
    per_s: Annotated[float, Meta(ge=0)]
    is_measured: bool
    batch: Annotated[int, Meta(ge=1, le=2**53)]
    efficiency: Annotated[float, Meta(gt=0, le=1)]


class GoodputBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the trainers of a job that chooses its global batch know: the batch, the noise scale, and their speeds.

    `noise_scale` is in records, and null until it is known.
    """

    batch: Annotated[int, Meta(ge=1, le=2**53)]
    noise_scale: Annotated[float, Meta(ge=0)] | None
    speeds: Annotated[list[SpeedBody], Meta(max_length=64)] = []

    @property
    def value(self) -> Goodput:
        """The body in the form that the rendezvous keeps (`Goodput`)."""
        speeds = tuple(
            Speed(one.trainers, one.per_s, one.is_measured, one.batch, one.efficiency) for one in self.speeds
        )
        return Goodput(self.batch, self.noise_scale, speeds)


class WatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A trainer that trains in step is alive, and its model is that far; a trainer always has one watch under way.

    `goodput` is there now and then, from one trainer of a job that chooses its global batch.
    """

    session: SessionBody
    generation: _Whole
    position: _Whole | None
    knows: bool = False
    wait_s: _WaitSeconds = 0.0
    goodput: GoodputBody | None = None


class WatchAnswer(msgspec.Struct, frozen=True):
    """The answer to `watch`: whether the world should end with its next step, and whether it has lost a trainer.

    The positions before `done` count as done.
    """

    must_change: bool
    done: int
    is_broken: bool


class LeaveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A trainer that trains in step leaves, after the last step of its world."""

    session: SessionBody
    generation: _Whole
    position: _Whole | None
    wait_s: _WaitSeconds = 0.0


class LeaveAnswer(msgspec.Struct, frozen=True):
    """True if the process may end: no trainer of its world is still in a step."""

    is_free: bool


class AliveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A report that the process of a trainer lives, sent by another process of its pod while its loop is busy."""

    session: SessionBody


class StopBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A trainer in step ends the training with the step that ends at a position; an error fails the job."""

    session: SessionBody
    generation: _Whole
    position: _Whole
    error: Annotated[str, Meta(max_length=4096)] = ""


class RosterPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trainer's pod that may hold leases."""

    uid: _Name
    name: _Name
    index: _Whole


class RosterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every pod that may hold leases; all other pods lose their leases at once."""

    generation: _Whole
    pods: Annotated[list[RosterPod], Meta(max_length=20_000)]


class ErrorDetail(msgspec.Struct, frozen=True):
    """Why the master refused a request."""

    code: str
    message: str


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The answer to every request that the master rejects."""

    error: ErrorDetail


def read_body(data: bytes, kind: type[_Body]) -> _Body:
    """Decode and validate a body.

    Args:
        data: the JSON text.
        kind: the class of the body.

    Raises:
        MalformedError: the text is not JSON, or not such a body.
    """
    try:
        body = msgspec.json.decode(data, type=kind)
        _decode_strictly(data.decode())  # msgspec accepts a duplicate key and keeps the last value
        return body
    except RecursionError as error:
        raise MalformedError("the body has too many nested levels") from error
    except ValueError as error:  # raised by msgspec, by json and above
        raise MalformedError(str(error)[:500]) from error


def sync_answer(reply: Replied, ttl_s: float) -> bytes:
    """The body of a sync answer.

    Args:
        reply: the reply of the ledger.
        ttl_s: how long the granted leases last, counted from when the request was sent.
    """
    answer = SyncAnswer(
        [LeaseAnswer(epoch, start, end, fence, ttl_s) for epoch, start, end, fence in reply.leases],
        reply.results,
        [TruncateAnswer(*truncate) for truncate in reply.truncate],
        reply.revoked,
        reply.epoch,
        reply.status,
    )
    return msgspec.json.encode(answer)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedError(f"an object has the key {twice[:100]!r} twice; send each key once")


_decode_strictly = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys).decode
