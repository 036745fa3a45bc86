"""What people call a set of nodes: the pool that their cloud or their administrator put them in.

Source: the label that each provider sets on its nodes; ours goes first, so that anybody can name pools.
https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edl.model.cluster import Node
from edl.model.units import listed

POOL_LABELS = (
    ("paddlepaddle.org/pool", "pool"),
    ("cloud.google.com/gke-nodepool", "pool"),
    ("eks.amazonaws.com/nodegroup", "node group"),
    ("kubernetes.azure.com/agentpool", "pool"),
    ("agentpool", "pool"),
    ("karpenter.sh/nodepool", "pool"),
    ("node.kubernetes.io/instance-type", "instance type"),
)
NAMED_POOLS = 3


def pool_of(node: Node) -> str:
    """`pool gpu-a`; empty where no label names one. The first label of POOL_LABELS that the node has counts."""
    labels = dict(node.labels)
    return next((f"{word} {labels[key]}" for key, word in POOL_LABELS if labels.get(key)), "")


class Pools:
    """The pools of a cluster's nodes, looked up once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Read the labels of all nodes."""
        self._nodes = nodes
        self._pools = [pool_of(node) for node in nodes]

    def where(self, chosen: Sequence[int], usable: Sequence[int]) -> str:
        """Name nodes by their pools where each of them has one, else by their number.

        Args:
            chosen: indices of those to name, at least one.
            usable: indices of all that could have been chosen: those which take the pods in question.
        """
        if len(chosen) == 1:
            return f"node {self._nodes[chosen[0]].name}"
        here, there = (Counter(self._pools[i] for i in some) for some in (chosen, usable))
        if "" in here:
            if len(chosen) == len(usable):
                return f"all {len(usable)} nodes that take its trainers"
            return f"{len(chosen)} of the {len(usable)} nodes that take its trainers"
        parts = [
            pool if here[pool] == there[pool] else f"{here[pool]} of the {there[pool]} nodes of {pool}"
            for pool in sorted(here)
        ]
        if len(parts) > NAMED_POOLS:
            parts = [*parts[: NAMED_POOLS - 1], f"{len(parts) - NAMED_POOLS + 1} more pools"]
        return listed(parts)
