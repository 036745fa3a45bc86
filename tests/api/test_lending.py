"""The pod of a trainer that lends CPU, as edl creates it."""

from __future__ import annotations

from typing import Any

import pytest

from edl.api.lending import lending_spec
from edl.api.pods import PodTerms, pod_manifest
from edl.api.v1 import parse_job
from edl.model.names import Role
from tests.worlds.hostile.manifests import make_manifest

Object = dict[str, Any]
AMOUNTS = {"cpu": "5", "memory": "8Gi"}


def pod_of(resources: Object, cpu_request: float = 0.1, role: Role = Role.TRAINER) -> Object:
    manifest = make_manifest()
    manifest["metadata"]["uid"] = "uid"
    manifest["spec"]["trainer"]["resources"] = resources
    return pod_manifest(
        parse_job(manifest), role, 3, default_master_image="edl", terms=PodTerms(cpu_request), priority_classes=()
    )


def annotation_of(pod: Object) -> object:
    return pod["metadata"].get("annotations", {}).get("paddlepaddle.org/declared-cpu")


@pytest.mark.parametrize("limits", [AMOUNTS, {}])
def test_it_requests_a_part_of_its_cpu_and_may_use_all_of_it(limits: Object) -> None:
    pod = pod_of({"requests": AMOUNTS, "limits": limits})
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"]["cpu"] == "500m"
    assert resources["limits"]["cpu"] == "5"
    assert resources["requests"]["memory"] == "8Gi"
    assert annotation_of(pod) == "5"


def test_a_higher_limit_stays() -> None:
    pod = pod_of({"requests": AMOUNTS, "limits": {"cpu": "7"}})
    assert pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "7"
    assert annotation_of(pod) == "5"


def test_without_lending_the_pod_is_as_before() -> None:
    pod = pod_of({"requests": AMOUNTS, "limits": AMOUNTS}, cpu_request=1.0)
    assert pod["spec"]["containers"][0]["resources"] == {"requests": AMOUNTS, "limits": AMOUNTS}
    assert annotation_of(pod) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "trainer", "resources": {"requests": {"memory": "1Gi"}}}]},
        {"containers": [{"name": "trainer", "resources": {"requests": {"cpu": "8m"}}}]},
        {"containers": [{"name": "trainer"}], "resources": {"requests": {"cpu": "5"}}},
        {
            "containers": [{"name": "trainer", "resources": {"limits": {"cpu": "5"}}}],
            "resources": {"limits": {"cpu": "6"}},
        },
        {"containers": [{"name": "other", "resources": {"requests": {"cpu": "5"}}}]},
    ],
)
def test_a_trainer_without_cpu_of_its_own_lends_none(spec: Object) -> None:
    assert lending_spec(spec, 0.1) == (spec, "")


def test_helper_containers_keep_their_cpu() -> None:
    helper = {"name": "helper", "resources": {"requests": {"cpu": "1"}}}
    spec, _ = lending_spec({"containers": [helper, {"name": "trainer", "resources": {"limits": {"cpu": "2"}}}]}, 0.25)
    assert spec["containers"][0] == helper
    assert spec["containers"][1]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}
