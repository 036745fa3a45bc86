"""Mirrors one collection of the API server into a store: lists it, watches it, and recovers after errors.

The official client's informers build a typed model per event, and assume that a silent watch is alive. This one
decodes raw lines, and considers a watch lost if it is silent for longer than the server keeps it open. It recovers
by itself: after a 410 it lists again and removes what was deleted. It also lists again if etcd was put back to an
older state, and from time to time, because nothing shows that an event was lost. It does not interpret the objects.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Never, TypeVar

import msgspec

from edl.clock import Clock
from edl.errors import EdlError, TemporaryError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.client.api_errors import GoneError, RefusedError, error_of
from edl.kube.client.calls import TooLongError
from edl.kube.client.responses import ApiStatus, ListMetadata, ListPage, WatchEvent, bookmark_of, event_of, page_of
from edl.kube.client.session import ApiSession
from edl.kube.mirror.store import FOR_EVER, Key, ObjectStore, is_older, key_of, version_of
from edl.kube.translate.decoders import Decoder, Quarantined
from edl.kube.translate.objects import HasMetadata, ObjectMetadata
from edl.waiting import RetryPauses

T = TypeVar("T", bound=HasMetadata)

_HEALTHY_S = 1.0
"""A watch that was open for this long is not a failure, even if no event arrived."""

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""A page with more bytes is asked for again with fewer items."""

_SLICE_S = 0.01
"""How long decoding goes on before other tasks may run."""

_ABSENT_OR_FORBIDDEN = (403, 404)


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection, or the part of it that the selectors match."""

    path: str
    label_selector: str = ""
    field_selector: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The selectors as query parameters."""
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: value for name, value in selectors.items() if value}

    def __str__(self) -> str:
        selectors = ",".join(self.params.values())
        return f"{self.path}?{selectors}" if selectors else self.path


@dataclass(frozen=True, slots=True)
class ReflectorPace:
    """Sizes and times of a reflector; times are in seconds.

    Attributes:
        page_items: items in one page of a list.
        list_timeout_s: timeout of one page.
        watch_s: the server ends a watch after this time at most, and the reflector resumes it.
        silence_s: a watch without a byte for this long is considered lost; more than `watch_s`.
        relist_s: after this time the reflector lists again, in case an event was lost.
        backoff_s, backoff_cap_s: the first and the longest pause between failures in a row.
    """

    page_items: int = 500
    list_timeout_s: float = 60.0
    watch_s: int = 60
    silence_s: float = 67.0
    relist_s: float = 600.0
    backoff_s: float = 0.5
    backoff_cap_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ReflectorCalls(Generic[T]):
    """Functions that a reflector calls.

    Attributes:
        on_change: called after each change that a decision must take into account, and after each complete list.
        on_event: called with the object before and after each change that a watch event brings; None if there was
            none, or if there is none any more.
        on_part: called after each part of a list that is read or taken.
    """

    on_change: Callable[[], None] = lambda: None
    on_event: Callable[[T | None, T | None], None] = lambda _before, _after: None
    on_part: Callable[[], None] = lambda: None


