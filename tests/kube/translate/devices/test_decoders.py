"""Devices in the older versions of their API: the same plan as in v1, or a line that says how to save them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from edl.kube.snapshot_files.saved_cluster import SavedCluster, read_snapshot_texts
from tests.worlds.rules.device_scenes import (
    CLASS,
    claim,
    device,
    device_class,
    request,
    slice_of,
    template,
    uses,
)
from tests.worlds.rules.scenes import Object, job, nodes, plan, pod, snapshot

LARGE = (
    f'device.attributes["{CLASS}"].memory == 80 && device.capacity["{CLASS}"].memory.isGreaterThan(quantity("1Gi"))'
)
SCENE = [
    *nodes(2),
    device_class(),
    slice_of("n0", device("a", memory="80Gi"), {**device("b", memory="80Gi"), "attributes": {"memory": {"int": 80}}}),
    slice_of(
        "n1", device("a", taint="broken"), {"name": "part", "consumesCounters": [{"counterSet": "c"}]}, name="n1"
    ),
    template(name="any"),
    template(request(selectors=[{"cel": {"expression": LARGE}}]), name="large"),
    template({"name": "either", "firstAvailable": [{"name": "x", "deviceClassName": CLASS}]}, name="either"),
    template(request(allocationMode="All"), name="all"),
    claim("held", "n0", "a"),
    pod("runs", "n0", **uses("held", shared=True)),
    pod("waits", **uses("large")),
    pod("either", **uses("either")),
    pod("all", **uses("all")),
    job("j", 1, 9, template=uses("large")),
]


def older(body: Object, version: str) -> Object:
    """The same object as an API server prints it in an older version."""
    if not body["apiVersion"].startswith("resource.k8s.io/"):
        return body
    found = copy.deepcopy(body)
    found["apiVersion"] = f"resource.k8s.io/{version}"
    if version != "v1beta1":
        return found
    if found["kind"] == "ResourceSlice":
        found["spec"]["devices"] = [{"name": one.pop("name"), "basic": one} for one in found["spec"]["devices"]]
    if found["kind"].startswith("ResourceClaim"):
        spec = found["spec"].get("spec", found["spec"])
        requests = spec["devices"]["requests"]
        spec["devices"]["requests"] = [{**one, **one.pop("exactly", {})} for one in requests]
    return found


def saved(*objects: Object) -> SavedCluster:
    return read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))])


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_an_older_version_makes_the_same_cluster_and_plan(version: str) -> None:
    translated = [older(one, version) for one in SCENE]
    assert snapshot(translated) == snapshot(SCENE)
    (found,), (usual,) = plan(translated).decisions, plan(SCENE).decisions
    assert (found.target, found.message, found.nodes) == (usual.target, usual.message, usual.nodes)


def test_a_broken_object_of_an_older_version_is_left_out_alone() -> None:
    broken: list[Any] = [
        {"spec": 3},
        {"spec": {"devices": 3}},
        {"spec": {"devices": [3]}},
        {"spec": {"devices": [{"basic": 3, "name": 4}]}},
    ]
    for number, body in enumerate(broken):
        one = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": f"s{number}"}}
        (left_out,) = saved(*nodes(1), {**one, **body}).snapshot()[1]
        assert str(left_out).startswith(f"now.yaml, document 2: ResourceSlice s{number} is left out: Expected")


def test_other_versions_and_rules_of_taints_are_named_for_each_object_and_the_rest_is_planned() -> None:
    objects = [
        older(device_class(), "v1alpha3"),
        older(template(), "v1alpha2"),
        {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "worn"}},
        {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "PodSchedulingContext", "metadata": {"name": "old"}},
    ]
    found, left_out = saved(*nodes(2), *objects).snapshot()
    assert len(found.nodes) == 2
    assert list(map(str, left_out)) == [
        f"now.yaml, document 3: DeviceClass {CLASS} is left out: it has apiVersion resource.k8s.io/v1alpha3, which"
        " edl does not read; save it as resource.k8s.io/v1 (kubectl get deviceclasses.v1.resource.k8s.io -o yaml)",
        "now.yaml, document 4: ResourceClaimTemplate default/one-gpu is left out: it has apiVersion"
        " resource.k8s.io/v1alpha2, which edl does not read; save it as resource.k8s.io/v1 (kubectl get"
        " resourceclaimtemplates.v1.resource.k8s.io -o yaml)",
        "now.yaml, document 5: DeviceTaintRule worn is left out: edl does not read the taints that it gives devices:"
        " those that it taints count as free",
    ]
