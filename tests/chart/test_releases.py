"""Helm installs, upgrades, rolls back and uninstalls while a job runs: no pod of the job is deleted or restarted.

The nodes only play the pods of the Deployment, so the controller runs as a process with the rights of the release.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.install.chart import FOLDER
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds import facts
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import NAMESPACE, ROOT
from tests.e2e.worlds.jobs import training_job

NAME = "training-job-controller"
WAIT_S = 60.0


class Release:
    """The release `edl` in one cluster.

    Args:
        program: Helm.
        plane: the cluster.
    """

    def __init__(self, program: Path, plane: ControlPlane) -> None:
        self.program, self.plane, self.kube = program, plane, plane.kube

    def helm(self, *words: str) -> str:
        """Run Helm as the administrator; it must succeed."""
        home = {f"HELM_{name}_HOME": str(self.plane.workdir / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        command = [str(self.program), *words, "--kubeconfig", str(self.plane.kubeconfig), "--namespace", NAMESPACE]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **home}, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"helm {words[0]}: {done.stderr}"
        return done.stdout

    def level(self) -> str:
        """The flag --log-level of the Deployment."""
        (container,) = self.deployment()["spec"]["template"]["spec"]["containers"]
        flags: list[str] = container["args"]
        return next(word for word in flags if word.startswith("--log-level="))

    def deployment(self) -> dict[str, Any]:
        return self.kube.get("deployments", NAME, NAMESPACE)

    def controller(self) -> ControllerProcess:
        """The controller with the token of the release's ServiceAccount."""
        return ControllerProcess(self.plane.kubeconfig_for(NAME, NAMESPACE), self.plane.workdir, "--interval-s", "1")


def lives(kube: Kube) -> dict[str, tuple[str, int]]:
    """Name -> (UID, restarts) of each pod of the job; none is being deleted."""
    pods = kube.list("pods", "default", labels="paddlepaddle.org/job=a")
    assert not [pod["metadata"]["name"] for pod in pods if facts.is_terminating(pod)]
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ())),
        )
        for pod in pods
    }


def installed(release: Release) -> Release:
    """The release once its chart is installed and the API server serves jobs."""
    kube = release.kube
    kube.apply(ROOT / "deploy" / "base" / "namespace.yaml")
    release.helm("install", "edl", FOLDER)
    kube.wait_until(lambda: kube.list("trainingjobs.paddlepaddle.org") == [], WAIT_S, "the jobs are served")
    return release


def running(kube: Kube) -> int:
    """How many trainers of the job run."""
    return sum(map(facts.is_running, facts.trainers(kube.list("pods"), "a")))


def rounds(controller: ControllerProcess) -> int:
    """How many rounds the controller has finished."""
    return controller.log.read_text().count("round done")


def test_a_job_does_not_notice_install_upgrade_rollback_and_uninstall(
    control_plane: Callable[..., ControlPlane], program: Path
) -> None:
    release = installed(Release(program, control_plane(mix="small")))
    kube = release.kube
    with release.controller() as controller:
        kube.create(training_job("a", min_trainers=2, max_trainers=6))
        kube.wait_until(lambda: running(kube) == 6, WAIT_S, "the job runs")
        before = lives(kube)
        release.helm("upgrade", "edl", FOLDER, "--set", "logLevel=info", "--set", "replicas=1")
        assert release.level() == "--log-level=info"
        assert kube.find("poddisruptionbudgets", NAME, NAMESPACE) is None
        release.helm("rollback", "edl", "1")
        assert release.level() == "--log-level=debug"
        assert kube.find("poddisruptionbudgets", NAME, NAMESPACE) is not None
        seen = rounds(controller)
        kube.wait_until(lambda: rounds(controller) >= seen + 3, WAIT_S, "rounds after the rollback")
        assert lives(kube) == before
        release.helm("uninstall", "edl")
        assert kube.find("deployments", NAME, NAMESPACE) is None
        assert_trains_on_without_a_controller(kube, controller, before)
    release.helm("install", "edl", FOLDER)
    with release.controller() as controller:
        kube.wait_until(lambda: rounds(controller) >= 3, WAIT_S, "rounds of the next installation")
        assert lives(kube) == before, "the next installation finds the job as it is"


def assert_trains_on_without_a_controller(
    kube: Kube, controller: ControllerProcess, before: dict[str, tuple[str, int]]
) -> None:
    """The rights are gone, and a controller that still runs does no harm."""
    tries = controller.log.read_text().count("lvl=warn")
    kube.wait_until(
        lambda: not controller.is_alive() or controller.log.read_text().count("lvl=warn") > tries,
        WAIT_S,
        "the controller notices that it has no rights",
    )
    assert kube.get("trainingjobs", "a")["spec"]["trainer"]["max-instance"] == 6
    assert lives(kube) == before


@pytest.mark.cluster("the embedded API server serves one version of a resource")
def test_jobs_are_served_and_stored_as_v2_while_a_controller_uses_v1(
    control_plane: Callable[..., ControlPlane], program: Path
) -> None:
    """The first steps to a new version: v2 is served, then stored."""
    release = installed(Release(program, control_plane(mix="small")))
    kube = release.kube
    with release.controller():
        kube.create(training_job("a", min_trainers=2, max_trainers=6))
        kube.wait_until(lambda: running(kube) == 6, WAIT_S, "the job runs")
        before = lives(kube)
        kube.apply(with_v2(stored="v1"))
        path = "/apis/paddlepaddle.org/v2/namespaces/default/trainingjobs/a"
        kube.wait_until(lambda: kube.request("GET", path)["apiVersion"].endswith("/v2"), WAIT_S, "v2 is served")
        kube.apply(with_v2(stored="v2"))
        as_v2 = kube.request("GET", path)
        assert as_v2["spec"]["trainer"]["max-instance"] == 6
        as_v2["spec"]["trainer"]["max-instance"] = 8
        kube.request("PUT", path, body=as_v2)
        kube.wait_until(lambda: running(kube) == 8, WAIT_S, "a controller that uses v1 sees what was written as v2")
        assert before.items() <= lives(kube).items()
        definition = kube.get("customresourcedefinitions", "trainingjobs.paddlepaddle.org")
        assert definition["status"]["storedVersions"] == ["v1", "v2"]


def with_v2(*, stored: str) -> dict[str, Any]:
    """The CRD with a version v2 of the same fields."""
    body: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "crd" / "trainingjobs.yaml").read_text())
    (v1,) = body["spec"]["versions"]
    body["spec"]["versions"] = [{**v1, "name": name, "storage": name == stored} for name in ("v1", "v2")]
    return body
