"""LeaderWorkerSets as workloads: groups are units, what is refused in words, and what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.errors import ConflictError
from edl.kube.workloads.annotations import RECORD
from edl.kube.workloads.as_if_elastic import AsIfElastic
from edl.kube.workloads.leader_worker_sets import LeaderWorkerSets
from edl.kube.workloads.resize import resize_request
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.status import Resize
from edl.settings.shadow import ShadowSettings
from edl.shadow.process import readers_of
from tests.worlds.raw_objects import (
    Object,
    container,
    decoded,
    group_pods,
    job,
    leader_worker_set,
    node,
    pod,
    take,
    the_job,
)

KEY = JobKey.of(WorkloadKind.LEADER_WORKER_SET, "ads", "llm")
TWO_GROUPS = (*group_pods(0), *group_pods(1))
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
SUBGROUPS = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
CHIPS = {"name": "c", "resources": {"requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}}}
WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
SLICE = {"size": 4, "workerTemplate": {"spec": {"containers": [CHIPS], "nodeSelector": {TOPOLOGY: "4x4"}}}}
UPDATING = {"conditions": [{"type": "UpdateInProgress", "status": "True"}]}


def problem_of(obj: Object) -> str:
    return LeaderWorkerSets().problem(decoded(obj))


def resized(obj: Object, count: int) -> Object:
    """The spec of the patch that gives the set so many pods."""
    before = LeaderWorkerSets().count(decoded(obj))
    action = ResizeWorkload(KEY, "uid-llm", before, count, Resize(0.0, before, count, "AtMax"), ())
    request = resize_request(action, decoded(obj))
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ads/leaderworkersets/llm"
    assert (request.path, request.surplus) == (path, ())
    assert isinstance(request.patch, dict)
    assert json.loads(request.patch["metadata"]["annotations"][RECORD])["to"] == count
    spec: Object = request.patch["spec"]
    return spec


def planned(snapshot: ClusterSnapshot) -> ResizeWorkload | None:
    """The resize that a plan for the snapshot comes to; None if there is none."""
    decision = next(d for d in plan_snapshot(snapshot, "", Limits()).decisions if d.job == KEY)
    found = next(one for one in snapshot.jobs if one.key == KEY)
    actions = workload_actions(found, decision, decision.target - decision.current, snapshot.observed_at_s)
    return next((one for one in actions if isinstance(one, ResizeWorkload)), None)


def large(cpu: int, name: str = "n1") -> Object:
    return node(name, status={"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}})


def serving(count: int) -> list[Object]:
    """Serving pods of 1 cpu that kube-scheduler cannot place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [condition]}
    return [pod(f"web-{i}", status=status) for i in range(count)]


def recorded(to: int) -> Object:
    return {RECORD: json.dumps({"time": "2026-01-01T00:00:00Z", "from": 8, "to": to, "reason": "AtMax"})}


def managed(manager: str) -> list[Object]:
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]


def read(obj: Object, *pods: Object) -> Job:
    return the_job(obj, *(pods or TWO_GROUPS))


def test_a_set_is_read_as_pods_of_which_whole_groups_are_the_sizes() -> None:
    found = read(leader_worker_set())
    assert (found.key, found.bounds, found.sizes, found.owner_count) == (KEY, (4, 12), (4, 8, 12), 8)
    assert str(found.key) == "ads/leaderworkerset.leaderworkerset.x-k8s.io/llm"
    assert (found.trainer.request["cpu"], found.fixed, found.problem) == (1000, (), "")
    assert [(pod.name, pod.index, pod.role) for pod in found.pods[:6]] == [
        ("llm-0", 0, Role.TRAINER),
        ("llm-0-1", 1, Role.TRAINER),
        ("llm-0-2", 2, Role.TRAINER),
        ("llm-0-3", 3, Role.TRAINER),
        ("llm-1", 4, Role.TRAINER),
        ("llm-1-1", 5, Role.TRAINER),
    ]


