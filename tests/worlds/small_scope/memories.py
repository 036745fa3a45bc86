"""What a controller remembers, as values that can be compared: equal memories are equal, whatever objects they hold.

The values of `edl.model` and `edl.lifecycle` never change, so each is kept once, and a memory holds its number. Times
of the controller's clock are kept as what they are to the controller: past, due within a pause, or never due here.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

from edl.controller.pending_writes import Write

NOW_S = 1_000_000.0
"""The controller's clock stands still: time passes in that what it remembers grows older."""
PAUSE_S, PAST_S, SOON_S, NEVER_S = 401.0, NOW_S - 401.0, NOW_S + 100.0, NOW_S + 5000.0
"""A pause is longer than all that is waited for but repairs; all that is past is as long ago as a pause."""
REMEMBERING = ("edl.controller.", "edl.lifecycle.trials.")
"""The modules whose objects change, and have times of the controller's clock."""
FREE_S = NOW_S - 2.5
"""Since then surplus was held back that may be sent now (`allotments.HELD_S`)."""
_NEAR_S = 100_000.0
_UID = re.compile(r"[a-z]+-[a-z]+-\d#\d+")


class Kept(NamedTuple):
    """A value that is kept once, by its number."""

    number: int


class Made(NamedTuple):
    """A container or an object: how it is made, and of what."""

    kind: Any
    parts: tuple[Any, ...]


class Memories:
    """Turns memories into values and back."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, Kept] = {}
        self._of_object: dict[int, Kept] = {}
        self._uids: dict[Any, frozenset[str]] = {}

    def freeze(self, value: Any, *, is_ordered: bool = False) -> Hashable:
        """A memory as a value.

        Args:
            value: a container, an object of `edl.controller`, or a value of `edl.model`.
            is_ordered: the order of dicts counts.
        """
        kind = type(value)
        if kind in _BARE or isinstance(value, Enum):
            frozen = _time(value) if kind is float else value
        elif kind in _SEQUENCES:
            frozen = Made(kind, tuple(self.freeze(one, is_ordered=is_ordered) for one in value))
        elif kind in _SETS:
            frozen = Made(kind, tuple(sorted(map(self.freeze, value), key=repr)))
        elif kind in _DICTS:
            pairs = [(self.freeze(key), self.freeze(one, is_ordered=is_ordered)) for key, one in value.items()]
            if len(pairs) > 1 and not is_ordered:
                pairs.sort(key=lambda pair: repr(pair[0]))
            frozen = Made(kind, tuple(pairs))
        elif (frozen := self._of_object.get(id(value))) is None:
            names: tuple[str, ...] = _fields(kind)
            parts = tuple(self.freeze(getattr(value, name)) for name in names)
            frozen = Made(kind, parts) if names else self._keep(value)
        return frozen

    def thaw(self, frozen: Any, older_s: float = 0.0) -> Any:
        """A memory as objects; its times are that much longer ago."""
        if type(frozen) is Kept:
            return self.values[frozen.number]
        if type(frozen) is float:
            return frozen - older_s if abs(frozen - NOW_S) < _NEAR_S and frozen != NEVER_S else frozen
        if type(frozen) is not Made:
            return frozen
        kind, parts = frozen
        if kind in _DICTS:
            return kind({self.thaw(key): self.thaw(one, older_s) for key, one in parts})
        if kind in _SEQUENCES or kind in _SETS:
            return kind([self.thaw(one, older_s) for one in parts])
        made = object.__new__(kind)
        for name, one in zip(_fields(kind), parts, strict=True):
            object.__setattr__(made, name, self.thaw(one, older_s))
        return made

    def uids(self, frozen: Any) -> frozenset[str]:
        """The UIDs of the pods in a memory."""
        if isinstance(frozen, str):
            return frozenset(_UID.findall(frozen)) if "#" in frozen else frozenset()
        if type(frozen) is Kept and frozen not in self._uids:
            self._uids[frozen] = frozenset(_UID.findall(repr(self.values[frozen.number])))
        if type(frozen) is Kept:
            return self._uids[frozen]
        found: frozenset[str] = frozenset()
        for part in frozen if isinstance(frozen, tuple) else ():
            found |= self.uids(part)
        return found

    def _keep(self, value: Any) -> Kept:
        try:
            known = self._numbers.get(key := value)
        except TypeError:
            known = self._numbers.get(key := pickle.dumps(value))
        if known is None:
            known = self._numbers[key] = Kept(len(self.values))
            self.values.append(value)  # so that no other object gets its id
            self._of_object[id(value)] = known
        return known


def _fields(kind: type) -> tuple[str, ...]:
    """The fields of an object that is written with its parts; none for a value that is kept once."""
    if (known := _FIELDS.get(kind)) is None:
        is_whole = not kind.__module__.startswith(REMEMBERING) or not is_dataclass(kind) or kind is Write
        known = _FIELDS[kind] = () if is_whole else tuple(field.name for field in fields(kind))
    return known


def _time(value: float) -> float:
    if not isfinite(value) or abs(value - NOW_S) >= _NEAR_S:
        return value
    if value <= NOW_S:
        return value if value in {NOW_S, FREE_S} else PAST_S
    return SOON_S if value < NOW_S + PAUSE_S else NEVER_S


_FIELDS: dict[type, tuple[str, ...]] = {}
_BARE: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_SEQUENCES: frozenset[Callable[..., Any]] = frozenset({tuple, list, deque})
_SETS: frozenset[Callable[..., Any]] = frozenset({set, frozenset})
_DICTS: frozenset[Callable[..., Any]] = frozenset({dict, Counter})
