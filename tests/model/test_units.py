"""Amounts as people read them."""

from __future__ import annotations

import pytest

from edl.model.units import amount


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("cpu", 1000, "1 core"),
        ("cpu", 1500, "1.5 cores"),
        ("memory", 2**31, "2 GiB of memory"),
        ("pods", 1, "1 pod"),
        ("count/pods", 2, "2 pods by count/pods"),
        ("nvidia.com/gpu", 2, "2 nvidia.com/gpu"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi of hugepages-2Mi"),
        ("device of class gpu.example.com", 1, "1 device of class gpu.example.com"),
        ("device of class gpu.example.com", 5, "5 devices of class gpu.example.com"),
        ("rule: one pod of app=web a node", 1, "rule: one pod of app=web a node"),
    ],
)
def test_an_amount_has_its_unit_and_its_number(name: str, number: int, words: str) -> None:
    assert amount(name, number) == words
