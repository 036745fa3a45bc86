"""Pods, nodes and clocks of the tests of shadow mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edl.kube.translate.decoders import NODES, PODS, Quarantined
from edl.kube.translate.objects import NodeObject, PodObject
from tests.worlds.raw_objects import container
from tests.worlds.raw_objects import node as raw_node
from tests.worlds.raw_objects import pod as raw_pod

FULL = "0/1 nodes are available: 1 Insufficient cpu."


@dataclass
class Times:
    """Both clocks, moved by hand."""

    s: float = 1000.0

    def now_s(self) -> float:
        return self.s

    def monotonic_s(self) -> float:
        return self.s


def node(name: str = "n1", **more: Any) -> NodeObject:
    """A node of 8 cores."""
    found = NODES.from_dict(raw_node(name, **more))
    assert not isinstance(found, Quarantined), found
    return found


def pod(
    name: str, cpu: str = "1", *, on: str = "", refused: str = "", phase: str = "", spec: Any = None, **more: Any
) -> PodObject:
    """A pod that waits, or is bound to a node; `refused` is what kube-scheduler says of it."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": refused}
    status = {"phase": phase or ("Running" if on else "Pending"), "conditions": [condition] if refused else []}
    whole = {"containers": [container(cpu)], **({"nodeName": on} if on else {}), **(spec or {})}
    found = PODS.from_dict(raw_pod(name, spec=whole, status=status, **more))
    assert not isinstance(found, Quarantined), found
    return found
