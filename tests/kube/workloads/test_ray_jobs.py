"""The RayClusters of RayJobs: sized between bounds, never stopped once the job runs, left alone when it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.errors import ConflictError
from edl.explain.queue_status import queue_statuses
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.workloads.as_if_elastic import AsIfElastic
from edl.kube.workloads.ray_clusters import RayClusters
from edl.kube.workloads.registry import ADAPTERS
from edl.kube.workloads.resize import resize_request
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import Action, EmitEvent, EventKind, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from edl.model.plan import ScaleDecision
from edl.model.status import Resize
from edl.sandbox.apiserver.patches.json_patch import json_patch
from edl.settings.shadow import ShadowSettings
from edl.shadow.process import readers_of
from tests.kube.workloads.test_ray_clusters import PODS
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    batch_pod,
    cluster_of_ray_job,
    container,
    decoded,
    job,
    node,
    pod,
    ray_cluster,
    ray_group,
    ray_job,
    ray_pod,
    take,
    the_job,
)

KEY = JobKey.of(WorkloadKind.RAY_CLUSTER, "ads", "ray")
NOT_PROVISIONED = {"type": "RayClusterProvisioned", "status": "False"}
WAITING: Object = {"jobDeploymentStatus": "Initializing", "jobStatus": ""}


def read(*objects: Object) -> Job:
    return the_job(*objects, *PODS)


def after(snapshot: ClusterSnapshot) -> tuple[ScaleDecision, tuple[Action, ...]]:
    """What a plan decides for the cluster, and what is written."""
    decision = next(d for d in plan_snapshot(snapshot, "", Limits()).decisions if d.job == KEY)
    found = next(one for one in snapshot.jobs if one.key == KEY)
    return decision, workload_actions(found, decision, decision.target - decision.current, snapshot.observed_at_s)


def resize_of(snapshot: ClusterSnapshot) -> ResizeWorkload:
    (resize, _) = after(snapshot)[1]
    assert isinstance(resize, ResizeWorkload)
    return resize


def serving(count: int, cpu: str = "1") -> list[Object]:
    """Serving pods that kube-scheduler cannot place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    spec, status = {"containers": [container(cpu)]}, {"phase": "Pending", "conditions": [condition]}
    return [pod(f"web-{i}", spec=spec, status=status) for i in range(count)]


def stop(obj: Object) -> Any:
    """The request that would suspend the cluster."""
    before = RayClusters().count(decoded(obj))
    resize = Resize(0.0, before, 0, "MinUnsatisfied")
    return resize_request(ResizeWorkload(KEY, "uid-ray", before, 0, resize, ()), decoded(obj))


def test_the_cluster_of_a_running_ray_job_is_sized_between_its_bounds() -> None:
    found = read(cluster_of_ray_job(), ray_job())
    assert (found.key, found.problem, found.bounds, found.owner_count) == (KEY, "", (2, 6), 3)
    assert found.is_schedulable


def test_the_ray_job_itself_is_no_job_of_a_plan() -> None:
    snapshot = take(cluster_of_ray_job(), ray_job(), *PODS)
    assert [one.key for one in snapshot.jobs] == [KEY]
    assert take(ray_job(spec={"suspend": True}, **WAITING)).jobs == ()


def test_it_grows_into_free_capacity_and_yields_the_workers_above_its_minimum() -> None:
    grown = resize_of(take(node(), cluster_of_ray_job(), ray_job(), *PODS))
    assert (grown.before, grown.count) == (3, 6), "8 cpus, of which the head has 2, and each worker 1"
    more = [ray_pod(f"ray-workers-{name}") for name in "de"]
    large = cluster_of_ray_job(groups=[ray_group(replicas=5)])
    shrunk = resize_of(take(node(), large, ray_job(), *PODS, *more, *serving(2)))
    assert (shrunk.before, shrunk.count, len(shrunk.victims)) == (5, 4, 1)


