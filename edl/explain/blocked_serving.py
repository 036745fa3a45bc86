"""Waiting serving pods that no eviction helps, in words: what keeps them is no other pod."""

from __future__ import annotations

from collections.abc import Iterator

from edl.model.cluster import ClusterSnapshot
from edl.model.units import count

NAMED = 3
"""So many pods are named."""


def blocked_lines(snapshot: ClusterSnapshot) -> Iterator[str]:
    """A line for each of the first pods, and how many more there are."""
    blocked = [pod for pod in snapshot.waiting_serving if pod.blocked]
    for pod in blocked[:NAMED]:
        yield f"serving pod {pod.namespace}/{pod.name}: no eviction helps it, so nobody makes room: {pod.blocked}"
    if (more := len(blocked) - NAMED) > 0:
        yield f"and {count(more, 'more serving pod')} that no eviction helps"
