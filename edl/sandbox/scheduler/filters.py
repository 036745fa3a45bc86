"""Finds the nodes that can take a pod, and says with kube-scheduler's messages why the others cannot.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/, and the messages of the plugins in
k8s.io/kubernetes/pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from edl.sandbox.objects import has_expression
from edl.sandbox.scheduler.view import PODS, NodeView, PodView

Object = dict[str, Any]
_BLOCKING = {"NoSchedule", "NoExecute"}
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"


def refusal_for_good(pod: PodView, node: NodeView) -> str:
    """Why a node cannot take a pod even if it were empty; an empty text if it could."""
    spec = pod.body["spec"]
    if spec.get("nodeName") and spec["nodeName"] != node.name:
        return "node(s) didn't match the requested node name"
    taints = [*node.taints, *([_UNSCHEDULABLE] if node.is_unschedulable else [])]
    tolerations = spec.get("tolerations") or ()
    for taint in taints:
        if taint.get("effect") in _BLOCKING and not is_tolerated(taint, tolerations):
            if taint["key"] == _UNSCHEDULABLE["key"]:
                return "node(s) were unschedulable"
            value = taint.get("value") or ""
            return f"node(s) had untolerated taint {{{taint['key']}: {value}}}"
    if not matches_node(spec, node.labels):
        return AFFINITY
    return ""


def shortages(pod: PodView, node: NodeView) -> list[str]:
    """Why a node cannot take a pod beside the pods that it has; an empty list if it can."""
    found = [
        "Too many pods" if resource == PODS else f"Insufficient {resource}"
        for resource, amount in sorted(pod.request.items())
        if amount > node.free(resource) and amount > 0
    ]
    if any(pod.host_ports & other.host_ports for other in node.pods):
        found.append(PORTS)
    return found


def is_tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    """Whether one of the tolerations covers a taint."""
    for one in tolerations:
        if one.get("effect") and one["effect"] != taint.get("effect"):
            continue
        if one.get("key") and one["key"] != taint["key"]:
            continue
        if one.get("operator") == "Exists" or (one.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def matches_node(spec: Object, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels satisfies the nodeSelector and the required node affinity of a pod."""
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or any(matches_term(term, labels) for term in required.get("nodeSelectorTerms") or ())


def matches_term(term: Object, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a node selector term; one without requirements matches nothing."""
    requirements = [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]
    return bool(requirements) and all(has_expression(labels, one) for one in requirements)


def explain(total: int, reasons: Iterable[str], note: str = "") -> str:
    """The message of a pod that no node can take, such as `0/4 nodes are available: 4 Insufficient cpu`.

    Args:
        total: the number of nodes.
        reasons: those of every node.
        note: what preemption found; empty if it was not tried.
    """
    counts = Counter(reasons)
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    text = f"0/{total} nodes are available: {', '.join(parts)}." if parts else "no nodes available to schedule pods"
    return f"{text} {note}".rstrip()
