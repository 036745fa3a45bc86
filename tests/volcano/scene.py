"""A cluster with Volcano, and what the tests ask about its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, World
from tests.volcano.programs import Volcano

Object = dict[str, Any]
VOLCANO_JOBS = "jobs.batch.volcano.sh"
POD_GROUPS = "podgroups.scheduling.volcano.sh"
VOLCANO_QUEUES = "queues.scheduling.volcano.sh"
MANIFESTS = Path(__file__).parent / "manifests"
WITHIN_S = 90.0


def machine(name: str, cpu: int) -> NodeSpec:
    """A node of so many cpus, with the room on its disk that the manifests of the articles ask for."""
    return NodeSpec(name, {"cpu": str(cpu), "memory": "64Gi", "pods": "110", "ephemeral-storage": "400Gi"})


@dataclass(frozen=True, slots=True)
class Scene:
    """One control plane with Volcano."""

    plane: ControlPlane
    volcano: Volcano

    @property
    def kube(self) -> Kube:
        return self.plane.kube

    def wait(self, predicate: Any, what: str) -> Any:
        """Wait for something that the cluster does."""
        return self.kube.wait_until(predicate, WITHIN_S, what)

    def pods(self, prefix: str = "") -> dict[str, Object]:
        """The pods of namespace default whose names begin so, by name."""
        found = {pod["metadata"]["name"]: pod for pod in self.kube.list("pods", "default")}
        return {name: pod for name, pod in sorted(found.items()) if name.startswith(prefix)}

    def running(self, prefix: str = "") -> dict[str, str]:
        """The UIDs of those that run and are not being deleted, by name."""
        return {n: pod["metadata"]["uid"] for n, pod in self.pods(prefix).items() if facts.is_running(pod)}

    def job(self, name: str) -> Object:
        """A Volcano Job."""
        return self.kube.get(VOLCANO_JOBS, name)

    def phase(self, name: str) -> str:
        """The phase of a Volcano Job."""
        return str(((self.job(name).get("status") or {}).get("state") or {}).get("phase") or "")

    def restarts(self, name: str) -> int:
        """How often Volcano has restarted a job."""
        return int((self.job(name).get("status") or {}).get("retryCount") or 0)

    def group(self, prefix: str) -> Object:
        """The PodGroup whose name begins so."""
        found = [g for g in self.kube.list(POD_GROUPS, "default") if g["metadata"]["name"].startswith(prefix)]
        return found[0] if found else {}

    def waits_for(self, prefix: str) -> str:
        """Why a PodGroup waits; empty if it does not."""
        conditions = (self.group(prefix).get("status") or {}).get("conditions") or ()
        return next((c["message"] for c in conditions if c["type"] == "Unschedulable" and c["status"] == "True"), "")

    def with_edl(self) -> World:
        """The controller, with the rights that a cluster with Volcano gives it."""
        world = World(self.plane, "--no-leader-election")  # on a busy machine a lease is lost, and nobody takes over
        for body in yaml.safe_load_all((ROOT / "deploy/volcano/rbac.yaml").read_text()):
            self.kube.apply(body)
        return world
