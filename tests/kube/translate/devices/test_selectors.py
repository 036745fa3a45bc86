"""Expressions that choose devices, as DeviceClasses and claims have them."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.expressions import quantity
from edl.kube.translate.devices.selectors import SelectorError, is_chosen

GPU: dict[str, Any] = {
    "driver": "gpu.example.com",
    "attributes": {"gpu.example.com": {"model": "A100", "index": 3, "mig": False, "version": "535.10.1-rc.2"}},
    "capacity": {"gpu.example.com": {"memory": quantity("80Gi")}},
}
OWN = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ('device.driver == "nic.example.com"', False),
        (f'{OWN}.model == "A100" && {OWN}.index > 2', True),
        (f'{OWN}.model in ["H100", "H200"]', False),
        (f"!{OWN}.mig", True),
        (f'{OWN}.model.matches("^A[0-9]+$")', True),
        (f'{OWN}.model.lowerAscii() == "a100"', True),
        (f'{MEMORY}.compareTo(quantity("40Gi")) >= 0', True),
        (f'{MEMORY}.isLessThan(quantity("80G"))', False),
        (f'{MEMORY}.isGreaterThan(quantity("81920Mi"))', False),
        ('quantity("500m") == quantity("0.5") && quantity("1") != quantity("1001m")', True),
        (f'{OWN}.version.isLessThan(semver("535.10.1"))', True),
        (f'semver({OWN}.version).compareTo(semver("535.10.1-rc.11")) < 0', True),
        ('"model" in device.attributes["other.example.com"]', False),
        (f"has({OWN}.nothing)", False),
        (f'{OWN}.?nothing.orValue("x") == "x"', True),
        (f'cel.bind(own, {OWN}, own.model == "A100")', True),
        ("device.attributes['gpu.example.com'].mig == false", True),
    ],
)
def test_an_expression_chooses_a_device_or_not(expression: str, *, expected: bool) -> None:
    assert is_chosen(expression, GPU) is expected


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (f"{OWN}.nothing == 1", "nothing"),
        ("device.driver", "is not true or false: gpu.example.com"),
        ("device.driver ==", "selector device.driver =="),
        (f"{OWN}.exists(name, name == 'model')", "edl evaluates no exists()"),
        ("[1, 2].all//\n(x, x > 0)", "edl evaluates no all()"),
        ("[1, 2].//\nexists_one //\n (x, x > 0)", "edl evaluates no exists_one()"),
        ("'a'.replace('a', 'bb').size() > 0", "edl evaluates no replace()"),
        ("['a', 'b'].join('c') == ''", "edl evaluates no join()"),
        ("'%.99999999f'.format([1.0]) == ''", "edl evaluates no format()"),
        ("strings.quote('a') == ''", "edl evaluates no quote()"),
        ("cel.bind(a, 'x' + 'x', cel.bind(b, a + a, b != ''))", "edl evaluates no bind() with a sum"),
        ("device.driver != '" + "x" * 2048 + "'", "has 2067 characters, and edl evaluates at most 2048"),
        ("unknown == 1", "unknown"),
        (f'{OWN}.version.isLessThan(semver("one"))', "selector"),
        (f'{MEMORY}.compareTo(quantity("a lot")) > 0', "selector"),
    ],
)
def test_an_expression_without_a_truth_value_is_an_error_that_quotes_it(expression: str, says: str) -> None:
    with pytest.raises(SelectorError, match=r"^selector ") as raised:
        is_chosen(expression, GPU)
    assert says in str(raised.value)
