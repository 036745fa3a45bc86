"""Messages for users from pydantic's error records: field, value, rule and remedy, without a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edl.model.units import count

_MAX_SHOWN = 60
_MAX_COMPARED = 100
"""At most this many unknown fields are compared with a missing one; a hostile object may have very many."""


def describe(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Write one message for each broken rule, in the order of the fields.

    Args:
        error: the error of pydantic.
        model: the model that was parsed; the names of its fields are never reported as misspellings.
    """
    return [_message(detail) + _misspelling(detail, model) for detail in error.errors(include_url=False)]


_OBJECT = "{value} is not an object; write its fields below it"
_WHOLE = "{value} is not a whole number; write digits without quotes or a decimal point"
_NUMBER = "{value} is not a finite number; write a number without quotes"
_LONG = "is longer than {length}; shorten it"
_SHORT = "is shorter than {length}; fill it in"
_KNOWN = "{value} is not a known value; use {expected}"
_MESSAGES = {
    "bool_type": "{value} is not true or false; write true or false without quotes",
    "dict_type": _OBJECT,
    "enum": _KNOWN,
    "finite_number": _NUMBER,
    "float_type": _NUMBER,
    "greater_than_equal": "{value} is below {ge}; raise it",
    "int_from_float": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "less_than_equal": "{value} exceeds {le}; lower it",
    "list_type": "{value} is not a list; write each item below it after a dash",
    "literal_error": _KNOWN,
    "mapping_type": _OBJECT,
    "missing": "is missing; add it",
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "string_pattern_mismatch": "{value} does not match {pattern}; correct it",
    "string_too_long": _LONG,
    "string_too_short": _SHORT,
    "string_type": "{value} is not text; write it in quotes",
    "too_long": _LONG,
    "too_short": _SHORT,
    "value_error": "{error}",
}


def _message(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    template = _MESSAGES.get(kind, "{value} is not valid (" + kind.replace("_", " ") + "); correct it")
    bound = context.get("max_length", context.get("min_length", 0))
    length = count(bound, "character" if kind.startswith("string") else "item")
    facts = {**context, "value": _shown(detail["input"]), "length": length}
    return f"{_path(detail['loc'])} {template.format(**facts)}"


def _misspelling(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """The end of a message about a missing field: the unknown field that may be a misspelling of it, if any."""
    location, written = detail["loc"], detail["input"]
    if detail["type"] != "missing" or not isinstance(written, Mapping):
        return ""
    known = _fields(model, location[:-1])
    readable = (key for key in map(str, written) if len(key) <= _MAX_SHOWN and key.isprintable())
    unknown = islice((key for key in readable if key not in known), _MAX_COMPARED)
    near = get_close_matches(str(location[-1]), list(unknown), n=1)
    return f"; the unknown field {near[0]} may be a misspelling of it" if near else ""


def _fields(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """The names of the fields of the part at a location."""
    models = [model]
    for name in (part for part in location if isinstance(part, str)):
        found = [field for one in models for key, field in one.model_fields.items() if name == (field.alias or key)]
        models = [inner for field in found for inner in _models(field.annotation)]
    return {field.alias or key for one in models for key, field in one.model_fields.items()}


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a type contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _path(location: tuple[int | str, ...]) -> str:
    """Format a location of pydantic as a path: `spec.trainer.policies[0].event`."""
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
