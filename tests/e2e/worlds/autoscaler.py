"""An autoscaler of the tests: it knows pods and nodes only, and never what edl decided.

A model of the behaviour of Cluster Autoscaler that edl relies on: it adds a node of its one group some seconds after
kube-scheduler gave up on a pod that only such a node could take, ignores pods of low priority, and removes a node
that has held nothing for some seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.control_plane.nodes import NodeSpec, manifest
from tests.e2e.worlds import facts

Object = dict[str, Any]
LOWEST_PRIORITY = -10
"""Cluster Autoscaler ignores pods below it (`--expendable-pods-priority-cutoff`)."""

_POLL_S = 0.2
_FIRST_INDEX = 20_000  # of addresses; far from those of the nodes that a test starts with


class Autoscaler:
    """One group of equal nodes, in a thread of its own.

    Args:
        plane: the cluster.
        capacity: of a node.
        labels: that a pod must select and a node has.
        come_s: from the first look at a pod without room to its node.
        leave_s: how long a node must hold nothing.
        comes: whether the cloud has nodes at all.

    Attributes:
        arrivals: the names of the nodes that came; departures: of those that left.
        asked: the names of the pods that nodes were wanted for.
    """

    def __init__(
        self,
        plane: ControlPlane,
        capacity: Mapping[str, str],
        labels: Mapping[str, str],
        *,
        come_s: float = 2.0,
        leave_s: float = 3.0,
        comes: bool = True,
    ) -> None:
        self._kube, self._capacity, self._labels = Kube(plane.kubeconfig), capacity, labels
        self._come_s, self._leave_s, self._comes = come_s, leave_s, comes
        self._since: dict[str, float] = {}  # by UID of a pod or a node, since when it waits or is empty
        self._served: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler")
        self._error: Exception | None = None
        self.arrivals: list[str] = []
        self.departures: list[str] = []
        self.asked: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._kube.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(_POLL_S):
                with suppress(KubeError):  # the next look sees what is left
                    self._look()
        except Exception as error:  # shown by the test that owns this
            self._error = error

    def _look(self) -> None:
        pods, nodes, now_s = self._kube.list("pods"), self._kube.list("nodes"), time.monotonic()
        waiting = [pod for pod in pods if self._could_help(pod) and not self._has_capacity(pod, nodes, pods)]
        self.asked |= {pod["metadata"]["name"] for pod in waiting}
        for pod in waiting if self._comes else ():
            if self._is_over(pod, now_s, self._come_s) and pod["metadata"]["uid"] not in self._served:
                self._served.add(pod["metadata"]["uid"])
                self._add()
        busy = {pod["spec"].get("nodeName") for pod in pods if not facts.is_finished(pod)}
        for node in nodes:
            if node["metadata"]["name"] not in self.arrivals:
                continue
            if node["metadata"]["name"] in busy:
                self._since.pop(node["metadata"]["uid"], None)
            elif self._is_over(node, now_s, self._leave_s):
                self._remove(node)

    def _could_help(self, pod: Object) -> bool:
        """True for a pod that kube-scheduler gave up on and that a new node would hold."""
        conditions = pod["status"].get("conditions") or []
        tried = any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
        selector = (pod["spec"].get("nodeSelector") or {}).items()
        room = {name: facts.amount(name, text) for name, text in self._capacity.items()}
        is_seen = tried and not pod["spec"].get("nodeName") and not facts.is_terminating(pod)
        is_wanted = selector <= self._labels.items() and pod["spec"].get("priority", 0) >= LOWEST_PRIORITY
        return is_seen and is_wanted and facts.fits(facts.request(pod), room)

    def _has_capacity(self, pod: Object, nodes: list[Object], pods: list[Object]) -> bool:
        """True if a node exists that could hold the pod now: its scheduler is about to bind it."""
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        chosen = [node for node in nodes if wanted <= (node["metadata"].get("labels") or {}).items()]
        return any(facts.fits(facts.request(pod), room) for room in facts.free_room(chosen, pods).values())

    def _is_over(self, body: Object, now_s: float, wait_s: float) -> bool:
        return now_s - self._since.setdefault(body["metadata"]["uid"], now_s) >= wait_s

    def _add(self) -> None:
        name = f"scaled-{len(self.arrivals)}"
        self._kube.create(
            manifest(NodeSpec(name, self._capacity, labels=self._labels), _FIRST_INDEX + len(self.arrivals))
        )
        self.arrivals.append(name)

    def _remove(self, node: Object) -> None:
        """Cordon the node, look again, and only then delete it: a pod may have come in between."""
        name = node["metadata"]["name"]
        self._kube.patch("nodes", name, {"spec": {"unschedulable": True}})
        if any(pod["spec"].get("nodeName") == name for pod in self._kube.list("pods") if not facts.is_finished(pod)):
            self._kube.patch("nodes", name, {"spec": {"unschedulable": None}})
            return
        self._kube.delete("nodes", name)
        self.departures.append(name)
