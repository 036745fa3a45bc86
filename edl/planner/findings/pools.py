"""The pool of a node: the name that its cloud or its administrator gave to a group of nodes.

Source: the label that each provider sets on its nodes; ours comes first, so that an administrator can name pools.
https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type
"""

from __future__ import annotations

from edl.model.cluster import Node

POOL_LABELS = (
    ("paddlepaddle.org/pool", "pool"),
    ("cloud.google.com/gke-nodepool", "pool"),
    ("eks.amazonaws.com/nodegroup", "node group"),
    ("kubernetes.azure.com/agentpool", "pool"),
    ("agentpool", "pool"),
    ("karpenter.sh/nodepool", "pool"),
    ("node.kubernetes.io/instance-type", "instance type"),
)


def pool_of(node: Node) -> str:
    """Name the pool of a node, such as `pool gpu-a`, by the first of POOL_LABELS that it has; empty without any."""
    labels = dict(node.labels)
    return next((f"{word} {labels[key]}" for key, word in POOL_LABELS if labels.get(key)), "")
