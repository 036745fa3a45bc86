"""The mirrored collections of Kueue, and why edl cannot use them if some of them cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.kube.mirror.reflector import Reflector
from edl.kube.translate.decoders import Decoder
from edl.kube.translate.kueue.objects import (
    API,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    WORKLOADS,
    KueueObjects,
)

KUEUE_OBJECTS: dict[str, tuple[str, Decoder[Any]]] = {
    "workloads": (f"/apis/{API}/workloads", WORKLOADS),
    "cluster_queues": (f"/apis/{API}/clusterqueues", CLUSTER_QUEUES),
    "cohorts": (f"/apis/{API}/cohorts", COHORTS),
    "local_queues": (f"/apis/{API}/localqueues", LOCAL_QUEUES),
    "flavors": (f"/apis/{API}/resourceflavors", FLAVORS),
}
"""Path and decoder of each collection, by the names that `KueueObjects` has."""

_FORBIDDEN = 403


def kueue_objects(reflectors: Mapping[str, Reflector[Any]], problem: str) -> KueueObjects:
    """Return the Kueue objects in the mirror, with the reason if edl cannot use them.

    Args:
        reflectors: one for each of `KUEUE_OBJECTS`.
        problem: why the objects are of no use although they can be read; empty if they are.
    """
    return KueueObjects(
        **{name: reflector.store.objects.values() for name, reflector in reflectors.items()},
        problem=next(filter(None, (_problem(reflector) for reflector in reflectors.values())), problem),
    )


def _problem(reflector: Reflector[Any]) -> str:
    path = reflector.resource.path
    if reflector.refusal == _FORBIDDEN:
        return f"edl may not read {path} (403); give it the rights of deploy/kueue, or the value kueue of the chart"
    if reflector.refusal:
        return f"the API server has no {path}; install Kueue 0.19 or newer, or remove label kueue.x-k8s.io/queue-name"
    return "" if reflector.synced.is_set() else f"edl has not listed {path} yet"