class Reflector(Generic[T]):
    """Mirrors one resource into a store.

    Attributes:
        synced: set once the first list is complete.
        problem: why the store is out of date; empty while the watch works.
        refusal: 404 if the API server has no such resource, 403 if edl may not read it; else 0.
        last_contact_s: the monotonic time of the last response or event; None before the first.
        lists_begun, lists_done: the numbers of the last list that began and of the last one that is complete.
    """

    def __init__(
        self,
        session: ApiSession,
        resource: Resource,
        decoder: Decoder[T],
        store: ObjectStore[T],
        clock: Clock,
        *,
        calls: ReflectorCalls[T] | None = None,
        pace: ReflectorPace | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Create a reflector; nothing is sent before `run`.

        Args:
            session: the API server.
            resource: what to mirror.
            decoder: the decoder of its items.
            store: receives the objects.
            clock: for pauses and for `last_contact_s`.
            calls: whom to tell about changes; by default nobody.
            pace: sizes and times.
            rng: for jitter, so that many reflectors do not send requests at the same moment.
        """
        self.resource = resource
        self.store = store
        self.synced = asyncio.Event()
        self.problem = ""
        self.refusal = 0
        self.last_contact_s: float | None = None
        self.lists_begun = 0
        self.lists_done = 0
        self._session = session
        self._decoder = decoder
        self._clock = clock
        calls = calls or ReflectorCalls()
        self._on_change, self._on_event, self._on_part = calls.on_change, calls.on_event, calls.on_part
        self._pace = pace = pace or ReflectorPace()
        self._rng = rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._pauses = RetryPauses(clock, first_s=pace.backoff_s, longest_s=pace.backoff_cap_s, rng=rng)
        self._version = ""
        self._listed_s = 0.0
        self._open_watch: asyncio.Timeout | None = None
        self._list_again = self._was_cut = False
        self._answered, self._answered_s = "", 0.0  # the first answer that the watch has to show, and its time

    def request_list(self) -> None:
        """List again as soon as possible, even if the watch works."""
        self._version, self._list_again = "", True
        if self._open_watch is not None and not self._open_watch.expired():
            self._open_watch.reschedule(asyncio.get_running_loop().time())

    def take_answer(self, body: dict[str, Any]) -> None:
        """Store an object that the API server has answered with; the watch shows it again later.

        An answer whose version is not a number cannot be told from an older state, so everything is listed again.
        """
        item = self._decoder.from_dict(body)
        if isinstance(item, Quarantined):
            self.store.quarantine(item)
            self._on_change()
            return
        self._store(item)
        if not is_older(self._version, self._answered):  # else an older answer is awaited still
            self._answered, self._answered_s = version_of(item), self._clock.monotonic_s()

    def list_if_deaf(self, overdue_s: float) -> None:
        """List again if the watch has not shown in time what the API server has answered: the watch may be lost."""
        is_awaited = is_older(self._version, self._answered)
        if is_awaited and self._clock.monotonic_s() - self._answered_s >= overdue_s:
            self.request_list()

    def take_absence(self, key: Key, uid: str) -> None:
        """Remove an object of which the API server has answered that it exists no more."""
        before = self.store.objects.get(key)
        self._tell(before, key, changed=self.store.remove(key, uid, FOR_EVER))

    async def run(self) -> Never:
        """Mirror forever; only cancellation or a bug ends it."""
        while True:
            try:
                await self._list_and_watch()
            except GoneError as error:
                self._version = ""
                self.problem = f"edl lists {self.resource} again, as it cannot resume the watch: {error}"
                await self._pause(error, at_once=self._pauses.failures == 0)
            except EdlError as error:
                self._was_cut = True
                self.problem = f"edl cannot watch {self.resource}: {error}"
                code = error.code if isinstance(error, RefusedError) else 0
                self.refusal = code if code in _ABSENT_OR_FORBIDDEN else 0
                await self._pause(error)

    async def _list_and_watch(self) -> None:
        """List if that is due, then watch until the watch ends."""
        now_s = self._clock.monotonic_s()
        if not self._version or now_s - self._listed_s >= self._pace.relist_s or await self._went_back():
            self._list_again = True
        self._was_cut = False
        while self._list_again:  # again if `request_list` was called during the list
            self._list_again = False
            await self._list()
        started_s = self._clock.monotonic_s()
        received = await self._watch()
        if received or self._clock.monotonic_s() - started_s >= _HEALTHY_S:
            self._pauses.reset()
        else:
            await self._pauses.after_failure()  # do not open watches in a tight loop if the server ends each at once

    async def _went_back(self) -> bool:
        """Return whether etcd was restored to an older state since the watch ended; lists one item to find out.

        A watch shows nothing up to the version from which it resumes, and the new history may reach that version much
        later, with other events.
        """
        if not self._was_cut:
            return False
        page, _ = await self._page(1, "")
        now = page.metadata or ListMetadata()
        return is_older(now.resource_version or "", self._version)

    async def _list(self) -> None:
        self.lists_begun += 1
        number, begun, begun_s = self.lists_begun, self.store.mark(), self._clock.monotonic_s()
        objects: list[T] = []
        unreadable: list[Quarantined] = []
        limit, token = self._pace.page_items, ""
        while True:
            try:
                page, limit = await self._page(limit, token)
            except GoneError:
                if not token:
                    raise
                objects, unreadable, limit, token = [], [], 0, ""
                continue
            async for item in self._decoded(page.items or ()):
                unreadable.append(item) if isinstance(item, Quarantined) else objects.append(item)
            self._on_part()
            metadata = page.metadata or ListMetadata()
            token = metadata.continue_ or ""
            if not token:
                break
        for _ in self.store.replacing(objects, unreadable, metadata.resource_version or "", begun):
            self._on_part()
            await asyncio.sleep(0)
        self._version = metadata.resource_version or ""
        self._listed_s = self._clock.monotonic_s()
        if self._answered_s < begun_s:
            self._answered = ""  # the list shows it, or etcd was put back to a state without it
        self.lists_done = number
        self.problem, self.refusal = "", 0
        self.synced.set()
        self._on_change()

    async def _decoded(self, items: Iterable[msgspec.Raw]) -> AsyncIterator[T | Quarantined]:
        """Decode objects, and let other tasks run from time to time."""
        since_s = time.perf_counter()
        for raw in items:
            yield self._decoder.from_bytes(raw)
            if time.perf_counter() - since_s >= _SLICE_S:
                await asyncio.sleep(0)
                since_s = time.perf_counter()

    async def _page(self, limit: int, token: str) -> tuple[ListPage, int]:
        """Read a page, with fewer items if it is long; 0 items are all.

        Returns:
            The page, and how many items to ask for next.
        """
        while True:
            try:
                raw = await self._session.list(
                    self.resource.path,
                    params=self.resource.params,
                    limit=limit,
                    continue_=token,
                    timeout_s=self._pace.list_timeout_s,
                    max_bytes=MAX_PAGE_BYTES if limit > 1 else None,
                )
                break
            except TooLongError:
                limit = max(1, limit // 4)
        self.last_contact_s = self._clock.monotonic_s()
        has_space = 4 * len(raw) < MAX_PAGE_BYTES
        following = min(2 * limit, self._pace.page_items) if limit and has_space else limit
        try:
            return await page_of(raw), following
        except UNREADABLE as error:
            raise TemporaryError(f"the response is not a list of objects: {error}") from error

    async def _watch(self) -> bool:
        """Follow one watch to its end; return True if an event arrived or `request_list` ended it."""
        pace, received = self._pace, False
        opened_s: float | None = None
        params = {**self.resource.params, "resourceVersion": self._version}
        seconds = max(1, round(pace.watch_s * self._rng.uniform(0.8, 1.0)))
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._open_watch = scope  # set before the response, so that `request_list` can end the request too
                async with self._session.watch(
                    self.resource.path, params=params, timeout_s=seconds, read_timeout_s=pace.silence_s
                ) as lines:
                    self.problem, self.refusal = "", 0
                    self.last_contact_s = opened_s = self._clock.monotonic_s()
                    async for line in lines:
                        received = True
                        self.last_contact_s = self._clock.monotonic_s()
                        self._take(line)
                        self._pauses.reset()  # only now: the line may be an ERROR event
        except TimeoutError:
            if not scope.expired():
                raise
            received = True
        finally:
            self._open_watch = None
            if opened_s is not None and self._clock.monotonic_s() - opened_s >= _HEALTHY_S:
                self._pauses.reset()  # also if the watch broke: that is a first failure
        return received

    def _take(self, line: bytes) -> None:
        """Apply one event."""
        try:
            event = event_of(line)
            if event.type == "BOOKMARK":
                self._advance(bookmark_of(event).metadata)
        except UNREADABLE as error:
            self._version = ""
            raise TemporaryError(f"a line of the watch is not an event: {error}") from error
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                self._apply(event)
            case "ERROR":
                self._raise_error(bytes(event.object))

    def _apply(self, event: WatchEvent) -> None:
        item = self._decoder.from_bytes(event.object)
        if isinstance(item, Quarantined):
            if event.type == "DELETED":
                self.store.remove((item.namespace, item.name), item.uid)
            else:
                self.store.quarantine(item)
            self._on_change()
            return
        metadata = item.metadata or ObjectMetadata()
        if event.type == "DELETED":
            key, version = key_of(metadata), metadata.resource_version or ""
            before = self.store.objects.get(key)
            changed = self.store.remove(key, metadata.uid or "", version)
            self._tell(before, key, changed=changed)
        else:
            self._store(item, is_known=event.type == "MODIFIED")
        self._advance(metadata)

    def _store(self, item: T, *, is_known: bool = True) -> None:
        key = key_of(item.metadata or ObjectMetadata())
        before = self.store.objects.get(key)
        self._tell(before, key, changed=self.store.add(item, is_known=is_known))

    def _tell(self, before: T | None, key: Key, *, changed: bool) -> None:
        if changed:
            self._on_event(before, self.store.objects.get(key))
            self._on_change()

    def _advance(self, metadata: ObjectMetadata | None) -> None:
        """Set the version from which the next watch resumes, unless a new list is due."""
        if self._version and metadata is not None and metadata.resource_version:
            self._version = metadata.resource_version

    def _raise_error(self, raw: bytes) -> Never:
        try:
            code = msgspec.json.decode(raw, type=ApiStatus).code
        except UNREADABLE:
            code = None
        raise error_of(code or 500, raw, f"watch of {self.resource}")

    async def _pause(self, error: EdlError, *, at_once: bool = False) -> None:
        retry_after_s = error.retry_after_s if isinstance(error, TemporaryError) else None
        await self._pauses.after_failure(retry_after_s=retry_after_s, at_once=at_once)
