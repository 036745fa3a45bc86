"""One collection of the API server, mirrored into a store: list, watch, resume, and never give up.

The official client's informers build a typed model per event, and trust that a watch which says nothing is alive.
This one decodes raw lines, and takes a watch for dead that is silent for longer than the server would leave it open.
It heals by itself: after 410 it lists again and drops what is gone, and it lists again now and then in any case,
because a lost event cannot be noticed. It interprets nothing.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Never, TypeVar

import msgspec

from edl.clock import Clock
from edl.errors import EdlError, TemporaryError
from edl.kube.client.api_errors import GoneError, error_of
from edl.kube.client.json_depth import decode
from edl.kube.client.session import ApiSession
from edl.kube.mirror.store import ObjectStore, key_of
from edl.kube.translate.decoders import UNREADABLE, Decoder, Quarantined
from edl.kube.translate.objects import ApiStatus, HasMetadata, ListMetadata, ListPage, Metadata, WatchEvent

T = TypeVar("T", bound=HasMetadata)

_WELL_S = 1.0
"""A watch that has stood for so long was no failure, even if it had nothing to tell."""

_PAGES = msgspec.json.Decoder(ListPage)
_EVENTS = msgspec.json.Decoder(WatchEvent)


class _Bookmark(msgspec.Struct):
    metadata: Metadata | None = None


_BOOKMARKS = msgspec.json.Decoder(_Bookmark)


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection, or the part of it that the selectors choose."""

    path: str
    label_selector: str = ""
    field_selector: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The selectors as a query."""
        given = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: value for name, value in given.items() if value}

    def __str__(self) -> str:
        chosen = ",".join(self.params.values())
        return f"{self.path}?{chosen}" if chosen else self.path


@dataclass(frozen=True, slots=True)
class Pace:
    """How a reflector goes about it.

    Attributes:
        page_items: items of one page of a list.
        list_timeout_s: how long one page may take.
        watch_s: after this time at most the server ends a watch, and it is resumed.
        silence_s: a watch that says nothing for so long is dead; more than `watch_s`.
        relist_s: after this time everything is listed again, for events that were lost unnoticed.
        backoff_s, backoff_cap_s: the first and the longest pause after failures in a row.
    """

    page_items: int = 500
    list_timeout_s: float = 60.0
    watch_s: int = 60
    silence_s: float = 67.0
    relist_s: float = 600.0
    backoff_s: float = 0.5
    backoff_cap_s: float = 30.0


class Reflector(Generic[T]):
    """Mirrors one resource into a store.

    Attributes:
        synced: set once the first list is complete.
        problem: why there is no contact now; empty while all is well.
        last_contact_s: when the server last said anything, by the monotonic clock; None before.
        lists_begun, lists_done: numbers of the last list begun, and of the last one that is complete.
    """

    def __init__(
        self,
        session: ApiSession,
        resource: Resource,
        decoder: Decoder[T],
        store: ObjectStore[T],
        clock: Clock,
        *,
        on_change: Callable[[], None] = lambda: None,
        pace: Pace | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Prepare; nothing is sent before `run`.

        Args:
            session: how to ask.
            resource: what to mirror.
            decoder: of its items.
            store: where to.
            clock: for pauses and for `last_contact_s`.
            on_change: called after something that matters has changed, and after each complete list.
            pace: how often and how long.
            chance: for jitter, so that many reflectors do not return at once.
        """
        self.resource = resource
        self.store = store
        self.synced = asyncio.Event()
        self.problem = ""
        self.last_contact_s: float | None = None
        self.lists_begun = 0
        self.lists_done = 0
        self._session = session
        self._decoder = decoder
        self._clock = clock
        self._on_change = on_change
        self._pace = pace or Pace()
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not a secret
        self._version = ""
        self._listed_s = 0.0
        self._failures = 0
        self._open_watch: asyncio.Timeout | None = None
        self._list_again = False

    def request_list(self) -> None:
        """List again as soon as possible, although the watch seems well."""
        self._version, self._list_again = "", True
        if self._open_watch is not None and not self._open_watch.expired():
            self._open_watch.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> Never:
        """Mirror forever; only a bug of ours or cancellation ends it."""
        while True:
            try:
                await self._round()
            except GoneError as error:
                self._version = ""
                await self._pause(error, at_once=self._failures == 0)
            except EdlError as error:
                self.problem = f"{self.resource}: {error}"
                await self._pause(error)

    async def _round(self) -> None:
        """List where that is due, then watch until the watch ends."""
        now_s = self._clock.monotonic_s()
        if not self._version or now_s - self._listed_s >= self._pace.relist_s:
            self._list_again = True
        while self._list_again:  # once more where that was asked for while the list was under way
            self._list_again = False
            await self._list()
        started_s = self._clock.monotonic_s()
        master_view = await self._watch()
        if master_view or self._clock.monotonic_s() - started_s >= _WELL_S:
            self._failures = 0
        else:
            await self._pause(None)  # a server that ends every watch at once must not be asked in a tight loop

    async def _list(self) -> None:
        self.lists_begun += 1
        number = self.lists_begun
        objects: list[T] = []
        poison: list[Quarantined] = []
        limit, token = self._pace.page_items, ""
        while True:
            try:
                page = await self._page(limit, token)
            except GoneError:
                if not token:
                    raise
                objects, poison, limit, token = [], [], 0, ""
                continue
            for raw in page.items or ():
                item = self._decoder.from_bytes(raw)
                poison.append(item) if isinstance(item, Quarantined) else objects.append(item)
            metadata = page.metadata or ListMetadata()
            token = metadata.continue_ or ""
            if not token:
                break
        self.store.replace(objects, poison)
        self._version = metadata.resource_version or ""
        self._listed_s = self._clock.monotonic_s()
        self.lists_done = number
        self.problem = ""
        self.synced.set()
        self._on_change()

    async def _page(self, limit: int, token: str) -> ListPage:
        raw = await self._session.list(
            self.resource.path,
            params=self.resource.params,
            limit=limit,
            continue_=token,
            timeout_s=self._pace.list_timeout_s,
        )
        self.last_contact_s = self._clock.monotonic_s()
        try:
            return decode(_PAGES, raw)
        except UNREADABLE as error:
            raise TemporaryError(f"the answer is no list: {error}") from error

    async def _watch(self) -> bool:
        """Follow one watch to its end; True where it said anything."""
        pace, master_view = self._pace, False
        opened_s: float | None = None
        params = {**self.resource.params, "resourceVersion": self._version}
        seconds = max(1, round(pace.watch_s * self._chance.uniform(0.8, 1.0)))
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._open_watch = scope  # before it is answered: a list may be asked for meanwhile
                async with self._session.watch(
                    self.resource.path, params=params, timeout_s=seconds, read_timeout_s=pace.silence_s
                ) as lines:
                    self.problem = ""
                    self.last_contact_s = opened_s = self._clock.monotonic_s()
                    async for line in lines:
                        master_view = True
                        self.last_contact_s = self._clock.monotonic_s()
                        self._take(line)
                        self._failures = 0  # not before: a line may say that the watch has failed
        except TimeoutError:
            if not scope.expired():
                raise
            master_view = True
        finally:
            self._open_watch = None
            if opened_s is not None and self._clock.monotonic_s() - opened_s >= _WELL_S:
                self._failures = 0  # also where it broke in the end: that is the first failure, not one more
        return master_view

    def _take(self, line: bytes) -> None:
        """Apply one event."""
        try:
            event = decode(_EVENTS, line)
        except UNREADABLE as error:
            self._version = ""
            raise TemporaryError(f"a line of the watch is no event: {error}") from error
        match event.type:
            case "BOOKMARK":
                bookmark = _BOOKMARKS.decode(event.object)
                self._advance(bookmark.metadata)
            case "ADDED" | "MODIFIED" | "DELETED":
                self._apply(event)
            case "ERROR":
                self._fail(bytes(event.object))

    def _apply(self, event: WatchEvent) -> None:
        item = self._decoder.from_bytes(event.object)
        if isinstance(item, Quarantined):
            if event.type == "DELETED":
                self.store.remove((item.namespace, item.name), item.uid)
            else:
                self.store.quarantine(item)
            self._on_change()
            return
        metadata = item.metadata or Metadata()
        if event.type == "DELETED":
            changed = self.store.remove(key_of(metadata), metadata.uid or "", metadata.resource_version or "")
        else:
            changed = self.store.add(item, is_known=event.type == "MODIFIED")
        self._advance(metadata)
        if changed:
            self._on_change()

    def _advance(self, metadata: Metadata | None) -> None:
        """Remember where to resume, unless a new list is wanted."""
        if self._version and metadata is not None and metadata.resource_version:
            self._version = metadata.resource_version

    def _fail(self, raw: bytes) -> Never:
        try:
            code = msgspec.json.decode(raw, type=ApiStatus).code
        except UNREADABLE:
            code = None
        raise error_of(code or 500, raw, f"watch of {self.resource}")

    async def _pause(self, error: EdlError | None, *, at_once: bool = False) -> None:
        """Wait before the next attempt: as long as the server asks, else longer after each failure."""
        longest = min(self._pace.backoff_cap_s, self._pace.backoff_s * 2 ** min(self._failures, 16))
        self._failures += 1
        asked_s = error.retry_after_s if isinstance(error, TemporaryError) else None
        if asked_s is not None:
            await self._clock.sleep(asked_s * self._chance.uniform(1.0, 1.1))
        elif not at_once:
            await self._clock.sleep(longest * self._chance.uniform(0.5, 1.0))
