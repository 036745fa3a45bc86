"""Calls of the controller to the masters of its jobs, over HTTP to the addresses of their pods.

The token of a job is recomputed from the key for each call. What answers may be anything, because a user chooses the
master's image: an answer is bounded in time and size, is judged before it is believed, and concerns its own job only.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

import aiohttp
import msgspec
from msgspec import Meta

from edl import __version__
from edl.api.environment import CONTROLLER_TOKEN, MASTER_PORT
from edl.controller.ports import MasterAddress
from edl.errors import ConflictError, PermanentError, TemporaryError
from edl.kube.client.api_errors import translated
from edl.kube.master_key import MasterKey, make_token
from edl.kube.translate.decoders import UNREADABLE
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry

CALL_TIMEOUT_S = 3.0
ANSWER_BYTES = 4 * 1024 * 1024
_SHOWN = 300

_Whole = Annotated[int, Meta(ge=0, le=2**53)]
_Answer = TypeVar("_Answer")


class _Holder(msgspec.Struct):
    """A session with leases."""

    pod_uid: str
    done: _Whole = 0
    rate: float | None = None


class _Roster(msgspec.Struct):
    """Who may hold leases."""

    generation: _Whole
    pods: _Whole


class _Closed(msgspec.Struct):
    """An epoch that is over, with the ranges that were left out."""

    quarantined: list[tuple[_Whole, _Whole]]


class _Status(msgspec.Struct):
    """What `GET /v1/status` answers, as far as it is read."""

    state: MasterState
    epoch: _Whole
    total: _Whole
    todo: _Whole
    done: _Whole
    consumed: _Whole
    quarantined: _Whole
    holders: list[_Holder]
    closed: list[_Closed] = []
    roster: _Roster | None = None
    blocked: str | None = None


class _Id(msgspec.Struct):
    """A checkpoint."""

    id: _Whole


class HttpMasterClient:
    """Implements `ports.MasterWire`; use it as an async context manager.

    Args:
        key: what tokens are made with.
        port: of every master.
    """

    def __init__(self, key: MasterKey, port: int = MASTER_PORT) -> None:
        self._key, self._port = key, port
        self._client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S),
            headers={"User-Agent": f"edl/{__version__}", "Accept": "application/json"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def report(self, master: MasterAddress) -> MasterReport:
        """What the master holds; see `ports.MasterWire`."""
        status = await self._call("GET", master, "/v1/status", _Status)
        closed = sum(end - start for epoch in status.closed for start, end in epoch.quarantined)
        return MasterReport(
            state=status.state,
            epoch=status.epoch,
            done=status.done,
            total=status.total,
            consumed=status.consumed,
            waiting=status.todo,
            quarantined=status.quarantined,
            left_out=closed + (0 if status.state is MasterState.FINISHED else status.quarantined),
            working=frozenset(h.pod_uid for h in status.holders if h.done or h.rate is not None),
            roster=(status.roster.generation, status.roster.pods) if status.roster else None,
            blocked=(status.blocked or "")[:_SHOWN],
        )

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        """Say who may hold leases; see `ports.MasterWire`."""
        pods = [{"uid": seat.uid, "name": seat.name, "index": seat.index} for seat in roster]
        await self._call("PUT", master, "/v1/roster", dict[str, Any], {"generation": generation, "pods": pods})

    async def restore(self, master: MasterAddress) -> int:
        """Take the accounts back; see `ports.MasterWire`."""
        return (await self._call("POST", master, "/v1/checkpoint/restore", _Id, {"id": "latest"})).id

    async def _call(
        self, method: str, master: MasterAddress, path: str, kind: type[_Answer], body: object = None
    ) -> _Answer:
        host = f"[{master.ip}]" if ":" in master.ip else master.ip
        url, what = f"http://{host}:{self._port}{path}", f"{method} {path}"
        token = make_token(await self._key.get(), master.job, master.job_uid, CONTROLLER_TOKEN)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        if self._client is None:
            raise TemporaryError(f"{what}: nothing is open yet")
        with translated(what, f"the master of job {master.job} at {host}:{self._port}"):
            async with self._client.request(method, url, headers=headers, data=data, allow_redirects=False) as answer:
                raw = await answer.content.read(ANSWER_BYTES + 1)
                while not answer.content.at_eof() and len(raw) <= ANSWER_BYTES:
                    raw += await answer.content.read(ANSWER_BYTES + 1 - len(raw))
        if answer.status != 200:
            raise _refusal(f"{what} of job {master.job}", answer.status, raw)
        try:
            return msgspec.json.decode(raw, type=kind)
        except UNREADABLE as error:
            raise PermanentError(f"{what} of job {master.job}: what answers is no master of ours: {error}") from error


def _refusal(what: str, status: int, raw: bytes) -> Exception:
    said = f"{what}: the master answers {status}: {raw[:_SHOWN].decode(errors='replace')}"
    if status == 409:
        return ConflictError(said)
    return TemporaryError(said) if status == 429 or status >= 500 else PermanentError(said)
