"""RuntimeClasses of saved files: what they give new pods is named, because a plan from files does not give it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from tests.worlds.rules.scenes import Object, job, pod

KATA: Object = {"runtimeClassName": "kata"}


def runtime_class(name: str = "kata", **more: Any) -> Object:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "x",
        **more,
    }


def warnings(*objects: Object) -> list[str]:
    return list(read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))]).not_asked())


@pytest.mark.parametrize(
    ("more", "given"),
    [
        ({"overhead": {"podFixed": {"cpu": "1", "memory": "120Mi"}}}, "an overhead of 1 of cpu and 120Mi of memory"),
        ({"scheduling": {"nodeSelector": {"kata": "true"}}}, "the node selector kata=true"),
        (
            {"overhead": {"podFixed": {"cpu": 1}}, "scheduling": {"tolerations": [{"operator": "Exists"}]}},
            "an overhead of 1 of cpu and tolerations",
        ),
    ],
)
def test_what_a_class_gives_the_pods_that_name_it_is_named(more: Object, given: str) -> None:
    says = f"RuntimeClass kata is not applied to the pods of job default/t: it gives them {given}"
    assert warnings(job("t", template=KATA), runtime_class(**more)) == [says]
    assert warnings(job("t"), runtime_class(**more)) == []
    assert warnings(pod("web", "n0", **KATA), runtime_class(**more)) == [], "a pod that exists has it already"


def test_a_class_that_gives_nothing_or_what_the_pods_have_is_not_named() -> None:
    assert warnings(job("t", template=KATA), runtime_class()) == []
    has = {**KATA, "overhead": {"cpu": "1"}}
    assert warnings(job("t", template=has), runtime_class(overhead={"podFixed": {"cpu": "1"}})) == []


def test_a_class_that_does_not_exist_is_named() -> None:
    assert warnings(job("t", template=KATA), runtime_class("other")) == [
        "RuntimeClass kata does not exist, so the API server refuses the pods of job default/t; create it"
    ]
    assert warnings(job("t", template=KATA)) == [
        "the files hold no RuntimeClass, so what RuntimeClass kata gives the pods of job default/t is not counted;"
        " save them, too (kubectl get runtimeclasses)"
    ]
