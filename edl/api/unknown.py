"""Fields that a TrainingJob or a Queue does not have; the API server drops them, and kubectl and `edl plan` warn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice

from edl.api.base import Part
from edl.api.v1 import KIND
from edl.model.units import count

MAX_NAMED = 50
"""The most fields that are named; to look for the field that each was meant for takes long."""


def unknown_fields(spec: Part, written: object, kind: str = KIND) -> Iterator[str]:
    """Yield one warning for each field of a spec that the resource does not have, with the field it may be meant for.

    Beyond `MAX_NAMED` they are only counted.

    Args:
        spec: parsed.
        written: the spec as the user wrote it.
        kind: the kind of the resource.
    """
    found = _unknown(spec, written, "spec")
    for path, known in islice(found, MAX_NAMED):
        name = path.rpartition(".")[2]
        near = get_close_matches(name, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else "remove it or correct its name"
        yield f"{path} is not a field of a {kind}, and edl ignores it; {remedy}"
    if more := sum(1 for _ in found):
        yield f"{count(more, 'more field')} of spec do not exist in a {kind}, and edl ignores them; remove them"


def _unknown(part: object, written: object, path: str) -> Iterator[tuple[str, list[str]]]:
    """The path of each unknown field, with the names of the known fields at that place."""
    if isinstance(part, Part) and isinstance(written, Mapping):
        fields = {field.alias or name: name for name, field in type(part).model_fields.items()}
        is_open = type(part).model_config.get("extra") == "allow"
        for key, value in written.items():
            if key in fields:
                yield from _unknown(getattr(part, fields[key]), value, f"{path}.{key}")
            elif not is_open and value is not None:
                yield f"{path}.{key}", list(fields)
    elif isinstance(part, list | tuple) and isinstance(written, list):
        for number, (inner, value) in enumerate(zip(part, written, strict=False)):
            yield from _unknown(inner, value, f"{path}[{number}]")
