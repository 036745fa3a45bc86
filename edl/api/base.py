"""What every part of the resource is made of: strict pydantic models that carry their rules in both languages.

A rule over several fields is written twice, side by side: as the CEL expression that the API server evaluates and as
the Python check that is applied when admission was bypassed or an old CRD is installed. Both stand in one `Rule`, so
that neither can be forgotten. This module knows nothing of training jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
MAX_SAFE = 2**53 - 1  # the largest bound that JSON schema, which counts in doubles, can express exactly


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule over the fields of a part.

    Attributes:
        cel: what must hold, over `self`, as the API server evaluates it.
        message: constant text, because a message expression that formats numbers is refused for its cost estimate.
        check: yields a sentence for each violation, with value and remedy, given the parsed part.
        fields: the properties whose schemas carry the expression; empty attaches it to the part itself.
    """

    cel: str
    message: str
    check: Callable[[Any], Iterator[str]]
    fields: tuple[str, ...] = ()


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
            targets = [schema["properties"][name] for name in rule.fields] if rule.fields else [schema]
            for target in targets:
                expressions = target.setdefault("x-kubernetes-validations", [])
                expressions.append({"rule": rule.cel, "message": rule.message})
        if cls.model_config.get("extra") == "allow":
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return reference


class RawPart(Part):
    """A part of a pod of which we read some fields and pass on all."""

    model_config = ConfigDict(extra="allow")

    def as_dict(self) -> dict[str, Any]:
        """The object as it was given, in a new dictionary."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def find_problems(part: Part, path: str = "") -> Iterator[str]:
    """Apply the rules of a part and of all parts in it.

    Args:
        part: the parsed part.
        path: where it stands in the resource, `spec.trainer.resources`.

    Yields:
        A sentence for each violation; it names the part unless that is the spec or the trainer, which users think of
        as the job itself.
    """
    named = path.removeprefix("spec").removeprefix(".")
    prefix = "" if named in {"", "trainer"} else f"{named}: "
    for rule in part.rules:
        for sentence in rule.check(part):
            yield prefix + sentence
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        inner = f"{path}.{field.alias or name}" if path else field.alias or name
        if isinstance(value, Part):
            yield from find_problems(value, inner)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Part):
                    yield from find_problems(item, f"{inner}[{index}]")


def _as_whole(value: object) -> object:
    # The API server takes 2.0 for an integer, except where a CEL rule reads the field: those fields are plain int.
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


def keyed(key: str, *, limit: int) -> Any:  # noqa: ANN401 - a pydantic field takes the type of what it stands for
    """The field of a list of at most `limit` items with a unique key, empty where it is absent."""
    extra: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [to_camel(key)]}
    return Field(default_factory=list, max_length=limit, json_schema_extra=extra)


Whole = Annotated[int, BeforeValidator(_as_whole)]
Seconds = Annotated[Whole, Field(ge=0, le=MAX_INT32)]
Text = Annotated[str, Field(max_length=1024)]
Label = Annotated[str, Field(min_length=1, max_length=63)]
RawObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
