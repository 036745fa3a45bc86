"""A cluster with Karpenter and edl, and a memory of each node that came or left."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, Self

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import WithController, World
from tests.karpenter.programs import CLAIMS, COMES_AFTER_S, LABELS

Object = dict[str, Any]
WITHIN_S = 60.0
OWN = (NodeSpec("own", {"cpu": "4", "memory": "16Gi", "pods": "110"}, labels={"pool": "own"}),)
"""The node that the cluster has without Karpenter."""

ASKS: Object = {"elasticity": {"scaleUp": "Minimum"}}
"""What a job that may ask has in its spec."""

REQUESTS = "paddlepaddle.org/requests-node-for"
_NODES = ",".join(f"{key}={value}" for key, value in LABELS.items())
_POLL_S = 0.2
_FILE = f"""\
groups:
- name: spot
  allocatable: {{cpu: 3900m, memory: 15Gi}}
  labels: {{pool: spot}}
  price-per-hour: 0.08
  limit: 3
  seconds-to-come: {10 * COMES_AFTER_S}
"""


class Scene(WithController):
    """One control plane with Karpenter and edl's controller.

    Args:
        plane: the cluster, on which Karpenter runs.
        flags: of the controller, besides `--expect-nodes`.

    Attributes:
        log: (seconds since the start, what came or left), in order; request pods and nodes of Karpenter.
    """

    def __init__(self, plane: ControlPlane, *flags: str) -> None:
        file = plane.workdir / "expected-nodes.yaml"
        file.write_text(_FILE)
        self.world = World(plane, f"--expect-nodes={file}", *flags)
        self.kube = plane.kube
        self.log: list[tuple[float, str]] = []
        self._watcher = Kube(plane.kubeconfig)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch nodes")
        self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._watcher.close()
        super().__exit__()

    def _watch(self) -> None:
        there: set[str] = set()
        while not self._stop.wait(_POLL_S):
            with suppress(KubeError):
                now = {f"node {name}" for name in self._names("nodes", _NODES)}
                now |= {f"request pod {name}" for name in self._names("pods", REQUESTS)}
                at_s = time.monotonic() - self._began_s
                self.log += [(at_s, f"{name} comes") for name in sorted(now - there)]
                self.log += [(at_s, f"{name} goes") for name in sorted(there - now)]
                there = now

    def _names(self, kind: str, labels: str) -> list[str]:
        return [body["metadata"]["name"] for body in self._watcher.list(kind, labels=labels)]

    def note(self, what: str) -> None:
        """Add a line to the log."""
        self.log.append((time.monotonic() - self._began_s, what))

    def seen(self, what: str) -> int:
        """How often the log says so, such as `node comes`."""
        kind, verb = what.split()
        return sum(said.startswith(kind) and said.endswith(verb) for _, said in self.log)

    def wait(self, predicate: Any, what: str) -> Any:
        """Wait for something that the cluster does."""
        return self.kube.wait_until(predicate, WITHIN_S, what)

    def nodes(self) -> list[Object]:
        """The nodes that Karpenter brought."""
        return self.kube.list("nodes", labels=_NODES)

    def claims(self) -> list[Object]:
        """What Karpenter has ordered."""
        return self.kube.list(CLAIMS)

    def requests(self) -> list[Object]:
        """The request pods."""
        return self.kube.list("pods", "default", labels=REQUESTS)

    def events(self, job: str) -> dict[str, str]:
        """The last message of each event of a job, by reason."""
        fields = f"involvedObject.kind=TrainingJob,involvedObject.name={job}"
        return {each["reason"]: each["message"] for each in self.kube.list("events", "default", fields=fields)}
