"""A collection of the API server as plain dictionaries that are kept up to date.

The reflector of `edl.kube.mirror` does the work. Here the objects stay dictionaries, because the sandbox reads
and writes most fields of a pod, and a laptop's cluster is small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from edl.clock import SystemClock
from edl.errors import EdlError
from edl.kube.bounds.json_depth import UNREADABLE, decode
from edl.kube.client.session import ApiSession
from edl.kube.mirror.reflector import Reflector, ReflectorCalls, ReflectorPace, Resource
from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import Decoder, Quarantined
from edl.kube.translate.objects import ObjectMetadata

Object = dict[str, Any]

_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_PACE = ReflectorPace(backoff_s=0.2, backoff_cap_s=5.0)


class PlainObject(msgspec.Struct):
    """One object in two forms: its metadata decoded, and the whole of it as a dictionary."""

    metadata: ObjectMetadata | None = None
    body: Object = msgspec.field(default_factory=dict)


class _PlainDecoder(Decoder[PlainObject]):
    def __init__(self, kind: str) -> None:
        super().__init__(kind, PlainObject)

    def from_bytes(self, raw: bytes | msgspec.Raw) -> PlainObject | Quarantined:
        try:
            body = decode(_ANYTHING, raw)
            return PlainObject(msgspec.convert(body.get("metadata"), ObjectMetadata), body)
        except (*UNREADABLE, AttributeError) as error:
            return self._quarantine({}, error)


class Informer:
    """The objects of one collection.

    Args:
        session: the API server.
        kind: for messages.
        path: the path of the collection.
        on_change: called after each change.
        field_selector: which objects; all by default.
        label_selector: likewise.
    """

    def __init__(
        self,
        session: ApiSession,
        kind: str,
        path: str,
        on_change: Callable[[], None] = lambda: None,
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> None:
        self._store: ObjectStore[PlainObject] = ObjectStore()
        resource = Resource(path, label_selector, field_selector)

        def note() -> None:
            self._store.changed.clear()  # nobody here asks which objects changed
            on_change()

        self._reflector = Reflector(
            session,
            resource,
            _PlainDecoder(kind),
            self._store,
            SystemClock(),
            pace=_PACE,
            calls=ReflectorCalls(on_change=note),
        )

    @property
    def problem(self) -> str:
        """Why the objects may be stale; empty while the watch works."""
        return self._reflector.problem

    @property
    def is_synced(self) -> bool:
        """True once the first list is complete."""
        return self._reflector.synced.is_set()

    async def run(self) -> None:
        """Keep the objects up to date forever."""
        await self._reflector.run()

    async def wait_until_synced(self) -> None:
        """Wait for the first list."""
        await self._reflector.synced.wait()

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object, which the caller must not change; None if there is none."""
        found = self._store.objects.get((namespace, name))
        return found.body if found is not None else None

    def __iter__(self) -> Iterator[Object]:
        return iter([one.body for one in self._store.objects.values()])


class Wakeup:
    """Lets a loop wait for changes; many changes in a short time end one wait.

    Args:
        pause_s: how long to collect changes before the loop goes on, in seconds.
    """

    def __init__(self, pause_s: float = 0.02) -> None:
        self._event, self._pause_s = asyncio.Event(), pause_s

    def set(self) -> None:
        """Note a change: the loop that waits continues."""
        self._event.set()

    async def wait(self, longest_s: float) -> None:
        """Wait for a change, but not longer than that many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._event.wait()
        if self._event.is_set():
            await asyncio.sleep(self._pause_s)
        self._event.clear()


async def ignoring(*errors: type[EdlError], call: Any) -> Any:  # noqa: ANN401 - any answer of the API
    """Await a call and return its answer; None if it raises one of the given errors."""
    try:
        return await call
    except errors:
        return None
