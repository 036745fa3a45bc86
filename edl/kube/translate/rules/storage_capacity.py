"""Reads from CSIStorageCapacity objects where drivers have storage left for new volumes.

A driver takes part if its CSIDriver says so. Then kube-scheduler binds a pod only to a node for which some
CSIStorageCapacity of the class of the claim is large enough.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding, func hasEnoughCapacity (v1.36.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edl.errors import ConfigError
from edl.kube.translate.rules.terms import Selector, read_selector
from edl.kube.translate.scalars import Scalar, text
from edl.kube.translate.storage_objects import CsiDriverObject, CsiStorageCapacityObject
from edl.model.quantity import parse_quantity
from edl.model.resources import MEMORY, NodeTerm, Requirement


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes for which a driver makes volumes of a class, and how much storage is left there.

    Attributes:
        nodes: the labels of the nodes that reach it; all expressions must hold.
        largest: the largest volume that it can make, in bytes.
    """

    nodes: Selector
    largest: int


def counting_drivers(drivers: Iterable[CsiDriverObject]) -> frozenset[str]:
    """The names of the drivers that say how much storage they have left."""
    return frozenset(
        one.metadata.name or ""
        for one in drivers
        if one.metadata and one.spec is not None and one.spec.storage_capacity
    )


def places_by_class(capacities: Iterable[CsiStorageCapacityObject]) -> dict[str, tuple[Place, ...]]:
    """By StorageClass, where its volumes can be made; an object that selects no nodes is ignored."""
    found: dict[str, list[Place]] = {}
    for one in capacities:
        nodes, most = read_selector(one.node_topology), one.maximum_volume_size
        if nodes is not None:
            largest = bytes_of(one.capacity if most is None else most)
            found.setdefault(one.storage_class_name or "", []).append(Place(nodes, largest))
    return {name: tuple(places) for name, places in found.items()}


def bytes_of(quantity: Scalar) -> int:
    """Convert a quantity to bytes; 0 if it is missing or cannot be read."""
    try:
        return parse_quantity(text(quantity), MEMORY) if quantity is not None else 0
    except ConfigError:
        return 0


def terms_for(places: Iterable[Place], size: int) -> tuple[NodeTerm, ...] | None:
    """The nodes for which a volume of a size can be made.

    Args:
        places: of its class.
        size: in bytes.

    Returns:
        The terms, one of which a node must match; none if there is no such node, and None if it may be any node.
    """
    large = [place.nodes for place in places if place.largest >= size]
    return None if () in large else tuple(_merged(large))


def _merged(selectors: Iterable[Selector]) -> Iterator[NodeTerm]:
    """The selectors as terms; those that name a value of the same label are one: each node may have its own value."""
    values: dict[str, set[str]] = {}
    others: dict[NodeTerm, None] = {}
    for selector in selectors:
        if len(selector) == 1 and selector[0].operator == "In":
            values.setdefault(selector[0].key, set()).update(selector[0].values)
        else:
            others[NodeTerm(selector)] = None
    yield from (NodeTerm((Requirement(key, "In", tuple(sorted(each))),)) for key, each in sorted(values.items()))
    yield from others
