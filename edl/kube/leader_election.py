"""Leader election: one replica at a time holds a Lease and may write, even if servers hang or clocks are wrong.

The official client's election keeps acting after its lease has expired if the server hangs, and ignores refused
connections. Here the holder measures with its own monotonic clock, from the moment it sent its last successful
renewal. It stops writing at the renew deadline, well before another replica may take over. The other replicas
measure with their own clocks, from the moment they first saw the record. The wall-clock times in the record are
only for people. A holder that loses the lease exits, because it cannot cancel the requests that it has already
sent.
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
    """This replica held the lease, and could not renew it in time or lost it to another replica."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of the Lease.

    Attributes:
        holder: the identity of the leader; empty if the lease was released.
        duration_s: how long the lease lasts after a renewal.
        acquired, renewed: wall-clock times, RFC 3339.
        transitions: how often the leader changed.
        version: the resourceVersion, for a conditional write; empty before the record is stored.
    """

    holder: str
    duration_s: int
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    version: str = ""


class LeaseStore(Protocol):
    """Stores the record; every write is conditional."""

    async def read(self) -> LeaseRecord | None:
        """Return the stored record; None if there is none."""

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the record if it has no version, else replace exactly that version; return it as stored.

        Raises:
            ConflictError: another replica wrote first.
        """


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times of the election in seconds; lease > renew deadline > retry + call.

    Attributes:
        lease_s: another replica takes over after this time without a renewal.
        renew_deadline_s: the holder stops writing after this time without a renewal.
        retry_s: pause between two attempts or renewals.
        call_s: timeout of one attempt.
    """

    lease_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0
    call_s: float = 5.0


class Elector:
    """Acquires, renews and releases the lease; call `is_held` before every write."""

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        on_change: Callable[[bool, str], None] | None = None,
    ) -> None:
        """Create an elector; nothing is sent before `run`.

        Args:
            store: the store of the lease.
            clock: for all times.
            identity: unique to this process.
            times: the times of the election.
            on_change: called with (this replica leads, identity of the holder) whenever one of them changes.
        """
        self._store, self._clock, self._identity = store, clock, identity
        self._times = times or LeaseTimes()
        self._on_change = on_change
        self._mine: LeaseRecord | None = None
        self._attempted_s = self._deadline_s = 0.0
        self._seen: tuple[LeaseRecord, float] | None = None
        self._reported: tuple[bool, str] | None = None

    def is_held(self) -> bool:
        """Return True while no other replica can have taken over the lease."""
        return self._mine is not None and self._clock.monotonic_s() < self._deadline_s

    async def run(self) -> None:
        """Try to acquire the lease, then renew it until cancelled.

        Raises:
            LeaseLostError: this replica held the lease and lost it.
        """
        while not await self._attempt(self._acquire):
            await self._clock.sleep(self._times.retry_s)
        while True:
            next_s = min(self._attempted_s + self._times.retry_s, self._deadline_s)
            await self._clock.sleep(max(0.0, next_s - self._clock.monotonic_s()))
            if self.is_held():  # a process that was stopped past its deadline must not renew
                await self._attempt(self._renew)
            if not self.is_held():
                self._mine = None
                self._report(leads=False, holder="")
                raise LeaseLostError(
                    f"{self._identity} could not renew its lease for {self._times.renew_deadline_s:g} s; "
                    "another replica takes over"
                )

    async def release(self) -> None:
        """Release the lease, so that another replica can lead at once; if this fails, it leads after the expiry."""
        mine, held = self._mine, self.is_held()
        self._mine = None
        self._report(leads=False, holder="")
        if mine is None or not held:
            return
        try:
            async with asyncio.timeout(self._times.call_s):
                await self._store.write(replace(mine, holder="", duration_s=1, renewed=self._stamp()))
        except (EdlError, TimeoutError):
            return

    async def _attempt(self, step: Callable[[], Any]) -> bool:
        """Run a step with a timeout that ends before the lease does; return False if it fails."""
        self._attempted_s = self._clock.monotonic_s()
        left_s = self._deadline_s - self._attempted_s if self._mine else self._times.call_s
        try:
            async with asyncio.timeout(max(0.001, min(self._times.call_s, left_s))):
                return bool(await step())
        except (EdlError, TimeoutError):
            return False

    async def _acquire(self) -> bool:
        found = await self._store.read()
        self._watch(found)
        if found is not None and not self._is_free(found):
            self._report(leads=False, holder=found.holder)
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
        """Write the record; the deadline counts from before the write, because the server may store it at once."""
        sent_s = self._clock.monotonic_s()
        self._mine = await self._store.write(record)
        self._deadline_s = sent_s + self._times.renew_deadline_s
        self._report(leads=True, holder=self._identity)

    def _watch(self, found: LeaseRecord | None) -> None:
        if found is not None and (self._seen is None or self._seen[0] != found):
            self._seen = (found, self._clock.monotonic_s())

    def _is_free(self, found: LeaseRecord) -> bool:
        """Return True if the lease was released, is this replica's own, or was not renewed for its duration."""
        if found.holder in {"", self._identity}:
            return True
        since_s = self._seen[1] if self._seen else self._clock.monotonic_s()
        return self._clock.monotonic_s() - since_s >= found.duration_s

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _report(self, *, leads: bool, holder: str) -> None:
        if self._reported != (leads, holder) and self._on_change is not None:
            self._on_change(leads, holder)
        self._reported = (leads, holder)


class AlwaysHeld:
    """The lease of a controller without leader election: `--no-leader-election`, or a dry run."""

    def is_held(self) -> bool:
        """Return True."""
        return True


class ApiLeaseStore:
    """A coordination.k8s.io/v1 Lease."""

    def __init__(self, session: ApiSession, namespace: str, name: str) -> None:
        self._session = session
        self._collection = f"{LEASES_API}/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name

    async def read(self) -> LeaseRecord | None:
        """Return the stored record; None if there is none.

        Raises:
            TemporaryError: the Lease is not valid, or the API server does not respond.
        """
        try:
            raw = await self._session.get(f"{self._collection}/{self._name}")
        except NotFoundError:
            return None
        try:
            return _record(msgspec.json.decode(raw))
        except (msgspec.MsgspecError, ValueError, AttributeError) as error:
            raise TemporaryError(
                f"Lease {self._namespace}/{self._name} is not valid: {error}; delete it, and edl creates a new one"
            ) from error

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Create the Lease if the record has no version, else replace exactly that version.

        Raises:
            ConflictError: another replica wrote first.
        """
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
