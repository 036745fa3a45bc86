"""The writes of edl that the cache does not show yet.

A decision that does not see the writes of the last decision would repeat them: it would create a second pod, or
choose a second victim. So edl expects the event of every write, and makes no decision before the cache shows the
written object or a newer state of it. An event can be lost: if it does not arrive in time, the cache lists again. A
complete list that began after the write always meets the expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from edl.kube.mirror.reflector import Reflector
from edl.kube.mirror.store import Key, uid_of, version_of
from edl.kube.translate.objects import HasMetadata

OVERDUE_S = 10.0
"""If the expected event does not arrive within this time, edl lists all objects of the kind again."""


class Verb(StrEnum):
    """What edl did to the object."""

    CREATED = "created"
    DELETED = "deleted"
    PATCHED = "patched"


@dataclass(slots=True)
class Expectation:
    """One write of edl.

    Attributes:
        uid: of the written object.
        version: its resourceVersion after a patch.
        due_s: the monotonic time at which the event is overdue.
        lists: for each reflector of the kind, the number of the last list that began before the write.
        is_listing: a new list was requested.
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
        return f"the cache does not show yet that edl {self.verb} {self.kind} {name}"


class Expectations:
    """The writes whose events have not arrived yet.

    Args:
        reflectors: returns the reflectors of a kind; if it has none, its events are not expected.
        monotonic_s: returns the monotonic time in seconds.
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
        """Expect the event of a write."""
        reflectors = self._reflectors(kind)
        if reflectors:
            due_s = self._monotonic_s() + self._overdue_s
            begun = tuple(r.lists_begun for r in reflectors)
            self._open.append(Expectation(verb, kind, key, uid, version, due_s, begun))

    def unmet(self) -> list[str]:
        """Describe each write that the cache does not show; request a new list if one is overdue."""
        self._open = [e for e in self._open if not self._is_met(e)]
        now_s = self._monotonic_s()
        messages = []
        for expectation in self._open:
            if now_s >= expectation.due_s:
                self._list_again(expectation)
                messages.append(
                    f"{expectation}, although {self._overdue_s:g} s have passed; edl lists that kind again"
                )
            else:
                messages.append(str(expectation))
        return messages

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
    """Return True if the store shows the write or something later."""
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
    """Return True if the object is in the store and is not terminating."""
    obj = reflector.store.objects.get(expectation.key)
    if obj is None or uid_of(obj) != expectation.uid:
        return False
    return obj.metadata is None or obj.metadata.deletion_timestamp is None
