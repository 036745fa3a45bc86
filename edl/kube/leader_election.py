"""Who may write: a Lease held by one replica at a time, safe against hanging and lying servers and clocks.

The official client's election goes on acting past its lease when the server hangs, and ignores refused connections.
Here the holder counts on its own monotonic clock from the moment it sent its last successful renewal, and stops
writing after the renew deadline, which is well before anybody else may take over; others count on theirs from the
moment they first saw the record. Wall clocks stand in the record for people only. A holder that lost the lease ends,
because what it has under way cannot be called back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from edl.clock import Clock
from edl.errors import ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import ApiSession

LEASES_API = "/apis/coordination.k8s.io/v1"


class LeaseLostError(EdlError):
    """The lease could not be renewed in time, or another replica holds it."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What stands in the Lease.

    Attributes:
        holder: identity of the replica that leads; empty where it was released.
        version: resourceVersion of this state, for a conditional write; empty before it is stored.
    """

    holder: str
    duration_s: int
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    version: str = ""


class LeaseStore(Protocol):
    """Where the record stands; every write is conditional."""

    async def read(self) -> LeaseRecord | None:
        """The present record; None where there is none."""

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create it where it has no version, else replace exactly that version.

        Raises:
            ConflictError: somebody else wrote first.
        """


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times of the election in seconds; lease > renew deadline > retry + call."""

    lease_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0
    call_s: float = 5.0


class Elector:
    """Acquires, renews and releases the lease; `is_held` is safe to ask before every write."""

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        on_change: Callable[[bool, str], None] | None = None,
    ) -> None:
        """Take a store.

        Args:
            store: of the lease.
            clock: for all times.
            identity: unique to this process.
            times: of the election.
            on_change: told (we lead, the holder's identity) whenever that changes.
        """
        self._store, self._clock, self._identity = store, clock, identity
        self._times = times or LeaseTimes()
        self._on_change = on_change
        self._mine: LeaseRecord | None = None
        self._asked_s = self._deadline_s = 0.0
        self._seen: tuple[LeaseRecord, float] | None = None
        self._told: tuple[bool, str] | None = None

    def is_held(self) -> bool:
        """True while nobody else can have taken the lease over."""
        return self._mine is not None and self._clock.monotonic_s() < self._deadline_s

    async def run(self) -> None:
        """Contend for the lease, then renew it, until cancelled.

        Raises:
            LeaseLostError: it was held and is not any more.
        """
        while not await self._attempt(self._acquire):
            await self._clock.sleep(self._times.retry_s)
        while True:
            next_s = min(self._asked_s + self._times.retry_s, self._deadline_s)
            await self._clock.sleep(max(0.0, next_s - self._clock.monotonic_s()))
            if self.is_held():  # who was stopped for longer than that may find itself here, and says nothing more
                await self._attempt(self._renew)
            if not self.is_held():
                self._mine = None
                self._tell(leads=False, holder="")
                raise LeaseLostError(
                    f"{self._identity} could not renew its lease for {self._times.renew_deadline_s:g} s; "
                    "another replica takes over"
                )

    async def release(self) -> None:
        """Let the next replica lead at once; without an answer it leads when the lease has run out."""
        mine, held = self._mine, self.is_held()
        self._mine = None
        self._tell(leads=False, holder="")
        if mine is None or not held:
            return
        try:
            async with asyncio.timeout(self._times.call_s):
                await self._store.write(replace(mine, holder="", duration_s=1, renewed=self._stamp()))
        except (EdlError, TimeoutError):
            return

    async def _attempt(self, step: Callable[[], Any]) -> bool:
        """One try under a timeout that ends before the lease does; no refusal of the server is fatal by itself."""
        self._asked_s = self._clock.monotonic_s()
        left_s = self._deadline_s - self._asked_s if self._mine else self._times.call_s
        try:
            async with asyncio.timeout(max(0.001, min(self._times.call_s, left_s))):
                return bool(await step())
        except (EdlError, TimeoutError):
            return False

    async def _acquire(self) -> bool:
        found = await self._store.read()
        self._watch(found)
        if found is not None and not self._is_free(found):
            self._tell(leads=False, holder=found.holder)
            return False
        ours_already = found is not None and found.holder == self._identity
        stamp = self._stamp()
        record = LeaseRecord(
            holder=self._identity,
            duration_s=int(self._times.lease_s),
            acquired=found.acquired if found and ours_already else stamp,
            renewed=stamp,
            transitions=(found.transitions + (not ours_already)) if found else 0,
            version=found.version if found else "",
        )
        await self._hold(record)
        return True

    async def _renew(self) -> bool:
        if self._mine is None:
            return False
        try:
            await self._hold(replace(self._mine, renewed=self._stamp()))
        except ConflictError:
            found = await self._store.read()
            if found is None or found.holder != self._identity:
                self._deadline_s = 0.0
                return False
            await self._hold(replace(found, renewed=self._stamp()))
        return True

    async def _hold(self, record: LeaseRecord) -> None:
        """Write, and count the deadline from before the write: the server may have stored it at once."""
        sent_s = self._clock.monotonic_s()
        self._mine = await self._store.write(record)
        self._deadline_s = sent_s + self._times.renew_deadline_s
        self._tell(leads=True, holder=self._identity)

    def _watch(self, found: LeaseRecord | None) -> None:
        if found is not None and (self._seen is None or self._seen[0] != found):
            self._seen = (found, self._clock.monotonic_s())

    def _is_free(self, found: LeaseRecord) -> bool:
        """True where the record was released, is our own, or has not changed for as long as it was meant to last."""
        if found.holder in {"", self._identity}:
            return True
        since_s = self._seen[1] if self._seen else self._clock.monotonic_s()
        return self._clock.monotonic_s() - since_s >= found.duration_s

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _tell(self, *, leads: bool, holder: str) -> None:
        if self._told != (leads, holder) and self._on_change is not None:
            self._on_change(leads, holder)
        self._told = (leads, holder)


class AlwaysHeld:
    """The lease of a controller that runs alone: `--no-leader-election`, or a dry run that writes nothing."""

    def is_held(self) -> bool:
        """Always true."""
        return True


class ApiLeaseStore:
    """A coordination.k8s.io/v1 Lease."""

    def __init__(self, session: ApiSession, namespace: str, name: str) -> None:
        self._session = session
        self._collection = f"{LEASES_API}/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name

    async def read(self) -> LeaseRecord | None:
        """The present record; None where there is none."""
        try:
            raw = await self._session.get(f"{self._collection}/{self._name}")
        except NotFoundError:
            return None
        try:
            return _record(msgspec.json.decode(raw))
        except (msgspec.MsgspecError, ValueError, AttributeError) as error:
            raise TemporaryError(f"lease {self._namespace}/{self._name} cannot be read: {error}") from error

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create it where it has no version, else replace exactly that version."""
        body = self._body(record)
        if not record.version:
            return _record(await self._session.post(self._collection, body))
        raw = await self._session.request("PUT", f"{self._collection}/{self._name}", body=body)
        return _record(msgspec.json.decode(raw))

    def _body(self, record: LeaseRecord) -> dict[str, Any]:
        spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_s,
            "acquireTime": record.acquired or None,
            "renewTime": record.renewed or None,
            "leaseTransitions": record.transitions,
        }
        version = {"resourceVersion": record.version} if record.version else {}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, **version},
            "spec": spec,
        }


def _record(body: dict[str, Any]) -> LeaseRecord:
    spec = body.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        duration_s=int(spec.get("leaseDurationSeconds") or 0),
        acquired=spec.get("acquireTime") or "",
        renewed=spec.get("renewTime") or "",
        transitions=int(spec.get("leaseTransitions") or 0),
        version=body["metadata"]["resourceVersion"],
    )
