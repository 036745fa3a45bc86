from __future__ import annotations

import base64
from typing import Any

import pytest

from edl.sandbox.kubelet.environment import MissingReferenceError, expand, variables
from edl.sandbox.kubelet.paths import PathMap

Object = dict[str, Any]
NODE = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}
OBJECTS = {
    ("Secret", "key"): {"data": {"token": base64.b64encode(b"s3cret").decode()}},
    ("ConfigMap", "settings"): {"data": {"A": "1", "B": "2"}},
}


def pod(*env: Object, **container: Any) -> Object:
    one = {"name": "main", "env": list(env), **container}
    return {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u-1", "labels": {"app": "x"}},
        "spec": {"nodeName": "n0", "containers": [one]},
        "status": {"podIP": "127.9.0.1", "hostIP": "127.0.0.1"},
    }


def values(*env: Object, **container: Any) -> dict[str, str]:
    made = pod(*env, **container)
    return variables(made, made["spec"]["containers"][0], NODE, lambda kind, name: OBJECTS.get((kind, name)))


def field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resource(name: str, what: str, divisor: str = "") -> Object:
    reference = {"resource": what, **({"divisor": divisor} if divisor else {})}
    return {"name": name, "valueFrom": {"resourceFieldRef": reference}}


def test_a_field_of_the_pod() -> None:
    found = values(
        field("IP", "status.podIP"),
        field("NAME", "metadata.name"),
        field("UID", "metadata.uid"),
        field("NODE", "spec.nodeName"),
        field("APP", "metadata.labels['app']"),
    )
    assert found == {"IP": "127.9.0.1", "NAME": "a", "UID": "u-1", "NODE": "n0", "APP": "x"}


def test_a_resource_is_rounded_up_in_units_of_its_divisor() -> None:
    resources = {"limits": {"cpu": "1500m", "memory": "100Mi"}, "requests": {"cpu": "100m"}}
    found = values(
        resource("CPUS", "limits.cpu"),
        resource("MILLI", "limits.cpu", "1m"),
        resource("MIB", "limits.memory", "1Mi"),
        resource("ASKED", "requests.cpu", "1m"),
        resources=resources,
    )
    assert found == {"CPUS": "2", "MILLI": "1500", "MIB": "100", "ASKED": "100"}


def test_a_limit_that_is_not_set_is_that_of_the_node() -> None:
    assert values(resource("CPUS", "limits.cpu"), resource("ASKED", "requests.cpu")) == {"CPUS": "4", "ASKED": "0"}


def test_secrets_and_config_maps() -> None:
    secret = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}}
    everything = [{"prefix": "P_", "configMapRef": {"name": "settings"}}]
    assert values(secret, envFrom=everything) == {"P_A": "1", "P_B": "2", "T": "s3cret"}


@pytest.mark.parametrize("name", ["gone", "key"])
def test_a_missing_secret_or_key_is_an_error_unless_it_is_optional(name: str) -> None:
    reference = {"name": name, "key": "gone"}
    with pytest.raises(MissingReferenceError, match="gone"):
        values({"name": "T", "valueFrom": {"secretKeyRef": reference}})
    assert values({"name": "T", "valueFrom": {"secretKeyRef": {**reference, "optional": True}}}) == {}


def test_earlier_variables_are_expanded() -> None:
    found = values({"name": "A", "value": "x"}, {"name": "B", "value": "$(A)-$(LATER)-$$(A)"})
    assert found["B"] == "x-$(LATER)-$(A)"
    assert expand("$(A)$", {"A": "1"}) == "1$"


def test_paths_of_mounts_are_replaced_as_whole_names_only() -> None:
    paths = PathMap({"/data": "/here/d", "/data/deep": "/here/deep", "/": "/nowhere"})
    assert paths.text("--journal=/data/x:/data") == "--journal=/here/d/x:/here/d"
    assert paths.text("/data/deep/y") == "/here/deep/y"
    assert paths.text("/database /my/data /data.txt") == "/database /my/data /data.txt"
