"""ResourceQuotas become what they leave for the pods of TrainingJobs."""

from __future__ import annotations

from math import inf

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ResourceQuota
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from edl.model.status import Reason
from tests.worlds.raw_objects import GI, Object, batch_job, batch_pod, container, job, node, pod, take


def quota(name: str = "small", namespace: str = "ads", **fields: object) -> Object:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": namespace}, **fields}


def limited_pod(name: str) -> Object:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    return pod(name, spec={"containers": [{"name": "c", "resources": resources}]})


def test_a_quota_is_read_with_what_the_pods_of_others_use() -> None:
    hard = {"pods": "10", "requests.cpu": "4", "limits.cpu": "8", "memory": "16Gi", "services": "3"}
    found = take(job(), limited_pod("web"), quota(spec={"hard": hard}, status={"used": {"pods": "2"}}))
    assert found.resource_quotas == (
        ResourceQuota(
            "ads",
            "small",
            hard=(("cpu", 4000), ("limits.cpu", 8000), ("memory", 16 * GI), ("pods", 10)),
            used=(("pods", 2),),
            others=(("cpu", 500), ("limits.cpu", 2000), ("memory", GI), ("pods", 1)),
        ),
    )


@pytest.mark.parametrize(("now_s", "cpu"), [(1029.0, 500), (1061.0, 0)])
def test_a_pod_that_a_dead_node_holds_is_charged_no_longer_than_the_api_server_does(now_s: float, cpu: int) -> None:
    """It terminates by its deletion timestamp, and is charged for its grace period after that."""
    held = limited_pod("web")
    held["metadata"]["deletionTimestamp"] = "1970-01-01T00:17:10Z"
    held["spec"]["terminationGracePeriodSeconds"] = 30
    translator = Translator()
    found = take(
        job(),
        held,
        quota(spec={"hard": {"requests.cpu": "4", "count/pods": "9"}}),
        now_s=now_s,
        translator=translator,
    )
    assert dict(found.resource_quotas[0].others) == {"count/pods": 1, **({"cpu": cpu} if cpu else {})}
    assert translator.valid_until_s == (1060.0 if cpu else inf)


def test_two_names_of_one_resource_give_the_smaller_limit() -> None:
    hard = {"pods": "10", "count/pods": "5", "cpu": "1", "requests.cpu": "2", "requests.nvidia.com/gpu": "4"}
    (found,) = take(job(), quota(spec={"hard": hard})).resource_quotas
    assert dict(found.hard) == {"pods": 10, "count/pods": 5, "cpu": 1000, "nvidia.com/gpu": 4}


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "limits.nvidia.com/gpu", "limits.amd.com/gpu"])
def test_a_name_by_which_the_api_server_counts_nothing_limits_nothing(name: str) -> None:
    """Devices have no limits of their own, so their quota is `requests.` (NVIDIA/k8s-device-plugin 211)."""
    found = take(job(), quota(spec={"hard": {name: "1", "requests.amd.com/gpu": "3"}}))
    assert dict(found.resource_quotas[0].hard) == {"amd.com/gpu": 3}


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, True),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["edl-surplus"]}]
                }
            },
            False,
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["gold"]}]
                }
            },
            True,
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {
                            "scopeName": "PriorityClass",
                            "operator": "In",
                            "values": ["edl-core", "edl-training", "edl-surplus"],
                        }
                    ]
                }
            },
            True,
        ),
    ],
)
def test_a_quota_counts_only_if_its_scopes_include_every_pod_of_a_job(spec: Object, counts: bool) -> None:
    found = take(job(), quota(spec={"hard": {"pods": "1"}, **spec})).resource_quotas
    assert bool(found) is counts


def test_quotas_of_namespaces_without_jobs_are_not_read() -> None:
    assert take(job(), quota(namespace="elsewhere", spec={"hard": {"pods": "1"}})).resource_quotas == ()


