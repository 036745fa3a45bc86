"""Sentences for people out of pydantic's error records: field, value, rule, remedy, and never a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_MAX_SHOWN = 60


def describe(error: ValidationError) -> list[str]:
    """One sentence for each broken rule, in the order of the fields."""
    return [_sentence(detail) for detail in error.errors(include_url=False)]


def _sentence(detail: ErrorDetails) -> str:
    where = _path(detail["loc"])
    context: Mapping[str, Any] = detail.get("ctx", {})
    shown = _shown(detail["input"])
    match detail["type"]:
        case "missing":
            return f"{where} is missing; add it"
        case "int_type" | "int_from_float" | "int_parsing_size":
            return f"{where} {shown} is not a whole number; write one without quotes"
        case "float_type" | "finite_number":
            return f"{where} {shown} is not a finite number; write one without quotes"
        case "bool_type":
            return f"{where} {shown} is not true or false; write one of them without quotes"
        case "string_type":
            return f"{where} {shown} is not a text; write it in quotes"
        case "dict_type" | "model_type" | "model_attributes_type" | "mapping_type":
            return f"{where} {shown} is not an object; write fields under it"
        case "list_type":
            return f"{where} {shown} is not a list; write items under it, each with a dash"
        case "literal_error" | "enum":
            return f"{where} {shown} is not known; use {context['expected']}"
        case "value_error":
            return f"{where} {context['error']}"
        case _:
            return _bound(detail["type"], where, shown, context)


def _bound(kind: str, where: str, shown: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"{where} {shown} is below {context['ge']}; raise it"
        case "greater_than":
            return f"{where} {shown} is not above {context['gt']}; raise it"
        case "less_than_equal":
            return f"{where} {shown} exceeds {context['le']}; lower it"
        case "too_long" | "string_too_long":
            return f"{where} is longer than the {context['max_length']} it may have; shorten it"
        case "too_short" | "string_too_short":
            return f"{where} is shorter than the {context['min_length']} it must have; fill it in"
        case "string_pattern_mismatch":
            return f"{where} {shown} does not match {context['pattern']}; correct it"
        case _:
            return f"{where} {shown} cannot be used ({kind.replace('_', ' ')}); correct it"


def _path(location: tuple[int | str, ...]) -> str:
    """`spec.trainer.policies[0].event`; the first two levels are dropped where users think of them as the job."""
    path = ""
    for part in location:
        text = str(part)[:_MAX_SHOWN]
        path += f"[{text}]" if isinstance(part, int) else f".{text}" if path else text
    return path or "the object"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return f"({'an object' if isinstance(value, Mapping) else 'a list'})"
    if isinstance(value, str):
        return json.dumps(value[:_MAX_SHOWN], ensure_ascii=False) + ("..." if len(value) > _MAX_SHOWN else "")
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) > 10**_MAX_SHOWN:
        return "(a huge number)"
    return str(value)[:_MAX_SHOWN]
