"""What adapters of all kinds read in the same way: owner, request of one more pod, and other writers of the count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from edl.kube.translate.jobs import read_status
from edl.kube.translate.objects import (
    ConditionObject,
    OwnerReference,
    PodMetadata,
    PodObject,
    PodSpec,
    PodTemplateObject,
)
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import limits_of, preferences_of, qos_of, shape_of
from edl.kube.workloads.annotations import MANAGER, MIN, Wish, other_writer
from edl.kube.workloads.record import read_record, read_requests
from edl.kube.workloads.workload_objects import Owned, WorkloadMetadata
from edl.model.jobs import Job
from edl.model.lending import Lending
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.resources import CPU, GPU, MEMORY, PodShape
from edl.model.sizes import SLICE_TOPOLOGY, TPU, chips_of_slice, hosts_of_slice
from edl.model.status import Condition, JobPhase, JobStatus, RoleCount
from edl.model.times import seconds_of
from edl.printable import printable

POD_FAILED = "PodFailed"
"""The reason that a TrainingJob whose pods fail has."""
_MOST_OF_REASON = 64
_ONLY_MAKE = frozenset({("kubeflow.org", "Trial"), ("argoproj.io", "Workflow")})


class End(NamedTuple):
    """How a workload has ended, or is about to: its final phase, and its controller's message."""

    phase: JobPhase
    reason: str


def end_by_conditions(conditions: Iterable[ConditionObject], phases: Mapping[str, JobPhase]) -> End | None:
    """How a workload ended by the conditions that are true; None if by none of them, a failure before a success.

    Args:
        conditions: of its status.
        phases: the type of a condition -> the phase that it means.
    """
    found = [
        End(phases[kind], printable(one.reason or kind)[:_MOST_OF_REASON])
        for one in conditions
        if one.status == "True" and (kind := one.type or "") in phases
    ]
    return min(found, key=lambda end: end.phase is not JobPhase.FAILED, default=None)


