"""The objects in memory: one version counter, and for each resource its objects and its last changes.

Objects are never changed in place: a commit replaces the whole object, so a reader may keep what it got. The kept
changes let a watch resume from an older version and let a paged list continue from a consistent state. Nothing here
waits, so on one event loop every commit is atomic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-wide object is empty."""

KEPT_CHANGES = 10_000
"""Changes of each resource that a watch can resume from."""


class ChangeType(StrEnum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(slots=True)
class Entry:
    """One version of one object; `raw` is its JSON."""

    value: Object
    version: int
    _raw: bytes = b""

    @property
    def raw(self) -> bytes:
        """The object as JSON, encoded once."""
        if not self._raw:
            self._raw = msgspec.json.encode(self.value)
        return self._raw


@dataclass(frozen=True, slots=True)
class Change:
    """One commit. `entry` is the new state; for a deletion, the last state with a new version."""

    version: int
    type: ChangeType
    key: Key
    entry: Entry
    previous: Entry | None


Listener = Callable[[Change], None]


class TooOldError(Exception):
    """A watch or list asks for a version older than the changes that the store keeps."""


@dataclass(slots=True)
class _Collection:
    """All objects of one resource."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=deque)
    forgotten: int = 0
    listeners: list[Listener] = field(default_factory=list)
    ordered: list[Key] | None = None


class Store:
    """Objects by resource and key; see the module."""

    def __init__(self, *, kept_changes: int = KEPT_CHANGES) -> None:
        self._kept_changes = kept_changes
        self._collections: dict[str, _Collection] = {}
        self.version = 1

    def _of(self, resource: str) -> _Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = _Collection()
        return found

    def get(self, resource: str, key: Key) -> Entry | None:
        """Return one object; None if it does not exist."""
        return self._of(resource).entries.get(key)

    def keys(self, resource: str) -> list[Key]:
        """All keys of a resource, sorted as etcd sorts them."""
        collection = self._of(resource)
        if collection.ordered is None:
            collection.ordered = sorted(collection.entries)
        return collection.ordered

    def entries(self, resource: str, namespace: str = "", *, at: int | None = None) -> list[tuple[Key, Entry]]:
        """All objects of a resource, by key.

        Args:
            resource: its name with its group.
            namespace: only this one; empty for all.
            at: as they were at this version; None for now.

        Raises:
            TooOldError: the changes since that version are not kept any more.
        """
        collection = self._of(resource)
        if at is None or at >= self.version:
            found = [(key, collection.entries[key]) for key in self.keys(resource)]
        else:
            found = sorted(self._as_of(collection, at).items())
        return [pair for pair in found if not namespace or pair[0][0] == namespace]

    def _as_of(self, collection: _Collection, at: int) -> dict[Key, Entry]:
        if at < collection.forgotten:
            raise TooOldError
        state = dict(collection.entries)
        for change in reversed(collection.changes):
            if change.version <= at:
                break
            if change.previous is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.previous
        return state

    def changes_since(self, resource: str, version: int) -> list[Change]:
        """The changes of a resource after a version, oldest first.

        Raises:
            TooOldError: they are not all kept any more.
        """
        collection = self._of(resource)
        if version < collection.forgotten:
            raise TooOldError
        changes = collection.changes
        return list(changes)[bisect_right(changes, version, key=lambda change: change.version) :]

    def listen(self, resource: str, listener: Listener) -> Callable[[], None]:
        """Call a function at each commit of a resource; the returned function ends that."""
        listeners = self._of(resource).listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def put(self, resource: str, key: Key, value: Object) -> Entry:
        """Create or replace an object; its metadata.resourceVersion is set here."""
        collection = self._of(resource)
        previous = collection.entries.get(key)
        entry = self._stamped(value)
        collection.entries[key] = entry
        if previous is None:
            collection.ordered = None
        kind = ChangeType.ADDED if previous is None else ChangeType.MODIFIED
        self._note(collection, Change(entry.version, kind, key, entry, previous))
        return entry

    def remove(self, resource: str, key: Key) -> Entry:
        """Delete an object that exists; returns its last state with the version of the deletion."""
        collection = self._of(resource)
        previous = collection.entries.pop(key)
        collection.ordered = None
        entry = self._stamped(previous.value)
        self._note(collection, Change(entry.version, ChangeType.DELETED, key, entry, previous))
        return entry

    def forget_changes(self) -> None:
        """Drop all kept changes, as a compaction of etcd does: older versions answer 410."""
        for collection in self._collections.values():
            collection.changes.clear()
            collection.forgotten = self.version

    def forget_resource(self, resource: str) -> None:
        """Drop a resource with its objects, when its CustomResourceDefinition goes."""
        self._collections.pop(resource, None)

    def all_keys(self) -> Iterator[tuple[str, Key]]:
        """Every object: (resource, key)."""
        for resource, collection in list(self._collections.items()):
            yield from ((resource, key) for key in list(collection.entries))

    def _stamped(self, value: Object) -> Entry:
        self.version += 1
        metadata = {**value["metadata"], "resourceVersion": str(self.version)}
        return Entry({**value, "metadata": metadata}, self.version)

    def _note(self, collection: _Collection, change: Change) -> None:
        collection.changes.append(change)
        if len(collection.changes) > self._kept_changes:
            collection.forgotten = collection.changes.popleft().version
        for listener in tuple(collection.listeners):
            listener(change)
