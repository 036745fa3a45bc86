"""A scene with RayClusters and RayJobs of the real KubeRay that Kueue admits."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.e2e.control_plane.kube import KubeError
from tests.e2e.worlds import facts
from tests.kuberay.programs import CLUSTERS
from tests.kueue.scene import Object, Scene

RAY_JOBS = "rayjobs.ray.io"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


class RayScene(Scene):
    """A scene of RayClusters with a head of one cpu and workers of one cpu."""

    def close(self) -> None:
        """Remove all RayJobs, RayClusters, Jobs and queues."""
        for kind in (RAY_JOBS, CLUSTERS):
            for one in self.kube.list(kind, self.name):
                with contextlib.suppress(KubeError):
                    self.kube.delete(kind, one["metadata"]["name"], self.name)
        super().close()

    def ray(self, name: str, queue: str, low: int, high: int, *, priority: str = "") -> None:
        """An elastic RayCluster of Kueue's with its fewest workers, which asks edl for more."""
        metadata = self._metadata(name, queue, low, high, priority)
        body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": _cluster(low, high)}
        self.kube.create(body, self.name)

    def ray_job(self, name: str, queue: str, low: int, high: int) -> None:
        """The same as a RayJob; without a queue it is not Kueue's."""
        metadata = self._metadata(name, queue, low, high, "")
        spec = {
            "entrypoint": "python train.py",
            "submissionMode": "HTTPMode",  # a pod that submits it would request memory, too
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": _cluster(low, high),
        }
        self.kube.create({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}, self.name)

    def cluster_of(self, ray_job: str) -> str:
        """The name of the RayCluster that KubeRay has made for a RayJob; empty if there is none."""
        status = self.kube.get(RAY_JOBS, ray_job, self.name).get("status") or {}
        return str(status.get("rayClusterName", ""))

    def spec_of(self, name: str) -> Object:
        """The spec of a RayCluster."""
        found: Object = self.kube.get(CLUSTERS, name, self.name)["spec"]
        return found

    def replicas(self, name: str) -> int:
        """How many workers a RayCluster asks for."""
        found: int = self.spec_of(name)["workerGroupSpecs"][0]["replicas"]
        return found

    def ray_pods(self, name: str, kind: str) -> list[Object]:
        """The pods of a RayCluster; `head` or `worker`."""
        return self.kube.list("pods", self.name, labels=f"ray.io/cluster={name},ray.io/node-type={kind}")

    def ray_running(self, name: str, kind: str = "worker") -> dict[str, str]:
        """The UIDs of those that run and are not being deleted, by name."""
        pods = self.ray_pods(name, kind)
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods if facts.is_running(p)}

    def wait_workers(self, name: str, count: int) -> None:
        """Wait until the head and so many workers run, and no other worker exists."""

        def is_so() -> bool:
            running, all_pods = self.ray_running(name), self.ray_pods(name, "worker")
            return len(running) == len(all_pods) == count and len(self.ray_running(name, "head")) == 1

        self.wait(is_so, f"{count} workers of {name} run beside its head")

    def said(self, name: str) -> dict[str, str]:
        """The last message of each event of edl on an object, by reason."""
        found = self.kube.list("events", self.name, fields=f"involvedObject.name={name}")
        return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}

    def _metadata(self, name: str, queue: str, low: int, high: int, priority: str) -> Object:
        asked = {"elastic": "true", "min-instance": str(low), "max-instance": str(high)}
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        if priority:
            labels["kueue.x-k8s.io/priority-class"] = priority
        annotations = {f"paddlepaddle.org/{key}": value for key, value in asked.items()}
        if queue:
            annotations |= ELASTIC
        return {"name": name, "namespace": self.name, "labels": labels, "annotations": annotations}


def _cluster(low: int, high: int) -> Object:
    worker = {"groupName": "workers", "replicas": low, "minReplicas": low, "maxReplicas": high}
    return {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": _template("ray-head")},
        "workerGroupSpecs": [{**worker, "rayStartParams": {}, "template": _template("ray-worker")}],
    }


def _template(name: str) -> dict[str, Any]:
    container = {"name": name, "image": "rayproject/ray:2.52.0", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"containers": [container]}}
