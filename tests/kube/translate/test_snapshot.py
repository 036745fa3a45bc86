"""From Kubernetes objects to a snapshot: nodes, the jobs that pods belong to, and jobs."""

from __future__ import annotations

import copy

import pytest

from edl.kube.translate.decoders import PODS, PRIORITY_CLASSES, Quarantined
from edl.kube.translate.jobs import read_status
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.model.names import Role
from edl.model.resources import Toleration
from edl.model.status import JobPhase, Resize
from tests.worlds.raw_objects import (
    DAEMON_SET,
    GI,
    Object,
    batch_job,
    batch_pod,
    job,
    node,
    owned_by,
    pod,
    take,
    the_job,
    the_pod,
    trainer,
)


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
def test_a_node_is_ready_if_its_condition_is_true_or_absent(status: Object, ready: bool) -> None:
    assert take(node(status=status)).nodes[0].ready is ready


def test_a_node_that_is_being_deleted_counts_as_cordoned() -> None:
    assert take(node(metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"})).nodes[0].cordoned


def test_a_hand_written_node_has_the_default_number_of_pods_of_a_kubelet() -> None:
    (found,) = take({"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4}}}).nodes
    assert found.allocatable.as_dict() == {"cpu": 4000, "pods": 110}


def test_the_request_of_a_daemon_set_is_reserved_on_nodes_without_its_pod() -> None:
    linux = {"labels": {"os": "linux"}}
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "d", "controller": True}
    bound = pod("logs-1", namespace="kube-system", owner=owner, spec={"nodeName": "n1"})
    unbound = pod("logs-2", namespace="kube-system", owner=owner, status={"phase": "Pending"})
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
    found = take(DAEMON_SET, bound, unbound, failed, *nodes)
    reserved = {n.name: n.reserved["cpu"] for n in found.nodes}
    assert reserved == {"n1": 0, "n2": 250, "n3": 0, "n4": 250, "n5": 250, "n6": 0}
    assert all(p.daemon for p in found.pods)


def test_a_daemon_set_that_is_being_deleted_reserves_nothing() -> None:
    terminating = copy.deepcopy(DAEMON_SET)
    terminating["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
    assert not take(terminating, node(metadata={"labels": {"os": "linux"}})).nodes[0].reserved


def test_priority_classes_of_edl_are_reported_missing_only_if_classes_are_known() -> None:
    assert take(node()).missing_priority_classes == ()
    known = [{"kind": "PriorityClass", "metadata": {"name": name}} for name in ("edl-core", "edl-surplus")]
    found = take(node(), *known).missing_priority_classes
    assert found == ("edl-best-effort", "edl-best-effort-surplus", "edl-training")


def test_a_change_of_the_classes_changes_the_priority_of_unchanged_pods() -> None:
    translator = Translator()
    source = PODS.from_dict(pod("a", spec={"priorityClassName": "gold"}))
    assert not isinstance(source, Quarantined)
    gold = PRIORITY_CLASSES.from_dict({"metadata": {"name": "gold"}, "value": 9})
    assert not isinstance(gold, Quarantined)
    before = translator.snapshot(now_s=1.0, objects=ClusterObjects(nodes=(), pods=[source], jobs=()))
    after = translator.snapshot(
        now_s=1.0, objects=ClusterObjects(nodes=(), pods=[source], jobs=(), priority_classes=[gold])
    )
    assert [s.pods[0].priority for s in (before, after)] == [0, 9]


# --- The jobs that pods belong to


def test_pods_belong_to_their_job_by_owner_and_namespace() -> None:
    elsewhere = trainer(2, metadata={"namespace": "other"}, spec={"nodeName": "n1"})
    found = take(job(), trainer(1), trainer(0), elsewhere)
    assert [p.name for p in found.jobs[0].pods] == ["ctr-trainer-0", "ctr-trainer-1"]
    assert [(p.namespace, p.job) for p in found.pods] == [("other", None)]


def test_finished_pods_of_a_job_stay_with_it() -> None:
    assert len(the_job(job(), trainer(0, status={"phase": "Succeeded"})).pods) == 1


SAFE_TO_EVICT = {None: None, "true": True, "True": True, "false": False, "False": False, "no": False, 0: False}


@pytest.mark.parametrize(("policy", "may"), [("Never", False), ("PreemptLowerPriority", True), ("Later", True)])
def test_the_preemption_policy_is_read(policy: str, may: bool) -> None:
    assert the_pod(pod("web", spec={"preemptionPolicy": policy})).may_preempt is may


@pytest.mark.parametrize(("annotation", "safe"), SAFE_TO_EVICT.items())
def test_the_annotation_safe_to_evict_is_read(annotation: str | int | None, safe: bool | None) -> None:
    annotations = {} if annotation is None else {"cluster-autoscaler.kubernetes.io/safe-to-evict": annotation}
    assert the_pod(pod("web", metadata={"annotations": annotations})).safe_to_evict is safe


def test_a_pod_of_a_deleted_job_of_the_same_name_is_foreign_and_keeps_its_node() -> None:
    old = trainer(0, owner=owned_by("uid-of-the-old-one"), spec={"nodeName": "n1"})
    waiting = trainer(1, owner=owned_by("uid-of-the-old-one"), status={"phase": "Pending"})
    promised = trainer(
        3, owner=owned_by("uid-of-the-old-one"), status={"phase": "Pending", "nominatedNodeName": "n2"}
    )
    found = take(job(), old, waiting, promised, trainer(2, owner=owned_by("uid-ctr")))
    assert [p.index for p in found.jobs[0].pods] == [2]
    assert [(p.node, p.nominated, p.job) for p in found.pods] == [("n1", "", None), ("", "n2", None)]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    "owners", [[], [{**owned_by("uid-ctr"), "controller": False}], [owned_by("uid-sort", "sort")]]
)
def test_a_pod_that_the_job_does_not_control_is_foreign_whatever_its_labels_say(
    role: Role, owners: list[Object]
) -> None:
    """What an orphaning deletion leaves has the labels and the names of the pods of a job that comes later."""
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": role.value, "paddlepaddle.org/index": "0"}
    orphan = pod(f"ctr-{role.value}-0", labels=labels, metadata={"ownerReferences": owners}, spec={"nodeName": "n1"})
    found = take(job(), orphan)
    assert found.jobs[0].pods == ()
    assert [p.name for p in found.pods] == [f"ctr-{role.value}-0"]


def test_a_pod_of_a_batch_job_that_was_created_again_is_foreign() -> None:
    orphan = batch_pod("train-x")
    del orphan["metadata"]["ownerReferences"][0]["controller"]
    assert [p.job for p in take(batch_job(), orphan).pods] == [None]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    "labels",
    [
        None,
        {"paddlepaddle.org/job": "sort"},
        {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "", "paddlepaddle.org/index": "7"},
        {"paddlepaddle.org/role": "pserver"},
    ],
)
def test_a_pod_stays_with_its_job_whatever_somebody_writes_in_its_labels(role: Role, labels: Object | None) -> None:
    found = take(
        job(), job("sort", uid="uid-sort"), pod(f"ctr-{role.value}-3", labels=labels, owner=owned_by("uid-ctr"))
    )
    assert [(p.job, p.role, p.index) for j in found.jobs for p in j.pods] == [(("ads", "ctr"), role, 3)]
    assert found.pods == ()


def test_a_pinned_pod_keeps_the_shape_of_its_job_without_its_labels() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    annotations = {"paddlepaddle.org/planned-node": "n7", "paddlepaddle.org/pinned": "true"}
    spec = {"affinity": {"nodeAffinity": required}}
    (found,) = the_job(job(), trainer(0, metadata={"annotations": annotations, "labels": {}}, spec=spec)).pods
    assert (found.pinned, found.shape.placement.required) == (True, ())


def test_a_pod_of_a_deployment_with_the_job_label_does_not_belong_to_the_job() -> None:
    owner = {"kind": "ReplicaSet", "name": "ctr", "uid": "r", "controller": True}
    found = take(job(), trainer(0, owner=owner))
    assert found.jobs[0].pods == ()
    assert len(found.pods) == 1


def test_a_labelled_pod_without_its_job_is_foreign() -> None:
    found = take(trainer(0, owner={}, status={"phase": "Pending"}))
    assert [p.is_waiting_serving for p in found.pods] == [True]


def test_pods_of_a_hand_written_job_without_uid_belong_to_it_by_name() -> None:
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
    written_by_hand = job()
    del written_by_hand["metadata"]["uid"]
    (found,) = the_job(written_by_hand, pod(name, labels={"paddlepaddle.org/job": "ctr", **labels})).pods
    assert (found.role, found.index) == (role, index)


def test_a_labelled_pod_without_a_role_is_foreign() -> None:
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


def test_a_job_in_the_namespace_of_the_controller_is_invalid_even_if_admission_accepted_it() -> None:
    (refused,) = take(job(), translator=Translator(controller_namespace="ads")).jobs
    assert "namespace ads is reserved for the controller" in refused.problem
    (accepted,) = take(job(), translator=Translator(controller_namespace="paddlecloud")).jobs
    assert not accepted.problem


def test_a_job_without_a_creation_time_is_created_now() -> None:
    assert take(job(), now_s=77.0).jobs[0].created_s == 77.0


def test_the_placement_of_trainers_is_read_from_the_template() -> None:
    template = {"spec": {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    placed = job()
    placed["spec"]["trainer"]["template"] = template
    placement = the_job(placed).trainer.placement
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
def test_an_invalid_job_has_a_problem_and_does_not_affect_others(
    trainer_spec: object, bounds: tuple[int, int]
) -> None:
    broken = job("bad", spec={"trainer": trainer_spec})
    bad, good = take(broken, job()).jobs
    assert bad.problem
    assert (bad.min_trainers, bad.max_trainers) == bounds
    assert not good.problem


def test_a_corrected_spec_is_read_again() -> None:
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


def test_invalid_fields_of_a_status_are_ignored() -> None:
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


@pytest.mark.parametrize(
    ("finalizers", "is_orphaning"),
    [
        (["example.com/f", "orphan"], True),
        (["foregroundDeletion"], False),
        (["example.com/orphan"], False),
        ([], False),
    ],
)
def test_a_job_that_is_deleted_without_its_pods_says_so(finalizers: list[str], *, is_orphaning: bool) -> None:
    metadata = {"deletionTimestamp": "2026-01-05T10:00:00Z", "finalizers": finalizers}
    found = the_job(job(metadata=metadata))
    assert (found.deleting, found.orphans_pods) == (True, is_orphaning)
    assert not the_job(job()).orphans_pods
