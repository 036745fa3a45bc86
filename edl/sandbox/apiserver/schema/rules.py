"""The expressions of a structural schema (`x-kubernetes-validations`), evaluated on an object.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from edl.kube.expressions import CelError, Evaluator
from edl.sandbox.apiserver.errors import FieldError
from edl.sandbox.apiserver.schema.validation import ABSENT, type_name

Schema = dict[str, Any]
_EVALUATOR = Evaluator(("self", "oldSelf"))
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_RESERVED = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package|return|true|var|void"
    "|while"
)
_OF_MARKS = ("no such ", "malformed UTF-8")
_LARGEST = 2**63 - 1
_UNFIT, _UNFIT_NAME = b"\xff", "unfit__"
"""Begin the mark of a stored value that its type does not allow, and the name under which a property has its mark.

The mark is no text. So whatever reads such a property, or makes a text of such an entry of a map, fails.
"""
_HAS, _IN = re.compile(r"has\(([\w.]+)\.(\w+)\)"), re.compile(r"('[^']+') in ([\w.]+)(?=[) ]|$)")


def rule_errors(schema: Schema, value: Any, old: Any = ABSENT, path: str = "") -> Iterator[FieldError]:
    """Evaluate the expressions of a schema on an object, and list the errors.

    Args:
        schema: of the value.
        value: the new state.
        old: the former state; absent on a create.
        path: of the value.
    """
    new = _typed(schema, value)
    marked = next(_marks(new), "") != ""
    return _errors(schema, new, ABSENT if old is ABSENT else _typed(schema, old), path, marked=marked)


@lru_cache(maxsize=4096)
def _escaped(name: str) -> str:
    """The name of a property as expressions write it: `min-instance` is `min__dash__instance`."""
    if not re.match("[a-zA-Z_./-]+", name):
        return name
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped)
    return f"__{name}__" if _RESERVED.fullmatch(name) else name


def _name(name: str, value: Any) -> str:
    return f"{_UNFIT_NAME}{_escaped(name)}" if isinstance(value, bytes) else _escaped(name)


def _typed(schema: Schema, value: Any) -> Any:
    """Convert a value to the types of expressions: JSON's 2.0 counts as an integer elsewhere, but not in these."""
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        rest = others if isinstance(others, dict) else {}
        parts = {key: _typed(properties.get(key, rest), item) for key, item in value.items()}
        return {_name(key, part) if key in properties else key: part for key, part in parts.items()}
    if isinstance(value, list):
        return [_typed(schema.get("items", {}), item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if schema.get("type") == "number" or abs(value) > _LARGEST else value
    if isinstance(value, float) and schema.get("x-kubernetes-int-or-string"):
        return _UNFIT + b"invalid data, expected XIntOrString value to be either a string or integer"
    if isinstance(value, float) and schema.get("type") == "integer":
        return _UNFIT + b"invalid data, expected int, got float64"
    return value


def _errors(schema: Schema, value: Any, old: Any, path: str, *, marked: bool) -> Iterator[FieldError]:
    if value is None or isinstance(value, bytes):
        return
    if rules := schema.get("x-kubernetes-validations"):
        yield from _judged(rules, value, old, path, next(_marks(value), "") if marked else "")
    if isinstance(value, dict):
        for name, key, inner in _parts(schema, value):
            before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
            yield from _errors(inner, value[key], before, f"{path}.{name}" if path else name, marked=marked)
    elif isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            before = _matching(schema, item, old)
            yield from _errors(schema["items"], item, before, f"{path}[{place}]", marked=marked)


def _parts(schema: Schema, value: dict[str, Any]) -> Iterator[tuple[str, str, Schema]]:
    """Yield each part of a value that has a schema: its name, its name in expressions, and the schema."""
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in sorted(properties):
        if _escaped(name) in value:
            yield name, _escaped(name), properties[name]
    if isinstance(others, dict):
        for name in sorted(value):
            yield name, name, others


def _matching(schema: Schema, item: Any, old: Any) -> Any:
    """The former state of an item: only items of a map list have one."""
    keys = [_escaped(key) for key in schema.get("x-kubernetes-list-map-keys", ())]
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    same = (one for one in old if isinstance(one, dict) and all(one.get(key) == item.get(key) for key in keys))
    return next(same, ABSENT)


def _judged(rules: list[Schema], value: Any, old: Any, path: str, unfit: str) -> Iterator[FieldError]:
    """Evaluate the rules of one value; a value that was stored before a rule existed may stay as it is.

    Args:
        rules: of its schema.
        value: the new state.
        old: the former state.
        path: of the value.
        unfit: what is wrong with a part of it that its type does not allow; empty for none.
    """
    is_same = old is not ABSENT and value == old
    given = _EVALUATOR.given({"self": value} if old is ABSENT else {"self": value, "oldSelf": old})
    for rule in rules:
        text = rule["rule"]
        if (old is ABSENT) if "oldSelf" in text else is_same:
            continue
        message = rule.get("message") or f"failed rule: {text}"
        try:
            if _EVALUATOR.evaluate(_guarded(text) if unfit else text, given) is True:
                continue
            detail = f"Invalid value: {message}"
        except CelError as error:
            why = unfit if unfit and str(error).startswith(_OF_MARKS) else error
            detail = f'Invalid value: "{type_name(value)}": {why} evaluating rule: {message}'
        yield FieldError(f"{path}{rule.get('fieldPath', '')}" or "<nil>", "FieldValueInvalid", detail)


def _guarded(text: str) -> str:
    """Extend an expression so that reading a part of a wrong type fails, while asking for its presence works."""
    text = _HAS.sub(rf"(has(\1.\2) || has(\1.{_UNFIT_NAME}\2))", text)
    return _IN.sub(rf"(\1 in \2 && string(\2[\1]) != '{_UNFIT_NAME}')", text)


def _marks(value: Any) -> Iterator[str]:
    """Yield the error message of each part of a value that has a wrong type."""
    if isinstance(value, bytes):
        yield value.removeprefix(_UNFIT).decode()
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _marks(part)
