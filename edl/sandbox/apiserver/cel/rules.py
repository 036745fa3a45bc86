"""The expressions of a structural schema (`x-kubernetes-validations`), evaluated on an object.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edl.sandbox.apiserver.cel.functions import CelError, Unfit
from edl.sandbox.apiserver.cel.program import program
from edl.sandbox.apiserver.cel.syntax import CelSyntaxError
from edl.sandbox.apiserver.errors import FieldError
from edl.sandbox.apiserver.schema.validation import ABSENT, type_name

Schema = dict[str, Any]


def typed(schema: Schema, value: Any) -> Any:
    """The value as expressions see it: JSON's 2.0 passes for an integer elsewhere, but not in an expression."""
    if isinstance(value, float):
        if schema.get("x-kubernetes-int-or-string"):
            return Unfit("invalid data, expected XIntOrString value to be either a string or integer")
        return Unfit("invalid data, expected int, got float64") if schema.get("type") == "integer" else value
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        rest = others if isinstance(others, dict) else {}
        return {key: typed(properties.get(key, rest), item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(schema.get("items", {}), item) for item in value]
    return value


def rule_errors(schema: Schema, value: Any, old: Any = ABSENT, path: str = "") -> Iterator[FieldError]:
    """What the expressions of a schema refuse.

    Args:
        schema: of the value.
        value: the new state.
        old: the former state; absent on a create.
        path: of the value.
    """
    if value is None or isinstance(value, Unfit):
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        yield from _judged(rule, value, old, path)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name in sorted(value):
            inner = properties.get(name, others if isinstance(others, dict) else None)
            if inner is not None:
                before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
                yield from rule_errors(inner, value[name], before, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            before = _matching(schema, item, old)
            yield from rule_errors(schema["items"], item, before, f"{path}[{place}]")


def _matching(schema: Schema, item: Any, old: Any) -> Any:
    """The former state of an item: only items of a map list have one."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    same = (one for one in old if isinstance(one, dict) and all(one.get(key) == item.get(key) for key in keys))
    return next(same, ABSENT)


def _judged(rule: Schema, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    text = rule["rule"]
    where = f"{path}{rule.get('fieldPath', '')}" or "<nil>"
    variables = {"self": value}
    if "oldSelf" in text:
        if old is ABSENT:
            return
        variables["oldSelf"] = old
    elif old is not ABSENT and value == old:
        return  # What was stored before the rule was made may stay.
    message = rule.get("message") or f"failed rule: {text}"
    try:
        if program(text).evaluate(variables) is True:
            return
        detail = f"Invalid value: {message}"
    except (CelError, CelSyntaxError) as error:
        detail = f'Invalid value: "{type_name(value)}": {error} evaluating rule: {message}'
    yield FieldError(where, "FieldValueInvalid", detail)
