"""Kinds that pods name and of which the files hold nothing are named, because somebody may not have saved them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts

Object = dict[str, Any]


def pod(name: str, node: str = "", **spec: Any) -> Object:
    placed = {"nodeName": node} if node else {}
    metadata = {"name": name, "namespace": "shop", "uid": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c"}], **placed, **spec},
    }


def of(kind: str, api: str) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": "ads"}, "spec": {}}


VOLUME: Object = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
CLAIM: Object = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
TEMPLATE: Object = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
SCRATCH: Object = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}
KINDS: dict[str, tuple[Object, str, str]] = {
    "PersistentVolumeClaim": (VOLUME, "pvc", "v1"),
    "ResourceClaim": (CLAIM, "resourceclaims", "resource.k8s.io/v1"),
    "ResourceClaimTemplate": (TEMPLATE, "resourceclaimtemplates", "resource.k8s.io/v1"),
}


def warnings(*objects: Object) -> list[str]:
    return list(read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))]).not_asked())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_waiting_pods_name_and_the_files_lack_is_named_once(kind: str) -> None:
    spec, plural, api = KINDS[kind]
    assert warnings(pod("a", **spec), pod("b", **spec), pod("c")) == [
        f"the files hold no {kind}, so what pod shop/a and 1 other name counts as missing;"
        f" save them, too (kubectl get {plural} -A)"
    ]
    (line,) = warnings(pod("a", **spec))
    assert "so what pod shop/a names counts as missing" in line
    assert warnings(pod("a", **spec), of(kind, api)) == []


def test_pods_with_a_node_and_pods_that_have_finished_do_not_ask() -> None:
    done = {**pod("b", **VOLUME), "status": {"phase": "Succeeded"}}
    assert warnings(pod("a", "n1", **VOLUME), done) == []


def claim(**spec: str) -> Object:
    metadata = {"name": "data", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def one_gpu() -> Object:
    found = of("ResourceClaimTemplate", "resource.k8s.io/v1")
    return {**found, "metadata": {"name": "gpu", "namespace": "shop"}}


STORAGE, SLICES = "storage.k8s.io/v1", "resource.k8s.io/v1"
BY_CLAIMS: dict[str, tuple[list[Object], str, str, str]] = {
    "a volume": ([pod("a", **VOLUME), claim(volumeName="pv")], "PersistentVolume", "pv", "v1"),
    "a class": ([pod("a", **VOLUME), claim(storageClassName="x")], "StorageClass", "storageclasses", STORAGE),
    "the default class": ([pod("a", **VOLUME), claim()], "StorageClass", "storageclasses", STORAGE),
    "a class of claims to come": ([pod("a", **SCRATCH)], "StorageClass", "storageclasses", STORAGE),
    "a class of devices": (
        [pod("a", **TEMPLATE), one_gpu()],
        "DeviceClass",
        "deviceclasses",
        SLICES,
    ),
}


@pytest.mark.parametrize("case", BY_CLAIMS)
def test_a_kind_that_their_claims_name_and_the_files_lack_is_named_once(case: str) -> None:
    objects, kind, asked, api = BY_CLAIMS[case]
    assert warnings(*objects) == [
        f"the files hold no {kind}, so what the claims of pod shop/a name counts as missing; save them, too"
        f" (kubectl get {asked})"
    ]
    assert warnings(*objects, of(kind, api)) == []


def test_a_claim_that_needs_no_class_and_a_claim_of_a_pod_with_a_node_do_not_ask() -> None:
    assert warnings(pod("a", **VOLUME), claim(storageClassName="")) == []
    assert warnings(pod("a", "n1", **VOLUME), claim(storageClassName="x")) == []


def test_a_driver_that_says_what_it_has_left_is_named_if_that_is_not_saved() -> None:
    drivers = [
        of("CSIDriver", "storage.k8s.io/v1") | {"spec": {"storageCapacity": counts}} for counts in (True, False)
    ]
    assert warnings(drivers[0]) == [
        "the files hold no CSIStorageCapacity, so driver x counts as full; save them, too (kubectl get"
        " csistoragecapacities -A)"
    ]
    assert warnings(drivers[1]) == []
    assert warnings(drivers[0], of("CSIStorageCapacity", "storage.k8s.io/v1")) == []
