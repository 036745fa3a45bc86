"""Groups of pods that their scheduler starts only together: which group a pod names, and how many that takes.

A group with a PodGroup has its minimum there. Pods of koordinator, and of old versions of scheduler-plugins, say the
minimum themselves.

Source: volcano.sh/apis, pkg/apis/scheduling/v1beta1; kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1;
KAI-Scheduler, pkg/common/constants; koordinator.sh/koordinator, apis/extension/coscheduling.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edl.kube.translate.objects import ObjectMetadata, PodAnnotations, PodGroupObject, PodMetadata
from edl.kube.translate.scalars import text
from edl.model.cluster import Gang

VOLCANO, COSCHEDULING, KAI, KOORDINATOR = "volcano", "coscheduling", "kai", "koordinator"
"""Whose groups these are; groups of two schedulers may have the same name."""

_OLD = "pod-group.scheduling.sigs.k8s.io"
_LABELS = ("scheduling.x-k8s.io/pod-group", _OLD, f"{_OLD}/name")
_MINIMUM_LABEL = f"{_OLD}/min-available"
_MOST = 100_000

Minimums = Mapping[tuple[str, str], int]
"""By namespace and `Pod.gang`, how many pods a group starts with."""


@dataclass(frozen=True, slots=True)
class _Named:
    gang: str
    minimum: int = 0


def gang_of(metadata: PodMetadata) -> str:
    """Return the group of a pod with its scheduler, such as `volcano/web`; empty if the pod names none."""
    return _named(metadata).gang


def minimums(groups: Mapping[str, Iterable[PodGroupObject]]) -> dict[tuple[str, str], int]:
    """Return with how many pods each group starts.

    Args:
        groups: the PodGroups of each scheduler.
    """
    found: dict[tuple[str, str], int] = {}
    for scheduler, objects in groups.items():
        for one in objects:
            metadata, least = one.metadata or ObjectMetadata(), (one.spec.min_member if one.spec else None) or 1
            found[metadata.namespace or "default", f"{scheduler}/{metadata.name}"] = least
    return found


def gangs_of(pods: Iterable[PodMetadata], known: Minimums) -> tuple[Gang, ...]:
    """Return the groups that some pods name and that start with several pods, sorted.

    Args:
        pods: the metadata of pods of no job.
        known: the minimums of groups with a PodGroup.
    """
    return tuple(sorted({gang for gang in _gangs(pods, known) if gang.minimum > 1}))


def _gangs(pods: Iterable[PodMetadata], known: Minimums) -> Iterator[Gang]:
    for metadata in pods:
        named, namespace = _named(metadata), metadata.namespace or "default"
        if named.gang:
            yield Gang(namespace, named.gang, known.get((namespace, named.gang), named.minimum))


def _named(metadata: PodMetadata) -> _Named:
    annotations, labels = metadata.annotations or PodAnnotations(), metadata.labels or {}
    if name := text(annotations.koordinator_gang):
        return _Named(f"{KOORDINATOR}/{name}", _number(text(annotations.koordinator_minimum)))
    if name := text(annotations.group_name) or text(annotations.volcano_group_name):
        return _Named(f"{VOLCANO}/{name}")
    for label in _LABELS if labels else ():
        if name := text(labels.get(label)):
            return _Named(f"{COSCHEDULING}/{name}", _number(text(labels.get(_MINIMUM_LABEL))))
    if name := text(annotations.kai_group_name):
        return _Named(f"{KAI}/{name}")
    return _Named("")


def _number(value: str) -> int:
    return min(int(value), _MOST) if value.isascii() and value.isdigit() and len(value) < 10 else 0
