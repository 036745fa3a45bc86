"""Lists as tables, the form in which kubectl prints, and as metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.kinds.kind import Kind, Object


def table(kind: Kind, values: Sequence[Object], metadata: Object, now: datetime, include: str) -> Object:
    """Make a Table of objects.

    Args:
        kind: the kind of the objects.
        values: the objects.
        metadata: the metadata of the list, or of the single object.
        now: for the ages.
        include: what a row carries: `None`, `Metadata` (the default) or `Object`.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": "string" if column.type == "date" and not kind.is_custom else column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in kind.columns
        ],
        "rows": [_row(kind, value, now, include) for value in values],
    }


def without_columns(of: Object) -> Object:
    """The table of a further event of a watch, which repeats no columns."""
    return {**of, "columnDefinitions": []}


def _row(kind: Kind, value: Object, now: datetime, include: str) -> Object:
    row: Object = {"cells": list(kind.row(value, now))}
    if include == "Object":
        row["object"] = value
    elif include != "None":
        row["object"] = partial(value)
    return row


def partial(value: Object) -> Object:
    """Make an object with its metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]}


def partial_list(values: Sequence[Object], metadata: Object) -> Object:
    """Make a list of objects with their metadata alone."""
    items: list[Any] = [partial(value) for value in values]
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "items": items,
    }
