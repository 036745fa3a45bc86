"""A cluster with LeaderWorkerSet's controller and edl, and what the tests ask about the sample of that project."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, WithController, World
from tests.lws.programs import SETS, LeaderWorkerSetProgram

Object = dict[str, Any]
WITHIN_S = 90.0
NODES = tuple(NodeSpec(f"lws-{i}", {"cpu": "8", "memory": "32Gi", "pods": "110"}) for i in range(2))
"""Sixteen cpus: four groups of four pods of one cpu."""

NAME = "leaderworkerset-sample"
"""The name of the sample."""
SIZE = 4
"""The pods of one of its groups."""


class Scene(WithController):
    """One control plane with LeaderWorkerSet's controller, and edl's controller.

    Args:
        plane: the cluster.
        program: the controller of LeaderWorkerSets, which runs.
    """

    def __init__(self, plane: ControlPlane, program: LeaderWorkerSetProgram) -> None:
        self.program = program
        self.world = World(plane, "--no-leader-election")
        self.kube = plane.kube
        for body in yaml.safe_load_all((ROOT / "deploy/lws/rbac.yaml").read_text()):
            self.kube.apply(body)

    def sample(self, *, low: int, high: int) -> Object:
        """The sample with pods of one cpu, which asks edl for so many groups."""
        body: Object = yaml.safe_load(self.program.binary.sample.read_text())
        asked = {"elastic": "true", "min-instance": str(low), "max-instance": str(high)}
        body["metadata"] |= {"annotations": {f"paddlepaddle.org/{name}": value for name, value in asked.items()}}
        body["metadata"]["namespace"] = "default"
        body["spec"]["replicas"] = low
        template = body["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
        return body

    def wait(self, predicate: Any, what: str) -> Any:
        """Wait for something that the cluster does."""
        return self.kube.wait_until(predicate, WITHIN_S, what)

    def wait_groups(self, count: int) -> None:
        """Wait until so many whole groups run, those of the lowest indexes, and no other pod exists."""
        wanted = {str(index): SIZE for index in range(count)}
        self.wait(lambda: self.running() == wanted and len(self.pods()) == count * SIZE, f"{count} groups run")

    def pods(self) -> list[Object]:
        """The pods of the set."""
        return self.kube.list("pods", "default", labels=f"leaderworkerset.sigs.k8s.io/name={NAME}")

    def running(self) -> dict[str, int]:
        """How many pods of each group run and are not being deleted, by its index."""
        live = (pod for pod in self.pods() if facts.is_running(pod))
        return dict(Counter(pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"] for pod in live))

    def uids(self) -> dict[str, str]:
        """The UIDs of the pods that run and are not being deleted, by name."""
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in self.pods() if facts.is_running(p)}

    def replicas(self) -> int:
        """The groups that the set asks for."""
        found: int = self.kube.get(SETS, NAME)["spec"]["replicas"]
        return found

    def events(self) -> dict[str, str]:
        """The last message of each event of edl on the set, by reason."""
        fields = f"involvedObject.kind=LeaderWorkerSet,involvedObject.name={NAME}"
        found = self.kube.list("events", "default", fields=fields)
        return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}