def test_groups_may_have_sizes_and_steps_of_their_own() -> None:
    some = {"paddlepaddle.org/sizes": "1,2,8", "paddlepaddle.org/max-instance": "8"}
    assert read(leader_worker_set(annotations=some)).sizes == (4, 8, 32)
    steps = {"paddlepaddle.org/step": "2", "paddlepaddle.org/min-instance": "2", "paddlepaddle.org/max-instance": "6"}
    assert read(leader_worker_set(annotations=steps)).sizes == (8, 16, 24)
    assert read(leader_worker_set(size=1), *group_pods(0, size=1)).sizes == (), "a group of one pod is a pod"


def test_groups_of_one_pod_are_leaders_and_made_as_such() -> None:
    leader: Object = {"metadata": {"labels": {"app": "lead"}}, "spec": {"containers": [container("3", "1Gi")]}}
    one = leader_worker_set(replicas=0, size=1, leader=leader, annotations=recorded(0))
    assert the_job(one).trainer.request["cpu"] == 3000
    start = planned(take(large(8), one))
    assert start is not None
    assert start.count == 2, "of three cores each"
    (pods,) = LeaderWorkerSets().templates(decoded(one)).values()
    assert pods.metadata is not None
    assert (pods.metadata.labels or {})["app"] == "lead"
    assert the_job(leader_worker_set(replicas=0, size=1, annotations=recorded(0))).trainer.request["cpu"] == 1000
    nothing = {"spec": {"containers": [container()]}}
    assert "request neither cpu nor memory" in problem_of(leader_worker_set(size=1, leader=nothing))
    chips = {"name": "c", "resources": {"requests": {"google.com/tpu": "4"}}}
    hosts = {"containers": [chips], "nodeSelector": {"cloud.google.com/gke-tpu-topology": "4x4"}}
    assert "hosts of a TPU slice" in problem_of(leader_worker_set(size=1, leader={"spec": hosts}))


def test_the_spec_gets_groups() -> None:
    assert resized(leader_worker_set(), 12) == {"replicas": 3}
    assert resized(leader_worker_set(), 4) == {"replicas": 1}
    assert resized(leader_worker_set(), 0) == {"replicas": 0}
    with pytest.raises(ConflictError):
        resized(leader_worker_set(), 6)


def test_a_set_that_edl_has_stopped_waits_and_one_that_its_owner_stopped_is_left_alone() -> None:
    by_edl = the_job(leader_worker_set(replicas=0, annotations=recorded(0)))
    assert (by_edl.suspended, by_edl.is_schedulable, by_edl.owner_count, by_edl.problem) == (False, True, 0, "")
    by_owner = the_job(leader_worker_set(replicas=0, annotations=recorded(8)))
    assert (by_owner.suspended, by_owner.is_schedulable, by_owner.problem) == (True, False, "")


def test_without_replicas_it_has_one_group() -> None:
    assert LeaderWorkerSets().count(decoded(leader_worker_set(replicas=None))) == 4


def test_it_grows_only_if_a_whole_group_fits() -> None:
    assert planned(take(large(12), leader_worker_set(), *TWO_GROUPS)) is not None
    grown = planned(take(large(12), leader_worker_set(), *TWO_GROUPS))
    assert grown is not None
    assert (grown.before, grown.count) == (8, 12)
    assert planned(take(large(11), leader_worker_set(), *TWO_GROUPS)) is None, "three more pods are of no use"


@pytest.mark.parametrize(("free", "grows"), [((5, 5), True), ((5, 2), False), ((6, 1), True)])
def test_each_pod_of_a_group_must_find_a_node(free: tuple[int, int], *, grows: bool) -> None:
    spec = {"nodeName": "n1", "containers": [container("3", "1Gi")]}
    pods = [one for group in range(2) for one in group_pods(group, size=2, spec=spec)]
    nodes = [large(12), large(free[0], "n2"), large(free[1], "n3")]
    resize = planned(take(*nodes, leader_worker_set(size=2, cpu="3"), *pods))
    assert (resize is not None) == grows, "two pods of 3 cpus"


def test_it_gives_whole_groups_and_the_last_one_first() -> None:
    snapshot = take(large(8), leader_worker_set(), *TWO_GROUPS, *serving(1))
    shrunk = planned(snapshot)
    assert shrunk is not None
    assert (shrunk.before, shrunk.count) == (8, 4)
    after = read(leader_worker_set(replicas=1))
    assert [pod.name for pod in after.pods if pod.terminating] == ["llm-1", "llm-1-1", "llm-1-2", "llm-1-3"]
    assert [pod.index for pod in after.live_trainers] == [0, 1, 2, 3]