def test_a_quota_that_cannot_be_read_is_left_out_and_the_rest_is_planned() -> None:
    found = take(job(), quota("bad", spec={"hard": {"pods": "many"}}), quota(spec={"hard": {"pods": "1"}}))
    assert [q.name for q in found.resource_quotas] == ["small"]


def test_the_limits_of_a_job_are_those_of_its_pods() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    trainer = {"min-instance": 2, "max-instance": 6, "entrypoint": "x", "resources": resources}
    (found,) = take(job(spec={"trainer": trainer})).jobs
    assert found.limits.as_dict() == {"cpu": 2000, "memory": GI}


def of_class(operator: str, *values: str) -> Object:
    """The scope selector of a quota."""
    return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": list(values)}]}


OF_EDL: Object = {"scopeSelector": of_class("In", "edl-core", "edl-training", "edl-surplus")}
BARE: Object = {"containers": [{"name": "c"}]}


@pytest.mark.parametrize(
    ("scopes", "web"),
    [
        (OF_EDL, {}),
        (OF_EDL, {"priorityClassName": "gold"}),
        ({"scopeSelector": of_class("NotIn", "gold")}, {"priorityClassName": "gold"}),
        ({"scopeSelector": of_class("Exists")}, {}),
        ({"scopes": ["PriorityClass"]}, {}),
        ({"scopes": ["NotTerminating"]}, {"activeDeadlineSeconds": 60}),
        ({"scopes": ["NotBestEffort"]}, BARE),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, {"activeDeadlineSeconds": 60}),
    ],
)
def test_pods_that_the_scopes_of_a_quota_leave_out_use_nothing_of_it(scopes: Object, web: Object) -> None:
    """The report is volcano 5793: scoped quotas taken for those of the whole namespace."""
    others = [pod(f"web-{number}", spec={"nodeName": "n1", **web}) for number in range(2)]
    hard = {"requests.cpu": "4", "pods": "3", "count/pods": "3"}  # a master and two trainers
    snapshot = take(node(), job(), *others, quota(spec={"hard": hard, **scopes}))
    assert not any(amount for _, amount in snapshot.resource_quotas[0].others)
    (decision,) = plan_snapshot(snapshot, "", Limits()).decisions
    assert (decision.target, decision.reason) == (2, Reason.QUOTA_REACHED)


@pytest.mark.parametrize(
    ("scopes", "template"),
    [
        (OF_EDL, {}),
        ({"scopeSelector": of_class("DoesNotExist")}, {"priorityClassName": "gold"}),
        ({"scopes": ["NotTerminating"]}, {"activeDeadlineSeconds": 60}),
        ({"scopes": ["BestEffort"]}, {}),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {}),
    ],
)
def test_a_workload_whose_pods_the_scopes_leave_out_is_not_limited(scopes: Object, template: Object) -> None:
    spec = {"template": {"spec": {"containers": [container("1", "1Gi")], **template}}}
    pods = [batch_pod(f"train-{number}", ready_at=number) for number in range(3)]
    snapshot = take(node(), batch_job(spec=spec), *pods, quota(spec={"hard": {"pods": "3"}, **scopes}))
    (decision,) = plan_snapshot(snapshot, "", Limits()).decisions
    assert (decision.target, decision.reason) == (6, Reason.AT_MAX)


def test_a_workload_whose_pods_the_scopes_include_is_limited_and_its_neighbour_is_not() -> None:
    """A class that no pod names is that of the default PriorityClass."""
    default = {"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 0, "globalDefault": True}
    found = quota(spec={"hard": {"pods": "4", "count/pods": "4"}, "scopeSelector": of_class("In", "usual")})
    pods = [batch_pod(f"train-{number}", ready_at=number) for number in range(3)]
    snapshot = take(node(), node("n2"), default, job(), batch_job(), *pods, found)
    assert [one.exempt for one in snapshot.resource_quotas] == [(JobKey("ads", "ctr"),)]
    targets = {one.job.kind: one.target for one in plan_snapshot(snapshot, "", Limits()).decisions}
    assert targets == {WorkloadKind.TRAINING_JOB: 6, WorkloadKind.BATCH_JOB: 4}
