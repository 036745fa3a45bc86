"""Nodes and their pods as the scheduler sees them: amounts, labels, taints and ports, without the API's dictionaries.

A pod counts as soon as the scheduler has decided where it goes, before the API server shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edl.errors import ConfigError
from edl.kube.translate.decoders import PODS as PODS_OF_API
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.rules.terms import PodRules, rules_of
from edl.sandbox.objects import (
    Amounts,
    amounts_of,
    is_deleted,
    is_finished,
    is_true,
    labels_of,
    name_of,
    namespace_of,
    request_of,
    summed,
    uid_of,
)

Object = dict[str, Any]
PODS = "pods"


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod.

    Attributes:
        key: namespace and name.
        request: what it requests, with one of `pods`.
        priority: larger is more important.
        may_preempt: its preemptionPolicy is not Never.
        host_ports: (protocol, port) on its node.
        nominated: the node for which it waits after a preemption; empty if none.
        created: text by which older pods sort first.
        body: the object.
        rules: what it requires of the pods beside it, and its labels.
    """

    key: tuple[str, str]
    uid: str
    request: Amounts
    priority: int
    may_preempt: bool
    host_ports: frozenset[tuple[str, int]]
    nominated: str
    created: str
    body: Object
    rules: PodRules


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node and the pods that are bound to it or wait for it.

    Attributes:
        avoiding: those of the pods that avoid others.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    is_unschedulable: bool
    allocatable: Amounts
    pods: tuple[PodView, ...] = ()
    ready: bool = True
    used: Amounts = field(default_factory=dict)
    avoiding: tuple[PodView, ...] = ()

    def with_pods(self, pods: Iterable[PodView]) -> NodeView:
        """Return the same node with other pods."""
        chosen = tuple(pods)
        return NodeView(
            self.name,
            self.labels,
            self.taints,
            self.is_unschedulable,
            self.allocatable,
            chosen,
            self.ready,
            summed(pod.request for pod in chosen),
            tuple(pod for pod in chosen if pod.rules.anti),
        )

    def free(self, resource: str) -> int:
        """The free amount of a resource."""
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)


def pod_view(pod: Object) -> PodView:
    """Read a pod.

    Raises:
        ConfigError: one of its amounts is not a quantity.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    ports = [port for one in spec["containers"] for port in one.get("ports") or () if port.get("hostPort")]
    return PodView(
        (namespace_of(pod), name_of(pod)),
        uid_of(pod),
        {**request_of(pod), PODS: 1},
        int(spec.get("priority") or 0),
        spec.get("preemptionPolicy") != "Never",
        frozenset((one.get("protocol") or "TCP", int(one["hostPort"])) for one in ports),
        status.get("nominatedNodeName") or "",
        str(pod["metadata"].get("creationTimestamp") or ""),
        pod,
        _rules_of(pod),
    )


def _rules_of(pod: Object) -> PodRules:
    found = PODS_OF_API.from_dict(pod)
    return PodRules(namespace_of(pod)) if isinstance(found, Quarantined) else rules_of(found, namespace_of(pod))


class PodViews:
    """Reads each version of a pod once."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[str, PodView | None]] = {}

    def __call__(self, pod: Object) -> PodView | None:
        """A pod's view; None if one of its amounts is not a quantity, but the API server stores no such pod."""
        uid, version = uid_of(pod), str(pod["metadata"].get("resourceVersion") or "")
        known = self._views.get(uid)
        if known is None or not version or known[0] != version:
            try:
                known = (version, pod_view(pod))
            except ConfigError:
                known = (version, None)
            self._views[uid] = known
        return known[1]

    def keep(self, uids: Container[str]) -> None:
        """Forget all other pods."""
        self._views = {uid: view for uid, view in self._views.items() if uid in uids}


def node_views(
    nodes: Iterable[Object],
    pods: Iterable[Object],
    assumed: Mapping[str, str],
    read: Callable[[Object], PodView | None],
) -> list[NodeView]:
    """The nodes in the order of their names, each with the unfinished pods on it.

    Args:
        nodes: Node objects.
        pods: Pod objects.
        assumed: UID of a pod -> the node to which it was bound just now.
        read: see PodViews.
    """
    by_node: dict[str, list[PodView]] = {}
    for pod in pods:
        where = pod["spec"].get("nodeName") or assumed.get(uid_of(pod), "")
        if where and not is_finished(pod) and (view := read(pod)) is not None:
            by_node.setdefault(where, []).append(view)
    return [_node_view(node, by_node.get(name_of(node), [])) for node in sorted(nodes, key=name_of)]


def _node_view(node: Object, pods: list[PodView]) -> NodeView:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return NodeView(
        name_of(node),
        {**labels_of(node), "metadata.name": name_of(node)},
        tuple(spec.get("taints") or ()),
        bool(spec.get("unschedulable")) or is_deleted(node),
        amounts_of(status.get("allocatable") or status.get("capacity")),
        ready=is_true(node, "Ready"),
    ).with_pods(pods)