def test_it_stops_whole_if_its_least_group_does_not_fit() -> None:
    one = leader_worker_set(replicas=1)
    stopped = planned(take(large(4), one, *group_pods(0), *serving(1)))
    assert stopped is not None
    assert (stopped.before, stopped.count) == (4, 0)


def test_it_shares_with_a_training_job_by_groups() -> None:
    one = {"requests": {"cpu": "1", "memory": "1Gi"}}
    ours = job(spec={"trainer": {"min-instance": 1, "max-instance": 9, "entrypoint": "x", "resources": one}})
    decisions = plan_snapshot(take(large(13), leader_worker_set(), *TWO_GROUPS, ours), "", Limits()).decisions
    count = {d.job.name: d.target for d in decisions}
    assert count[KEY.name] in {4, 8}
    assert count["ctr"] >= 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"ownerReferences": [{"kind": "DisaggregatedSet", "name": "d", "uid": "u", "controller": True}]},
            "it belongs to DisaggregatedSet d, which sets its replicas; remove the annotations of edl",
        ),
        (
            {"labels": {"kueue.x-k8s.io/queue-name": "blue"}},
            "label kueue.x-k8s.io/queue-name is blue, and Kueue admits each of its groups by itself",
        ),
        ({"annotations": {"paddlepaddle.org/max-instance": "0"}}, 'max-instance is "0"; write a whole number'),
        (
            {"annotations": {"paddlepaddle.org/max-instance": "2501"}},
            "max-instance is 2501, and so many groups of 4 pods are 10004 pods; edl plans at most 10000: lower it",
        ),
        ({"replicas": 2501}, "it has 2501 groups of 4 pods; edl plans at most 10000 pods"),
        ({"annotations": {EXCLUSIVE: "rack"}}, f"annotation {EXCLUSIVE} is rack, so each group needs a domain"),
        ({"annotations": {SUBGROUPS: "rack"}}, f"annotation {SUBGROUPS} is rack, so each group needs a domain"),
        ({"spec": {"startupPolicy": "LeaderReady"}}, "spec.startupPolicy is LeaderReady, so the workers of a new"),
        (
            {"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": {"partition": 1}}}},
            "spec.rolloutStrategy.rollingUpdateConfiguration.partition is 1, so the first groups keep an older",
        ),
        (
            {"spec": {"leaderWorkerTemplate": {"size": 4, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}},
            "spec.leaderWorkerTemplate.volumeClaimTemplates gives each pod a claim that stays when its group goes",
        ),
        ({"status": UPDATING}, "condition UpdateInProgress is True, and its controller replaces groups"),
        ({"leader": {"spec": {"containers": [container("2", "1Gi")]}}}, "have other resources"),
        (
            {"leader": {"spec": {"containers": [container("1", "1Gi")], "nodeSelector": {"cpu": "only"}}}},
            "have another nodeSelector, affinity or tolerations",
        ),
        ({"cpu": ""}, "its pods request neither cpu nor memory"),
        (
            {"spec": {"leaderWorkerTemplate": SLICE}},
            f"nodeSelector {TOPOLOGY} is 4x4, so its pods are hosts of a TPU",
        ),
        (
            {"annotations": recorded(12), "managedFields": managed("kube-controller-manager")},
            "kube-controller-manager set spec.replicas, counted in pods of groups of 4, to 8 after edl had set it to",
        ),
    ],
)
def test_what_cannot_be_resized_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    assert words in problem_of(leader_worker_set(**change))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"leader": {"spec": {"containers": [{**container("1", "1Gi"), "name": "leader", "image": "other"}]}}},
        {"size": 1, "leader": {"spec": {"containers": [container("2")]}}},
        {"ownerReferences": [{**WORKFLOW, "name": "w", "uid": "u", "controller": True}]},
        {"size": 1, "spec": {"startupPolicy": "LeaderReady"}},
        {"annotations": recorded(8), "managedFields": managed("edl")},
        {"status": {"conditions": [{"type": "UpdateInProgress", "status": "False"}]}},
    ],
)
def test_what_can_be_resized_has_no_problem(change: dict[str, Any]) -> None:
    assert problem_of(leader_worker_set(**change)) == ""


