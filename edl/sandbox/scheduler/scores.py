"""Scores the nodes that can take a pod, and chooses the best.

Source: the plugins NodeResourcesFit (LeastAllocated, MostAllocated), NodeAffinity and TaintToleration of
kube-scheduler, with its default weights 1, 2 and 3; NodeResourcesBalancedAllocation, weight 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from edl.sandbox.scheduler.filters import is_tolerated, matches_term
from edl.sandbox.scheduler.view import NodeView, PodView

Object = dict[str, Any]
_SCORED = ("cpu", "memory")
_BEST = 100.0
_AFFINITY_WEIGHT, _TAINT_WEIGHT = 2.0, 3.0
_DEFAULT = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""The requests with which a pod counts that requests nothing."""


class Packing(StrEnum):
    """Whether nodes with more free capacity are better, or nodes with less."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"


def best_node(pod: PodView, nodes: Sequence[NodeView], packing: Packing = Packing.LEAST) -> NodeView:
    """The node with the highest score; the first by name of equal ones.

    Args:
        pod: to be bound.
        nodes: at least one, each with capacity for it.
        packing: the preference.
    """
    affinity = _scaled([_affinity(pod, node) for node in nodes])
    taints = _scaled([_untolerated(pod, node) for node in nodes], is_reversed=True)
    totals = [
        _allocation(pod, node, packing) + _balance(pod, node) + _AFFINITY_WEIGHT * near + _TAINT_WEIGHT * clean
        for node, near, clean in zip(nodes, affinity, taints, strict=True)
    ]
    best = max(range(len(nodes)), key=lambda place: (round(totals[place], 6), -place))
    return nodes[best]


def _shares(pod: PodView, node: NodeView) -> list[float]:
    """The share of each resource that is in use once the pod is there, 0 to 1."""
    shares = []
    for resource in _SCORED:
        total = node.allocatable.get(resource, 0)
        if total:
            wanted = pod.request.get(resource) or _DEFAULT[resource]
            shares.append(min(1.0, (node.used.get(resource, 0) + wanted) / total))
    return shares


def _allocation(pod: PodView, node: NodeView, packing: Packing) -> float:
    shares = _shares(pod, node)
    if not shares:
        return 0.0
    used = sum(shares) / len(shares)
    return _BEST * (used if packing is Packing.MOST else 1 - used)


def _balance(pod: PodView, node: NodeView) -> float:
    """Score by how equally cpu and memory are used: half the difference of the two shares is the deviation."""
    shares = _shares(pod, node)
    return _BEST * (1 - (max(shares) - min(shares)) / 2) if shares else 0.0


def _affinity(pod: PodView, node: NodeView) -> float:
    affinity = (pod.body["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return float(sum(one["weight"] for one in preferred if matches_term(one["preference"], node.labels)))


def _untolerated(pod: PodView, node: NodeView) -> float:
    tolerations = pod.body["spec"].get("tolerations") or ()
    soft = [taint for taint in node.taints if taint.get("effect") == "PreferNoSchedule"]
    return float(sum(not is_tolerated(taint, tolerations) for taint in soft))


def _scaled(values: list[float], *, is_reversed: bool = False) -> list[float]:
    """Scale values so that the largest is 100 and 0 is 0; reversed if wanted."""
    largest = max(values)
    if largest == 0:
        return [_BEST if is_reversed else 0.0] * len(values)
    scaled = [_BEST * value / largest for value in values]
    return [_BEST - value for value in scaled] if is_reversed else scaled
