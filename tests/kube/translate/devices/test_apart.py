"""Expressions that call functions of Kubernetes are evaluated apart: the library keeps what it passes to them."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator

import pytest

from edl.kube.expressions import PYTHON_FUNCTIONS, CelError, quantity
from edl.kube.translate.devices import apart, selectors
from edl.kube.translate.devices.apart import Apart
from edl.kube.translate.devices.selectors import SelectorError, is_chosen

GPU = {"driver": "gpu.example.com", "attributes": {}, "capacity": {"gpu.example.com": {"memory": quantity("80Gi")}}}
LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
EVALUATIONS = 2000


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    """A process of the test alone."""
    made = Apart()
    monkeypatch.setattr(selectors, "APART", made)
    yield made
    made.end()


@pytest.mark.parametrize(
    "expression",
    [
        LARGE,
        "isQuantity('1Gi') && quantity('1').isLessThan(quantity('2')) && quantity('2').isGreaterThan(quantity('1'))",
        "isSemver('1.2.3') && semver('1.2.3') == '1.2.3' && [1, 2].sum() == 3",
    ],
)
def test_an_expression_that_is_evaluated_again_and_again_takes_no_memory(own: Apart, expression: str) -> None:
    assert is_chosen(expression, GPU)
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(EVALUATIONS):
        is_chosen(expression, GPU)
    gc.collect()
    assert sys.getallocatedblocks() - before < EVALUATIONS / 10
    assert own.pid


def test_every_function_in_python_is_evaluated_apart(own: Apart) -> None:
    for name in PYTHON_FUNCTIONS:
        own.end()
        with pytest.raises(SelectorError):
            is_chosen(f"device.driver.{name} (1)", GPU)
        assert own.pid, name


def test_a_process_that_has_grown_is_replaced(own: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_chosen(LARGE, GPU)
    first = own.pid
    monkeypatch.setattr(apart, "MOST_OBJECTS", 0)
    assert is_chosen(LARGE, GPU)
    assert not own.pid
    monkeypatch.undo()
    monkeypatch.setattr(selectors, "APART", own)
    assert is_chosen(LARGE, GPU)
    assert own.pid not in {0, first}


def test_it_is_asked_beside_more_than_a_thousand_open_files(own: Apart) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert is_chosen(LARGE, GPU)
        assert own.pid
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_was_killed_is_replaced(own: Apart) -> None:
    assert is_chosen(LARGE, GPU)
    os.kill(own.pid, signal.SIGKILL)
    results = {evaluated() for _ in range(3)}
    assert any(results)
    assert is_chosen(LARGE, GPU)


def evaluated() -> bool | str:
    try:
        return is_chosen(LARGE, GPU)
    except SelectorError as error:  # the kernel may tell of its end a moment later
        return str(error)


def test_nobody_waits_for_long_for_a_process_that_does_not_answer(
    own: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_chosen(LARGE, GPU)
    os.kill(own.pid, signal.SIGSTOP)
    monkeypatch.setattr(apart, "WAIT_S", 0.2)
    with pytest.raises(SelectorError, match="ended the process that evaluates it, or took too long"):
        is_chosen(LARGE, GPU)
    monkeypatch.undo()
    assert own.evaluate(LARGE, {"device": GPU}) is True


def test_what_is_no_truth_value_and_what_has_none_is_said(own: Apart) -> None:
    assert own.evaluate("quantity('1') == quantity('1')", {"device": GPU}) is True
    assert own.evaluate("device.driver + string(isQuantity('1'))", {"device": GPU}) == "gpu.example.comtrue"
    with pytest.raises(CelError, match="no such key: nothing"):
        own.evaluate("device.nothing == quantity('1')", {"device": GPU})


def test_long_variables_and_what_the_process_is_not_made_for(own: Apart) -> None:
    long = {"driver": "x" * 300_000, "attributes": {}, "capacity": {}}
    assert own.evaluate("device.driver.size() > 200000 && isQuantity('1')", {"device": long}) is True
    assert own.evaluate("device.driver + string(isQuantity('1'))", {"device": long}) == "x" * 1024
