"""From raw objects to core types: the arithmetic of kube-scheduler, whose pods are whose, and tolerance."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl.adapters.decoders import DAEMON_SETS, NODES, PODS, PRIORITY_CLASSES, TRAINING_JOBS, Decoder, Quarantined
from edl.adapters.jobs import read_status
from edl.adapters.objects import PodSpec, PodStatus
from edl.adapters.shapes import placement_of, shape_of
from edl.adapters.translate import Translator
from edl.core.model import ClusterSnapshot, Job, JobPhase, NodeTerm, Pod, PodPhase, Resize, Role, Toleration

MI = 1024**2
GI = 1024**3
DECODERS: dict[str, Decoder[Any]] = {
    "Node": NODES,
    "Pod": PODS,
    "TrainingJob": TRAINING_JOBS,
    "DaemonSet": DAEMON_SETS,
    "PriorityClass": PRIORITY_CLASSES,
}
Object = dict[str, Any]


def container(cpu: str = "", memory: str = "", **more: Any) -> Object:
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "resources": {"requests": requests}, **more}


def sidecar(cpu: str) -> Object:
    return container(cpu, restartPolicy="Always")


def request(spec: Object, status: Object | None = None) -> dict[str, int]:
    """The request of a pod without its own place."""
    decoded = PODS.from_dict({"spec": spec, "status": status})
    assert not isinstance(decoded, Quarantined), decoded
    amounts = shape_of(decoded.spec or PodSpec(), decoded.status).request.as_dict()
    assert amounts.pop("pods") == 1
    return amounts


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container("500m", "1Gi"), container("1", "1Gi")]}, {"cpu": 1500, "memory": 2 * GI}),
        # The larger of what runs on and of each step on the way there.
        ({"containers": [container("1")], "initContainers": [container("3")]}, {"cpu": 3000}),
        ({"containers": [container("4")], "initContainers": [container("3"), container("2")]}, {"cpu": 4000}),
        # Native sidecars run on beside the containers, and beside the init containers after them only.
        ({"containers": [container("1")], "initContainers": [sidecar("500m")]}, {"cpu": 1500}),
        ({"containers": [container("1")], "initContainers": [sidecar("500m"), container("2")]}, {"cpu": 2500}),
        ({"containers": [container("1")], "initContainers": [container("2"), sidecar("500m")]}, {"cpu": 2000}),
        (
            {"containers": [container("1")], "initContainers": [sidecar("1"), container("2"), sidecar("3")]},
            {"cpu": 5000},
        ),
        # Overhead comes on top of all of it.
        (
            {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
            {"cpu": 1250, "memory": 120 * MI},
        ),
        # A limit implies the request, resource by resource.
        (
            {"containers": [{"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000, "memory": GI},
        ),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}, {"nvidia.com/gpu": 2}),
        ({"containers": [{"resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}}]}, {"nvidia.com/gpu": 1}),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": None}}}]}, {"cpu": 1000}),
        ({"containers": [{"resources": {"requests": {"ephemeral-storage": "2Gi"}}}]}, {"ephemeral-storage": 2 * GI}),
        # Pod-level resources replace the sum for what they name.
        (
            {"containers": [container("1", "1Gi")], "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}},
            {"cpu": 3000, "memory": GI},
        ),
        ({"containers": [{}], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 4000}),
        ({"containers": [container("1")], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 1000}),
        # Host ports, once each; an init container's are free again when the pod runs.
        (
            {
                "containers": [
                    {"ports": [{"containerPort": 80, "hostPort": 8080}, {"hostPort": 53, "protocol": "UDP"}]}
                ]
            },
            {"hostport/TCP/8080": 1, "hostport/UDP/53": 1},
        ),
        ({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}, {"hostport/TCP/80": 1}),
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, {}),
        ({"containers": [{}], "initContainers": [{"ports": [{"hostPort": 1}]}]}, {}),
        (
            {"containers": [{}], "initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 1}]}]},
            {"hostport/TCP/1": 1},
        ),
        # Nothing said, nothing asked.
        ({"containers": None, "initContainers": None, "overhead": None, "resources": None}, {}),
        ({"containers": [{"resources": None}, {"resources": {"requests": None, "limits": None}, "ports": None}]}, {}),
        # Numbers as a hand-written file has them, rounded up.
        ({"containers": [{"resources": {"requests": {"cpu": 0.5, "memory": 1000}}}]}, {"cpu": 500, "memory": 1000}),
        ({"containers": [container("0.0001")]}, {"cpu": 1}),
    ],
)
def test_a_pod_asks_for_what_kube_scheduler_counts(spec: Object, expected: dict[str, int]) -> None:
    assert request(spec) == expected


@pytest.mark.parametrize(
    ("given", "conditions", "expected"),
    [
        ({"requests": {"cpu": "3"}}, [], 3000),
        ({"requests": {"cpu": "1"}}, [], 2000),
        ({"requests": {"cpu": "1"}}, [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}], 1000),
        ({"requests": {"cpu": "1"}}, [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}], 2000),
    ],
)
def test_while_a_pod_is_resized_in_place_the_larger_amount_counts(
    given: Object, conditions: list[Object], expected: int
) -> None:
    status = {"containerStatuses": [{"name": "c", "resources": given}], "conditions": conditions}
    assert request({"containers": [container("2")]}, status) == {"cpu": expected}


def test_an_affinity_without_terms_selects_no_node() -> None:
    spec = PODS.from_dict(
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}}
    )
    assert not isinstance(spec, Quarantined)
    assert placement_of(spec.spec or PodSpec()).required == (NodeTerm(),)


def test_equal_placements_are_equal_in_whatever_order_they_are_written() -> None:
    tolerations = [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "x", "effect": "NoSchedule"}]
    one = _placement({"tolerations": tolerations, "nodeSelector": {"x": "1", "a": "2"}})
    two = _placement({"tolerations": tolerations[::-1], "nodeSelector": {"a": "2", "x": "1"}})
    assert one == two
    assert one.tolerations == (Toleration("a", "Exists"), Toleration("b", "Equal", "x", "NoSchedule"))


def test_a_toleration_for_some_seconds_makes_no_node_a_place_to_go() -> None:
    added = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert _placement({"tolerations": [added]}) == _placement({})


def _placement(spec: Object) -> Any:
    pod = PODS.from_dict({"spec": spec})
    assert not isinstance(pod, Quarantined)
    return placement_of(pod.spec or PodSpec())


# --- Clusters


def node(name: str = "n1", **more: Any) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": name, **more.pop("metadata", {})},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}, **more.pop("status", {})},
        **more,
    }


def pod(
    name: str, *, namespace: str = "ads", labels: Object | None = None, owner: Object | None = None, **more: Any
) -> Object:
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "kind": "Pod",
        "metadata": {**metadata, **more.pop("metadata", {})},
        "spec": {"containers": [container("1")], **more.pop("spec", {})},
        "status": more.pop("status", {"phase": "Running"}),
    }


def trainer(index: int, *, job: str = "ctr", owner: Object | None = None, **more: Any) -> Object:
    labels = {"paddlepaddle.org/job": job, "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": str(index)}
    return pod(f"{job}-trainer-{index}", labels=labels, owner=owner, **more)


def owned_by(uid: str, name: str = "ctr") -> Object:
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": name, "uid": uid, "controller": True}


def job(name: str = "ctr", *, uid: str = "uid-ctr", spec: Object | None = None, **more: Any) -> Object:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "ads", "uid": uid, "generation": 3, **more.pop("metadata", {})},
        "spec": {
            "fault_tolerant": True,
            "trainer": {"min-instance": 2, "max-instance": 6, "entrypoint": "x", "resources": resources},
            **(spec or {}),
        },
        **more,
    }


def take(*objects: Object, now_s: float = 1000.0, translator: Translator | None = None) -> ClusterSnapshot:
    by_kind: dict[str, list[Any]] = {kind: [] for kind in DECODERS}
    for obj in objects:
        decoded = DECODERS[obj["kind"]].from_dict(obj)
        assert not isinstance(decoded, Quarantined), decoded
        by_kind[obj["kind"]].append(decoded)
    return (translator or Translator()).snapshot(
        nodes=by_kind["Node"],
        pods=by_kind["Pod"],
        jobs=by_kind["TrainingJob"],
        daemonsets=by_kind["DaemonSet"],
        priority_classes=by_kind["PriorityClass"],
        now_s=now_s,
    )


def the_job(*objects: Object) -> Job:
    (found,) = take(*objects).jobs
    return found


def the_pod(obj: Object, *more: Object) -> Pod:
    (found,) = take(obj, *more).pods
    return found


def test_a_node_is_read() -> None:
    (found,) = take(
        node(
            metadata={"labels": {"zone": "b", "arch": "amd64"}},
            spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            status={
                "allocatable": {"cpu": "3920m", "memory": "8Gi", "pods": "29", "alpha.kubernetes.io/nvidia-gpu": "4"},
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
            },
        )
    ).nodes
    assert found.allocatable.as_dict() == {"cpu": 3920, "memory": 8 * GI, "pods": 29, "nvidia.com/gpu": 4}
    assert found.labels == (("arch", "amd64"), ("zone", "b"))
    assert [tuple(t) for t in found.taints] == [("k", "", "NoSchedule")]
    assert (found.ready, found.cordoned) == (True, True)


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, True),
        ({"conditions": None}, True),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, True),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, False),
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, False),
    ],
)
def test_a_node_is_ready_unless_it_says_otherwise(status: Object, ready: bool) -> None:
    assert take(node(status=status)).nodes[0].ready is ready


def test_a_node_that_is_being_deleted_is_no_capacity() -> None:
    assert take(node(metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"})).nodes[0].cordoned


def test_a_hand_written_node_takes_as_many_pods_as_a_kubelet_does() -> None:
    (found,) = take({"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4}}}).nodes
    assert found.allocatable.as_dict() == {"cpu": 4000, "pods": 110}


DAEMON_SET = {
    "kind": "DaemonSet",
    "metadata": {"name": "logs", "namespace": "kube-system"},
    "spec": {"template": {"spec": {"containers": [container("250m")], "nodeSelector": {"os": "linux"}}}},
}


def test_room_is_kept_for_daemons_on_the_nodes_that_they_have_not_reached() -> None:
    linux = {"labels": {"os": "linux"}}
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "d", "controller": True}
    there = pod("logs-1", namespace="kube-system", owner=owner, spec={"nodeName": "n1"})
    on_the_way = pod("logs-2", namespace="kube-system", owner=owner, status={"phase": "Pending"})
    failed = pod("logs-4", namespace="kube-system", owner=owner, spec={"nodeName": "n4"}, status={"phase": "Failed"})
    tainted = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    nodes = [
        node("n1", metadata=linux),
        node("n2", metadata=linux),
        node("n3"),
        node("n4", metadata=linux),
        node("n5", metadata=linux, spec={"unschedulable": True}),
        node("n6", metadata=linux, spec=tainted),
    ]
    found = take(DAEMON_SET, there, on_the_way, failed, *nodes)
    reserved = {n.name: n.reserved["cpu"] for n in found.nodes}
    assert reserved == {"n1": 0, "n2": 250, "n3": 0, "n4": 250, "n5": 250, "n6": 0}
    assert all(p.daemon for p in found.pods)


def test_a_daemon_set_that_is_being_deleted_keeps_no_room() -> None:
    going = copy.deepcopy(DAEMON_SET)
    going["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"  # type: ignore[index]
    assert not take(going, node(metadata={"labels": {"os": "linux"}})).nodes[0].reserved


def test_a_pod_is_read() -> None:
    status = {
        "phase": "Running",
        "startTime": "2026-01-05T10:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [
            {"name": "proxy", "state": {"running": {"startedAt": "2026-01-05T10:00:01Z"}}},
            {"name": "c", "state": {"running": {"startedAt": "2026-01-05T10:00:09Z"}}},
        ],
    }
    metadata = {"creationTimestamp": "2026-01-05T09:59:00Z"}
    found = the_pod(pod("web", status=status, metadata=metadata, spec={"nodeName": "n1", "priority": 7}))
    assert (found.node, found.priority, found.ready, found.phase) == ("n1", 7, True, PodPhase.RUNNING)
    assert found.created_s == 1767607140
    assert found.started_s == 1767607209
    assert not any((found.gated, found.tried, found.terminating, found.daemon, found.nominated))


def test_what_keeps_a_pod_from_its_node_is_read() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    assert the_pod(pod("a", status={"phase": "Pending", "conditions": [unschedulable]})).tried
    waiting = the_pod(pod("a", status={"conditions": [gated]}, spec={"schedulingGates": [{"name": "g"}]}))
    assert waiting.gated
    assert not waiting.tried
    assert the_pod(pod("a", status={"nominatedNodeName": "n1"})).nominated == "n1"
    assert the_pod(pod("a", status={"nominatedNodeName": "n1"}, spec={"nodeName": "n2"})).nominated == ""


def test_how_a_pod_ends_is_read() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    state = {"terminated": {"exitCode": 137, "startedAt": "2026-01-05T10:00:00Z"}}
    status = {"phase": "Failed", "conditions": [target], "containerStatuses": [{"name": "c", "state": state}]}
    annotations = {"paddlepaddle.org/intent": "ServingNeedsRoom", "paddlepaddle.org/planned-node": "n7"}
    metadata = {"deletionTimestamp": "2026-01-05T10:00:30Z", "annotations": annotations}
    (found,) = the_job(job(), trainer(0, status=status, metadata=metadata)).pods
    assert (found.exit_code, found.disruption, found.intent) == (137, "EvictionByEvictionAPI", "ServingNeedsRoom")
    assert (found.planned, found.terminating, found.phase) == ("n7", True, PodPhase.FAILED)


@pytest.mark.parametrize(
    ("phase", "read"),
    [("Unknown", PodPhase.RUNNING), (None, PodPhase.PENDING), ("Nonsense", PodPhase.PENDING)],
)
def test_a_strange_phase_is_read_with_care(phase: str | None, read: PodPhase) -> None:
    assert the_pod(pod("a", status={"phase": phase})).phase is read


def test_a_finished_foreign_pod_holds_nothing() -> None:
    assert take(pod("a", status={"phase": "Succeeded"}), pod("b", status={"phase": "Failed"})).pods == ()


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priority": -3, "priorityClassName": "gold"}, -3),
        ({"priorityClassName": "gold"}, 1000),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ({"priorityClassName": "unknown"}, 0),
        ({}, 5),
    ],
)
def test_a_priority_is_resolved_by_the_classes_that_are_there(spec: Object, priority: int) -> None:
    gold = {"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 1000}
    default = {"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 5, "globalDefault": True}
    assert the_pod(pod("a", spec=spec), gold, default).priority == priority


def test_priority_classes_of_ours_are_missing_only_where_classes_are_known() -> None:
    assert take(node()).missing_priority_classes == ()
    known = [{"kind": "PriorityClass", "metadata": {"name": name}} for name in ("edl-core", "edl-surplus")]
    assert take(node(), *known).missing_priority_classes == ("edl-training",)


def test_a_change_of_the_classes_reaches_pods_that_have_not_changed() -> None:
    translator = Translator()
    source = PODS.from_dict(pod("a", spec={"priorityClassName": "gold"}))
    assert not isinstance(source, Quarantined)
    gold = PRIORITY_CLASSES.from_dict({"metadata": {"name": "gold"}, "value": 9})
    assert not isinstance(gold, Quarantined)
    before = translator.snapshot(nodes=(), pods=[source], jobs=(), now_s=1.0)
    after = translator.snapshot(nodes=(), pods=[source], jobs=(), priority_classes=[gold], now_s=1.0)
    assert [s.pods[0].priority for s in (before, after)] == [0, 9]


# --- Whose pods


def test_pods_belong_to_their_job_by_label_and_namespace() -> None:
    elsewhere = trainer(2, metadata={"namespace": "other"})
    found = take(job(), trainer(1), trainer(0), elsewhere)
    assert [p.name for p in found.jobs[0].pods] == ["ctr-trainer-0", "ctr-trainer-1"]
    assert [(p.namespace, p.job) for p in found.pods] == [("other", None)]


def test_finished_pods_of_a_job_stay_with_it() -> None:
    assert len(the_job(job(), trainer(0, status={"phase": "Succeeded"})).pods) == 1


def test_a_pod_of_a_former_job_of_that_name_is_foreign_and_holds_its_room() -> None:
    old = trainer(0, owner=owned_by("uid-of-the-old-one"), spec={"nodeName": "n1"})
    waiting = trainer(1, owner=owned_by("uid-of-the-old-one"), status={"phase": "Pending"})
    promised = trainer(
        3, owner=owned_by("uid-of-the-old-one"), status={"phase": "Pending", "nominatedNodeName": "n2"}
    )
    found = take(job(), old, waiting, promised, trainer(2, owner=owned_by("uid-ctr")))
    assert [p.index for p in found.jobs[0].pods] == [2]
    assert [(p.node, p.nominated, p.job) for p in found.pods] == [("n1", "", None), ("", "n2", None)]


def test_a_users_deployment_that_carries_our_label_is_not_ours() -> None:
    owner = {"kind": "ReplicaSet", "name": "ctr", "uid": "r", "controller": True}
    found = take(job(), trainer(0, owner=owner))
    assert found.jobs[0].pods == ()
    assert len(found.pods) == 1


def test_a_label_without_its_job_makes_a_pod_foreign() -> None:
    found = take(trainer(0, status={"phase": "Pending"}))
    assert [p.is_waiting_serving for p in found.pods] == [True]


def test_where_a_hand_written_job_has_no_uid_its_name_decides() -> None:
    anonymous = job()
    del anonymous["metadata"]["uid"]
    assert len(the_job(anonymous, trainer(0, owner=owned_by("some-uid"))).pods) == 1


@pytest.mark.parametrize(
    ("labels", "name", "role", "index"),
    [
        ({"paddlepaddle.org/role": "pserver", "paddlepaddle.org/index": "4"}, "x", Role.PSERVER, 4),
        ({"paddle-job": "ctr"}, "ctr-trainer-12", Role.TRAINER, 12),
        ({"paddle-job-pserver": "ctr"}, "ctr-pserver-0", Role.PSERVER, 0),
        ({"paddle-job-master": "ctr"}, "whatever", Role.MASTER, None),
        ({}, "ctr-trainer-3", Role.TRAINER, 3),
        ({"paddlepaddle.org/role": "nonsense", "paddlepaddle.org/index": "-1"}, "ctr-master-0", Role.MASTER, 0),
        ({"paddlepaddle.org/index": 7}, "ctr-trainer-x", Role.TRAINER, 7),
    ],
)
def test_role_and_index_are_found_by_label_or_else_by_name(
    labels: Object, name: str, role: Role, index: int | None
) -> None:
    (found,) = the_job(job(), pod(name, labels={"paddlepaddle.org/job": "ctr", **labels})).pods
    assert (found.role, found.index) == (role, index)


def test_a_labelled_pod_that_is_none_of_the_three_roles_is_left_alone() -> None:
    found = take(job(), pod("debug", labels={"paddlepaddle.org/job": "ctr"}))
    assert found.jobs[0].pods == ()
    assert [p.name for p in found.pods] == ["debug"]


# --- Jobs


def test_a_job_is_read() -> None:
    pserver = {"min-instance": 2, "max-instance": 2, "resources": {"requests": {"cpu": "500m", "memory": "600Mi"}}}
    spec = {"pserver": pserver, "priority": 4, "queue": "blue", "elasticity": {"cooldownSeconds": 5}, "suspend": True}
    found = the_job(job(spec=spec, metadata={"creationTimestamp": "1970-01-01T00:01:00Z"}))
    assert (found.key, found.uid, found.generation, found.created_s) == (("ads", "ctr"), "uid-ctr", 3, 60.0)
    assert (found.min_trainers, found.max_trainers, found.tier, found.queue) == (2, 6, 4, "blue")
    assert (found.cooldown_s, found.suspended, found.fault_tolerant, found.problem) == (5.0, True, True, "")
    assert found.trainer.request.as_dict() == {"cpu": 1000, "memory": GI, "pods": 1}
    assert [(f.role, f.count, f.shape.request["cpu"]) for f in found.fixed] == [
        (Role.MASTER, 1, 250),
        (Role.PSERVER, 2, 500),
    ]


def test_a_job_in_the_namespace_of_the_controller_is_refused_although_admission_let_it_pass() -> None:
    (refused,) = take(job(), translator=Translator(controller_namespace="ads")).jobs
    assert "namespace ads is the controller's own" in refused.problem
    (accepted,) = take(job(), translator=Translator(controller_namespace="paddlecloud")).jobs
    assert not accepted.problem


def test_a_job_that_is_asked_for_just_now_is_the_youngest() -> None:
    assert take(job(), now_s=77.0).jobs[0].created_s == 77.0


def test_where_a_trainer_may_go_is_read_from_its_template() -> None:
    template = {"spec": {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    asked = job()
    asked["spec"]["trainer"]["template"] = template
    placement = the_job(asked).trainer.placement
    assert placement.node_selector == (("pool", "a"),)
    assert placement.tolerations == (Toleration("gpu", "Exists"),)


@pytest.mark.parametrize(
    ("trainer_spec", "bounds"),
    [
        (None, (1, 1)),
        ("nonsense", (1, 1)),
        ({"min-instance": 5, "max-instance": 2}, (5, 5)),
        ({"min-instance": "2", "max-instance": True}, (1, 1)),
        ({"min-instance": -1, "max-instance": 10**30}, (1, 10_000)),
    ],
)
def test_a_broken_job_has_a_problem_and_harms_nobody(trainer_spec: object, bounds: tuple[int, int]) -> None:
    broken = job("bad", spec={"trainer": trainer_spec})
    bad, good = take(broken, job()).jobs
    assert bad.problem
    assert (bad.min_trainers, bad.max_trainers) == bounds
    assert not good.problem


def test_a_spec_that_is_mended_is_read_anew() -> None:
    translator = Translator()
    assert take(job(spec={"trainer": None}), translator=translator).jobs[0].problem
    assert not take(job(), translator=translator).jobs[0].problem


def test_a_status_is_read() -> None:
    status = {
        "phase": "Scaling",
        "observedGeneration": 3,
        "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "1970-01-01T00:00:05Z"}],
        "trainer": {"desired": 4, "ready": 3, "pending": 1},
        "startTime": "1970-01-01T00:00:01Z",
        "lastResize": {
            "time": "1970-01-01T00:00:09Z",
            "from": 5,
            "to": 4,
            "reason": "ServingNeedsRoom",
            "voluntaryTime": "1970-01-01T00:00:07Z",
        },
        "failures": 2,
    }
    found = the_job(job(status=status))
    assert found.status is not None
    assert found.status.phase is JobPhase.SCALING
    assert found.status.last_resize == Resize(9.0, 5, 4, "ServingNeedsRoom", 7.0)
    assert (found.status.trainer.desired, found.status.start_s, found.status.failures) == (4, 1.0, 2)
    assert found.was_admitted
    assert not found.finished


def test_a_forged_status_is_taken_for_what_it_is() -> None:
    forged = {
        "phase": ["Succeeded"],
        "observedGeneration": -4,
        "conditions": [None, 3, {"status": "True"}, {"type": "Admitted", "lastTransitionTime": {}}],
        "trainer": "many",
        "pserver": {"desired": 2.5, "ready": True},
        "startTime": "yesterday",
        "lastResize": {"time": 5},
    }
    found = read_status({"status": forged})
    assert found is not None
    assert found.phase is JobPhase.PENDING
    assert [c.type for c in found.conditions] == ["Admitted"]
    assert (found.trainer, found.pserver, found.last_resize, found.start_s) == (type(found.trainer)(),) * 2 + (
        None,
        None,
    )


def test_a_job_is_finished_by_its_phase() -> None:
    assert the_job(job(status={"phase": "Succeeded"})).finished
    assert not the_job(job(status={"phase": "Running"})).finished


# --- Tolerance and economy


def test_what_cannot_be_translated_is_reported_and_the_rest_goes_on() -> None:
    translator = Translator()
    found = take(
        node("bad", status={"allocatable": {"cpu": "many"}}),
        node("good"),
        pod("bad", spec={"containers": [container("-1")]}),
        pod("good"),
        translator=translator,
    )
    assert [n.name for n in found.nodes] == ["good"]
    assert [p.name for p in found.pods] == ["good"]
    assert [str(q) for q in translator.quarantined] == [
        "Pod ads/bad is left out: cpu '-1' is negative; write an amount of at least 0",
        "Node bad is left out: cpu 'many' is not a quantity; write a number with a suffix such as 500m or 4Gi",
    ]


def test_unchanged_objects_are_not_translated_again() -> None:
    translator = Translator()
    sources = [PODS.from_dict(pod("a")), PODS.from_dict(trainer(0))]
    nodes, jobs = [NODES.from_dict(node())], [TRAINING_JOBS.from_dict(job())]

    def once() -> ClusterSnapshot:
        return translator.snapshot(nodes=nodes, pods=sources, jobs=jobs, now_s=1.0)  # type: ignore[arg-type]

    one, two = once(), once()
    assert one == two
    assert one.pods[0] is two.pods[0]
    assert one.nodes[0] is two.nodes[0]
    assert one.jobs[0].pods[0] is two.jobs[0].pods[0]
    assert one.jobs[0].trainer is two.jobs[0].trainer


def test_equal_shapes_are_one_object() -> None:
    one, two = take(pod("a"), pod("b")).pods
    assert one.shape is two.shape


EVERYTHING = {
    "Node": node(
        metadata={"labels": {"a": "b"}, "uid": "u", "creationTimestamp": "2026-01-05T10:00:00Z"},
        spec={"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        status={"conditions": [{"type": "Ready", "status": "True"}]},
    ),
    "Pod": trainer(
        0,
        owner=owned_by("uid-ctr"),
        metadata={"annotations": {"paddlepaddle.org/intent": "x"}, "creationTimestamp": "2026-01-05T10:00:00Z"},
        spec={
            "nodeName": "n1",
            "priority": 1,
            "initContainers": [sidecar("1")],
            "overhead": {"cpu": "1m"},
            "resources": {"requests": {"cpu": "2"}},
            "nodeSelector": {"a": "b"},
            "schedulingGates": [{"name": "g"}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
                                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                            }
                        ]
                    }
                }
            },
        },
        status={
            "phase": "Running",
            "startTime": "2026-01-05T10:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "1"}},
                    "allocatedResources": {"cpu": "1"},
                    "state": {"running": {"startedAt": "2026-01-05T10:00:00Z"}, "terminated": {"exitCode": 1}},
                }
            ],
        },
    ),
    "TrainingJob": job(
        status={
            "phase": "Running",
            "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-05T10:00:00Z"}],
            "lastResize": {"time": "2026-01-05T10:00:00Z", "from": 1, "to": 2, "reason": "x"},
        }
    ),
    "DaemonSet": DAEMON_SET,
    "PriorityClass": {"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 3, "globalDefault": False},
}


def _paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an object, but its kind."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = []
    for key, item in items:
        if (*path, key) != ("kind",):
            found += [(*path, key), *_paths(item, (*path, key))]
    return found


@st.composite
def _damaged(draw: st.DrawFn) -> Object:
    """An object with any of its parts missing, null or of another type."""
    kind = draw(st.sampled_from(sorted(EVERYTHING)))
    obj: Object = copy.deepcopy(EVERYTHING[kind])
    paths = draw(st.lists(st.sampled_from(_paths(obj)), max_size=6))
    for path in paths:
        damage = draw(st.sampled_from(["drop", None, 0, -1.5, "", "x", [], {}, True, [None], {"x": None}, 10**40]))
        _spoil(obj, path, damage)
    return obj


def _spoil(obj: Any, path: tuple[Any, ...], damage: object) -> None:
    for step in path[:-1]:
        try:
            obj = obj[step]
        except (KeyError, IndexError, TypeError):
            return
    try:
        if damage == "drop":
            del obj[path[-1]]
        else:
            obj[path[-1]] = damage
    except (KeyError, IndexError, TypeError):
        return


@given(st.lists(_damaged(), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_damage_to_an_object_stops_the_reading_of_the_others(objects: list[Object]) -> None:
    """Whatever is damaged is read, or set aside under a name; the sound node is there afterwards."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in DECODERS}
    for obj in [*objects, node("sound")]:
        decoder = DECODERS[obj["kind"]]
        decoded = decoder.from_dict(obj)
        live = decoder.from_bytes(json.dumps(obj).encode())
        assert isinstance(live, Quarantined) == isinstance(decoded, Quarantined)
        if isinstance(decoded, Quarantined):
            assert obj["kind"] in str(decoded)
        else:
            by_kind[obj["kind"]].append(decoded)
    found = Translator().snapshot(
        nodes=by_kind["Node"],
        pods=by_kind["Pod"],
        jobs=by_kind["TrainingJob"],
        daemonsets=by_kind["DaemonSet"],
        priority_classes=by_kind["PriorityClass"],
        now_s=0.0,
    )
    assert "sound" in {n.name for n in found.nodes}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_are_too_strange_to_decode(raw: bytes) -> None:
    for decoder in DECODERS.values():
        decoder.from_bytes(raw)


def test_a_status_of_a_pod_may_be_absent() -> None:
    decoded = PODS.from_dict({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": None})
    assert not isinstance(decoded, Quarantined)
    assert shape_of(decoded.spec or PodSpec(), PodStatus()).request.as_dict() == {"pods": 1}
