"""Quantities in the canonical form of the API server: `1000m` is stored as `1`, `0.5Gi` as `512Mi`.

Source: k8s.io/apimachinery pkg/api/resource: the largest suffix without a fraction, at least milli.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d+)")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_MILLI = Decimal("1e-3")
_MOST_DIGITS = 30


def parse_quantity(text: str) -> Decimal:
    """The value of a quantity.

    Raises:
        ValueError: it is not a quantity.
    """
    number, suffix = _split(text)
    if suffix in _BINARY[1:]:
        return number * Decimal(1024) ** _BINARY.index(suffix)
    if suffix[:1] in {"e", "E"} and suffix != "E":
        # Beyond any amount that can be stored, larger and smaller make no difference.
        return number.scaleb(max(-_MOST_DIGITS, min(int(suffix[1:]), _MOST_DIGITS)))
    return number.scaleb(3 * (_DECIMAL.index(suffix) - 3))


def canonical(text: str) -> str:
    """A quantity as the server stores it.

    Raises:
        ValueError: it is not a quantity.
    """
    number, suffix = _split(text)
    value = parse_quantity(text).quantize(_MILLI, rounding=ROUND_CEILING)
    if suffix in _BINARY[1:] and (abs(value) < 1024 or value % 1):
        suffix = ""
    if suffix in _BINARY[1:]:
        return _shortened(int(value), 1024, _BINARY)
    if suffix[:1] in {"e", "E"} and suffix != "E":
        digits = int(value.normalize().as_tuple().exponent)
        power = 3 * (digits // 3)
        return f"{value.scaleb(-power):.0f}" + (f"e{power}" if power else "")
    return _shortened(int(value / _MILLI), 1000, _DECIMAL[2:]) if number else "0"


def _shortened(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    """The amount, which counts units of the first suffix, with the largest suffix that leaves no fraction."""
    place = 0
    while amount and amount % base == 0 and place + 1 < len(suffixes):
        amount //= base
        place += 1
    return f"{amount}{suffixes[place]}"


def _split(text: str) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    return Decimal(match[1]), match[2]


def total(texts: Iterable[str]) -> str:
    """The sum of quantities; with a binary suffix if one of them has one.

    Raises:
        ValueError: one is not a quantity.
    """
    parts = list(texts)
    value = sum((parse_quantity(text) for text in parts), Decimal(0))
    if value % 1 == 0 and any(text.endswith("i") for text in parts):
        return _shortened(int(value), 1024, _BINARY)
    return canonical(f"{int(value / _MILLI)}m")
