"""`edl shadow` beside a cluster in which edl is not installed, with the rights of deploy/shadow alone."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, World
from tests.e2e.worlds.jobs import batch_job, serving, training_job
from tests.e2e.worlds.rights import forbidden, granted_by, requests_of, roles_of, unused
from tests.e2e.worlds.shadow_process import ShadowProcess

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"shade-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))
ONE_CPU = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
USER = "system:serviceaccount:default:edl-shadow"


def kubeconfig(plane: ControlPlane) -> Path:
    """The credentials of an account with the rights of deploy/shadow."""
    for body in yaml.safe_load_all((ROOT / "deploy/shadow/rbac.yaml").read_text()):
        plane.kube.apply(body)
    return plane.kubeconfig_for("edl-shadow")


def silent_job(name: str, parallelism: int, **spec: Any) -> Object:
    """A Job of pods of one cpu that asks edl for nothing."""
    job = batch_job(name, parallelism=parallelism, low=1, high=1, **spec)
    del job["metadata"]["annotations"]
    return job


def running(plane: ControlPlane, label: str) -> int:
    return sum(map(facts.is_running, plane.kube.list("pods", "default", labels=label)))


def serving_waits_for_a_job(plane: ControlPlane, shadow: ShadowProcess) -> None:
    """A Job of 12 pods on 16 cores, and three serving pods of 3 cores, of which one or two wait; then its pods go."""
    kube = plane.kube
    kube.create(silent_job("train", 12))
    kube.wait_until(lambda: running(plane, "job-name=train") == 12, WITHIN_S, "the Job runs")
    kube.create(serving(replicas=3))

    def is_wanted() -> bool:
        served, waits = shadow.report().evictions.served, 3 - running(plane, "app=web")
        return len(served) >= waits > 0 and all(one.fits for one in served)

    kube.wait_until(is_wanted, WITHIN_S, "the report has the serving pods that wait, with capacity for each")
    kube.patch("jobs.batch", "train", {"spec": {"parallelism": 0}})
    kube.wait_until(
        lambda: running(plane, "app=web") == 3, WITHIN_S, "serving runs once the pods of the Job are gone"
    )
    kube.wait_until(
        lambda: all(one.outcome == "bound" for one in shadow.report().evictions.served),
        WITHIN_S,
        "the report says that kube-scheduler bound them",
    )


def test_a_job_that_asks_for_nothing_would_have_made_room_for_serving(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = control_plane(nodes=NODES)
    with ShadowProcess(kubeconfig(plane), tmp_path / "out", "--as-if-elastic") as shadow:
        serving_waits_for_a_job(plane, shadow)
        report = shadow.stop()
    assert report.is_final
    assert report.agreement.bound >= 15
    assert report.agreement.share == 1.0, report.agreement.disagreements
    assert report.agreement.refused >= 1
    evictions = report.evictions
    assert {one.job for one in evictions.evictions} == {"default/job.batch/train"}
    assert {one.reason for one in evictions.evictions} == {"ServingNeedsRoom"}
    assert evictions.fits == evictions.serving_pods >= 1
    assert evictions.bound_anyway == evictions.serving_pods
    assert evictions.trainers == evictions.for_serving <= 12
    absent = report.unknown.unreadable["/apis/kubeflow.org/v1/pytorchjobs"]
    assert absent == "the API server has no such resource"
    assert report.costs.decisions >= 3
    assert report.costs.cpu_s > 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "job.batch/train" in page
    assert "http" not in page.replace(report.server, "").replace("<!doctype html>", "")


def test_a_run_goes_on_with_what_the_one_before_has_kept_and_ends_after_its_time(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = control_plane(nodes=NODES)
    credentials, out = kubeconfig(plane), tmp_path / "out"
    with ShadowProcess(credentials, out) as shadow:
        plane.kube.create(serving(replicas=2))
        plane.kube.wait_until(lambda: shadow.report().agreement.bound == 2, WITHIN_S, "both pods are counted")
        first = shadow.stop(signal.SIGINT)
    with ShadowProcess(credentials, out, "--for", "20s") as shadow:
        plane.kube.scale("deployments", "web", 3)
        last = shadow.wait()
    assert (last.started, last.is_final) == (first.started, True)
    assert last.agreement.bound == 3
    assert 20.0 <= last.observed_s <= 25.0
    assert last.costs.cpu_s > first.costs.cpu_s


def test_jobs_of_edl_are_planned_where_its_controller_does_not_run(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    here = World(control_plane(nodes=NODES))
    with ShadowProcess(kubeconfig(here.plane), tmp_path / "out") as shadow:
        here.submit(training_job("vision", min_trainers=2, max_trainers=6))
        here.kube.create(silent_job("left-alone", 2))
        here.kube.wait_until(lambda: shadow.report().costs.writes >= 6, WITHIN_S, "six trainers would be created")
        report = shadow.stop()
    assert here.kube.get("tj", "vision").get("status") is None
    assert running(here.plane, "paddlepaddle.org/job=vision") == 0
    assert report.intervals[-1].jobs_waiting > 0
    assert here.kube.find("leases", "edl-controller", "paddlecloud") is None


def test_beside_a_controller_it_wants_what_the_controller_does(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    here = World(control_plane(nodes=NODES))
    with here.controller, ShadowProcess(kubeconfig(here.plane), tmp_path / "out") as shadow:
        here.kube.create(silent_job("left-alone", 4))
        here.submit(training_job("vision", min_trainers=2, max_trainers=12, trainer={"resources": ONE_CPU}))
        here.kube.wait_until(lambda: here.running("vision") >= 10, WITHIN_S, "trainers fill the nodes")
        here.kube.create(serving(replicas=2))
        here.kube.wait_until(lambda: here.ready_serving() == 2, WITHIN_S, "serving runs")
        bound = here.running("vision") + 2 + 4
        here.kube.wait_until(lambda: shadow.report().agreement.bound >= bound, WITHIN_S, "all are counted")
        report = shadow.stop()
    assert report.agreement.share == 1.0, report.agreement.disagreements
    assert {one.job for one in report.evictions.evictions} <= {"default/vision"}
    assert running(here.plane, "job-name=left-alone") == 4


@pytest.mark.cluster("RBAC and the audit log")
def test_not_one_write_is_sent_and_no_right_is_missing_or_left_unused(
    control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = control_plane(nodes=NODES, settings=Settings(audit_level="Metadata"))
    World(plane)
    credentials = kubeconfig(plane)
    with ShadowProcess(credentials, tmp_path / "out", "--as-if-elastic") as shadow:
        serving_waits_for_a_job(plane, shadow)
        report = shadow.stop()
    asked = requests_of(plane.workdir / "logs" / "audit.log", USER)
    assert {event["verb"] for event in asked} == {"list", "watch"}
    assert forbidden(asked) == []
    granted = granted_by(roles_of(plane.kube, "edl-shadow", "default"))
    # These kinds are not installed: they are listed, and there is nothing to watch.
    absent = {"watch jobs.batch.volcano.sh", "watch rayclusters.ray.io", "watch rayjobs.ray.io"}
    absent |= {"watch pytorchjobs.kubeflow.org", "watch leaderworkersets.leaderworkerset.x-k8s.io"}
    absent |= {"watch mpijobs.kubeflow.org", "watch trainjobs.trainer.kubeflow.org", "watch jobsets.jobset.x-k8s.io"}
    kueue = ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads")
    absent |= {f"watch {kind}.kueue.x-k8s.io" for kind in kueue}
    absent |= {f"watch podgroups.scheduling.{group}" for group in ("volcano.sh", "x-k8s.io", "run.ai")}
    absent |= {"watch queues.scheduling.volcano.sh", "list podgroups.scheduling.k8s.io"}  # Kubernetes 1.37 has these
    absent |= {"watch podgroups.scheduling.k8s.io"}
    assert set(unused(granted, asked)) <= absent, "take these away"
    assert report.agreement.share == 1.0, report.agreement.disagreements
