"""The base of all Kubernetes objects, and the values that a field of text can have."""

from __future__ import annotations

from typing import Any

import msgspec

Scalar = str | int | float | bool | None
"""A field that is text in Kubernetes can be one of these in a hand-written file: `index: 3`, `cpu: 0.5`."""


def text(value: Scalar) -> str:
    """Return a scalar as Kubernetes writes it; empty for null."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def mapping(value: object) -> dict[str, Any]:
    """Return a value that a user wrote if it is a mapping; an empty one if it is anything else."""
    return value if isinstance(value, dict) else {}


class ApiStruct(msgspec.Struct, gc=False, rename="camel"):
    """Base class of all decoded objects.

    They are trees without cycles, so Python need not search them for garbage.
    """
