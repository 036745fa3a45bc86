"""PriorityClasses: the priority of each by name, and which of them never preempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edl.kube.translate.objects import ObjectMetadata, PreemptionPolicy, PriorityClassObject

SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def by_name(classes: Iterable[PriorityClassObject]) -> dict[str, PriorityClassObject]:
    """Return the PriorityClasses by name."""
    return {(c.metadata or ObjectMetadata()).name or "": c for c in classes}


def never_preempting(classes: Mapping[str, PriorityClassObject]) -> frozenset[str]:
    """The PriorityClasses with `preemptionPolicy: Never`; the empty name stands for the default class."""
    found = {name for name, c in classes.items() if c.preemption_policy is PreemptionPolicy.NEVER}
    return frozenset({*found, *(("",) if default_class(classes) in found else ())})


def default_class(classes: Mapping[str, PriorityClassObject]) -> str:
    """The name of the class that a pod gets which names none; empty if there is no default class."""
    return min(((c.value or 0, name) for name, c in classes.items() if c.global_default), default=(0, ""))[1]


def priorities(classes: Mapping[str, PriorityClassObject]) -> dict[str, int]:
    """Return the priority of each class by name; that of a pod without a class has the empty name."""
    values = {name: c.value or 0 for name, c in classes.items()}
    defaults = [c.value or 0 for c in classes.values() if c.global_default]
    return SYSTEM_PRIORITIES | values | {"": min(defaults, default=0)}
