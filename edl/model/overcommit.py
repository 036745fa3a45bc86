"""By how much the limits of pods exceed the capacity of a node, or of the cluster.

kube-scheduler counts requests, so it never overcommits these. Limits may add up to more than a node has: then pods
are slowed or evicted once they use it all at a time. A pod without a limit may use the whole node; it is counted
beside the sum.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from edl.model.cluster import ClusterSnapshot
from edl.model.resources import CPU, MEMORY

COUNTED = (CPU, MEMORY)
"""The resources that pods can use beyond their requests."""


class Limit(NamedTuple):
    """What pods may use of one resource, in the units of `Resources`.

    Attributes:
        limits: the sum of their limits.
        allocatable: what there is.
        unlimited: pods without a limit.
    """

    resource: str
    limits: int
    allocatable: int
    unlimited: int

    @property
    def part(self) -> float:
        """The limits as a part of the capacity; above 1 the node is overcommitted. 0 if there is no capacity."""
        return self.limits / self.allocatable if self.allocatable else 0.0


@dataclass(frozen=True, slots=True)
class Overcommit:
    """The limits of the bound pods, against what nodes have.

    Attributes:
        nodes: the limit of each node, by resource, in the order of `COUNTED`.
        cluster: the limit of all ready nodes together.
    """

    nodes: dict[str, tuple[Limit, ...]]
    cluster: tuple[Limit, ...]

    def worst(self, resource: str, nodes: Iterable[str] | None = None) -> tuple[str, Limit] | None:
        """The node with the highest part of a resource, by name if equal; None without nodes.

        Args:
            resource: one of `COUNTED`.
            nodes: the nodes to count; by default all.
        """
        at = COUNTED.index(resource)
        found = [(name, self.nodes[name][at]) for name in (self.nodes if nodes is None else nodes)]
        return min(found, key=lambda one: (-one[1].part, one[0]), default=None)


def overcommit(snapshot: ClusterSnapshot) -> Overcommit:
    """Add up the limits of the pods that are bound and not finished, node by node."""
    limits = {node.name: dict.fromkeys(COUNTED, 0) for node in snapshot.nodes}
    unlimited = {node.name: dict.fromkeys(COUNTED, 0) for node in snapshot.nodes}
    for pod in chain(snapshot.pods, *(job.pods for job in snapshot.jobs)):
        if pod.node not in limits or pod.is_finished:
            continue
        most = dict(pod.limits.amounts)
        for name in COUNTED:
            if name in most:
                limits[pod.node][name] += most[name]
            else:
                unlimited[pod.node][name] += 1
    nodes = {
        node.name: tuple(
            Limit(name, limits[node.name][name], node.allocatable[name], unlimited[node.name][name])
            for name in COUNTED
        )
        for node in snapshot.nodes
    }
    ready = [nodes[node.name] for node in snapshot.nodes if node.ready and not node.cordoned]
    return Overcommit(nodes, tuple(_sum(name, [here[k] for here in ready]) for k, name in enumerate(COUNTED)))


def _sum(name: str, parts: list[Limit]) -> Limit:
    return Limit(
        name,
        sum(part.limits for part in parts),
        sum(part.allocatable for part in parts),
        sum(part.unlimited for part in parts),
    )
