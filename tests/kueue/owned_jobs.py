"""A scene with Jobs and PyTorchJobs whose Workloads edl makes."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.e2e.control_plane.kube import KubeError
from tests.e2e.worlds import facts
from tests.kubeflow.programs import JOBS as PYTORCH_JOBS
from tests.kueue.scene import Object, true_of
from tests.kueue.training_jobs import TrainingScene

QUEUE = "paddlepaddle.org/kueue-queue"


class OwnedScene(TrainingScene):
    """A scene of Jobs, or of PyTorchJobs, in queues that are in an annotation of edl."""

    kind = "jobs"

    def close(self) -> None:
        """Remove all jobs and queues."""
        if self.kind != "jobs":
            for job in self.kube.list(self.kind, self.name):
                with contextlib.suppress(KubeError):
                    self.kube.delete(self.kind, job["metadata"]["name"], self.name)
        super().close()

    def own(self, name: str, queue: str, low: int, high: int, **more: Any) -> None:
        """A suspended job of pods of one cpu.

        Args:
            name: of the job.
            queue: its LocalQueue.
            low: the fewest pods.
            high: the most.
            more: `priority` names a WorkloadPriorityClass, `nodes` are labels that the nodes of its pods need,
                `suspend` False for a job that runs before Kueue has admitted it, `labels` of the job.
        """
        asked = {"elastic": "true", "min-instance": str(low), "max-instance": str(high), "kueue-queue": queue}
        if priority := more.get("priority"):
            asked["kueue-priority-class"] = priority
        annotations = {f"paddlepaddle.org/{key}": value for key, value in asked.items()}
        metadata = {
            "name": name,
            "namespace": self.name,
            "annotations": annotations,
            "labels": more.get("labels", {}),
        }
        requests = {"cpu": "1", "memory": "1Gi"}
        is_suspended = more.get("suspend", True)
        if self.kind == "jobs":
            container = {"name": "train", "image": "example/train", "resources": {"requests": requests}}
            template = {"containers": [container], "restartPolicy": "Never", "nodeSelector": more.get("nodes", {})}
            spec = {"suspend": is_suspended, "parallelism": low, "backoffLimit": 100, "template": {"spec": template}}
            body: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        else:
            container = {"name": "pytorch", "image": "example/train", "resources": {"requests": requests}}
            template = {"spec": {"containers": [container], "nodeSelector": more.get("nodes", {})}}
            worker = {"replicas": low, "restartPolicy": "OnFailure", "template": template}
            spec = {
                "elasticPolicy": {"minReplicas": low, "maxReplicas": high, "rdzvBackend": "c10d"},
                "runPolicy": {"suspend": is_suspended},
                "pytorchReplicaSpecs": {"Worker": worker},
            }
            body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}
        self.kube.create(body, self.name)

    def owned(self, name: str) -> Object:
        """A job as it is stored."""
        return self.kube.get(self.kind, name, self.name)

    def is_suspended(self, name: str) -> bool:
        """True if a job is suspended."""
        spec = self.owned(name)["spec"]
        return bool((spec if self.kind == "jobs" else spec["runPolicy"]).get("suspend"))

    def remove_owned(self, name: str) -> None:
        """Delete a job with its pods."""
        path = self.kube.resource(self.kind).path(self.name, name)
        self.kube.request("DELETE", path, query={"propagationPolicy": "Background"})

    def trainers(self, name: str) -> dict[str, str]:
        """The UIDs of the pods of a job that run and are not being deleted, by name."""
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in self.pods_of(name) if facts.is_running(p)}

    def pods_of(self, name: str) -> list[Object]:
        """Every pod of a job that has not ended, also one that is being deleted."""
        pods = (pod for pod in self.kube.list("pods", self.name) if _owner(pod) == name)
        return [pod for pod in pods if not facts.is_finished(pod)]

    def said(self, name: str) -> dict[str, str]:
        """The last message of each event of edl on a job, by reason."""
        found = self.kube.list("events", self.name, fields=f"involvedObject.name={name}")
        return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}

    def made_by_kueue(self, name: str) -> list[str]:
        """The Workloads of a job that edl has not made."""
        mine = self.workloads_of(name)
        return [one["metadata"]["name"] for one in self.workloads(name) if one["metadata"]["name"] not in mine]

    def _all(self, name: str) -> list[Object]:
        return self.pods_of(name)


class TorchScene(OwnedScene):
    """The same with PyTorchJobs, beside the real training operator."""

    kind = PYTORCH_JOBS


def _owner(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", ""))


__all__ = ["QUEUE", "OwnedScene", "TorchScene", "true_of"]
