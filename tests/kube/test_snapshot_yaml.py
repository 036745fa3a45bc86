"""YAML as Kubernetes reads it, with both parsers of PyYAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from edl.kube.snapshot_yaml import load_documents, loader_on
from edl.kube.yaml_files import DuplicateKeyError

PARSERS = [yaml.CSafeLoader, yaml.SafeLoader]
"""PyYAML has the first only if it was built with libyaml."""


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: yes, b: true, c: 2026-01-02, d: 1_000}", {"a": "yes", "b": True, "c": "2026-01-02", "d": "1_000"}),
        ("{a: ~, b: 0o17, c: 0.5, d: 1e3, e: -7}", {"a": None, "b": "0o17", "c": 0.5, "d": "1e3", "e": -7}),
        ("x: &x {cpu: 1}\ny: {<<: *x, gpu: 2}", {"x": {"cpu": 1}, "y": {"cpu": 1, "gpu": 2}}),
    ],
    ids=["texts", "numbers", "merged"],
)
def test_values_are_those_of_the_json_schema(parser: Any, text: str, value: object) -> None:
    assert list(yaml.load_all(text, Loader=loader_on(parser))) == [value]


@pytest.mark.parametrize("parser", PARSERS)
def test_a_key_that_stands_twice_is_refused(parser: Any) -> None:
    with pytest.raises(DuplicateKeyError):
        list(yaml.load_all("a: 1\na: 2", Loader=loader_on(parser)))


@pytest.mark.parametrize("parser", PARSERS)
def test_deep_nesting_is_an_error_and_no_crash(parser: Any) -> None:
    with pytest.raises(RecursionError):
        list(yaml.load_all("[" * 20_000, Loader=loader_on(parser)))


def test_each_document_is_read() -> None:
    assert list(load_documents("a: 1\n---\nb: 2")) == [{"a": 1}, {"b": 2}]
