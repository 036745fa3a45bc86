"""The kinds that a CustomResourceDefinition makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.kinds.ages import age
from edl.sandbox.apiserver.kinds.kind import AGE, NAME, Column, Kind, Object, Row, Scale, dig

_PLACE = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def kinds_of(definition: Object) -> list[Kind]:
    """Make one kind for each served version of a CustomResourceDefinition."""
    spec = definition["spec"]
    names = spec["names"]
    return [_kind(spec, names, version) for version in spec.get("versions", ()) if version.get("served")]


def _kind(spec: Object, names: Object, version: Object) -> Kind:
    columns = version.get("additionalPrinterColumns") or []
    shown = tuple(_column(one) for one in columns) or (Column("Age", "date", description=AGE.description),)
    paths = tuple((one.get("jsonPath", ""), one.get("type", "")) for one in columns)
    subresources = version.get("subresources") or {}
    selectable = tuple(path_text(one["jsonPath"]) for one in version.get("selectableFields", ()))
    return Kind(
        group=spec["group"],
        version=version["name"],
        name=names["kind"],
        plural=names["plural"],
        namespaced=spec.get("scope") == "Namespaced",
        schema=dig(version, "schema", "openAPIV3Schema", default={}),
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        has_generation=True,
        has_status="status" in subresources,
        scale=_scale(subresources.get("scale")),
        columns=(NAME, *shown),
        row=_row(paths or ((".metadata.creationTimestamp", "date"),)),
        selectable=selectable,
        fields_of=_fields(selectable),
        list_kind=names.get("listKind") or f"{names['kind']}List",
    )


def _column(one: Object) -> Column:
    return Column(
        one["name"],
        one.get("type", "string"),
        one.get("format", ""),
        one.get("priority", 0),
        one.get("description", ""),
    )


def path_text(path: str) -> str:
    """Strip the leading dot of a path: `.spec.queue` -> `spec.queue`."""
    return path.removeprefix(".")


def path_parts(path: str) -> tuple[str | int, ...]:
    """The keys and indexes of a simple JSONPath such as `.status.conditions[0].type`."""
    return tuple(int(index) if index else key for key, index in _PLACE.findall(path))


def _scale(scale: Object | None) -> Scale | None:
    if scale is None:
        return None

    def keys(name: str) -> tuple[str, ...]:
        return tuple(str(part) for part in path_parts(scale.get(name, "")))

    return Scale(keys("specReplicasPath"), keys("statusReplicasPath"), keys("labelSelectorPath"))


def _row(paths: Sequence[tuple[str, str]]) -> Row:
    parts = [(path_parts(path), kind) for path, kind in paths]

    def row(value: Object, now: datetime) -> Sequence[Any]:
        return value["metadata"]["name"], *_cells(parts, value, now)

    return row


def _cells(parts: Sequence[tuple[tuple[str | int, ...], str]], value: Object, now: datetime) -> Iterator[Any]:
    for path, kind in parts:
        cell = dig(value, *path)
        if cell is None:
            yield None
        elif kind == "date":
            yield age(cell, now)
        elif kind in {"integer", "number"}:
            yield cell if isinstance(cell, int | float) else None
        elif kind == "boolean":
            yield cell if isinstance(cell, bool) else None
        else:
            yield cell if isinstance(cell, str) else str(cell)


def _fields(selectable: Sequence[str]) -> Any:
    def fields_of(value: Object) -> Mapping[str, str]:
        return {name: str(dig(value, *path_parts(name), default="")) for name in selectable}

    return fields_of
