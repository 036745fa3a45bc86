"""The objects of one watch, by name, and the recent past that is needed to recognise a repeated or late event.

An event can arrive twice, late, or after its object was deleted, and answers to edl's own writes come ahead of the
watch. So of two states of an object the one with the larger resourceVersion is kept. The store remembers at which
version objects were deleted, so that no older event or list brings them back. A version that is not a number is
compared only for equality. A complete list is believed before all that came before it began: etcd may have been put
back to an older state, in which objects have smaller versions, or the same ones with another content.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Generic, TypeVar

from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import HasMetadata, JobObject, ObjectMetadata

Key = tuple[str, str]
"""Namespace (empty for an object without one) and name."""

_MEASURED = ("dataset", "throughput", "goodput", "globalBatch", "resizeSeconds", "lendingPrice")
"""Fields of a job's status that training updates all the time."""

SLICE = 1000
"""The number of objects of a list to take before other tasks may run: about 10 ms."""

FOR_EVER = "for ever"
"""Stands in place of the version of a deletion if no object with that UID can come back."""

REMEMBERED = 20_000
"""Versions and deleted UIDs that are kept: a few minutes of a large cluster's events."""

T = TypeVar("T", bound=HasMetadata)
Item = TypeVar("Item")


class Recent:
    """The last strings that were added, each with a value."""

    def __init__(self, capacity: int = REMEMBERED) -> None:
        self._values: dict[str, str] = {}
        self._capacity = capacity

    def add(self, name: str, value: str = "") -> None:
        """Store a string with a value; an empty string is ignored."""
        if name:
            self._values[name] = value
            if len(self._values) > self._capacity:
                del self._values[next(iter(self._values))]

    def get(self, name: str) -> str | None:
        """Return the value of a string; None if it is not remembered."""
        return self._values.get(name)

    def discard(self, name: str) -> None:
        """Forget a string."""
        self._values.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._values


class ObjectStore(Generic[T]):
    """The objects of one watch.

    Args:
        arrivals: numbers the arrivals. Two stores share it if an object can move from one watch to the other (because
            its labels change): the larger number is the later arrival.

    Attributes:
        objects: the objects that exist now; one whose content has not changed remains the same Python object.
        quarantined: the objects that exist now and cannot be decoded.
        changed: the names whose object came, changed or went; the reader clears them.
    """

    def __init__(self, arrivals: Iterator[int] | None = None) -> None:
        self.objects: dict[Key, T] = {}
        self.quarantined: dict[Key, Quarantined] = {}
        self.changed: dict[Key, None] = {}
        self._arrivals = arrivals if arrivals is not None else count()
        self._is_shared = arrivals is not None
        self._arrived: dict[Key, int] = {}
        self._versions = Recent()
        self._deleted_uids, self._buried = Recent(), Recent()

    def mark(self) -> int:
        """Return a number that is larger than that of every arrival so far."""
        return next(self._arrivals)

    def arrival(self, key: Key) -> int:
        """Return the sequence number of the arrival of the latest state of an object, given by its name.

        -1 if it is unknown.
        """
        return self._arrived.get(key, -1)

    def add(self, new: T, *, is_known: bool = False) -> bool:
        """Take an object from an event or an answer; return True if a decision must take the change into account.

        Args:
            new: the object.
            is_known: the event says that the object existed before, so it does not bring a deleted one back.
        """
        metadata = new.metadata or ObjectMetadata()
        version, uid = metadata.resource_version or "", metadata.uid or ""
        key = key_of(metadata)
        if version in self._versions or self._is_late(key, uid, version, is_known=is_known):
            return False
        self._versions.add(version)
        return self._put(key, new)

    def remove(self, key: Key, uid: str, version: str = "") -> bool:
        """Remove the object of that name if it still has that UID; return True if it was in the store.

        Args:
            key: its namespace and name.
            uid: its UID; empty if that is unknown.
            version: the resourceVersion of the deletion, or `FOR_EVER` if the API server said that it is gone.
        """
        now = self.objects.get(key)
        if now is not None and uid_of(now) == uid and is_older(version, version_of(now)):
            return False  # it left the watch, and an answer showed it again
        self._versions.add(version if version != FOR_EVER else "")
        self._bury(uid, version)
        was_quarantined = self.quarantined.pop(key, None) is not None
        if was_quarantined:
            self.changed[key] = None
        if now is None or (uid and uid_of(now) != uid):
            return was_quarantined
        self._drop(key, version)
        return True

    def quarantine(self, unreadable: Quarantined) -> None:
        """Note an object that cannot be decoded; the object that had its name is stale and is removed."""
        key = (unreadable.namespace, unreadable.name)
        self.objects.pop(key, None)
        self._arrived.pop(key, None)
        self.changed[key] = None
        self.quarantined[key] = unreadable

    def replace(self, objects: Iterable[T], unreadable: Iterable[Quarantined] = (), version: str = "") -> bool:
        """Take a complete list: objects that are not in it were deleted. Return True as `add` does."""
        changes = list(self.replacing(objects, unreadable, version))
        return any(changes)

    def replacing(
        self, objects: Iterable[T], unreadable: Iterable[Quarantined] = (), version: str = "", begun: int = -1
    ) -> Iterator[bool]:
        """Take a complete list as `replace` does, in small parts; yields for each part whether it changed something.

        An object that cannot be decoded is never missing in between: it keeps its place, or what was known of it.
        What an answer has shown since the list was begun stays, if its version is larger than that of the list.

        Args:
            objects: the objects of the list.
            unreadable: those of them that cannot be decoded.
            version: the resourceVersion of the list.
            begun: the `mark` of when the list began; everything may be newer than the list without it.
        """
        listed: dict[Key, T] = {}
        for some in _parts(objects, SLICE):
            listed.update((key_of(obj.metadata or ObjectMetadata()), obj) for obj in some)
            yield False
        left_out = {(one.namespace, one.name): one for one in unreadable}
        deleted = [
            key
            for key, obj in self.objects.items()
            if key not in listed
            and key not in left_out
            and not (self._arrived.get(key, -1) >= begun and is_older(version, version_of(obj)))
        ]
        for key in deleted:
            self._drop(key, version)
        yield bool(deleted)
        for part in _parts(listed.items(), SLICE):
            changes = [self._put(key, obj) for key, obj in part if not self._is_outdated(key, obj, version, begun)]
            yield any(changes)
        self.changed.update(dict.fromkeys(self.quarantined))
        self.quarantined = {}
        for one in left_out.values():
            self.quarantine(one)
        self._versions = Recent()  # an event may come with the version of one that the list has made void

    def _is_late(self, key: Key, uid: str, version: str, *, is_known: bool) -> bool:
        """Return True for an event that shows an object as it was before; another object may have its name now."""
        now, deleted = self.objects.get(key), self._deleted_uids.get(uid)
        if now is not None and _are_numbers(version, version_of(now)):
            return int(version) <= int(version_of(now)) or deleted == FOR_EVER
        if deleted is None:
            return False
        if _are_numbers(version, deleted):
            return int(version) <= int(deleted)
        return deleted == FOR_EVER or (is_known if now is None else uid_of(now) != uid)

    def _is_outdated(self, key: Key, listed: T, version: str, begun: int) -> bool:
        """Return True if the list shows an older state than an answer has.

        Forget a deletion that the list refutes.
        """
        now, uid = self.objects.get(key), uid_of(listed)
        base = version if version.isdecimal() else version_of(listed)
        if now is not None and self._arrived.get(key, -1) >= begun and is_older(base, version_of(now)):
            return True
        deleted = self._deleted_uids.get(uid)
        if deleted is None:
            return False
        if int(self._buried.get(uid) or -1) >= begun and (
            deleted == FOR_EVER or is_older(version_of(listed), deleted)
        ):
            return True
        self._deleted_uids.discard(uid)
        return False

    def _put(self, key: Key, new: T) -> bool:
        if self.quarantined.pop(key, None) is not None:
            self.changed[key] = None
        self._arrived[key] = next(self._arrivals)
        old = self.objects.get(key)
        if old is not None:
            if uid_of(old) != uid_of(new):
                self._bury(uid_of(old), version_of(new))
            elif _take_version_if_equal(old, new):
                if self._is_shared:  # the other store may have the object too, and this arrival is the later one
                    self.changed[key] = None
                return False
        self.objects[key] = new
        self.changed[key] = None
        return old is None or not _differ_only_in_measurements(old, new)

    def _drop(self, key: Key, version: str) -> None:
        old = self.objects.pop(key)
        self.changed[key] = None
        self._arrived.pop(key, None)
        self._bury(uid_of(old), version)

    def _bury(self, uid: str, version: str) -> None:
        if self._deleted_uids.get(uid) != FOR_EVER:
            self._deleted_uids.add(uid, version)
        self._buried.add(uid, str(next(self._arrivals)))