def test_subgroups_and_restart_policies_are_no_concern_of_edl() -> None:
    found = leader_worker_set()
    found["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {"subGroupSize": 2}
    for policy in ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"):
        found["spec"]["leaderWorkerTemplate"]["restartPolicy"] = policy
        assert problem_of(found) == ""


def test_groups_that_a_rolling_update_adds_keep_their_pods_and_count() -> None:
    found = read(leader_worker_set(status=UPDATING), *TWO_GROUPS, *group_pods(2))
    assert not any(pod.terminating for pod in found.pods)
    assert (found.is_left_alone, len(found.live_trainers)) == (True, 12)


def test_pods_are_those_of_the_set_that_label_and_stateful_set_name() -> None:
    first, *_ = group_pods(0)
    changes: tuple[Object, ...] = (
        {"labels": {"leaderworkerset.sigs.k8s.io/name": "other"}},
        {"name": "llm-x"},
        {"name": "web-0"},
        {"ownerReferences": []},
        {"ownerReferences": [{**first["metadata"]["ownerReferences"][0], "kind": "ReplicaSet"}]},
        {"ownerReferences": [{**first["metadata"]["ownerReferences"][0], "controller": False}]},
    )
    for change in changes:
        snapshot = take(leader_worker_set(), {**first, "metadata": {**first["metadata"], **change}})
        assert ([one.pods for one in snapshot.jobs], len(snapshot.pods)) == ([()], 1), change


def test_two_sets_with_names_alike_keep_their_own_pods() -> None:
    one, other = leader_worker_set("llm"), leader_worker_set("llm-x")
    snapshot = take(one, other, *group_pods(0), *group_pods(1, name="llm-x"))
    names = {found.key.object_name: {pod.name for pod in found.pods} for found in snapshot.jobs}
    assert names == {
        "llm": {"llm-0", "llm-0-1", "llm-0-2", "llm-0-3"},
        "llm-x": {"llm-x-1", "llm-x-1-1", "llm-x-1-2", "llm-x-1-3"},
    }


def test_pods_of_a_former_set_of_the_same_name_are_not_its_own() -> None:
    new = leader_worker_set(creationTimestamp="2026-01-01T00:01:00Z")
    old = group_pods(0, metadata={"creationTimestamp": "2026-01-01T00:00:59Z"})
    young = group_pods(1, metadata={"creationTimestamp": "2026-01-01T00:01:00Z"})
    snapshot = take(new, *old, *young)
    assert ({pod.name[:5] for pod in snapshot.jobs[0].pods}, len(snapshot.pods)) == ({"llm-1"}, 4)


def test_a_set_that_does_not_ask_is_serving_as_before() -> None:
    snapshot = take(leader_worker_set(annotations={"paddlepaddle.org/elastic": None}), *TWO_GROUPS)
    assert (snapshot.jobs, len(snapshot.pods)) == ((), 8)


def test_pods_of_a_file_need_no_uid() -> None:
    written = leader_worker_set()
    del written["metadata"]["uid"]
    assert len(the_job(written, *TWO_GROUPS).pods) == 8


def test_a_shadow_counts_only_those_that_ask(tmp_path: Path) -> None:
    kinds = readers_of(ShadowSettings(out=tmp_path, as_if_elastic=True))
    assert not isinstance(kinds[WorkloadKind.LEADER_WORKER_SET], AsIfElastic)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 2**31 - 1},
        {"replicas": 2**31 - 1},
        {"replicas": -5, "size": -7},
        {"size": 2**31 - 1, "annotations": {"paddlepaddle.org/max-instance": "10000"}},
        {"size": 100, "annotations": {"paddlepaddle.org/max-instance": "100"}},
        {"spec": {"leaderWorkerTemplate": None}},
    ],
)
def test_any_numbers_are_read(change: dict[str, Any]) -> None:
    found = the_job(leader_worker_set(**change), *group_pods(999_999_999, size=2))
    assert 1 <= found.min_trainers <= found.max_trainers <= 10_000
    assert len(found.sizes) <= 10_000
