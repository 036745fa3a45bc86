"""What the parts of the server share: the objects, the kinds, the clock and the random names."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from edl.sandbox.apiserver.errors import not_found
from edl.sandbox.apiserver.kinds.ages import timestamp
from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.registry import Registry
from edl.sandbox.apiserver.storage.store import Entry, Key, Store

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: no vowels, so that no word appears."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Cluster:
    """The state of one server.

    Attributes:
        store: the objects.
        registry: the kinds.
        now: the clock.
        chance: generates names and UIDs; seeded in tests.
        authority: the certificate authority in PEM, for kube-root-ca.crt; empty without TLS.
        tokens: the user and groups of each bearer token.
    """

    store: Store = field(default_factory=Store)
    registry: Registry = field(default_factory=Registry)
    now: Callable[[], datetime] = _now
    chance: random.Random = field(default_factory=random.Random)
    authority: str = ""
    tokens: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def timestamp(self) -> str:
        """The present time in the format of the API."""
        return timestamp(self.now())

    def uid(self) -> str:
        """Make a new UID."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def suffix(self) -> str:
        """Make the random end of a generated name."""
        return "".join(self.chance.choices(_NAME_LETTERS, k=5))

    def entry(self, kind: Kind, key: Key) -> Entry:
        """Return one object of the store; an error if it does not exist.

        Raises:
            ApiError: 404, there is none.
        """
        found = self.store.get(kind.resource, key)
        if found is None:
            raise not_found(kind.plural, kind.group, key[1])
        return found

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return one object of a collection; None if it does not exist."""
        found = self.store.get(resource, (namespace, name))
        return None if found is None else found.value
