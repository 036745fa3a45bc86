"""What a controller remembers, as bytes: equal memories are equal bytes.

The values of `edl.model` never change, so each is kept once, and a memory holds its name instead of a copy.
"""

from __future__ import annotations

import io
import pickle
import re
from types import NoneType
from typing import Any

_BARE = frozenset({str, int, float, bool, NoneType, tuple, list, dict, set})
_UID = re.compile(rb"[a-z]+-[a-z]+-\d#\d+")


class Memories:
    """Writes memories and reads them."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._names: dict[bytes, str] = {}
        self._name_of_object: dict[int, str] = {}

    def write(self, memory: Any) -> bytes:
        """A memory as bytes."""
        kept = io.BytesIO()
        _Pickler(kept, self, memory).dump(memory)
        return kept.getvalue()

    def read(self, memory: bytes) -> Any:
        """A memory that was written before."""
        return _Unpickler(memory, self._values).load()

    def name_of(self, value: Any) -> str | None:
        """The name of a value of `edl.model`; None if it is anything else. It ends with the UIDs in the value."""
        name = self._name_of_object.get(id(value))
        if name is not None or not type(value).__module__.startswith("edl.model."):
            return name
        content = self.write(value)
        name = self._names.get(content)
        if name is None:
            uids = sorted({uid.decode() for uid in _UID.findall(content)})
            name = self._names[content] = " ".join((str(len(self._values)), *uids))
            self._values[name] = value  # which also keeps its id from being given to another object
            self._name_of_object[id(value)] = name
        return name


def uids_in(memory: bytes) -> set[str]:
    """The UIDs of the pods in a memory."""
    return {uid.decode() for uid in _UID.findall(memory)}


class _Pickler(pickle.Pickler):
    """Writes the value that it is made for in full, and the names of the values in it."""

    def __init__(self, file: io.BytesIO, memories: Memories, whole: Any) -> None:
        super().__init__(file)
        self.fast = True  # equal values give equal bytes, whether or not they are one object
        self._name_of, self._whole = memories.name_of, whole

    def persistent_id(self, value: Any) -> str | None:
        """Called for each object before it is written."""
        return None if type(value) in _BARE or value is self._whole else self._name_of(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, memory: bytes, values: dict[str, Any]) -> None:
        super().__init__(io.BytesIO(memory))
        self._values = values

    def persistent_load(self, name: str) -> Any:
        """Called for each name."""
        return self._values[name]
