"""A cluster with KubeRay and edl, and what the tests ask about the sample that KubeRay publishes."""

from __future__ import annotations

from typing import Any

import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, WithController, World
from tests.kuberay.programs import CLUSTERS, KubeRay

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"ray-{i}", {"cpu": "4", "memory": "32Gi", "pods": "110"}) for i in range(2))
"""Room for seven workers of one cpu beside the head."""

NAME = "raycluster-kuberay"
"""The name of the sample."""


class Scene(WithController):
    """One control plane with KubeRay, and edl's controller.

    Args:
        plane: the cluster.
        kuberay: KubeRay, which runs.
    """

    def __init__(self, plane: ControlPlane, kuberay: KubeRay) -> None:
        self.kuberay = kuberay
        self.world = World(plane, "--no-leader-election")
        self.kube = plane.kube
        for body in yaml.safe_load_all((ROOT / "deploy/kuberay/rbac.yaml").read_text()):
            self.kube.apply(body)

    def sample(self, *, high: int = 5, spec: Object | None = None, **asks: str) -> Object:
        """The sample with annotation `elastic`, further annotations, another maxReplicas, and further fields."""
        body: Object = yaml.safe_load(self.kuberay.binary.sample.read_text())
        wanted = {"elastic": "true", **{name.replace("_", "-"): value for name, value in asks.items()}}
        body["metadata"]["annotations"] = {f"paddlepaddle.org/{name}": value for name, value in wanted.items()}
        body["metadata"]["namespace"] = "default"
        body["spec"]["workerGroupSpecs"][0]["maxReplicas"] = high
        return {**body, "spec": {**body["spec"], **(spec or {})}}

    def wait(self, predicate: Any, what: str) -> Any:
        """Wait for something that the cluster does."""
        return self.kube.wait_until(predicate, WITHIN_S, what)

    def wait_workers(self, count: int) -> None:
        """Wait until so many workers run, and no other worker exists."""
        self.wait(lambda: len(self.workers()) == len(self.pods("worker")) == count, f"{count} workers run")

    def pods(self, kind: str) -> list[Object]:
        """The pods of the cluster; `head` or `worker`."""
        return self.kube.list("pods", "default", labels=f"ray.io/cluster={NAME},ray.io/node-type={kind}")

    def workers(self) -> dict[str, str]:
        """The UIDs of the workers that run and are not being deleted, by name."""
        return self._running("worker")

    def heads(self) -> dict[str, str]:
        """The same of the head."""
        return self._running("head")

    def _running(self, kind: str) -> dict[str, str]:
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in self.pods(kind) if facts.is_running(p)}

    def spec(self) -> Object:
        """The spec of the cluster."""
        found: Object = self.kube.get(CLUSTERS, NAME)["spec"]
        return found

    def group(self) -> Object:
        """The group that edl resizes."""
        found: Object = self.spec()["workerGroupSpecs"][0]
        return found

    def patch(self, body: Object | list[Object]) -> None:
        """Change the cluster as its owner would."""
        self.kube.patch(CLUSTERS, NAME, body)

    def events(self) -> dict[str, str]:
        """The last message of each event of edl on the cluster, by reason."""
        fields = f"involvedObject.kind=RayCluster,involvedObject.name={NAME}"
        found = self.kube.list("events", "default", fields=fields)
        return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}