def key_of(kind: WorkloadKind, metadata: WorkloadMetadata[Any]) -> JobKey:
    """The key of a workload."""
    return JobKey.of(kind, metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")


def deciding_owner(metadata: WorkloadMetadata[Any]) -> OwnerReference | None:
    """The controller that owns a workload and may write to it again; None if none does.

    A Workflow of Argo and a Trial of Katib make what they own, and then only wait for its end.
    """
    owner = next((one for one in metadata.owner_references or () if one.controller), None)
    if owner is not None and ((owner.api_version or "").partition("/")[0], owner.kind) in _ONLY_MAKE:
        return None
    return owner


def with_labels(template: PodTemplateObject | None, labels: Mapping[str, str]) -> PodObject:
    """Make a pod from a template, with the labels that the controller of its kind adds."""
    found = template or PodTemplateObject()
    own = (found.metadata.labels if found.metadata else None) or {}
    return PodObject(metadata=PodMetadata(labels={**own, **labels}), spec=found.spec or PodSpec())


def read_job(
    key: JobKey,
    metadata: WorkloadMetadata[Any],
    wish: Wish,
    template: PodSpec,
    pods: tuple[Pod, ...],
    *,
    now_s: float,
) -> Job:
    """Translate the parts of a workload that are read in the same way for every kind.

    Args:
        key: its key.
        metadata: of the object.
        wish: what its annotations ask for.
        template: the spec of its trainers.
        pods: with roles and indexes.
        now_s: the creation time of an object without one, in seconds since the epoch.

    Raises:
        ConfigError: a quantity of the template cannot be parsed.
    """
    created_s = seconds_of(metadata.creation_timestamp)
    shape = shape_of(template)
    recorded = read_requests(read_record(metadata), shape.request)
    return Job(
        key=key,
        uid=metadata.uid or "",
        generation=metadata.generation or 1,
        created_s=now_s if created_s is None else created_s,
        min_trainers=wish.min_trainers,
        max_trainers=wish.max_trainers,
        sizes=wish.sizes,
        trainer=shape if recorded is None else PodShape(recorded, shape.placement),
        declared=None if recorded is None else shape.request,
        preferred=preferences_of(template),
        limits=limits_of(template),
        qos=qos_of(template),
        pods=pods,
        queue=wish.queue,
        deleting=metadata.deletion_timestamp is not None,
        orphans_pods=metadata.orphans_dependents,
        lending=Lending.NEVER,  # its own controller writes what its pods request
    )


def read_workload_status(
    metadata: WorkloadMetadata[Any],
    pods: Collection[Pod],
    count: int,
    *,
    is_suspended: bool,
    end: End | None = None,
    failures: str = "",
) -> JobStatus:
    """The status of a workload in the terms of a TrainingJob, with the last resize that edl recorded.

    Args:
        metadata: of the object.
        pods: with roles.
        count: how many trainers its controller keeps.
        is_suspended: its owner has suspended it.
        end: how it ended; None if it has not.
        failures: how its pods failed, as its controller counts it; of no interest while all of them are ready.
    """
    live = [pod for pod in pods if pod.is_live and pod.role is Role.TRAINER]
    ready = sum(pod.ready for pod in live)
    phase = JobPhase.RUNNING if live else JobPhase.PENDING
    phase = JobPhase.SUSPENDED if is_suspended else phase
    phase = end.phase if end is not None else phase
    record = read_record(metadata)
    stored = read_status({"status": {"lastResize": record}} if record else {}) or JobStatus()
    fails = failures and ready < count and not (is_suspended or end is not None)
    conditions = (Condition("Degraded", "True", POD_FAILED, failures, 0.0),) if fails else ()
    return replace(
        stored,
        phase=phase,
        reason=end.reason if end is not None else stored.reason,
        trainer=RoleCount(count, ready, len(live) - ready),
        conditions=conditions,
    )


def writer_problem(metadata: WorkloadMetadata[Owned], count: int, field: str, owns: Callable[[Owned], bool]) -> str:
    """Say which other program changes the count after edl did; empty if none does.

    Args:
        metadata: of the object.
        count: how many pods its controller keeps.
        field: the name of the field that has the count.
        owns: True if a manager owns that field.
    """
    managers = {
        entry.manager or ""
        for entry in metadata.managed_fields or ()
        if entry.fields_v1 and entry.fields_v1.spec and owns(entry.fields_v1.spec)
    }
    record = read_record(metadata)
    return other_writer(count, record, tuple(sorted(managers - {MANAGER, ""})), field)


def gang_problem(wish: Wish, least: int, field: str) -> str:
    """Why a scheduler that starts pods only together would start none at the minimum; empty if it would.

    Args:
        wish: what the annotations ask for.
        least: how many pods that scheduler waits for.
        field: where that number is.
    """
    if least <= wish.min_trainers:
        return ""
    return (
        f"{field} is {least}, so no pod starts while there are fewer, and {MIN} is {wish.min_trainers}; make both"
        " equal"
    )


def template_problem(template: PodSpec, pods: str) -> str:
    """Why edl cannot add or take single pods of a template; empty if it can.

    Args:
        template: the spec of the pods.
        pods: what the kind calls them.
    """
    if template.node_name:
        return (
            f"its {pods} have spec.nodeName {printable(template.node_name)}, so no scheduler places them, and the"
            f" kubelet of that node fails those that do not fit; write nodeSelector kubernetes.io/hostname instead"
        )
    request = shape_of(template).request
    topology = text((template.node_selector or {}).get(SLICE_TOPOLOGY))
    if hosts_of_slice(topology, request[TPU]) > 1:
        return (
            f"its {pods} are hosts of a TPU slice: {SLICE_TOPOLOGY} {topology} has {chips_of_slice(topology)} chips,"
            f" and each requests {request[TPU]}; edl resizes by single {pods}: take a slice of one host, or remove"
            " edl's annotations"
        )
    if any(request[name] for name in (CPU, MEMORY, GPU)):
        return ""
    return f"its {pods} request neither cpu nor memory; set resources.requests, so that edl knows what one needs"
