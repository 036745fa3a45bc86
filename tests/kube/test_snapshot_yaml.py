"""YAML as Kubernetes reads it, with both parsers of PyYAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from edl.kube.snapshot_files.snapshot_yaml import load_documents, loader_on
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


def merge_bomb(levels: int, copies: int) -> str:
    """A mapping of nine keys, merged again and again: each level has as many times more pairs."""
    lines = [f"a0: &a0 {{{', '.join(f'k{number}: 1' for number in range(9))}}}"]
    for level in range(1, levels):
        merged = ", ".join([f"*a{level - 1}"] * copies)
        lines.append(f"a{level}: &a{level} {{<<: [{merged}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(("levels", "copies"), [(9, 9), (60, 2), (3, 3000)])
def test_merges_without_limit_are_an_error_that_names_the_line(parser: Any, levels: int, copies: int) -> None:
    with pytest.raises(yaml.MarkedYAMLError, match="merges more than 10000 keys") as refused:
        list(yaml.load_all(merge_bomb(levels, copies), Loader=loader_on(parser)))
    assert refused.value.problem_mark is not None


@pytest.mark.parametrize("parser", PARSERS)
def test_a_mapping_that_merges_itself_is_an_error(parser: Any) -> None:
    with pytest.raises((RecursionError, yaml.YAMLError)):
        list(yaml.load_all("a: &a {<<: *a, b: 1}", Loader=loader_on(parser)))


@pytest.mark.parametrize("parser", PARSERS)
def test_what_is_merged_often_but_small_is_read(parser: Any) -> None:
    text = "x: &x {cpu: 1, gpu: 2}\n" + "\n".join(f"y{number}: {{<<: *x, gpu: 3}}" for number in range(2000))
    (found,) = yaml.load_all(text, Loader=loader_on(parser))
    assert found["y1999"] == {"cpu": 1, "gpu": 3}
