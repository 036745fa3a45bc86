"""A scene with TrainingJobs whose Workloads edl makes."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.e2e.control_plane.kube import KubeError
from tests.e2e.worlds import facts
from tests.e2e.worlds.jobs import training_job
from tests.kueue.programs import CLUSTER_QUEUES, WORKLOADS
from tests.kueue.scene import Cluster, Object, Scene, true_of
from tests.worlds.kueue.objects import API


class TrainingScene(Scene):
    """A scene whose queues have room for the master of one job beside whole cores."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._jobs: list[str] = []

    def close(self) -> None:
        """Remove all jobs and queues."""
        for job in self._jobs:
            with contextlib.suppress(KubeError):
                self.kube.delete("trainingjobs", job, self.name)
        super().close()

    def queue(self, name: str, cpus: int, **more: Any) -> None:
        """A ClusterQueue of so many cpus for trainers and one master, and of more memory than anybody needs."""
        super().queue(name, cpus, **more)
        self.cover(name, cpus)

    def cover(self, name: str, cpus: int) -> None:
        """Give a ClusterQueue room for a master, and memory."""
        full = self.full(name)
        flavors = [{"name": "a", "resources": _amounts(f"{cpus}250m")}]
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
        self.kube.patch(CLUSTER_QUEUES, full, {"spec": {"resourceGroups": groups}}, "")

    def flavors(self, cpus: dict[str, str]) -> None:
        """ClusterQueue blue of several flavors, each of one node, with so many cpus each."""
        super().queue("blue", 1)
        found = []
        for number, (short, amount) in enumerate(cpus.items()):
            name = f"{self.name}-{short}"
            spec = {"nodeLabels": {"kubernetes.io/hostname": f"kueue-{number}"}}
            self.kube.create({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec})
            found.append({"name": name, "resources": _amounts(amount)})
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": found}]
        self.kube.patch(CLUSTER_QUEUES, self.full("blue"), {"spec": {"resourceGroups": groups}}, "")

    def train(self, name: str, queue: str, low: int, high: int, **more: Any) -> None:
        """A TrainingJob of trainers of one cpu; one without a queue is not Kueue's.

        Args:
            name: of the job.
            queue: its LocalQueue.
            low: the fewest trainers.
            high: the most.
            more: `priority` names a WorkloadPriorityClass, `nodes` are labels that the nodes of trainers need.
        """
        template = {"spec": {"nodeSelector": more["nodes"]}} if "nodes" in more else {}
        trainer = {"template": template} if template else {}
        job = training_job(name, min_trainers=low, max_trainers=high, trainer=trainer)
        job["metadata"]["namespace"] = self.name
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        if priority := more.get("priority"):
            labels["kueue.x-k8s.io/priority-class"] = priority
        job["metadata"]["labels"] = labels
        self.kube.create(job, self.name)
        self._jobs.append(name)

    def training(self, name: str) -> Object:
        """A TrainingJob as it is stored."""
        return self.kube.get("trainingjobs", name, self.name)

    def line(self, name: str) -> str:
        """What edl says about a TrainingJob."""
        return str(self.training(name).get("status", {}).get("explanation", ""))

    def trainers(self, name: str) -> dict[str, str]:
        """The UIDs of the trainers of a job that run and are not being deleted, by name."""
        found = facts.trainers(self.kube.list("pods", self.name), name)
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in found if facts.is_running(p)}

    def workloads_of(self, name: str) -> dict[str, Object]:
        """The Workloads of a TrainingJob that have not ended, by name."""
        found = self.kube.list(WORKLOADS, self.name, labels=f"paddlepaddle.org/job={name}")
        return {one["metadata"]["name"]: one for one in found if "Finished" not in true_of(one)}

    def base(self, name: str) -> Object:
        """The Workload of the master and the minimum."""
        found = self.workloads_of(name).values()
        return next(one for one in found if one["metadata"]["annotations"]["paddlepaddle.org/workload-index"] == "0")

    def admitted(self, name: str) -> int:
        """For how many trainers the Workloads of a job are admitted."""
        return sum(
            pods["count"]
            for one in self.workloads_of(name).values()
            if "Admitted" in true_of(one) and "Evicted" not in true_of(one)
            for pods in one["spec"]["podSets"]
            if pods["name"] == "trainer"
        )

    def wait_trainers(self, **wanted: int) -> None:
        """Wait until so many trainers of each job run, and exactly these are admitted."""

        def are_there() -> bool:
            return all(
                (len(self.trainers(name)), self.admitted(name), len(self._all(name))) == (count, count, count)
                for name, count in wanted.items()
            )

        self.wait(are_there, f"trainers that run and are admitted: {wanted}")

    def stop_workload(self, name: str, *, active: bool) -> None:
        """Set `spec.active` of a Workload, as a person would."""
        self.kube.patch(WORKLOADS, name, {"spec": {"active": active}}, self.name)

    def pods_of(self, name: str) -> list[Object]:
        """Every pod of a job that has not ended, also one that is being deleted."""
        pods = self.kube.list("pods", self.name, labels=f"paddlepaddle.org/job={name}")
        return [pod for pod in pods if not facts.is_finished(pod)]

    def _all(self, name: str) -> list[Object]:
        """The trainers among these."""
        return [pod for pod in self.pods_of(name) if pod["metadata"]["labels"]["paddlepaddle.org/role"] == "trainer"]


def _amounts(cpu: str) -> list[Object]:
    return [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "900Gi"}]
