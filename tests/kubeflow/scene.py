"""A cluster with the training operator and edl, and what the tests ask about the elastic sample of Kubeflow."""

from __future__ import annotations

from typing import Any

import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, WithController, World
from tests.kubeflow.programs import JOBS, Kubeflow

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"torch-{i}", {"cpu": "4", "memory": "32Gi", "pods": "110"}) for i in range(2))
"""Room for eight workers of one cpu."""

NAME = "elastic-example-echo"
"""The name of the sample."""


class Scene(WithController):
    """One control plane with the training operator, and edl's controller.

    Args:
        plane: the cluster.
        kubeflow: the operator, which runs.
    """

    def __init__(self, plane: ControlPlane, kubeflow: Kubeflow) -> None:
        self.kubeflow = kubeflow
        self.world = World(plane, "--no-leader-election")
        self.kube = plane.kube
        for body in yaml.safe_load_all((ROOT / "deploy/kubeflow/rbac.yaml").read_text()):
            self.kube.apply(body)

    def sample(self, *, low: int = 2, high: int = 6, spec: Object | None = None, **asks: str) -> Object:
        """The sample with workers of one cpu, other bounds, annotation `elastic` and further ones."""
        body: Object = yaml.safe_load(self.kubeflow.binary.sample.read_text())
        wanted = {"elastic": "true", **{name.replace("_", "-"): value for name, value in asks.items()}}
        body["metadata"] |= {
            "annotations": {f"paddlepaddle.org/{name}": value for name, value in wanted.items()},
            "namespace": "default",
        }
        body["spec"]["elasticPolicy"] |= {"minReplicas": low, "maxReplicas": high}
        (container,) = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        return {**body, "spec": {**body["spec"], **(spec or {})}}

    def wait(self, predicate: Any, what: str) -> Any:
        """Wait for something that the cluster does."""
        return self.kube.wait_until(predicate, WITHIN_S, what)

    def wait_workers(self, count: int) -> None:
        """Wait until so many workers run, those of the lowest indexes, and no other worker exists."""
        names = {f"{NAME}-worker-{index}" for index in range(count)}
        self.wait(lambda: self.workers().keys() == names and len(self.pods()) == count, f"{count} workers run")

    def pods(self) -> list[Object]:
        """The pods of the job."""
        return self.kube.list("pods", "default", labels=f"training.kubeflow.org/job-name={NAME}")

    def workers(self) -> dict[str, str]:
        """The UIDs of the workers that run and are not being deleted, by name."""
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in self.pods() if facts.is_running(p)}

    def spec(self) -> Object:
        """The spec of the job."""
        found: Object = self.kube.get(JOBS, NAME)["spec"]
        return found

    def replicas(self) -> int:
        """The replicas of its workers."""
        found: int = self.spec()["pytorchReplicaSpecs"]["Worker"]["replicas"]
        return found

    def conditions(self) -> set[str]:
        """The types of its conditions that are true."""
        found = (self.kube.get(JOBS, NAME).get("status") or {}).get("conditions") or []
        return {one["type"] for one in found if one["status"] == "True"}

    def patch(self, body: Object | list[Object]) -> None:
        """Change the job as its owner would."""
        self.kube.patch(JOBS, NAME, body)

    def events(self) -> dict[str, str]:
        """The last message of each event of edl on the job, by reason."""
        fields = f"involvedObject.kind=PyTorchJob,involvedObject.name={NAME}"
        found = self.kube.list("events", "default", fields=fields)
        return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}
