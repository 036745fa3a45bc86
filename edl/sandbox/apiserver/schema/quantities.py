"""Quantities in the canonical form of the API server: `1000m` is stored as `1`, `0.5Gi` as `512Mi`.

Source: k8s.io/apimachinery pkg/api/resource: the largest suffix without a fraction, at least milli.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d+)")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_MILLI = Decimal("1e-3")
_MOST = Decimal(2**63 - 1)
_MOST_DIGITS = 1_000
"""The most digits of a number, and the most zeros behind it; the real API server has no limit."""
_EXACT = Context(prec=4 * _MOST_DIGITS, rounding=ROUND_CEILING)


def parse_quantity(text: str) -> Decimal:
    """The value of a quantity; one with a binary suffix is at most 2^63 - 1, as in the API server.

    Raises:
        ValueError: it is not a quantity.
    """
    number, suffix = _split(text)
    if suffix in _BINARY[1:]:
        value = _EXACT.multiply(number, Decimal(1024) ** _BINARY.index(suffix))
        return max(-_MOST, min(value, _MOST))
    if suffix[:1] in {"e", "E"} and suffix != "E":
        return _EXACT.scaleb(number, max(-_MOST_DIGITS, min(int(suffix[1:]), _MOST_DIGITS)))
    return _EXACT.scaleb(number, 3 * (_DECIMAL.index(suffix) - 3))


def canonical(text: str) -> str:
    """Convert a quantity to the form in which the server stores it.

    Raises:
        ValueError: it is not a quantity.
    """
    number, suffix = _split(text)
    value = _EXACT.quantize(parse_quantity(text), _MILLI)
    if suffix in _BINARY[1:] and (abs(value) < 1024 or value % 1):
        suffix = ""
    if suffix in _BINARY[1:]:
        return _shortened(int(value), 1024, _BINARY)
    if suffix[:1] in {"e", "E"} and suffix != "E":
        digits = int(_EXACT.normalize(value).as_tuple().exponent)
        power = 3 * (digits // 3)
        return f"{_EXACT.scaleb(value, -power):.0f}" + (f"e{power}" if power else "")
    return _shortened(int(_EXACT.divide(value, _MILLI)), 1000, _DECIMAL[2:]) if number else "0"


def _shortened(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    """The amount, which counts units of the first suffix, with the largest suffix that leaves no fraction."""
    place = 0
    while amount and amount % base == 0 and place + 1 < len(suffixes):
        amount //= base
        place += 1
    return f"{amount}{suffixes[place]}"


def _split(text: str) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(text)
    if match is None or len(match[1]) > _MOST_DIGITS:
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
    value = Decimal(0)
    for text in parts:
        value = _EXACT.add(value, parse_quantity(text))
    if _EXACT.remainder_near(value, Decimal(1)) == 0 and any(text.endswith("i") for text in parts):
        return _shortened(int(value), 1024, _BINARY)
    return canonical(f"{int(_EXACT.divide(value, _MILLI))}m")
