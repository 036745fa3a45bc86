"""Capacity reserved for the pods of DaemonSets that are not on their nodes yet.

A new node looks empty until its daemon pods arrive. They often have a higher priority, so they would evict trainers
that a plan puts there before. So the request of a DaemonSet is reserved on every eligible new node without a pod of
it. On an older node only what such a pod requests that exists and waits for the node: a DaemonSet whose pods a quota
forbids, or that are too large for any node, must not keep the nodes of a cluster empty.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from edl.errors import ConfigError
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import DaemonSetObject, ObjectMetadata, OwnerReference, PodSpec
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.shapes import shape_of
from edl.model.cluster import Node
from edl.model.resources import HOST_PORT_PREFIX, PodShape, Resources, Toleration
from edl.planner.eligibility import is_selected, is_tolerated

DaemonKey = tuple[str, str]
"""Namespace and name of a DaemonSet."""

COME_WITHIN_S = 120.0
"""How long capacity of a new node is reserved for pods of DaemonSets that are missing there."""

_TOLERATED_BY_ALL = tuple(
    Toleration(f"node.kubernetes.io/{name}", "Exists", "", effect)
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_TOLERATED_BY_HOST_NETWORK = Toleration("node.kubernetes.io/network-unavailable", "Exists", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Daemon:
    """A DaemonSet and the shape of its pods."""

    key: DaemonKey
    shape: PodShape


class DaemonReader:
    """Translates DaemonSets; an unchanged one is not translated again."""

    def __init__(self) -> None:
        self._known: dict[DaemonKey, tuple[DaemonSetObject, Daemon]] = {}

    def read(self, daemonsets: Iterable[DaemonSetObject], left_out: list[Quarantined]) -> tuple[Daemon, ...]:
        """Translate all but terminating DaemonSets.

        Args:
            daemonsets: the objects.
            left_out: those that cannot be read are added to it.

        Returns:
            The DaemonSets, sorted by key.
        """
        known: dict[DaemonKey, tuple[DaemonSetObject, Daemon]] = {}
        for source in daemonsets:
            metadata = source.metadata or ObjectMetadata()
            key = (metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")
            before = self._known.get(key)
            if before is not None and before[0] is source:
                known[key] = before
            elif metadata.deletion_timestamp is None:
                try:
                    known[key] = (source, Daemon(key, _shape(source)))
                except ConfigError as error:
                    left_out.append(Quarantined("DaemonSet", *key, metadata.uid or "", str(error)))
        self._known = known
        return tuple(known[key][1] for key in sorted(known))


def daemon_of(namespace: str, owners: Iterable[OwnerReference]) -> DaemonKey | None:
    """Return the DaemonSet among a pod's owners, if any."""
    return next(((namespace, o.name or "") for o in owners if o.kind == "DaemonSet"), None)


class DaemonPods(Protocol):
    """What is known of the pods of DaemonSets."""

    def has_reached(self, daemon: DaemonKey, node: str) -> bool:
        """Return True if a pod of the DaemonSet is bound to the node, or nominated for it."""

    def awaited_on(self, node: str) -> Mapping[DaemonKey, Resources]:
        """Return what the pods request that wait for the node."""


def reserved_on(node: Node, daemons: Iterable[Daemon], pods: DaemonPods, *, is_new: bool) -> Resources:
    """Return what is kept free on a node for the DaemonSet pods that have not reached it yet.

    Args:
        node: the node.
        daemons: the DaemonSets.
        pods: those that exist.
        is_new: pods that do not exist yet may still come; see `COME_WITHIN_S`.
    """
    missing = dict(pods.awaited_on(node.name))
    for daemon in daemons if is_new else ():
        if (
            daemon.key not in missing
            and not pods.has_reached(daemon.key, node.name)
            and is_selected(node, daemon.shape.placement)
            and is_tolerated(node, daemon.shape.placement.tolerations)
        ):
            missing[daemon.key] = daemon.shape.request
    return sum((request for request in missing.values() if _is_possible(request, node)), Resources())


def _is_possible(request: Resources, node: Node) -> bool:
    """True if an empty node has all that a pod requests; host ports are on every node."""
    have = node.allocatable
    return all(n <= have[name] or name.startswith(HOST_PORT_PREFIX) for name, n in request.amounts)


def _shape(source: DaemonSetObject) -> PodShape:
    spec = source.spec.template.spec if source.spec and source.spec.template else None
    spec = spec or PodSpec()
    shape = shape_of(spec)
    more = (*_TOLERATED_BY_ALL, _TOLERATED_BY_HOST_NETWORK) if spec.host_network else _TOLERATED_BY_ALL
    tolerations = tuple(sorted({*shape.placement.tolerations, *more}))
    return replace(shape, placement=replace(shape.placement, tolerations=tolerations))
