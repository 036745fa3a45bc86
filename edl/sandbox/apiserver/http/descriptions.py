"""What the fields of built-in types mean, for `kubectl explain`: the texts of the official client's models.

The models of a document take up to half a second to load, so this is done when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

Object = dict[str, Any]


def described(schemas: Mapping[str, Object]) -> dict[str, Object]:
    """Add the descriptions of types and fields to the schemas of built-in types.

    Args:
        schemas: by full name; what the official client does not know is returned as it is.
    """
    models = import_module("kubernetes.client.models")
    return {name: _described(_model(models, name), schema) for name, schema in schemas.items()}


def _model(models: Any, name: str) -> Any:
    """The class of a type: `V1PodSpec`, or with its group where several groups have that name."""
    *_, group, version, short = ["", "", *name.split(".")]
    if version != "v1":
        return None
    return getattr(models, f"V1{short}", None) or getattr(models, f"{group.title()}V1{short}", None)


def _described(model: Any, schema: Object) -> Object:
    if model is None or "properties" not in schema:
        return schema
    texts = {
        model.attribute_map[attribute]: field.description
        for attribute, field in model.model_fields.items()
        if attribute in model.attribute_map and field.description
    }
    properties = {
        name: {**inner, "description": texts[name]} if name in texts else inner
        for name, inner in schema["properties"].items()
    }
    head = " ".join(str(model.__doc__ or "").partition("Attributes:")[0].split())
    return {**schema, **({"description": head} if head else {}), "properties": properties}
