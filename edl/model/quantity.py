"""Kubernetes quantities ("500m", "4Gi", "1e3") as integers and back.

Nodes and foreign pods may use every notation that Kubernetes knows, and a hostile one could keep a decimal library
busy for a minute. This module reads the whole grammar in bounded time. It does not decide whether an amount such as 0
or 10^18 makes sense; the caller does.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from edl.errors import ConfigError

MAX_AMOUNT = 2**63 - 1
"""Larger amounts become this one, as in Kubernetes."""

MAX_TEXT = 64
"""Longest text that is read; the API server never stores a quantity of this length."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MEMORY_LIKE = ("memory", "ephemeral-storage", "storage")
_HUGE_EXPONENT = MAX_TEXT + 30
"""Beyond this power of ten every mantissa saturates or rounds up to 1."""


def parse_quantity(value: str | float, resource: str) -> int:
    """Read an amount of a resource, rounded up to its unit as Kubernetes does.

    Args:
        value: text of the Kubernetes grammar (at most 64 characters), or a number as JSON gives it.
        resource: the name of the resource, which gives the unit: millicores for `cpu`, otherwise bytes or pieces.

    Returns:
        The amount, 0 to 2^63 - 1; a larger amount becomes 2^63 - 1.

    Raises:
        ConfigError: the value is not a quantity, or is negative.

    Source: k8s.io/apimachinery/pkg/api/resource, type Quantity.
    """
    mantissa, exponent = _read(value, resource)
    return _round_up(mantissa, exponent + (3 if resource == "cpu" else 0))


def exact_quantity(value: str | float, resource: str) -> Fraction:
    """Read an amount without rounding, in cores, bytes or pieces, to compare amounts below one unit.

    Raises:
        ConfigError: the value is not a quantity, or is negative.
    """
    mantissa, exponent = _read(value, resource)
    return mantissa * Fraction(10) ** exponent


def format_quantity(amount: int, resource: str) -> str:
    """Write an amount in the usual notation: `500m` or `2` of cpu, `4Gi` of memory, otherwise a plain number.

    Args:
        amount: in the unit of `parse_quantity`; may be negative, as a difference of amounts.
        resource: the name of the resource.

    Returns:
        A quantity of exactly that amount.
    """
    if amount < 0:
        return f"-{format_quantity(-amount, resource)}"
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and resource.startswith((*_MEMORY_LIKE, "hugepages-")):
        for suffix, power in reversed(_BINARY.items()):
            if amount % 1024**power == 0:
                return f"{amount // 1024**power}{suffix}"
    return str(amount)


def _as_text(value: str | float, resource: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{resource} {value} is not a quantity; write a finite number")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{resource} {str(value)[:20]!r} is not a quantity; write a number, or text such as 500m")
    if isinstance(value, int) and abs(value) > MAX_AMOUNT:
        value = MAX_AMOUNT if value > 0 else -MAX_AMOUNT
    text = value if isinstance(value, str) else repr(value)
    if len(text) > MAX_TEXT:
        raise ConfigError(
            f"{resource} {text[:20]!r}... has {len(text)} characters; a quantity has at most {MAX_TEXT}: shorten it"
        )
    return text


def _read(value: str | float, resource: str) -> tuple[int, int]:
    """Return (mantissa, exponent): the value is mantissa * 10^exponent, and both are bounded."""
    text = _as_text(value, resource)
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise ConfigError(f"{resource} {text!r} is not a quantity; write a number with a suffix such as 500m or 4Gi")
    part = match["part"] or ""
    mantissa = int(match["whole"] + part)
    if match["sign"] == "-" and mantissa:
        raise ConfigError(f"{resource} {text!r} is negative; write 0 or more")
    suffix = match["suffix"] or ""
    exponent = int(match["exponent"]) if match["exponent"] else _DECIMAL.get(suffix, 0)
    bounded = max(-_HUGE_EXPONENT, min(_HUGE_EXPONENT, exponent - len(part)))
    return mantissa * 1024 ** _BINARY.get(suffix, 0), bounded


def _round_up(mantissa: int, exponent: int) -> int:
    """Return ceil(mantissa * 10^exponent), at most MAX_AMOUNT."""
    amount: int = mantissa * 10**exponent if exponent >= 0 else -(-mantissa // 10**-exponent)
    return min(amount, MAX_AMOUNT)
