"""From objects as kubectl prints them to the planned nodes of trainers: the filters and scores of kube-scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from edl.explain.decision import decide
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.policies.registry import policy_named
from tests.worlds.raw_objects import DAEMON_SET, Object, container, job, node, owned_by, pod, take, trainer

Places = dict[str, int]
HOSTNAME = "kubernetes.io/hostname"
SSD = {"labels": {"disk": "ssd", "gpus": "8"}}
NO_SCHEDULE = {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
NO_EXECUTE = {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}}
RATHER_NOT = {"spec": {"taints": [{"key": "spot", "effect": "PreferNoSchedule"}]}}


def plan_of(*objects: Object) -> ScalePlan:
    return decide(take(*objects), policy_named("maxmin"), Limits())


def places(*objects: Object) -> Places:
    """The planned nodes of the new trainers of the only job."""
    (decision,) = plan_of(*objects).decisions
    return dict(decision.nodes)


def wanting(template: Object | None = None, requests: Object | None = None, most: int = 8) -> Object:
    """A job of 1 to `most` trainers, of 3 cores each by default, with a tiny master and no pservers."""
    wanted = job(spec={"fault_tolerant": True, "master": {"resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}})
    wanted["spec"]["trainer"].update(
        {
            "min-instance": 1,
            "max-instance": most,
            "resources": {"requests": requests or {"cpu": "3", "memory": "1Gi"}},
        }
    )
    if template is not None:
        wanted["spec"]["trainer"]["template"] = {"spec": template}
    return wanted


def required(*terms: Object) -> Object:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": list(terms)}}}}  # fmt: skip


def preferred(*wishes: tuple[int, Object]) -> Object:
    entries = [{"weight": weight, "preference": term} for weight, term in wishes]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": entries}}}


def label(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name(operator: str, value: str) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, {"n1": 2, "n2": 2}),
        ({"nodeSelector": {"disk": "ssd"}}, {"n1": 2}),
        (required(label("disk", "In", "nvme", "ssd")), {"n1": 2}),
        (required(label("disk", "NotIn", "ssd")), {"n2": 2}),
        (required(label("disk", "Exists")), {"n1": 2}),
        (required(label("disk", "DoesNotExist")), {"n2": 2}),
        (required(label("gpus", "Gt", "7")), {"n1": 2}),
        (required(label("gpus", "Lt", "8")), {}),
        (required(name("In", "n2")), {"n2": 2}),
        (required(name("NotIn", "n2")), {"n1": 2}),
        (required(label("disk", "In", "hdd"), name("In", "n2")), {"n2": 2}),
        (required({**label("disk", "Exists"), **name("In", "n2")}), {}),
        ({"nodeSelector": {"disk": "ssd"}, **required(name("In", "n2"))}, {}),
        (required({}), {}),
    ],
)
def test_selectors_and_required_affinity_exclude_nodes(template: Object | None, expected: Places) -> None:
    assert places(node("n1", metadata=SSD), node("n2"), wanting(template)) == expected


@pytest.mark.parametrize(
    ("unfit", "expected"),
    [
        (NO_SCHEDULE, {"n2": 2}),
        (NO_EXECUTE, {"n2": 2}),
        (RATHER_NOT, {"n1": 2, "n2": 2}),
        ({"spec": {"unschedulable": True}}, {"n2": 2}),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, {"n2": 2}),
        ({"metadata": {"deletionTimestamp": "2026-01-05T10:00:00Z"}}, {"n2": 2}),
    ],
)
def test_taints_cordons_and_unready_nodes_are_excluded(unfit: Object, expected: Places) -> None:
    assert places(node("n1", **unfit), node("n2"), wanting()) == expected


@pytest.mark.parametrize(
    ("unfit", "toleration"),
    [
        (NO_SCHEDULE, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}),
        (NO_EXECUTE, {"key": "gpu", "operator": "Exists"}),
        ({"spec": {"unschedulable": True}}, {"operator": "Exists"}),
    ],
)
def test_a_tolerated_taint_excludes_no_node(unfit: Object, toleration: Object) -> None:
    assert places(node("n1", **unfit), node("n2"), wanting({"tolerations": [toleration]})) == {"n1": 2, "n2": 2}


FOR_A_TIME = {"effect": "NoExecute", "tolerationSeconds": 300}


@pytest.mark.parametrize(
    ("toleration", "placed"),
    [
        ({"key": "gpu", "operator": "Exists", **FOR_A_TIME}, 1),
        ({"key": "gpu", "value": "yes", **FOR_A_TIME}, 1),
        ({"operator": "Exists", **FOR_A_TIME, "tolerationSeconds": 0}, 0),
        ({"operator": "Exists", **FOR_A_TIME, "tolerationSeconds": 299}, 0),
        ({"operator": "Exists", **FOR_A_TIME, "tolerationSeconds": "600"}, 0),  # the API server refuses text
        ({"key": "gpu", "value": "no", **FOR_A_TIME}, 0),
        ({"key": "node.kubernetes.io/unreachable", "operator": "Exists", **FOR_A_TIME}, 0),
    ],
)
def test_trainers_end_for_a_serving_pod_where_it_may_be_for_a_time(toleration: Object, placed: int) -> None:
    """kube-scheduler places such a pod (kubernetes 92170 and 117520). One whose time is soon over ends nobody.

    It would leave at once, and the pod that its owner makes instead would end trainers again.
    """
    stay = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    trainers = [trainer(n, spec={"nodeName": "n1", "containers": [container("3", "1Gi")], **stay}) for n in range(2)]
    web = pod("web", spec={"containers": [container("4")], "tolerations": [toleration]}, status={"phase": "Pending"})
    small = node("n2", status={"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}})  # for the master
    plan = plan_of(node("n1", **NO_EXECUTE), small, wanting(stay), *trainers, web)
    assert (plan.serving.placed, len(plan.decisions[0].victims)) == (placed, placed)


def test_no_trainer_begins_where_it_would_be_evicted_after_a_time_again_and_again() -> None:
    rests = {"tolerations": [{"key": "gpu", "operator": "Exists", **FOR_A_TIME}]}
    assert places(node("n1", **NO_EXECUTE), node("n2"), wanting(rests)) == {"n2": 2}


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ((), "n1"),
        (((1, label("disk", "In", "ssd")),), "n2"),
        (((1, label("disk", "In", "ssd")), (2, name("In", "n3"))), "n3"),
        (((100, label("disk", "In", "ssd")), (1, name("In", "n3"))), "n2"),
        (((100, {}), (1, name("In", "n3"))), "n3"),
    ],
)
def test_preferred_affinity_chooses_among_equal_nodes(wishes: tuple[Any, ...], expected: str) -> None:
    nodes = (node("n1"), node("n2", metadata=SSD), node("n3"))
    assert places(*nodes, wanting(preferred(*wishes), most=1)) == {expected: 1}


def test_preferred_affinity_and_prefer_no_schedule_taints_cost_no_trainer() -> None:
    preferring = wanting(preferred((100, label("disk", "In", "ssd"))), most=3)
    assert places(node("n1"), node("n2", metadata=SSD), preferring) == {"n1": 1, "n2": 2}
    assert places(node("n1", **RATHER_NOT), node("n2"), wanting(most=3)) == {"n1": 1, "n2": 2}
    assert places(node("n1", **RATHER_NOT), node("n2"), wanting(most=2)) == {"n2": 2}


@pytest.mark.parametrize(
    ("requests", "extra", "trainers"),
    [
        ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "5"}, 2),
        ({"alpha.kubernetes.io/nvidia-gpu": 2}, {"nvidia.com/gpu": "5"}, 2),
        ({"nvidia.com/gpu": "2"}, {"alpha.kubernetes.io/nvidia-gpu": "5"}, 2),
        ({"example.com/fpga": "1"}, {"example.com/fpga": "3"}, 3),
        ({"ephemeral-storage": "10Gi"}, {"ephemeral-storage": "45Gi"}, 4),
        ({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "18Mi"}, 4),
        ({"nvidia.com/gpu": "1"}, {}, 0),
        ({}, {"pods": "4"}, 3),
    ],
)
def test_every_resource_limits_the_trainers_of_a_node(requests: Object, extra: Object, trainers: int) -> None:
    """The master also counts as a pod of the node."""
    allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110", **extra}
    wanted = wanting(requests={"cpu": "1", "memory": "1Gi", **requests})
    assert sum(places(node("n1", status={"allocatable": allocatable}), wanted).values()) == trainers


CORES_7 = {"containers": [container("7")]}
HOLDERS: dict[str, Object] = {
    "running": pod("web", spec={**CORES_7, "nodeName": "n1"}),
    "bound but not running yet": pod("web", spec={**CORES_7, "nodeName": "n1"}, status={"phase": "Pending"}),
    "of an unknown phase": pod("web", spec={**CORES_7, "nodeName": "n1"}, status={"phase": "Unknown"}),
    "terminating": pod(
        "web", spec={**CORES_7, "nodeName": "n1"}, metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}
    ),
    "promised the node": pod("web", spec=CORES_7, status={"phase": "Pending", "nominatedNodeName": "n1"}),
    "mirrored from a static manifest": pod(
        "kube-proxy-n1",
        namespace="kube-system",
        owner={"kind": "Node", "name": "n1", "uid": "u"},
        metadata={"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}},
        spec={**CORES_7, "nodeName": "n1", "priority": 2_000_001_000},
    ),
    "with an init container that takes more": pod(
        "web", spec={"containers": [container("1")], "initContainers": [container("7")], "nodeName": "n1"}
    ),
    "with a sidecar": pod(
        "web",
        spec={
            "containers": [container("5")],
            "initContainers": [container("2", restartPolicy="Always")],
            "nodeName": "n1",
        },
    ),
    "with overhead": pod("web", spec={"containers": [container("1")], "overhead": {"cpu": "6"}, "nodeName": "n1"}),
    "with pod-level resources": pod(
        "web", spec={"containers": [container("1")], "resources": {"requests": {"cpu": "7"}}, "nodeName": "n1"}
    ),
    "left of a job of that name": trainer(7, owner=owned_by("uid-of-old"), spec={**CORES_7, "nodeName": "n1"}),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS.keys())
def test_a_pod_that_occupies_a_node_keeps_its_request_from_trainers(holder: Object) -> None:
    assert places(node("n1"), node("n2"), wanting(), holder) == {"n2": 2}


NOBODY: dict[str, Object] = {
    "succeeded": pod("web", spec={**CORES_7, "nodeName": "n1"}, status={"phase": "Succeeded"}),
    "failed": pod("web", spec={**CORES_7, "nodeName": "n1"}, status={"phase": "Failed"}),
    "gated": pod("web", spec={**CORES_7, "schedulingGates": [{"name": "quota"}]}, status={"phase": "Pending"}),
    "waiting at a low priority": pod("web", spec={**CORES_7, "priority": -1}, status={"phase": "Pending"}),
    "going": pod(
        "web", spec=CORES_7, status={"phase": "Pending"}, metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}
    ),
}


@pytest.mark.parametrize("other", NOBODY.values(), ids=NOBODY.keys())
def test_a_pod_that_neither_runs_nor_needs_a_node_keeps_nothing_from_trainers(other: Object) -> None:
    assert places(node("n1"), node("n2"), wanting(), other) == {"n1": 2, "n2": 2}


def test_capacity_for_a_waiting_serving_pod_is_kept_on_its_eligible_node() -> None:
    waiting = pod("web", spec={**CORES_7, "nodeSelector": {"disk": "ssd"}}, status={"phase": "Pending"})
    assert places(node("n1"), node("n2", metadata=SSD), wanting(), waiting) == {"n1": 2}


def test_a_serving_pod_nominated_to_a_deleted_node_waits_again() -> None:
    lost = pod("web", spec=CORES_7, status={"phase": "Pending", "nominatedNodeName": "gone"})
    plan = plan_of(node("n1"), node("n2"), wanting(), lost)
    assert (plan.serving.waiting, plan.serving.placed) == (1, 1)
    assert len(plan.decisions[0].nodes) == 1


def test_capacity_is_kept_for_daemon_pods_only_on_nodes_that_they_will_reach() -> None:
    linux = {"labels": {"os": "linux"}}
    greedy = {**DAEMON_SET, "spec": {"template": {"spec": {"nodeSelector": {"os": "linux"}, **CORES_7}}}}
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "d", "controller": True}
    assert places(greedy, node("n1", metadata=linux), node("n2"), wanting()) == {"n2": 2}
    extra = pod("logs-1", namespace="kube-system", owner=owner, spec={"nodeName": "n1"})
    assert places(greedy, extra, node("n1", metadata=linux), node("n2"), wanting()) == {"n1": 2, "n2": 2}
    promised = pod("logs-1", namespace="kube-system", owner=owner, status={"nominatedNodeName": "n1"})
    assert places(greedy, promised, node("n1", metadata=linux), node("n2"), wanting()) == {"n1": 2, "n2": 2}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"hostPort": 80}, {"n2": 1}),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"n2": 1}),
        ({"hostPort": 80, "hostIP": "10.0.0.9"}, {"n1": 1, "n2": 1}),
        ({"hostPort": 80, "protocol": "UDP"}, {"n1": 1, "n2": 1}),
        ({"hostPort": 81}, {"n1": 1, "n2": 1}),
        ({"containerPort": 80}, {"n1": 1, "n2": 1}),
    ],
)
def test_a_host_port_is_used_once_per_node(held: Object, expected: Places) -> None:
    holder = pod("web", spec={"containers": [{**container("1"), "ports": [held]}], "nodeName": "n1"})
    ported = wanting(
        {"containers": [{"name": "trainer", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]}]}
    )
    assert places(node("n1"), node("n2"), ported, holder) == expected


def test_with_host_network_every_port_is_a_host_port() -> None:
    holder = pod(
        "web",
        spec={"hostNetwork": True, "containers": [{**container("1"), "ports": [{"containerPort": 80}]}],
              "nodeName": "n1"},
    )  # fmt: skip
    ported = wanting({"containers": [{"name": "trainer", "ports": [{"containerPort": 80, "hostPort": 80}]}]})
    assert places(node("n1"), node("n2"), ported, holder) == {"n2": 1}
