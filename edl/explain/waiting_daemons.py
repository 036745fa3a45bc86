"""Sentences about pods of DaemonSets that find no capacity on the one node that each is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.pods import Pod
from edl.model.resources import HOST_PORT_PREFIX, Resources
from edl.model.units import amount, count, listed, rank_of

NAMED = 3
"""The most pods that are named."""


def daemon_lines(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield a line for each of the first waiting pods of DaemonSets, and one that counts the others."""
    waiting = [pod for pod in snapshot.pods if pod.daemon and pod.is_live and not (pod.node or pod.gated)]
    if not waiting:
        return
    nodes = {node.name: node for node in snapshot.nodes}
    used = _used(snapshot)
    found = []
    for pod in waiting:
        node = nodes.get(pod.shape.only_node)
        if node is not None and (lacks := _lacks(pod, node, used.get(node.name, Counter()))):
            found.append((pod, node.name, lacks))
    for pod, name, lacks in found[:NAMED]:
        yield (
            f"pod {pod.namespace}/{pod.name} of a DaemonSet waits for node {name}, which lacks {lacks}: edl ends no"
            " trainer for it, and keeps free for it what others leave; end pods there, or give it a higher priority"
        )
    if (more := len(found) - NAMED) > 0:
        yield f"and {count(more, 'more pod')} of DaemonSets on whose nodes capacity is missing"


def _used(snapshot: ClusterSnapshot) -> dict[str, Counter[str]]:
    """Add up the requests of the pods on each node."""
    used: dict[str, Counter[str]] = {}
    of_jobs = (pod for job in snapshot.jobs for pod in job.pods)
    for pod in chain(snapshot.pods, snapshot.pods_left_alone, of_jobs):
        if (node := pod.node or pod.nominated) and not pod.is_finished:
            used.setdefault(node, Counter()).update(dict(pod.requested.amounts))
    return used


def _lacks(pod: Pod, node: Node, used: Counter[str]) -> str:
    """Say of which resource a node has too little for a pod; empty if it has enough."""
    here, request = Resources.of(used), pod.shape.request
    free = node.allocatable - here
    full = [
        name for name in request if (here[name] if name.startswith(HOST_PORT_PREFIX) else request[name] > free[name])
    ]
    return listed([amount(name, request[name]) for name in sorted(full, key=rank_of)]) if full else ""
