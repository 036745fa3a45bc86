"""JSON patch and merge patch."""

from __future__ import annotations

from typing import Any

import pytest

from edl.sandbox.apiserver.errors import ApiError
from edl.sandbox.apiserver.patches.json_patch import json_patch, merge_patch

DOCUMENT = {"a": {"b": [1, 2, 3]}, "x/y": 1, "m~n": 2}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/c", "value": 1}, {"a": {"b": [1, 2, 3], "c": 1}}),
        ({"op": "add", "path": "/a/b/1", "value": 9}, {"a": {"b": [1, 9, 2, 3]}}),
        ({"op": "add", "path": "/a/b/-", "value": 9}, {"a": {"b": [1, 2, 3, 9]}}),
        ({"op": "remove", "path": "/a/b/0"}, {"a": {"b": [2, 3]}}),
        ({"op": "replace", "path": "/x~1y", "value": 5}, {"x/y": 5}),
        ({"op": "replace", "path": "/m~0n", "value": 5}, {"m~n": 5}),
        ({"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": [1, 2, 3]}),
        ({"op": "copy", "from": "/a/b/2", "path": "/c"}, {"c": 3}),
        ({"op": "test", "path": "/a/b", "value": [1, 2, 3]}, {}),
    ],
)
def test_an_operation_is_applied(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json_patch(DOCUMENT, [operation]) == {**DOCUMENT, **expected}
    assert DOCUMENT == {"a": {"b": [1, 2, 3]}, "x/y": 1, "m~n": 2}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/x~1y", "value": True},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/a/b/9", "value": 1},
        {"op": "add", "path": "/none/deeper", "value": 1},
        {"op": "add", "path": "no slash", "value": 1},
        {"op": "remove", "path": ""},
    ],
)
def test_an_operation_that_does_not_fit_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch(DOCUMENT, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize("operations", [{}, ["x"], [{"op": "hop", "path": "/a"}]])
def test_what_is_no_patch_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch(DOCUMENT, operations)
    assert refused.value.code == 400


def test_a_merge_patch_removes_nulls_and_replaces_lists() -> None:
    target = {"a": {"b": 1, "c": 2}, "l": [1, 2], "s": "t"}
    patch = {"a": {"b": None, "d": {"e": None, "f": 3}}, "l": [3], "s": {"now": "a map"}}
    assert merge_patch(target, patch) == {"a": {"c": 2, "d": {"f": 3}}, "l": [3], "s": {"now": "a map"}}
    assert target == {"a": {"b": 1, "c": 2}, "l": [1, 2], "s": "t"}
