"""Strategic merge patch and its directives."""

from __future__ import annotations

from typing import Any

import pytest

from edl.sandbox.apiserver.patches.strategic import strategic_patch
from edl.sandbox.apiserver.schema.types import builtin_types

POD = builtin_types()["io.k8s.api.core.v1.Pod"]


def patched(patch: dict[str, Any]) -> dict[str, Any]:
    pod = {
        "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]},
        "spec": {
            "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}],
            "nodeSelector": {"n": "1"},
        },
    }
    return strategic_patch(POD, pod, patch)


def names(pod: dict[str, Any]) -> list[str]:
    return [one["name"] for one in pod["spec"]["containers"]]


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ([{"name": "e"}], ["c", "d", "e"]),
        ([{"name": "c", "$patch": "delete"}], ["d"]),
        ([{"$patch": "replace"}, {"name": "z"}], ["z"]),
        ([{"name": "d", "image": "new"}], ["c", "d"]),
    ],
)
def test_items_merge_by_name(items: list[dict[str, Any]], found: list[str]) -> None:
    assert names(patched({"spec": {"containers": items}})) == found


def test_the_order_of_items_can_be_set() -> None:
    order = [{"name": "d"}, {"name": "c"}]
    assert names(patched({"spec": {"$setElementOrder/containers": order}})) == ["d", "c"]


def test_plain_lists_merge_or_lose_values() -> None:
    assert patched({"metadata": {"finalizers": ["z"]}})["metadata"]["finalizers"] == ["x", "y", "z"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}
    assert patched(gone)["metadata"]["finalizers"] == ["y"]


def test_a_map_merges_replaces_or_loses_keys() -> None:
    assert patched({"metadata": {"labels": {"a": None, "c": "3"}}})["metadata"]["labels"] == {"b": "2", "c": "3"}
    replaced = {"metadata": {"labels": {"$patch": "replace", "z": "9"}}}
    assert patched(replaced)["metadata"]["labels"] == {"z": "9"}
    assert patched({"spec": {"$retainKeys": ["containers"]}})["spec"].keys() == {"containers"}


def test_nothing_is_changed_in_place() -> None:
    target = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    strategic_patch(POD, target, {"spec": {"containers": [{"name": "c", "image": "new"}]}})
    assert target == {"spec": {"containers": [{"name": "c", "image": "i"}]}}
