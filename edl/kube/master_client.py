"""The controller's HTTP calls to the masters of jobs, at the IP addresses of their pods.

The token of a job is computed from the key for each call. A user can choose the master's image, so any program can
respond: a response is limited in time and size, is validated, and affects only its own job. It is never decompressed,
because a few kilobytes can expand to gigabytes, and no cookie of one master is kept for another. What is more than a
master needs to say is charged to its namespace.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

import aiohttp
import msgspec
from msgspec import Meta

from edl import __version__
from edl.api.base import MAX_INT32
from edl.api.environment import CONTROLLER_TOKEN, MASTER_PORT
from edl.api.roles import MAX_INSTANCES
from edl.api.status import MAX_SPEEDS
from edl.controller.ports import MasterAddress
from edl.errors import ConflictError, PermanentError, TemporaryError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.client.api_errors import translated
from edl.kube.master_key import MasterKey, make_token
from edl.lifecycle.data_progress import HungTrainer, MasterReport, MasterState, RosterEntry
from edl.model.progress import Goodput
from edl.printable import printable

CALL_TIMEOUT_S = 3.0
ANSWER_BYTES, ANSWER_BYTES_OF_POD = 256 * 1024, 2 * 1024
"""The longest answer: of any job, and more for each of its pods. A status of edl's own master is always shorter."""

_FREE_BYTES, _FREE_BYTES_OF_POD = 16 * 1024, 512
"""Bytes of an answer that do not count towards the budget: in all, and for each pod."""

_BYTES_PER_S, _BURST_BYTES = 256 * 1024, 4 * 1024 * 1024
"""The budget of a namespace for what its masters answer beyond the free bytes: a rate, and a burst."""

_FREE_PIECES, _BYTES_OF_PIECE = 32, 512
"""Answers come in packets of at least that many bytes, except for a few; each piece costs the event loop a turn."""
_MAX_QUOTED = 300
_SILENT = "silent"

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Answer = TypeVar("_Answer")


class _Holder(msgspec.Struct):
    """A session that holds leases."""

    pod_uid: str
    done: _Count = 0
    rate: float | None = None


class _Roster(msgspec.Struct):
    """The roster in force: its generation and its number of pods."""

    generation: _Count
    pods: _Count


class _ClosedEpoch(msgspec.Struct):
    """A finished epoch; masters from before `left_out` list its quarantined ranges."""

    quarantined: list[tuple[_Count, _Count]] | _Count


class _HungTrainer(msgspec.Struct):
    """A trainer in step that hangs."""

    pod_uid: str
    reason: str
    seconds: Annotated[float, Meta(ge=0)]


class _Speed(msgspec.Struct):
    """The useful progress of a number of trainers, and the batch that makes it."""

    trainers: _Count
    per_s: Annotated[float, Meta(ge=0, le=1e15)]
    is_measured: bool = False
    batch: _Count = 0
    efficiency: Annotated[float, Meta(ge=0, le=1)] = 0.0


class _Goodput(msgspec.Struct):
    """The goodput that the trainers of a job that chooses its global batch have reported last."""

    batch: _Count = 0
    speeds: list[_Speed] = []


class _Group(msgspec.Struct):
    """The trainers that train in step; masters from before these fields leave them out."""

    hung: list[_HungTrainer] = []
    working: list[str] = []
    goodput: _Goodput | None = None

    @property
    def goodputs(self) -> tuple[Goodput, ...]:
        """The goodput by number of trainers, ascending; numbers that no job can have are left out."""
        speeds = self.goodput.speeds[:MAX_SPEEDS] if self.goodput is not None else []
        found = {
            one.trainers: Goodput(one.trainers, one.per_s, _batch(one.batch), one.efficiency, one.is_measured)
            for one in speeds
            if one.per_s and 0 < one.trainers <= MAX_INSTANCES
        }
        return tuple(found[trainers] for trainers in sorted(found))

    @property
    def batch(self) -> int:
        """The global batch that the job has chosen; 0 if it is not known."""
        return _batch(self.goodput.batch) if self.goodput is not None else 0


def _batch(records: int) -> int:
    """Return a batch; 0 (not known) for one that no status can hold."""
    return records if records <= MAX_INT32 else 0


class _Status(msgspec.Struct):
    """The fields of `GET /v1/status` that the controller reads."""

    state: MasterState
    epoch: _Count
    total: _Count
    todo: _Count
    done: _Count
    consumed: _Count
    quarantined: _Count
    holders: list[_Holder]
    closed: list[_ClosedEpoch] = []
    roster: _Roster | None = None
    blocked: str | None = None
    group: _Group | None = None
    unsaved: _Count = 0
    left_out: _Count | None = None


class _Id(msgspec.Struct):
    """The answer of a master that names a checkpoint by its number."""

    id: _Count


_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (_Status, _Id, dict[str, Any])
}
"""The decoder of each kind of answer, made once.

msgspec 0.22.0 crashes if two threads use a class for the first time at the same moment.
"""


