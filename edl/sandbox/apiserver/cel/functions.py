"""The functions of CEL and of Kubernetes' libraries; a method's first argument is its object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from edl.sandbox.apiserver.schema.quantities import parse_quantity
from edl.sandbox.apiserver.schema.validation import matches


class CelError(Exception):
    """An expression has no value."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    value: Any = None
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Unfit:
    """A stored value that its type does not allow; an expression that reads it fails."""

    why: str


NONE = Optional(is_empty=True)


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount of a resource."""

    amount: Decimal


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise CelError("no such overload")


def _int(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise CelError(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None


def _double(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise CelError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(parse_quantity(text))
    except ValueError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.amount > right.amount) - (left.amount < right.amount)


def _or_value(optional: Optional, default: Any) -> Any:
    return default if optional.is_empty else optional.value


def _value(optional: Optional) -> Any:
    if optional.is_empty:
        raise CelError("optional.none() dereference")
    return optional.value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": len,
    "sum": sum,
    "string": _text,
    "int": _int,
    "double": _double,
    "bool": lambda value: value in {True, "true"},
    "contains": lambda text, part: part in text if isinstance(text, str) else NotImplemented,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "matches": lambda text, pattern: matches(pattern, text),
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "split": lambda text, mark: text.split(mark),
    "join": lambda parts, mark="": mark.join(parts),
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "compareTo": _compare,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "orValue": _or_value,
    "hasValue": lambda optional: not optional.is_empty,
    "value": _value,
}
