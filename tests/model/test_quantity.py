"""Kubernetes quantities are read exactly, quickly and in every notation, and written in the usual one."""

from __future__ import annotations

import time
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import ConfigError
from edl.model.quantity import MAX_AMOUNT, exact_quantity, format_quantity, parse_quantity

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000 ** (i + 1)) for i, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (i + 1)) for i, letter in enumerate("KMGTPE")},
}


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        ("500m", "cpu", 500),
        ("2", "cpu", 2000),
        ("0.1", "cpu", 100),
        (".5", "cpu", 500),
        ("1.", "cpu", 1000),
        ("1.5m", "cpu", 2),
        ("1n", "cpu", 1),
        ("0", "cpu", 0),
        ("-0", "cpu", 0),
        ("+2", "cpu", 2000),
        (2, "cpu", 2000),
        (0.5, "cpu", 500),
        (1e-7, "cpu", 1),
        ("4Gi", "memory", 4 * 2**30),
        ("0.5Gi", "memory", 2**29),
        ("1k", "memory", 1000),
        ("1Ki", "memory", 1024),
        ("100m", "memory", 1),
        ("1e3", "memory", 1000),
        ("1E3", "memory", 1000),
        ("1E", "memory", 10**18),
        ("1Ei", "memory", 2**60),
        ("12e-1", "memory", 2),
        ("1e+2", "nvidia.com/gpu", 100),
        ("9999999Pi", "memory", MAX_AMOUNT),
        ("1e1000000", "memory", MAX_AMOUNT),
        ("1e-1000000", "memory", 1),
        ("0e1000000", "memory", 0),
        ("9" * 64, "cpu", MAX_AMOUNT),
        (2**70, "memory", MAX_AMOUNT),
    ],
)
def test_reads_amounts_as_kubernetes_does(text: str | float, resource: str, amount: int) -> None:
    assert parse_quantity(text, resource) == amount


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "m",
            ".",
            "abc",
            "NaN",
            "inf",
            "-1",
            "-1m",
            -1,
            float("nan"),
            float("inf"),
            "1 Gi",
            "1Gi ",
            "1Gi\n",
        ),
        *(
            "1mi",
            "1K",
            "1g",
            "1e",
            "1e1.5",
            "1e1Ki",
            "1e3m",
            "0x10",
            "1_000",
            "1,5",
            "\u0661",
            "--1",
            "1.2.3",
            "1" * 65,
            True,
        ),
    ],
)
def test_refuses_text_that_is_not_a_quantity_and_names_the_resource(text: str | float) -> None:
    with pytest.raises(ConfigError, match="memory"):
        parse_quantity(text, "memory")


def test_a_huge_exponent_costs_no_time() -> None:
    started = time.process_time()
    for _ in range(100):
        parse_quantity("1e" + "9" * 60, "cpu")
        parse_quantity("1e-" + "9" * 60, "cpu")
        exact_quantity("1e" + "9" * 60, "cpu")
    assert time.process_time() - started < 1


@given(
    st.integers(0, 10**12),
    st.integers(0, 9999),
    st.sampled_from(sorted(SUFFIXES)),
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
)
def test_rounds_up_exactly(whole: int, part: int, suffix: str, resource: str) -> None:
    exact = Fraction(f"{whole}.{part:04}") * SUFFIXES[suffix]
    unit = exact * (1000 if resource == "cpu" else 1)
    ceiling = -(-unit.numerator // unit.denominator)
    assert parse_quantity(f"{whole}.{part:04}{suffix}", resource) == min(ceiling, MAX_AMOUNT)
    assert exact_quantity(f"{whole}.{part:04}{suffix}", resource) == exact


@given(st.integers(0, 10**6), st.integers(-30, 30))
def test_reads_exponents_like_a_decimal_library(mantissa: int, exponent: int) -> None:
    value = Decimal(mantissa).scaleb(exponent)
    expected = min(int(value.to_integral_value(ROUND_CEILING)), MAX_AMOUNT)
    assert parse_quantity(f"{mantissa}e{exponent}", "memory") == expected


@given(st.text(alphabet="0123456789.eEkKMGimnu+- ", max_size=70))
def test_any_text_is_a_quantity_or_is_refused(text: str) -> None:
    try:
        amount = parse_quantity(text, "memory")
    except ConfigError:
        return
    assert 0 <= amount <= MAX_AMOUNT


@given(st.integers(0, MAX_AMOUNT), st.sampled_from(["memory", "ephemeral-storage", "pods", "nvidia.com/gpu"]))
def test_reads_back_every_amount_that_it_writes(amount: int, resource: str) -> None:
    assert parse_quantity(format_quantity(amount, resource), resource) == amount


@given(st.integers(0, 10**12))
def test_reads_back_every_cpu_amount_that_it_writes(amount: int) -> None:
    assert parse_quantity(format_quantity(amount, "cpu"), "cpu") == amount


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (500, "cpu", "500m"),
        (2000, "cpu", "2"),
        (0, "cpu", "0"),
        (-1500, "cpu", "-1500m"),
        (2**30, "memory", "1Gi"),
        (1000, "memory", "1000"),
        (3 * 2**20, "hugepages-2Mi", "3Mi"),
        (1024, "nvidia.com/gpu", "1024"),
        (0, "memory", "0"),
    ],
)
def test_writes_amounts_in_the_usual_notation(amount: int, resource: str, text: str) -> None:
    assert format_quantity(amount, resource) == text
