"""What else uses nodes in a history: serving, its HorizontalPodAutoscaler, kube-scheduler, and a node autoscaler.

Nodes are one amount of cpus: where a pod is does not matter here, so a node that all pods fit without is as good
as empty. The autoscaler adds one node for pods that have none, and removes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.worlds.raw_objects import Object, container, node, pod

OWN, EXTRA = 4, 2
"""The cpus of the node that stays, and of the one of the autoscaler."""
NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
LOADS = {"load rises": 2, "load falls": 0}


class Around(NamedTuple):
    """What there is besides jobs.

    Attributes:
        load: how many pods of serving it needs, of one cpu each.
        replicas: how many the HorizontalPodAutoscaler has asked for.
        placed: how many of them have a node.
        has_extra: the node of the autoscaler is there.
    """

    load: int = 0
    replicas: int = 0
    placed: int = 0
    has_extra: bool = False

    @property
    def cpus(self) -> int:
        """The capacity of all nodes."""
        return OWN + EXTRA * self.has_extra

    def placed_of(self, trainers: int) -> int:
        """How many of so many trainers have a node."""
        return max(0, min(trainers, self.cpus - self.placed))

    def steps(self, trainers: int) -> Iterator[tuple[str, Around]]:
        """Return what may happen next.

        Args:
            trainers: how many pods of jobs there are, those included that end; none of them is gated.
        """
        used, waiting = self.placed + self.placed_of(trainers), self.replicas - self.placed
        if self.replicas != self.load:
            yield "hpa", self._replace(replicas=self.load, placed=min(self.placed, self.load))
        if waiting and used < self.cpus:
            yield "schedules", self._replace(placed=self.placed + 1)
        if (waiting or self.placed_of(trainers) < trainers) and used >= self.cpus and not self.has_extra:
            yield "adds node", self._replace(has_extra=True)
        if self.has_extra and not waiting and used <= OWN:
            yield "removes node", self._replace(has_extra=False)

    def rested(self, trainers: int) -> Around:
        """Return what it comes to while jobs do not change; the autoscaler removes its node last."""
        now = self
        for _ in range(12):
            following = dict(now.steps(trainers))
            if not following:
                break
            now = next(iter(following.values()))
        return now

    def objects(self) -> list[Object]:
        """The nodes, and the pods of serving."""
        found = [_node("n1", OWN), *([_node("n2", EXTRA)] if self.has_extra else [])]
        for number in range(self.replicas):
            is_placed = number < self.placed
            spec: Object = {
                "containers": [container("1", "1Gi")],
                **({"nodeName": self.node_of(number)} if is_placed else {}),
            }
            status: Object = {"phase": "Running"} if is_placed else {"phase": "Pending", "conditions": [NO_NODE]}
            metadata = {"creationTimestamp": "1970-01-01T00:01:00Z"}
            owner = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": "uid-web",
                "controller": True,
            }
            found.append(pod(f"web-{number}", owner=owner, metadata=metadata, spec=spec, status=status))
        return found

    def node_of(self, number: int) -> str:
        """The node of a pod, in the order of serving and then of trainers; empty for one that has none."""
        return "" if number >= self.cpus else "n1" if number < OWN else "n2"


def _node(name: str, cpus: int) -> Object:
    return node(name, status={"allocatable": {"cpu": str(cpus), "memory": "256Gi", "pods": "250"}})
