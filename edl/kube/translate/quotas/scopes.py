"""Decides by the scopes of a ResourceQuota which pods it counts.

A quota without scopes counts every pod of its namespace. With scopes it counts the pods that are in each of them, and
nobody else's pods use it up.

Source: k8s.io/kubernetes pkg/quota/v1/evaluator/core, func podMatchesScopeFunc (v1.36.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from edl.api.priorities import BASIC_PRIORITY_CLASSES, PRIORITY_CLASSES
from edl.errors import ConfigError
from edl.kube.translate.objects import PodSpec, ResourceQuotaSpec, ScopeObject
from edl.kube.translate.shapes import qos_of
from edl.model.jobs import Job
from edl.model.resources import CPU, MEMORY, QosClass


@dataclass(frozen=True, slots=True)
class ScopedPod:
    """The properties of a pod that the scopes of a quota read.

    Attributes:
        priority_classes: those that it may have; the empty name stands for none.
        is_best_effort: no container of it has requests or limits of cpu or memory.
        has_deadline: its spec has activeDeadlineSeconds.
        has_affinity: it has rules about other pods, which may be in other namespaces.
    """

    priority_classes: tuple[str, ...]
    is_best_effort: bool = False
    has_deadline: bool = False
    has_affinity: bool = False


def scoped(spec: PodSpec, priority_classes: tuple[str, ...]) -> ScopedPod:
    """Return the properties of a pod, or of the pods of a template, that scopes read.

    Args:
        spec: its spec.
        priority_classes: those that it may have.
    """
    is_best_effort, affinity = False, spec.affinity
    with suppress(ConfigError):  # a pod whose quantities cannot be read is left out
        is_best_effort = qos_of(spec) is QosClass.BEST_EFFORT
    return ScopedPod(
        priority_classes,
        is_best_effort,
        spec.active_deadline_seconds is not None,
        affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity),
    )


def scoped_training_pods(job: Job) -> Iterator[ScopedPod]:
    """Yield what scopes ask of the pods of a TrainingJob, one for each role; their PriorityClasses are edl's."""
    is_best_effort = job.qos is QosClass.BEST_EFFORT
    yield ScopedPod(PRIORITY_CLASSES if is_best_effort else BASIC_PRIORITY_CLASSES, is_best_effort)
    for fixed in job.fixed:
        amounts = (fixed.shape.request, fixed.limits)
        yield ScopedPod(BASIC_PRIORITY_CLASSES, not any(part[name] for part in amounts for name in (CPU, MEMORY)))


def has_scopes(spec: ResourceQuotaSpec) -> bool:
    """Return True unless a quota counts every pod of its namespace."""
    return bool(spec.scopes or (spec.scope_selector and spec.scope_selector.match_expressions))


def counts(spec: ResourceQuotaSpec, pod: ScopedPod) -> bool | None:
    """Return whether a quota counts a pod; None if that is not certain.

    Args:
        spec: the spec of the quota.
        pod: the pod.
    """
    expressions = (spec.scope_selector.match_expressions if spec.scope_selector else None) or ()
    scopes = (*(ScopeObject(name, "Exists") for name in spec.scopes or ()), *expressions)
    answers = [_is_in(one, pod) for one in scopes]
    return False if False in answers else None if None in answers else True


def _is_in(scope: ScopeObject, pod: ScopedPod) -> bool | None:
    if scope.scope_name == "PriorityClass":
        return _has_class(scope, pod.priority_classes)
    certain: dict[str | None, bool | None] = {
        "Terminating": pod.has_deadline,
        "NotTerminating": not pod.has_deadline,
        "BestEffort": pod.is_best_effort,
        "NotBestEffort": not pod.is_best_effort,
        "CrossNamespacePodAffinity": None if pod.has_affinity else False,
        "VolumeAttributesClass": False,  # of claims
    }
    return certain.get(scope.scope_name)


def _has_class(scope: ScopeObject, classes: Collection[str]) -> bool | None:
    """Return whether a scope names the PriorityClass of a pod; None if that depends on which class it gets."""
    values, named = set(scope.values or ()), [name for name in classes if name]
    match scope.operator:
        case "Exists":
            inside = len(named)
        case "DoesNotExist":
            inside = len(classes) - len(named)
        case "In":
            inside = sum(name in values for name in named)
        case "NotIn":
            inside = sum(name not in values for name in classes)
        case _:
            return None
    return True if inside == len(classes) else None if inside else False