class HttpMasterClient:
    """Implements `ports.MasterClient`; use it as an async context manager.

    Args:
        key: makes the tokens.
        port: the port of every master.
    """

    def __init__(self, key: MasterKey, port: int = MASTER_PORT) -> None:
        self._key, self._port = key, port
        self._client: aiohttp.ClientSession | None = None
        self._debts: dict[str, tuple[float, float]] = {}  # bytes beyond what is free, and when they were counted

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S),
            headers={
                "User-Agent": f"edl/{__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def report(self, master: MasterAddress) -> MasterReport:
        """Return what the master reports; see `ports.MasterClient`."""
        status = await self._call("GET", master, "/v1/status", _Status)
        closed = sum(map(_left_out, status.closed)) if status.left_out is None else status.left_out
        working = {h.pod_uid for h in status.holders if h.done or h.rate is not None}
        return MasterReport(
            state=status.state,
            epoch=status.epoch,
            done=status.done,
            total=status.total,
            consumed=status.consumed,
            unsaved=status.unsaved,
            waiting=status.todo,
            quarantined=status.quarantined,
            left_out=closed + (0 if status.state is MasterState.FINISHED else status.quarantined),
            working=frozenset(working.union(status.group.working if status.group is not None else ())),
            in_step=status.group is not None,
            goodput=status.group.goodputs if status.group is not None else (),
            batch=status.group.batch if status.group is not None else 0,
            roster=(status.roster.generation, status.roster.pods) if status.roster else None,
            blocked=printable((status.blocked or "")[:_MAX_QUOTED]),
            hung=tuple(
                HungTrainer(one.pod_uid, one.reason == _SILENT, one.seconds)
                for one in (status.group.hung if status.group is not None else ())
            ),
        )

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        """Publish the trainers that may hold leases; see `ports.MasterClient`."""
        pods = [{"uid": entry.uid, "name": entry.name, "index": entry.index} for entry in roster]
        await self._call("PUT", master, "/v1/roster", dict[str, Any], {"generation": generation, "pods": pods})

    async def restore(self, master: MasterAddress) -> int:
        """Return to the last committed checkpoint; see `ports.MasterClient`."""
        return (await self._call("POST", master, "/v1/checkpoint/restore", _Id, {"id": "latest"})).id

    async def _call(
        self, method: str, master: MasterAddress, path: str, kind: type[_Answer], body: object = None
    ) -> _Answer:
        self._check_debt(master)
        host = _host_of(master)
        url, what = f"http://{host}:{self._port}{path}", f"{method} {path}"
        token = make_token(await self._key.get(), master.job, master.job_uid, CONTROLLER_TOKEN)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        if self._client is None:
            raise TemporaryError(f"{what}: the client of the masters is not open")
        with translated(what, f"the master of job {master.job} at {host}:{self._port}"):
            async with self._client.request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as response:
                raw = await self._read(response, master)
        if response.status != 200:
            raise _error_of(f"{what} of job {master.job}", response.status, raw)
        try:
            decoder: msgspec.json.Decoder[_Answer] = _DECODERS[kind]
            if len(raw) <= _FREE_BYTES:
                return decoder.decode(raw)
            return await asyncio.to_thread(decoder.decode, raw)
        except UNREADABLE as error:
            raise PermanentError(
                f"{what} of job {master.job}: the response is not from an edl master: {error}; check"
                " spec.master.image"
            ) from error

    async def _read(self, response: aiohttp.ClientResponse, master: MasterAddress) -> bytes:
        """Read an answer as far as it may go; what is longer cannot be decoded."""
        most = ANSWER_BYTES + ANSWER_BYTES_OF_POD * master.pods
        raw, pieces = bytearray(), 0
        try:
            async for piece in response.content.iter_any():
                raw += piece[: most + 1 - len(raw)]
                pieces += 1
                if len(raw) > most:
                    break
                if pieces > _FREE_PIECES + len(raw) / _BYTES_OF_PIECE:
                    raise TemporaryError(
                        f"the master of job {master.job} sends its answer in pieces of few bytes; check"
                        " spec.master.image"
                    )
        finally:
            self._charge(master, len(raw))
        return bytes(raw)

    def _charge(self, master: MasterAddress, size: int) -> None:
        """Charge the namespace for what a master has answered beyond what it needs to say."""
        excess = size - _FREE_BYTES - _FREE_BYTES_OF_POD * master.pods
        if excess > 0:
            self._debts[master.job.namespace] = (self._debt(master.job.namespace) + excess, time.monotonic())

    def _debt(self, namespace: str) -> float:
        owed, since_s = self._debts.get(namespace, (0.0, 0.0))
        return max(0.0, owed - (time.monotonic() - since_s) * _BYTES_PER_S)

    def _check_debt(self, master: MasterAddress) -> None:
        """Call no master of a namespace whose masters have answered too much.

        Raises:
            TemporaryError: they have.
        """
        namespace = master.job.namespace
        if (debt := self._debt(namespace)) > _BURST_BYTES:
            raise TemporaryError(
                f"the masters of namespace {namespace} answer with too many bytes, so edl calls them more rarely;"
                " check spec.master.image of its jobs"
            )
        if not debt:
            self._debts.pop(namespace, None)


def _left_out(epoch: _ClosedEpoch) -> int:
    """Count the positions of a finished epoch that were left out."""
    listed = epoch.quarantined
    return listed if isinstance(listed, int) else sum(end - start for start, end in listed)


def _host_of(master: MasterAddress) -> str:
    """The host of the URL of a master.

    Raises:
        PermanentError: the address is no IP address, or none that a pod can have. Link-local addresses are among
            these: clouds serve the credentials of a node at 169.254.169.254.
    """
    try:
        ip = ipaddress.ip_address(master.ip)
    except ValueError:
        ip = None
    if ip is None or ip.is_link_local or ip.is_multicast or ip.is_unspecified or getattr(ip, "scope_id", None):
        raise PermanentError(
            f"the master of job {master.job} has the address {master.ip[:_MAX_QUOTED]!r}, which is not the IP address"
            " of a pod; edl does not call it; check who may write the status of pods"
        )
    return f"[{ip}]" if ip.version == 6 else str(ip)


def _error_of(what: str, status: int, raw: bytes) -> Exception:
    quoted = printable(raw[:_MAX_QUOTED].decode(errors="replace"))
    message = f"{what}: the master answered {status}: {quoted}"
    if status == 409:
        return ConflictError(message)
    return TemporaryError(message) if status == 429 or status >= 500 else PermanentError(message)
