"""What a namespace does to new pods, a plan from files does not do; it says so."""

from __future__ import annotations

import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from tests.worlds.rules.scenes import Object, job, members, nodes


def warnings(*objects: Object) -> list[str]:
    return list(read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))]).not_asked())


def test_pods_to_come_in_a_namespace_that_is_being_deleted_are_refused() -> None:
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    scene = (*nodes(1), job("t"), *members("t", "n0"))
    assert warnings(*scene, namespace) == []
    namespace["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
    assert warnings(*scene, namespace) == [
        "namespace default is being deleted, so the API server refuses the pods of job default/t; use another one"
    ]
    assert warnings(*scene, {**namespace, "metadata": {**namespace["metadata"], "name": "ads"}}) == []


def test_a_node_selector_that_admission_plugins_give_the_pods_of_a_namespace_is_named() -> None:
    def said(**annotations: str) -> list[str]:
        metadata = {"name": "default", "annotations": annotations}
        return warnings(*nodes(1), job("t"), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    start = "namespace default is not applied to the pods of job default/t: it may give them "
    plugin, openshift = "scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector"
    assert said(**{plugin: "pool=train"}) == [f"{start}the node selector pool=train"]
    assert said(**{openshift: "pool=train,disk=ssd"}) == [f"{start}the node selector pool=train,disk=ssd"]
    both = {plugin: "pool=train", "scheduler.alpha.kubernetes.io/defaultTolerations": '[{"operator": "Exists"}]'}
    assert said(**both) == [f"{start}the node selector pool=train and tolerations"]
    assert said(**{openshift: "", "other": "x"}) == []


def test_tolerations_that_a_namespace_gives_or_refuses_are_named() -> None:
    def said(defaults: str, allowed: str) -> list[str]:
        names = ("defaultTolerations", "tolerationsWhitelist")
        given = {f"scheduler.alpha.kubernetes.io/{k}": v for k, v in zip(names, (defaults, allowed), strict=True)}
        metadata = {"name": "default", "annotations": given}
        return warnings(*nodes(1), job("t"), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    start, some = "namespace default is not applied to the pods of job default/t: it may ", '[{"key": "gpu"}]'
    assert said("[]", "[ ]") == []
    assert said("[]", some) == [f"{start}refuse their tolerations"]
    assert said(some, some) == [f"{start}give them tolerations, and refuse their tolerations"]