def test_it_is_never_stopped_for_serving_once_its_job_may_run() -> None:
    decision, actions = after(take(node(), cluster_of_ray_job(), ray_job(), *PODS, *serving(6)))
    assert not decision.admitted
    (resize, _) = actions
    assert isinstance(resize, ResizeWorkload)
    assert (resize.before, resize.count) == (3, 2), "its minimum, and no suspension"
    assert decision.message == "what runs on it would fail if it were stopped, so it keeps its minimum of 2 pods"
    minimum = cluster_of_ray_job(groups=[ray_group(replicas=2)])
    decision, actions = after(take(node(), minimum, ray_job(), *PODS[:3], *serving(6)))
    assert (decision.admitted, actions) == (False, ())


def test_another_job_stops_before_it_does_although_it_is_younger() -> None:
    trainers = [batch_pod(f"train-{name}", ready_at=1) for name in "ab"]
    older = batch_job(spec={"parallelism": 2}, creationTimestamp="2025-01-01T00:00:00Z")
    small = cluster_of_ray_job(groups=[ray_group(replicas=2)], creationTimestamp="2026-01-01T00:00:00Z")
    snapshot = take(node(), older, *trainers, small, ray_job(), *PODS[:3], *serving(3))
    admitted = {d.job.name: d.admitted for d in plan_snapshot(snapshot, "", Limits()).decisions}
    assert admitted == {"raycluster.ray.io/ray": True, "job.batch/train": False}


def test_a_cluster_that_has_not_been_ready_is_suspended_and_resumed_like_any_other() -> None:
    new = cluster_of_ray_job(is_ready=False)
    snapshot = take(node(), new, ray_job(**WAITING), *PODS, *serving(6))
    assert resize_of(snapshot).count == 0, "its job is not submitted before all its pods run"
    stored = json_patch(new, stop(new).patch)
    assert stored["spec"]["suspend"] is True
    assert resize_of(take(node(), stored, ray_job(**WAITING))).count == 6


@pytest.mark.parametrize(
    "status",
    [
        {"state": "ready"},
        {"state": "suspended", "stateTransitionTimes": {"ready": "2026-01-01T00:00:00Z"}},
        {"conditions": [{"type": "RayClusterProvisioned", "status": "True"}]},
    ],
)
def test_a_cluster_that_became_ready_after_the_plan_is_not_stopped(status: Object) -> None:
    with pytest.raises(ConflictError, match="must not be stopped"):
        stop({**cluster_of_ray_job(is_ready=False), "status": status})


@pytest.mark.parametrize("status", [{}, {"state": ""}, {"conditions": [NOT_PROVISIONED]}])
def test_one_that_was_never_ready_may_be_stopped(status: Object) -> None:
    assert stop({**cluster_of_ray_job(is_ready=False), "status": status}).patch


def test_a_head_that_submits_the_job_itself_is_never_stopped() -> None:
    found = cluster_of_ray_job(is_ready=False)
    template = found["spec"]["headGroupSpec"]["template"]["spec"]
    template["containers"].append({**container("500m"), "name": "ray-job-submitter"})
    with pytest.raises(ConflictError, match="must not be stopped"):
        stop(found)


def test_a_cluster_of_nobody_may_be_stopped_when_it_is_ready() -> None:
    found = cluster_of_ray_job()
    del found["metadata"]["ownerReferences"]
    assert stop(found).patch


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
            "RayJob night has ended (SUCCEEDED); delete it",
        ),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING"}, "RayJob night has ended (Failed)"),
        ({"jobDeploymentStatus": "ValidationFailed", "jobStatus": ""}, "RayJob night has ended (ValidationFailed)"),
        ({"jobStatus": "STOPPED"}, "RayJob night has ended (STOPPED)"),
        ({"jobDeploymentStatus": "Retrying", "jobStatus": ""}, "RayJob night is suspended or tried again"),
        ({"spec": {"suspend": True}}, "RayJob night is suspended or tried again, and KubeRay deletes this cluster"),
    ],
)
def test_the_cluster_of_a_ray_job_that_needs_it_no_more_is_left_alone(change: Any, words: str) -> None:
    snapshot = take(node(), cluster_of_ray_job(), ray_job(**change), *PODS)
    (found,) = snapshot.jobs
    assert found.problem.startswith(words)
    assert (found.finishing, found.is_left_alone) == (True, True)
    decision, (event,) = after(snapshot)
    assert (decision.current, decision.target, decision.victims) == (3, 3, ())
    assert isinstance(event, EmitEvent)
    assert (event.kind, event.reason) == (EventKind.NORMAL, "Finishing")


