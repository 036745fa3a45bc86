"""Sentences for people out of pydantic's error records: field, value, rule, remedy, and never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_MAX_SHOWN = 60
_MAX_COMPARED = 100
"""Unknown fields of one part that are compared with a missing one: somebody may have written a hundred thousand."""


def describe(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One sentence for each broken rule, in the order of the fields.

    Args:
        error: what was raised.
        model: what was to be read: of its fields none is taken for the misspelling of another.
    """
    return [_sentence(detail) + _meant(detail, model) for detail in error.errors(include_url=False)]


_OBJECT = "{value} is not an object; write fields under it"
_WHOLE = "{value} is not a whole number; write one without quotes and decimals"
_NUMBER = "{value} is not a finite number; write one without quotes"
_LONG = "is longer than the {max_length} it may have; shorten it"
_SHORT = "is shorter than the {min_length} it must have; fill it in"
_KNOWN = "{value} is not known; use {expected}"
_SENTENCES = {
    "bool_type": "{value} is not true or false; write one of them without quotes",
    "dict_type": _OBJECT,
    "enum": _KNOWN,
    "finite_number": _NUMBER,
    "float_type": _NUMBER,
    "greater_than_equal": "{value} is below {ge}; raise it",
    "int_from_float": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "less_than_equal": "{value} exceeds {le}; lower it",
    "list_type": "{value} is not a list; write items under it, each with a dash",
    "literal_error": _KNOWN,
    "mapping_type": _OBJECT,
    "missing": "is missing; add it",
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "string_pattern_mismatch": "{value} does not match {pattern}; correct it",
    "string_too_long": _LONG,
    "string_too_short": _SHORT,
    "string_type": "{value} is not a text; write it in quotes",
    "too_long": _LONG,
    "too_short": _SHORT,
    "value_error": "{error}",
}


def _sentence(detail: ErrorDetails) -> str:
    kind = detail["type"]
    template = _SENTENCES.get(kind, "{value} cannot be used (" + kind.replace("_", " ") + "); correct it")
    facts = {**detail.get("ctx", {}), "value": _shown(detail["input"])}
    return f"{_path(detail['loc'])} {template.format(**facts)}"


def _meant(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """Which field that is none stands in the place of a missing one, as the end of a sentence."""
    location, written = detail["loc"], detail["input"]
    if detail["type"] != "missing" or not isinstance(written, Mapping):
        return ""
    known = _fields(model, location[:-1])
    readable = (key for key in map(str, written) if len(key) <= _MAX_SHOWN and key.isprintable())
    unknown = islice((key for key in readable if key not in known), _MAX_COMPARED)
    near = get_close_matches(str(location[-1]), list(unknown), n=1)
    return f"; {near[0]}, which is no field, may be meant for it" if near else ""


def _fields(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """The fields that the part at a location may have."""
    models = [model]
    for name in (part for part in location if isinstance(part, str)):
        found = [field for one in models for key, field in one.model_fields.items() if name == (field.alias or key)]
        models = [inner for field in found for inner in _models(field.annotation)]
    return {field.alias or key for one in models for key, field in one.model_fields.items()}


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _path(location: tuple[int | str, ...]) -> str:
    """`spec.trainer.policies[0].event`."""
    path = ""
    for part in location:
        text = str(part)[:_MAX_SHOWN]
        path += f"[{text}]" if isinstance(part, int) else f".{text}" if path else text
    return path or "the object"


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list):
        return f"({'an object' if isinstance(value, Mapping) else 'a list'})"
    if isinstance(value, str):
        return json.dumps(value[:_MAX_SHOWN], ensure_ascii=False) + ("..." if len(value) > _MAX_SHOWN else "")
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) > 10**_MAX_SHOWN:
        return "(a huge number)"
    return str(value)[:_MAX_SHOWN]
