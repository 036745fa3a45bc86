"""What one watch has told us: objects by name, and enough memory of the past to recognise a repeated event.

resourceVersions are opaque: they are compared for equality only. So that events which arrive twice, late or after
their object has gone do no harm, a store remembers the versions and the deleted UIDs that it has seen lately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Generic, TypeVar

from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import HasMetadata, JobObject, Metadata

Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""

_TOLD = ("dataset", "throughput", "resizeSeconds")
"""Of a job's status: what training tells of itself, again and again."""

REMEMBERED = 20_000
"""Versions and deleted UIDs kept: some minutes of a large cluster's events."""

T = TypeVar("T", bound=HasMetadata)


class Recent:
    """A bounded memory of words."""

    def __init__(self, capacity: int = REMEMBERED) -> None:
        self._words: dict[str, None] = {}
        self._capacity = capacity

    def add(self, word: str) -> None:
        """Remember a word; the empty one means nothing."""
        if word:
            self._words[word] = None
            if len(self._words) > self._capacity:
                del self._words[next(iter(self._words))]

    def __contains__(self, word: str) -> bool:
        return word in self._words


class ObjectStore(Generic[T]):
    """The objects of one watch.

    Args:
        arrivals: numbers arrivals; stores that share objects (an object moves from one watch to the other when its
            labels change) share it, so that the later arrival can be told.

    Attributes:
        objects: what is there now; an object whose content has not changed stays the same Python object.
        quarantined: what is there and could not be decoded.
    """

    def __init__(self, arrivals: Iterator[int] | None = None) -> None:
        self.objects: dict[Key, T] = {}
        self.quarantined: dict[Key, Quarantined] = {}
        self._arrivals = arrivals if arrivals is not None else count()
        self._arrived: dict[Key, int] = {}
        self._versions = Recent()
        self._buried = Recent()

    def has_seen(self, version: str) -> bool:
        """True where an object with that resourceVersion is or was here lately."""
        return version in self._versions

    def was_deleted(self, uid: str) -> bool:
        """True where the object with that UID was here and has left lately."""
        return uid in self._buried

    def arrival(self, key: Key) -> int:
        """When the object under that name last arrived; -1 where there is none."""
        return self._arrived.get(key, -1)

    def add(self, new: T, *, is_known: bool = False) -> bool:
        """Take an object as a watch tells it; True where something that matters has changed.

        Args:
            new: the object.
            is_known: the watch says that the object existed here before, so one that has left has not come back.
        """
        metadata = new.metadata or Metadata()
        version, uid = metadata.resource_version or "", metadata.uid or ""
        key = key_of(metadata)
        if version in self._versions or self._is_ghost(key, uid, is_known=is_known):
            return False
        self._versions.add(version)
        return self._put(key, new)

    def remove(self, key: Key, uid: str, version: str = "") -> bool:
        """Drop the object under that name if it still is the one with that UID; True where it was there."""
        self._versions.add(version)
        self._buried.add(uid)
        was_poison = self.quarantined.pop(key, None) is not None
        old = self.objects.get(key)
        if old is None or (uid and uid_of(old) != uid):
            return was_poison
        self._drop(key)
        return True

    def quarantine(self, poison: Quarantined) -> None:
        """Keep the name of an object that cannot be decoded; what was known under that name no longer holds."""
        key = (poison.namespace, poison.name)
        self.objects.pop(key, None)
        self._arrived.pop(key, None)
        self.quarantined[key] = poison

    def replace(self, objects: Iterable[T], poison: Iterable[Quarantined] = ()) -> bool:
        """Take a complete list: what is not in it has been deleted. True where something that matters has changed."""
        listed = {key_of(obj.metadata or Metadata()): obj for obj in objects}
        self.quarantined = {}
        gone = [key for key in self.objects if key not in listed]
        for key in gone:
            self._drop(key)
        changed = [self._put(key, obj) for key, obj in listed.items()]
        for one in poison:
            self.quarantine(one)
        return bool(gone) or any(changed)

    def _is_ghost(self, key: Key, uid: str, *, is_known: bool) -> bool:
        """True for a late event of an object that has left, perhaps for another of the same name."""
        if uid not in self._buried:
            return False
        now = self.objects.get(key)
        return is_known if now is None else uid_of(now) != uid

    def _put(self, key: Key, new: T) -> bool:
        self.quarantined.pop(key, None)
        self._arrived[key] = next(self._arrivals)
        old = self.objects.get(key)
        if old is not None:
            if uid_of(old) != uid_of(new):
                self._buried.add(uid_of(old))
            elif _is_unchanged(old, new):
                return False
        self.objects[key] = new
        return not (old is not None and _only_tells(old, new))

    def _drop(self, key: Key) -> None:
        old = self.objects.pop(key)
        self._arrived.pop(key, None)
        self._buried.add(uid_of(old))


def key_of(metadata: Metadata) -> Key:
    """What names an object within its kind."""
    return (metadata.namespace or "", metadata.name or "")


def uid_of(obj: HasMetadata) -> str:
    """The object's UID, empty where it has none."""
    return (obj.metadata.uid or "") if obj.metadata else ""


def version_of(obj: HasMetadata) -> str:
    """The object's resourceVersion, empty where it has none."""
    return (obj.metadata.resource_version or "") if obj.metadata else ""


def _only_tells(old: HasMetadata, new: HasMetadata) -> bool:
    """True where a job differs only in what training tells of itself, which no round has to be made for at once."""
    if not (isinstance(old, JobObject) and isinstance(new, JobObject)):
        return False
    return uid_of(old) == uid_of(new) and _wish_and_state(old) == _wish_and_state(new)


def _wish_and_state(job: JobObject) -> dict[str, object]:
    parts = {"metadata": ("resourceVersion",), "status": _TOLD}
    return job.body | {part: _without(job.body.get(part), names) for part, names in parts.items()}


def _without(part: object, names: tuple[str, ...]) -> object:
    return {k: v for k, v in part.items() if k not in names} if isinstance(part, dict) else part


def _is_unchanged(old: HasMetadata, new: HasMetadata) -> bool:
    """True where only the version differs (a node's heartbeat); the old object then takes the new version.

    What is known of the old object, by whoever knows it, stays valid, and nobody is woken for nothing.
    """
    before, after = old.metadata, new.metadata
    if before is None or after is None:
        return False
    if isinstance(old, JobObject):
        return bool(before.resource_version) and before.resource_version == after.resource_version
    version, before.resource_version = before.resource_version, after.resource_version
    if old == new:
        return True
    before.resource_version = version
    return False