def test_its_pods_count_until_they_are_gone() -> None:
    queue = {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"nominalQuota": {"cpu": 6}, "borrowingLimit": {"cpu": 0}},
    }
    ended = ray_job(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    snapshot = take(node(), queue, cluster_of_ray_job(), ended, *PODS, job())
    plan = plan_snapshot(snapshot, "", Limits())
    assert not next(d for d in plan.decisions if d.job.name == "ctr").admitted, "1 of 6 cpus is left, and it needs 2"
    assert dict(queue_statuses(snapshot, plan)["default"].used)["cpu"] == 5000


def test_a_ray_job_that_ends_is_noticed_although_its_cluster_does_not_change() -> None:
    translator = Translator()
    cluster, pods = decoded(cluster_of_ray_job()), [decoded(one) for one in PODS]

    def seen(*jobs: Object) -> Job:
        kinds = {WorkloadKind.RAY_CLUSTER: [cluster], WorkloadKind.RAY_JOB: [decoded(one) for one in jobs]}
        workloads = [(ADAPTERS[kind], source) for kind, found in kinds.items() for source in found]
        objects = ClusterObjects(nodes=(), pods=pods, jobs=(), workloads=workloads)
        (found,) = translator.snapshot(objects, 1000.0).jobs
        return found

    running = seen(ray_job())
    assert running.problem == ""
    assert seen(ray_job()) is running, "nothing is translated anew"
    assert seen(ray_job(jobStatus="SUCCEEDED")).finishing
    assert "is not among the objects that edl reads" in seen().problem


def test_a_shadow_reads_ray_jobs_as_they_are(tmp_path: Path) -> None:
    kinds = readers_of(ShadowSettings(out=tmp_path, as_if_elastic=True))
    assert kinds[WorkloadKind.RAY_JOB] is ADAPTERS[WorkloadKind.RAY_JOB]
    assert isinstance(kinds[WorkloadKind.RAY_CLUSTER], AsIfElastic)


def test_a_cluster_whose_ray_job_cannot_be_seen_is_refused() -> None:
    found = read(cluster_of_ray_job())
    assert found.problem == (
        "RayJob night, which made it, is not among the objects that edl reads, so edl does not know whether it still"
        " runs; give edl the right to list RayJobs (deploy/kuberay), or add it to the files"
    )
    assert (found.finishing, found.is_left_alone) == (False, True)


def test_what_else_is_wrong_with_the_cluster_is_said_first() -> None:
    assert "request neither cpu nor memory" in read(cluster_of_ray_job(groups=[ray_group(cpu="")])).problem


def test_a_ray_job_of_kueue_is_refused_by_its_label() -> None:
    labelled = cluster_of_ray_job(labels={"kueue.x-k8s.io/queue-name": "blue"})
    assert RayClusters().problem(decoded(labelled)) == (
        "label kueue.x-k8s.io/queue-name is blue, and Kueue counts the workers in RayJob night, not in its cluster;"
        " create the RayJob without that label, or without annotation paddlepaddle.org/elastic"
    )


def test_the_cluster_of_a_ray_service_is_refused_as_before() -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "web", "uid": "u", "controller": True}
    assert "it belongs to RayService web" in RayClusters().problem(decoded(ray_cluster(ownerReferences=[owner])))