def key_of(metadata: ObjectMetadata) -> Key:
    """Return the namespace and name of an object."""
    return (metadata.namespace or "", metadata.name or "")


def uid_of(obj: HasMetadata) -> str:
    """Return the UID of an object; empty if it has none."""
    return (obj.metadata.uid or "") if obj.metadata else ""


def version_of(obj: HasMetadata) -> str:
    """Return the resourceVersion of an object; empty if it has none."""
    return (obj.metadata.resource_version or "") if obj.metadata else ""


def is_later(one: ObjectStore[T], other: ObjectStore[T], key: Key) -> bool:
    """Return True if the first store alone has the object, or has a later state of it than the second one."""
    first, second = one.objects.get(key), other.objects.get(key)
    if first is not None and second is not None and _are_numbers(version_of(first), version_of(second)):
        return int(version_of(first)) > int(version_of(second))
    return one.arrival(key) > other.arrival(key)


def is_older(version: str, than: str) -> bool:
    """Return True if both resourceVersions are numbers, and the first one is smaller."""
    return _are_numbers(version, than) and int(version) < int(than)


def _are_numbers(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal()


def _differ_only_in_measurements(old: HasMetadata, new: HasMetadata) -> bool:
    """Return True if a job changed only in what training measures, which needs no decision at once."""
    if not (isinstance(old, JobObject) and isinstance(new, JobObject)):
        return False
    return uid_of(old) == uid_of(new) and _without_measurements(old) == _without_measurements(new)


def _without_measurements(job: JobObject) -> dict[str, object]:
    left_out = {"metadata": ("resourceVersion",), "status": _MEASURED}
    return job.body | {section: _without(job.body.get(section), names) for section, names in left_out.items()}


def _without(section: object, names: tuple[str, ...]) -> object:
    return {k: v for k, v in section.items() if k not in names} if isinstance(section, dict) else section


def _take_version_if_equal(old: HasMetadata, new: HasMetadata) -> bool:
    """Return True if only the version differs (a node's heartbeat); then the old object takes the new version.

    It remains the same Python object, so whatever was computed from it stays valid and no decision is made again.
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


def _parts(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
