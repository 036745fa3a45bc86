"""example/fit_flights on real kubelets: its image, the installed controller, a volume for its journal."""

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
from tests.real.cluster.images import ROOT, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster

Object = dict[str, Any]
EXAMPLE = ROOT / "example" / "fit_flights"
FLIGHTS_IMAGE = f"docker.io/edl/fit-flights:{__version__}"
MANIFEST = ROOT / "deploy" / "edl_controller.yaml"
NAMESPACE = "paddlecloud"
DEPLOYMENT = "deployment/training-job-controller"
LEASE = "edl-controller"
RECORDS = 294477
_NOBODY = 65532
_SCORE = re.compile(r"^AUC ([0-9.]+) on 32869 held-out flights, ([0-9]+) pushes$", re.MULTILINE)


@contextmanager
def installed(cluster: RealCluster) -> Iterator[RealCluster]:
    """The controller of the manifest, the image of the example, and a default class for volumes."""
    cluster.build_image(FLIGHTS_IMAGE, context=EXAMPLE, base=TRAINER_IMAGE)
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
        cluster: where it is offered.
        folder: of its own.
    """

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._name = f"journal-{os.urandom(4).hex()}"
        folder.mkdir()
        os.chown(folder, _NOBODY, _NOBODY)
        cluster.kube.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": self._name},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "by-hand",
                    "hostPath": {"path": str(folder), "type": "Directory"},
                },
            }
        )

    def audit(self) -> Object:
        """What `edl audit` proves from it."""
        command = [str(ROOT / ".venv/bin/edl"), "audit", str(self._folder), "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        found: Object = json.loads(done.stdout)
        return found

    def remove(self) -> None:
        """Take the volume away; the folder stays."""
        self._cluster.kubectl("delete", "--wait=false", f"pv/{self._name}")


class Recorder:
    """What kubectl tells while something happens: each command goes on until it is stopped, its words into a file."""

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


def score(cluster: RealCluster, job: str) -> float:
    """The AUC that the trainer tells whose model is the latest."""
    kept = cluster.kube.list("pods", "default", labels=f"paddle-job={job}")
    words = [cluster.kubectl("logs", name) for name in names(kept)]
    told = [(int(pushes), float(auc)) for text in words for auc, pushes in _SCORE.findall(text)]
    assert told, words
    return max(told)[1]


def assert_each_once(report: Object) -> None:
    """The audit proves that every record of the one epoch was done once."""
    (epoch,) = report["epochs"]
    assert report["ok"], report["problems"]
    assert (epoch["total"], epoch["done"], epoch["quarantined"]) == (RECORDS, RECORDS, [])
    assert epoch["closed"]
