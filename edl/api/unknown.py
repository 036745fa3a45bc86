"""Fields that a TrainingJob does not have: the API server drops them and kubectl warns, as does a plan of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from edl.api.base import Part
from edl.api.v1 import TrainingJob


def unknown_fields(job: TrainingJob, body: Mapping[str, object]) -> Iterator[str]:
    """Name each field of a spec that the resource does not have, as a sentence with the name that may be meant.

    Args:
        job: parsed from the body.
        body: the object as it was written; what it says beside its spec is of no concern here.
    """
    for path, known in _unknown(job.spec, body.get("spec"), "spec"):
        name = path.rpartition(".")[2]
        near = get_close_matches(name, known, n=1)
        meant = f"; {near[0]} may be meant" if near else "; take it out, or correct its name"
        yield f"{path} is no field of a TrainingJob, and what it says is dropped{meant}"


def _unknown(part: object, written: object, path: str) -> Iterator[tuple[str, list[str]]]:
    """The path of each unknown field, with the fields that are known in its place."""
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
