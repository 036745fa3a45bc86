"""Capacity reserved for the pods of DaemonSets that are not on their nodes yet.

A new node looks empty until its daemon pods arrive. They often have a higher priority, so they would evict trainers
that a plan puts there before. So the request of a DaemonSet is reserved on every eligible node without a pod of it.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from edl.errors import ConfigError
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import DaemonSetObject, ObjectMetadata, OwnerReference, PodSpec
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.shapes import shape_of
from edl.model.cluster import Node
from edl.model.resources import PodShape, Resources, Toleration
from edl.planner.eligibility import is_selected, is_tolerated

DaemonKey = tuple[str, str]
"""Namespace and name of a DaemonSet."""

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


def reserved_on(node: Node, daemons: Iterable[Daemon], has_reached: Callable[[DaemonKey, str], bool]) -> Resources:
    """Return what is kept free on a node for the DaemonSet pods that have not reached it yet.

    Args:
        node: the node.
        daemons: the DaemonSets.
        has_reached: returns True if a pod of a DaemonSet is bound to a node, or nominated for it.
    """
    missing = [
        d.shape.request
        for d in daemons
        if not has_reached(d.key, node.name)
        and is_selected(node, d.shape.placement)
        and is_tolerated(node, d.shape.placement.tolerations)
    ]
    return sum(missing, Resources())


def _shape(source: DaemonSetObject) -> PodShape:
    spec = source.spec.template.spec if source.spec and source.spec.template else None
    spec = spec or PodSpec()
    shape = shape_of(spec)
    more = (*_TOLERATED_BY_ALL, _TOLERATED_BY_HOST_NETWORK) if spec.host_network else _TOLERATED_BY_ALL
    tolerations = tuple(sorted({*shape.placement.tolerations, *more}))
    return replace(shape, placement=replace(shape.placement, tolerations=tolerations))
