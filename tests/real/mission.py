"""Jobs on real kubelets: the installed controller, volumes for journals, output of kubectl, the example's image."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edl import __version__
from tests.e2e.worlds import facts
from tests.real.cluster.images import ROOT
from tests.real.cluster.running import RealCluster

Object = dict[str, Any]
EXAMPLE = ROOT / "example" / "fit_flights"
FLIGHTS_IMAGE = f"docker.io/edl/fit-flights:{__version__}"
MANIFEST = ROOT / "deploy" / "edl_controller.yaml"
NAMESPACE = "paddlecloud"
DEPLOYMENT = "deployment/training-job-controller"
LEASE = "edl-controller"
RECORDS = 294477
NOBODY = 65532
"""Whom masters run as, and trainers of our image."""
_SCORE = re.compile(r"^AUC ([0-9.]+) on 32869 held-out flights, ([0-9]+) pushes$", re.MULTILINE)


@contextmanager
def installed(cluster: RealCluster) -> Iterator[RealCluster]:
    """The controller of the manifest, as the guide to install it says, and a default class for volumes."""
    cluster.kube.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "by-hand",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
        }
    )
    cluster.kubectl("create", "-f", str(MANIFEST))
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, DEPLOYMENT, "--timeout=120s", timeout_s=150)
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(MANIFEST), timeout_s=150)
        cluster.kubectl("delete", "--ignore-not-found", "storageclass/by-hand")


class Journal:
    """A volume for one journal, in a folder of this machine, which both nodes see and which outlives the job.

    Args:
        cluster: the cluster that offers it.
        folder: of its own.
        storage_class: of the claim that it is for; by default the one that a job gets without asking.
    """

    def __init__(self, cluster: RealCluster, folder: Path, storage_class: str = "by-hand") -> None:
        self._cluster, self.folder = cluster, folder
        self._name = f"journal-{os.urandom(4).hex()}"
        folder.mkdir()
        self.give_to(NOBODY)
        cluster.kube.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": self._name},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": storage_class,
                    "hostPath": {"path": str(folder), "type": "Directory"},
                },
            }
        )

    def give_to(self, user: int) -> None:
        """Make it the folder of that user, who alone may write to it."""
        os.chown(self.folder, user, user)
        self.folder.chmod(0o755)

    def audit(self) -> Object:
        """What `edl audit` proves from it."""
        command = [str(ROOT / ".venv/bin/edl"), "audit", str(self.folder), "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        found: Object = json.loads(done.stdout)
        return found

    def remove(self) -> None:
        """Take the volume away; the folder stays."""
        self._cluster.kubectl("delete", "--wait=false", f"pv/{self._name}")


class Recorder:
    """The output of kubectl while something happens: each command runs until it is stopped and writes to a file."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> None:
        """Start `kubectl ARGUMENTS`."""
        kubectl = str(self._cluster.workdir / "bin" / "kubectl")
        command = [kubectl, "--kubeconfig", str(self._cluster.kubeconfig), *arguments]
        with (self._folder / name).open("ab") as out:
            self._processes[name] = subprocess.Popen(command, stdout=out, stderr=out)

    def words(self, name: str) -> str:
        """What one has printed until now."""
        return (self._folder / name).read_text()

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes.values():
            process.terminate()
            process.wait()


def pods(cluster: RealCluster, job: str, role: str = "trainer") -> list[Object]:
    """Pods of a role that run and are not on their way out."""
    found = cluster.kube.list("pods", "default", labels=f"paddlepaddle.org/job={job},paddlepaddle.org/role={role}")
    return [p for p in found if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]]


def names(found: list[Object]) -> list[str]:
    """The names of objects, sorted."""
    return sorted(str(each["metadata"]["name"]) for each in found)


def status(cluster: RealCluster, job: str) -> Object:
    """The status of a job; empty before the first."""
    found: Object = cluster.kube.get("trainingjobs", job).get("status", {})
    return found


def condition(cluster: RealCluster, job: str, kind: str) -> Object:
    """The condition of a job if it is True; else an empty one."""
    found = status(cluster, job).get("conditions", [])
    return next((c for c in found if c["type"] == kind and c["status"] == "True"), {})


def with_settings(cluster: RealCluster, *settings: str) -> None:
    """Set variables of the controller, or take them away (`NAME-`), and wait until the pods before are gone."""
    cluster.kubectl("set", "env", "-n", NAMESPACE, DEPLOYMENT, *settings)
    cluster.kubectl("rollout", "status", "-n", NAMESPACE, DEPLOYMENT, "--timeout=120s", timeout_s=150)
    cluster.kube.wait_until(
        lambda: not any(map(facts.is_terminating, cluster.kube.list("pods"))), 60, "they are gone"
    )


def run_program(cluster: RealCluster, job: Object, *programs: Path) -> None:
    """Create a job with programs in its workspace, from a ConfigMap of the job's name."""
    name, spec = job["metadata"]["name"], job["spec"]
    cluster.kubectl("create", "configmap", name, *(f"--from-file={program}" for program in programs))
    spec.setdefault("volumes", []).append({"name": "program", "configMap": {"name": name}})
    spec.setdefault("volumeMounts", []).append({"name": "program", "mountPath": "/workspace"})
    spec["trainer"]["workspace"] = "/workspace"
    cluster.kube.create(job)


def events(cluster: RealCluster, job: str) -> str:
    """What has happened to a job, as kubectl prints it."""
    selector = f"involvedObject.kind=TrainingJob,involvedObject.name={job}"
    return cluster.kubectl("get", "events", "--field-selector", selector)


def evict(cluster: RealCluster, pod: str) -> None:
    """Ask the API server to evict a pod, as `kubectl drain` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    cluster.kube.request("POST", f"/api/v1/namespaces/default/pods/{pod}/eviction", body=body)


def score(cluster: RealCluster, job: str) -> float:
    """The AUC that the trainer tells whose model is the latest."""
    kept = cluster.kube.list("pods", "default", labels=f"paddle-job={job}")
    words = [cluster.kubectl("logs", name) for name in names(kept)]
    scores = [(int(pushes), float(auc)) for text in words for auc, pushes in _SCORE.findall(text)]
    assert scores, words
    return max(scores)[1]


def assert_each_once(report: Object, records: int = RECORDS) -> None:
    """The audit proves that every record of the one epoch was done once."""
    (epoch,) = report["epochs"]
    assert report["ok"], report["problems"]
    assert (epoch["total"], epoch["done"], epoch["quarantined"]) == (records, records, [])
    assert epoch["closed"]
