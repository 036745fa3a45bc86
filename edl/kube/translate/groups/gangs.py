"""Groups of pods that their scheduler starts only together: which group a pod names, how many that takes, its queue.

A group with a PodGroup has its minimum there. Pods of koordinator, and of old versions of scheduler-plugins, say the
minimum themselves. Koordinator starts the pods of a group that has begun one by one, by default; another match policy
is not read. Volcano counts tasks that have succeeded.

Source: k8s.io/api/scheduling/v1beta1; volcano.sh/apis, pkg/apis/scheduling/v1beta1; KAI-Scheduler,
pkg/common/constants; kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1; koordinator.sh/koordinator,
apis/extension/coscheduling.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from edl.errors import ConfigError
from edl.kube.translate.groups.objects import (
    PodGroupObject,
    PodGroupSpec,
    VolcanoQueueObject,
    VolcanoQueueSpec,
    VolcanoQueueStatus,
)
from edl.kube.translate.objects import ObjectMetadata, PodAnnotations, PodMetadata, PodObject, PodSpec
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import parse_amounts
from edl.model.cluster import Gang
from edl.model.pods import Pod, PodPhase
from edl.model.resources import Resources

KUBERNETES, VOLCANO, COSCHEDULING, KAI, KOORDINATOR = "kubernetes", "volcano", "coscheduling", "kai", "koordinator"
"""The schedulers that have groups; groups of two schedulers may have the same name."""

_OLD = "pod-group.scheduling.sigs.k8s.io"
_LABELS = ("scheduling.x-k8s.io/pod-group", _OLD, f"{_OLD}/name")
_MINIMUM_LABEL = f"{_OLD}/min-available"
_MOST = 100_000
_CLOSED = {"Closed", "Closing"}

Minimums = Mapping[tuple[str, str], int]
"""By namespace and `Pod.gang`, how many pods a group starts with."""


@dataclass(frozen=True, slots=True)
class VolcanoGroup:
    """A PodGroup in a queue of Volcano.

    Attributes:
        queue: the name of its queue.
        least: what its queue must have left before any pod of it starts; empty once some run.
    """

    queue: str
    least: Resources = Resources()


@dataclass(frozen=True, slots=True)
class VolcanoQueue:
    """A queue of Volcano.

    Attributes:
        capability: the most that its pods may request together; a resource that is not listed has no limit.
        allocated: what they request now.
        parent: the queue above it; empty if there is none.
        closed: no pod in it starts.
    """

    capability: Resources
    allocated: Resources
    parent: str = ""
    closed: bool = False


@dataclass(frozen=True, slots=True)
class VolcanoQueues:
    """The queues of Volcano by name, and the groups in them by namespace and `Pod.gang`."""

    queues: Mapping[str, VolcanoQueue] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], VolcanoGroup] = field(default_factory=dict)

    @property
    def has_limits(self) -> bool:
        """True if any queue has a capability, or is closed."""
        return any(queue.capability.amounts or queue.closed for queue in self.queues.values())


def volcano_queues(groups: Iterable[PodGroupObject], queues: Iterable[VolcanoQueueObject]) -> VolcanoQueues:
    """Read the queues of Volcano and the groups in them; what cannot be read limits nothing."""
    found: dict[str, VolcanoQueue] = {}
    for queue in queues:
        spec, status = queue.spec or VolcanoQueueSpec(), queue.status or VolcanoQueueStatus()
        name, closed = (queue.metadata or ObjectMetadata()).name or "", status.state in _CLOSED
        if closed or status.allocated is None:
            found[name] = VolcanoQueue(Resources(), Resources(), spec.parent or "", closed)
            continue
        with suppress(ConfigError):
            limits, used = (Resources.of(parse_amounts(amounts)) for amounts in (spec.capability, status.allocated))
            found[name] = VolcanoQueue(limits, used, spec.parent or "")
    if not found:
        return VolcanoQueues()
    named: dict[tuple[str, str], VolcanoGroup] = {}
    for group in groups:
        metadata, about = group.metadata or ObjectMetadata(), group.spec or PodGroupSpec()
        waits = (group.status.phase if group.status else None) in {None, "", "Pending"}
        with suppress(ConfigError):
            least = Resources.of(parse_amounts(about.min_resources if waits else None))
            key = (metadata.namespace or "default", f"{VOLCANO}/{metadata.name}")
            named[key] = VolcanoGroup(about.queue or "default", least)
    return VolcanoQueues(found, named)


@dataclass(frozen=True, slots=True)
class _Named:
    gang: str
    minimum: int = 0


def gang_of(pod: PodObject) -> str:
    """Return the group of a pod with its scheduler, such as `volcano/web`; empty if the pod names none."""
    return _named(pod).gang


def minimums(groups: Mapping[str, Iterable[PodGroupObject]]) -> dict[tuple[str, str], int]:
    """Return by (namespace, group) the number of pods with which the scheduler starts each group.

    Args:
        groups: the PodGroups of each scheduler.
    """
    found: dict[tuple[str, str], int] = {}
    for scheduler, objects in groups.items():
        for one in objects:
            metadata = one.metadata or ObjectMetadata()
            found[metadata.namespace or "default", f"{scheduler}/{metadata.name}"] = _least(
                one.spec or PodGroupSpec()
            )
    return found


def _least(spec: PodGroupSpec) -> int:
    policy = spec.scheduling_policy
    if policy is None:
        return spec.min_member or 1
    return (policy.gang.min_count if policy.gang else None) or 1


def gangs_of(pods: Iterable[PodObject], known: Minimums, succeeded: Minimums) -> tuple[Gang, ...]:
    """Return the groups that some pods name and that start with several pods, sorted.

    Args:
        pods: pods of no job.
        known: the minimums of groups with a PodGroup.
        succeeded: how many pods of a group have succeeded; for Volcano they count as started.
    """
    return tuple(sorted({gang for gang in _gangs(pods, known, succeeded) if gang.minimum > 1}))


def counts_succeeded(pod: Pod) -> bool:
    """True for a pod that has succeeded, and still counts for the minimum of its group."""
    return pod.phase is PodPhase.SUCCEEDED and pod.gang.startswith(f"{VOLCANO}/")


def _gangs(pods: Iterable[PodObject], known: Minimums, succeeded: Minimums) -> Iterator[Gang]:
    for pod in pods:
        named, namespace = _named(pod), (pod.metadata.namespace if pod.metadata else None) or "default"
        if named.gang:
            minimum = known.get((namespace, named.gang), named.minimum) - succeeded.get((namespace, named.gang), 0)
            yield Gang(namespace, named.gang, minimum, once=named.gang.startswith(f"{KOORDINATOR}/"))


def _named(pod: PodObject) -> _Named:
    group, metadata = (pod.spec or PodSpec()).scheduling_group, pod.metadata or PodMetadata()
    if group is not None and group.pod_group_name:
        return _Named(f"{KUBERNETES}/{group.pod_group_name}")
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
