"""LimitRanges and ResourceQuotas of saved files that a plan does not count are named, with what they may change."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts

Object = dict[str, Any]

FULL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
GPU = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


def job(
    resources: Object = FULL, namespace: str = "ads", *, fault_tolerant: bool = False, template: Object | None = None
) -> Object:
    trainer = {"entrypoint": "train", "min-instance": 1, "max-instance": 1, "resources": resources}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "ctr", "namespace": namespace},
        "spec": {
            "fault_tolerant": fault_tolerant,
            "master": {"resources": FULL},
            "trainer": {**trainer, "template": {"spec": template or {}}},
        },
    }


def limit_range(*limits: Object, namespace: str = "ads") -> Object:
    metadata = {"name": "bounds", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": list(limits)}}


def quota(*scopes: str, of: Object | None = None, **hard: Any) -> Object:
    spec: Object = {"hard": hard, "scopes": list(scopes)}
    if of is not None:
        spec["scopeSelector"] = {"matchExpressions": [of]}
    metadata = {"name": "small", "namespace": "ads"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def priority(operator: str, *values: str) -> Object:
    return {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}


def warnings(*objects: Object) -> list[str]:
    saved = read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))])
    assert saved.snapshot()[1] == ()
    return list(saved.not_asked())


def test_defaults_are_named_for_the_containers_that_lack_them() -> None:
    defaults = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"}}
    (line,) = warnings(job({"requests": {"memory": "2Gi"}}), limit_range(defaults))
    assert line == (
        "LimitRange ads/bounds is not applied to the pods of job ads/ctr: it may give their containers a request of"
        " cpu and a limit of cpu"
    )
    (line,) = warnings(job({"requests": {"cpu": "1"}}), limit_range({"type": "Container", "default": {"cpu": "2"}}))
    assert line.endswith("it may give their containers a limit of cpu")
    assert warnings(job(), limit_range(defaults)) == []
    assert warnings(job({"requests": {"memory": "2Gi"}}, "other"), limit_range(defaults)) == []


def test_bounds_are_named_and_are_defaults_where_a_limit_range_sets_none() -> None:
    bounds = {"type": "Container", "max": {"memory": "512Mi"}, "maxLimitRequestRatio": {"cpu": "2"}}
    of_pods = {"type": "Pod", "min": {"cpu": "2"}}
    apart = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    (line,) = warnings(job(apart), limit_range(bounds, of_pods))
    assert line.endswith(
        "it may refuse them by its max memory of a Container, ratio cpu of a Container and min cpu of a Pod"
    )
    (line,) = warnings(job({"requests": {"cpu": "1"}}), limit_range(bounds))
    assert "give their containers a request of memory and a limit of memory and may refuse" in line


@pytest.mark.parametrize(
    ("bound", "value", "is_kept"),
    [
        ("max", {"cpu": "1"}, True),
        ("max", {"memory": "1023Mi"}, False),
        ("max", {"nvidia.com/gpu": "1"}, False),  # the API server asks for a limit
        ("min", {"cpu": "1000m", "memory": "1Gi"}, True),
        ("min", {"cpu": "1001m"}, False),
        ("maxLimitRequestRatio", {"cpu": "1"}, True),
        ("maxLimitRequestRatio", {"cpu": "0.5"}, False),
        ("max", {"cpu": "much"}, False),
    ],
)
@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_bounds_that_every_container_keeps_are_not_named(
    kind: str, bound: str, value: Object, *, is_kept: bool
) -> None:
    lines = warnings(job(), limit_range({"type": kind, bound: value}))
    assert bool(lines) is not is_kept


def test_a_bound_of_a_pod_is_named_if_the_pod_has_several_containers() -> None:
    side = {"initContainers": [{"name": "side", "image": "x", "resources": FULL}]}
    assert warnings(job(template=side), limit_range({"type": "Container", "max": {"cpu": "1"}})) == []
    assert warnings(job(template=side), limit_range({"type": "Pod", "max": {"cpu": "1"}}))


def test_bounds_of_claims_matter_to_pods_that_may_have_claims() -> None:
    claims = limit_range({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
    assert warnings(job(), claims) == []
    (line,) = warnings(job(fault_tolerant=True), claims)
    assert line.endswith("it may refuse them by its max storage of a PersistentVolumeClaim")
    disk = {"volumes": [{"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}
    assert warnings(job(template=disk), claims)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (quota("BestEffort", pods="1"), False),
        (quota("Terminating", pods="1"), False),
        (quota("NotBestEffort", "NotTerminating", pods="1"), False),  # counted
        (quota("CrossNamespacePodAffinity", pods="0"), False),
        (quota("VolumeAttributesClass", persistentvolumeclaims="1"), False),
        (quota(pods="1", of=priority("In", "gold")), False),
        (quota(pods="1", of=priority("In", "gold", "edl-surplus")), True),
        (quota(pods="1", of=priority("NotIn", "edl-core")), True),
        (quota(pods="1", of=priority("Exists")), False),  # counted
        (quota(pods="1", of=priority("DoesNotExist")), False),
        (quota("Terminating", pods="1", of=priority("In", "gold")), False),
    ],
)
def test_a_quota_with_scopes_is_named_if_it_may_count_some_pods_of_jobs(found: Object, *, named: bool) -> None:
    lines = warnings(job(), found)
    assert bool(lines) is named
    assert all("ResourceQuota ads/small is not counted, because its scopes (" in line for line in lines)


def test_a_quota_of_pods_with_affinities_across_namespaces_may_count_pods_with_affinities() -> None:
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    found = quota("CrossNamespacePodAffinity", pods="0")
    (line,) = warnings(job(template={"affinity": near}), found)
    assert "is not counted, because its scopes (CrossNamespacePodAffinity) count only some pods" in line


def test_a_quota_of_best_effort_pods_counts_trainers_without_requests() -> None:
    assert warnings(job({}), quota("BestEffort", pods="1")) == []
    assert warnings(job({}, fault_tolerant=True), quota("BestEffort", pods="1")) == [
        "ResourceQuota ads/small is not counted, because its scopes (BestEffort) count only some pods: the API server"
        " may refuse the pods of job ads/ctr beyond it"
    ]


def test_limits_of_claims_and_devices_are_named_for_pods_that_have_them() -> None:
    hard: Object = {
        "requests.storage": "1Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gpu.example.com.deviceclass.resource.k8s.io/devices": "1",
        "services": "1",
    }
    assert warnings(job(), quota(**hard)) == []
    (line,) = warnings(job(fault_tolerant=True), quota(**hard))
    assert line == (
        "ResourceQuota ads/small: gold.storageclass.storage.k8s.io/persistentvolumeclaims and requests.storage are"
        " not counted: the API server may refuse claims of the pods of job ads/ctr beyond it"
    )
    one_gpu = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}}
    (line,) = warnings(job(template=GPU), quota(**hard), one_gpu)
    assert "gpu.example.com.deviceclass.resource.k8s.io/devices is not counted" in line


def test_pods_that_do_not_specify_what_a_quota_limits_are_named() -> None:
    hard: Object = {"limits.cpu": "4", "requests.memory": "9Gi"}
    assert warnings(job(), quota(**hard)) == []
    (line,) = warnings(job({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}), quota(**hard))
    assert line == (
        "ResourceQuota ads/small: the API server refuses the pods of job ads/ctr unless a LimitRange gives each"
        " container requests.memory and limits.cpu; specify them in the job"
    )
