"""The building blocks of the resource: strict pydantic models that carry their validation rules for both readers.

The API server evaluates a rule as a CEL expression. The controller evaluates the same rule in Python, because
admission may have been bypassed or an old CRD may be installed. One `Rule` holds both, with one message. This module
knows nothing of training jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_SAFE = 2**53 - 1  # the largest bound that is exact in JSON schema, whose numbers are doubles

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

Values = Mapping[str, object]
"""Placeholder of a message -> the value that breaks the rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over several fields of one part of the resource.

    Attributes:
        cel: the condition that must hold, over `self`, for the API server.
        message: what is wrong and how to correct it; `{name}` is the place of an offending value. CEL sees the same
            words without values: the API server's cost estimate rejects message expressions that format numbers.
        check: yields the offending values of each violation, given the part or, with `fields`, one of these fields.
        fields: the properties whose schemas carry the expression; empty attaches it to the part itself.
        general: text for a placeholder in the message without values; other placeholders are left out there.
    """

    cel: str
    message: str
    check: Callable[[Any], Iterator[Values]]
    fields: tuple[str, ...] = ()
    general: Mapping[str, str] = field(default_factory=dict)

    @property
    def general_message(self) -> str:
        """The message without values, as the API server prints it."""
        text = _PLACEHOLDER.sub(lambda found: self.general.get(found[1], ""), self.message)
        return re.sub(r" +([,;:.]| )", r"\1", text).strip()

    def find(self, part: Part) -> Iterator[tuple[str, str]]:
        """Yield (field, message with values) for each violation; the field is empty if the rule covers the part."""
        known = type(part).model_fields
        targets = [(known[name].alias or name, getattr(part, name)) for name in self.fields] or [("", part)]
        for name, target in targets:
            for values in self.check(target):
                yield name, self.message.format_map(values)


class Part(BaseModel):
    """A typed object of the resource; unknown fields are dropped, as the API server prunes them."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, strict=True, alias_generator=to_camel, use_attribute_docstrings=True
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        # The API server drops nulls of fields that are not nullable before it applies defaults.
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        for rule in cls.rules:
            written = [cls.model_fields[name].alias or name for name in rule.fields]
            targets = [schema["properties"][name] for name in written] if written else [schema]
            for target in targets:
                expressions = target.setdefault("x-kubernetes-validations", [])
                expressions.append({"rule": rule.cel, "message": rule.general_message})
        if cls.model_config.get("extra") == "allow":
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return reference


class RawPart(Part):
    """A part of a pod: edl reads some of its fields and passes on all of them."""

    model_config = ConfigDict(extra="allow")

    def as_dict(self) -> dict[str, Any]:
        """The object as the user wrote it, in a new dictionary."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def find_problems(part: Part, path: str = "") -> Iterator[str]:
    """Apply the rules of a part and of all parts in it.

    Args:
        part: the parsed part.
        path: its path in the resource, such as `spec.trainer.resources`.

    Yields:
        One message for each violation. It begins with the path, except for the spec and the trainer themselves:
        users think of these as the job.
    """
    for rule in part.rules:
        for name, message in rule.find(part):
            place = ".".join(step for step in (path, name) if step).removeprefix("spec").removeprefix(".")
            yield message if place in {"", "trainer"} else f"{place}: {message}"
    for name, info in type(part).model_fields.items():
        value = getattr(part, name)
        inner = f"{path}.{info.alias or name}" if path else info.alias or name
        if isinstance(value, Part):
            yield from find_problems(value, inner)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Part):
                    yield from find_problems(item, f"{inner}[{index}]")


def _as_whole_number(value: object) -> object:
    # The API server accepts 2.0 for an integer unless a CEL rule reads the field; those fields are plain int.
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_INT64:
        return int(value)
    return value


def unique_by(key: str) -> Callable[[list[Any]], list[Any]]:
    """Refuse lists in which two items have the same key, as the API server does for `x-kubernetes-list-type: map`."""

    def check(items: list[Any]) -> list[Any]:
        seen = set()
        for item in items:
            value = getattr(item, key)
            if value in seen:
                raise ValueError(f"has {key} {str(value)[:40]} twice; remove one of them")
            seen.add(value)
        return items

    return check


def keyed_list(key: str, *, limit: int) -> Any:  # noqa: ANN401 - a pydantic field has the type of its annotation
    """The field of a list with a unique key and at most `limit` items; empty by default."""
    extra: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [to_camel(key)]}
    return Field(default_factory=list, max_length=limit, json_schema_extra=extra)


WholeNumber = Annotated[int, BeforeValidator(_as_whole_number)]
Seconds = Annotated[WholeNumber, Field(ge=0, le=MAX_INT32)]
Text = Annotated[str, Field(max_length=1024)]
Label = Annotated[str, Field(min_length=1, max_length=63)]
RawObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
