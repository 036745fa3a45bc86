"""Our own writes that the cache does not show yet.

A decision taken from a cache that has not seen the last decision's writes would take them again: create a second pod,
choose a second victim. So every write is expected back, object by object, and no decision is taken before the cache
shows it or something newer. An event can be lost; what stays away too long makes the cache list again, and a complete
list that was begun after the write settles every doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from edl.kube.mirror.reflector import Reflector
from edl.kube.mirror.store import Key, uid_of, version_of
from edl.kube.translate.objects import HasMetadata

OVERDUE_S = 10.0
"""After this time without the expected event everything of that kind is listed again."""


class Verb(StrEnum):
    """What we did to the object."""

    CREATED = "created"
    DELETED = "deleted"
    PATCHED = "patched"


@dataclass(slots=True)
class Expectation:
    """One write of ours.

    Attributes:
        uid: of the object written.
        version: its resourceVersion after a patch.
        due_s: when waiting for the event ends, by the monotonic clock.
        lists: for each reflector of the kind, the number of the last list begun before the write was known.
        is_listing: a new list was asked for.
    """

    verb: Verb
    kind: str
    key: Key
    uid: str
    version: str
    due_s: float
    lists: tuple[int, ...]
    is_listing: bool = False

    def __str__(self) -> str:
        name = "/".join(filter(None, self.key))
        return f"the cache does not show yet that we {self.verb} {self.kind} {name}"


class Expectations:
    """The writes that are still expected back.

    Args:
        reflectors: by kind, those that mirror it; writes of other kinds are not expected back.
        monotonic_s: the time.
        overdue_s: how long to wait for an event.
    """

    def __init__(
        self,
        reflectors: Callable[[str], Sequence[Reflector[HasMetadata]]],
        monotonic_s: Callable[[], float],
        *,
        overdue_s: float = OVERDUE_S,
    ) -> None:
        self._reflectors = reflectors
        self._monotonic_s = monotonic_s
        self._overdue_s = overdue_s
        self._open: list[Expectation] = []

    def expect(self, verb: Verb, kind: str, key: Key, uid: str, version: str = "") -> None:
        """Expect a write back."""
        reflectors = self._reflectors(kind)
        if reflectors:
            due_s = self._monotonic_s() + self._overdue_s
            begun = tuple(r.lists_begun for r in reflectors)
            self._open.append(Expectation(verb, kind, key, uid, version, due_s, begun))

    def unmet(self) -> list[str]:
        """Say what is still expected, and have listed again what is overdue."""
        self._open = [e for e in self._open if not self._is_met(e)]
        now_s = self._monotonic_s()
        said = []
        for expectation in self._open:
            if now_s >= expectation.due_s:
                self._list_again(expectation)
                said.append(f"{expectation} after {self._overdue_s:g} s; everything of that kind is listed again")
            else:
                said.append(str(expectation))
        return said

    def _list_again(self, expectation: Expectation) -> None:
        if not expectation.is_listing:
            expectation.is_listing = True
            for reflector in self._reflectors(expectation.kind):
                reflector.request_list()

    def _is_met(self, expectation: Expectation) -> bool:
        reflectors = self._reflectors(expectation.kind)
        if all(r.lists_done > begun for r, begun in zip(reflectors, expectation.lists, strict=True)):
            return True
        return any(_shows(r, expectation) for r in reflectors) or (
            expectation.verb is Verb.DELETED and not any(_holds(r, expectation) for r in reflectors)
        )


def _shows(reflector: Reflector[HasMetadata], expectation: Expectation) -> bool:
    """True where the store shows the write, or something that came after it."""
    store = reflector.store
    if store.was_deleted(expectation.uid) and not _holds(reflector, expectation):
        return True
    obj = store.objects.get(expectation.key)
    match expectation.verb:
        case Verb.CREATED:
            return obj is not None and uid_of(obj) == expectation.uid
        case Verb.PATCHED:
            shown = obj is not None and version_of(obj) == expectation.version
            return shown or store.has_seen(expectation.version)
        case Verb.DELETED:
            return False


def _holds(reflector: Reflector[HasMetadata], expectation: Expectation) -> bool:
    """True where the object is there and nobody has begun to delete it."""
    obj = reflector.store.objects.get(expectation.key)
    if obj is None or uid_of(obj) != expectation.uid:
        return False
    return obj.metadata is None or obj.metadata.deletion_timestamp is None
