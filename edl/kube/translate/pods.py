"""Pods become `Pod` values: their resources, their state, and the job that they belong to.

To which job a pod belongs is decided in `ownership`; a pod that belongs to none still occupies its node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from edl.kube.translate.containers import REMEDY, Containers, is_over_its_limit, read_containers
from edl.kube.translate.groups.gangs import gang_of
from edl.kube.translate.intent import intent_of
from edl.kube.translate.objects import (
    ConditionObject,
    OwnerReference,
    PodConditionObject,
    PodLabels,
    PodMetadata,
    PodObject,
    PodSpec,
    PodStatus,
    PreemptionPolicy,
)
from edl.kube.translate.ownership import TRAINING_JOB, WORKLOAD_OWNERS, group_member, names_a_job, owning_job
from edl.kube.translate.scalars import text
from edl.kube.translate.scheduling import MISSING_CLAIM, no_eviction_helps, refusal_of
from edl.model.lending import RunningRequest
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, PodShape, Resources
from edl.model.times import seconds_of
from edl.printable import printable, shortened

DEFAULT_NAMESPACE = "default"

_PHASES = {phase.value: phase for phase in PodPhase} | {"Unknown": PodPhase.RUNNING}

_IS_INDEX = re.compile("[0-9]{1,9}")

_AT_SHUTDOWN = frozenset({"Terminated", "NodeShutdown", "Shutdown"})
"""`status.reason` of a pod that its kubelet ended because the node shut down.

Older kubelets leave the phase Succeeded to a pod whose containers answer that with exit code 0.
"""
_ENDED_BY_KUBELET = _AT_SHUTDOWN | {"Evicted", "Preempting", "NodeLost"}
"""`status.reason` of a failed pod that its kubelet ended: the node was short of something, shut down, or was lost."""
_NOT_ADMITTED = frozenset(
    {
        "InvalidNodeInfo",
        "MatchNodeSelector",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
"""`status.reason` of a pod that its kubelet does not admit; with `OutOf...` for what the node has too little of.

A kubelet that starts again admits the pods that run on its node anew: a label that is gone, or a device plugin that
is not yet back, then ends pods that ran well.

Source: k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go; pkg/kubelet/cm/topologymanager, cm/cpumanager.
"""
_REJECTED = "Pod was rejected: "
"""Begins what the kubelet says of each pod that it does not admit, whatever the reason (SysctlForbidden, ...).

Source: k8s.io/kubernetes/pkg/kubelet/kubelet.go, func rejectPod; older kubelets say only `Pod `.
"""
_MOST_OF_REJECTION = 200

_BY_NAME = f"{WorkloadKind.LEADER_WORKER_SET.value}/"
_CLAIM = "its PersistentVolumeClaim {name} does not exist; create it in the namespace of the job"


@dataclass(slots=True)
class KnownPod:
    """A translated pod.

    Attributes:
        source: the object that it was translated from.
        foreign: the pod without a job.
        owners: its owner references.
        labelled: the job that its controller or its label names, its role and its index; None if neither names one,
            or if it has no role.
        declared: the shape with the CPU that its trainer declares, if it lends some; None if it does not.
        running_request: the running request of its trainer, if its kubelet can change it.
        by_name: it is named by the LeaderWorkerSet that the name of its controller begins with; see `ownership`.
        asks: the job for which it requests a node by its label, and the group of that node; None if it has no such
            label. See `edl.model.node_groups`.
        owned: the pod as part of that job; None until `as_owned` is called.
    """

    source: PodObject
    foreign: Pod
    owners: tuple[OwnerReference, ...]
    labelled: tuple[JobKey, Role, int | None] | None
    declared: PodShape | None = None
    running_request: RunningRequest | None = None
    asks: tuple[JobKey, str] | None = None
    owned: Pod | None = None
    by_name: bool = False

    @property
    def is_orphan(self) -> bool:
        """True for a pod that a TrainingJob owns and that has no node.

        If that job no longer exists, the pod needs no capacity: garbage collection deletes it.
        """
        pod = self.foreign
        return not pod.node and not pod.nominated and any(o.kind == TRAINING_JOB for o in self.owners)

    def as_owned(self) -> Pod:
        """Return the pod as part of the job that it names."""
        if self.owned is None:
            if self.labelled is None:
                return self.foreign
            job, role, index = self.labelled
            shape = self.foreign.shape if self.declared is None or role is not Role.TRAINER else self.declared
            lent = shape.request[CPU] - self.foreign.shape.request[CPU]
            self.owned = replace(
                self.foreign,
                job=job,
                role=role,
                index=index,
                shape=shape,
                lent_cpu_milli=max(0, lent),
                running_request=self.running_request if role is Role.TRAINER else None,
            )
        return self.owned


def read_pod(source: PodObject, shape: PodShape, priority: int, now_s: float, limits: Resources) -> KnownPod:
    """Translate a pod.

    Args:
        source: the object.
        shape: its requests and placement.
        priority: the resolved priority.
        now_s: the creation time of a pod without one, in seconds since the epoch.
        limits: the most that it may use.
    """
    metadata = source.metadata or PodMetadata()
    spec, status = source.spec or PodSpec(), source.status or PodStatus()
    created_s = seconds_of(metadata.creation_timestamp)
    annotations = metadata.annotations
    namespace, name = metadata.namespace or DEFAULT_NAMESPACE, metadata.name or ""
    labelled = _labelled(metadata, namespace, name)
    containers = read_containers(spec, status, _main_name(metadata, labelled))
    rejection = _rejection(status, containers)
    scheduled = _condition(status, "PodScheduled")
    owners = tuple(metadata.owner_references or ())
    pod = Pod(
        namespace=namespace,
        name=name,
        uid=metadata.uid or "",
        shape=shape,
        phase=_PHASES.get(status.phase or "", PodPhase.PENDING),
        node=spec.node_name or "",
        nominated="" if spec.node_name else status.nominated_node_name or "",
        planned=text(annotations.planned_node) if annotations else "",
        pinned=bool(pinned_node(metadata)),
        priority=priority,
        created_s=now_s if created_s is None else created_s,
        started_s=seconds_of(status.start_time) if containers.started_s is None else containers.started_s,
        ready=_is_true(_condition(status, "Ready")),
        gated=bool(spec.scheduling_gates),
        tried=_was_tried(scheduled),
        answered_s=seconds_of(scheduled.last_transition_time) if scheduled else None,
        terminating=metadata.deletion_timestamp is not None,
        daemon=any(o.kind == "DaemonSet" for o in owners),
        exit_code=containers.exit_code,
        ended_in=containers.ended_in,
        begun=containers.begun,
        intent=intent_of(source),
        disruption=_disruption(status) or ("" if rejection else _ended_by_kubelet(status)),
        rejection=rejection,
        ip=status.pod_ip or "",
        container_message=containers.message or _missing_claim(spec, scheduled),
        journal=text(annotations.journal) if annotations else "",
        safe_to_evict=_is_safe(text(annotations.safe_to_evict)) if annotations else None,
        scheduler=_scheduler(spec),
        limits=limits,
        grace_s=spec.termination_grace_period_seconds or 0,
        ends_by_s=seconds_of(metadata.deletion_timestamp),
        may_preempt=spec.preemption_policy is not PreemptionPolicy.NEVER,
        blocked="" if spec.node_name else no_eviction_helps(scheduled),
        unscheduled=""
        if spec.node_name or not (_was_tried(scheduled) or _has_met_error(scheduled))
        else refusal_of(scheduled),
        owner=next((o.uid or "" for o in owners if o.controller), ""),
        gang="" if labelled is not None else gang_of(source),
        held=metadata.deletion_timestamp is not None and metadata.deletion_grace_period_seconds == 0,
    )
    by_name = labelled is not None and labelled[0].name.startswith(_BY_NAME)
    return KnownPod(source, pod, owners, labelled, asks=_asks(metadata, namespace), by_name=by_name)


def _main_name(metadata: PodMetadata, labelled: tuple[JobKey, Role, int | None] | None) -> str:
    """The name of the main container: that of the role in a pod of a TrainingJob, else what an annotation says."""
    if labelled is not None and labelled[0].kind is WorkloadKind.TRAINING_JOB:
        return labelled[1].value
    return text(metadata.annotations.default_container) if metadata.annotations else ""


def pinned_node(metadata: PodMetadata) -> str:
    """Return the node that edl pinned the pod to; empty if the pod is not pinned or names no job."""
    annotations = metadata.annotations
    if annotations is None or not names_a_job(metadata):
        return ""
    return text(annotations.planned_node) if text(annotations.pinned) == "true" else ""


def _labelled(metadata: PodMetadata, namespace: str, pod: str) -> tuple[JobKey, Role, int | None] | None:
    owner, labels = owning_job(metadata), metadata.known_labels
    if owner is not None and (found := _named_by_edl(owner.name or "", pod)):
        return JobKey(namespace, owner.name or ""), *found
    if not (name := labels.job):
        return _owned_by_workload(metadata, namespace)
    role = _role(labels, name, pod)
    if role is None:
        return None
    return JobKey(namespace, name), role, _index(labels, pod)


def _named_by_edl(job: str, pod: str) -> tuple[Role, int] | None:
    """Parse role and index from a pod name that edl has given; None for any other name."""
    start, _, number = pod.rpartition("-")
    role = next((role for role in Role if start == f"{job}-{role.value}"), None)
    return (role, int(number)) if role is not None and _IS_INDEX.fullmatch(number) else None


def _asks(metadata: PodMetadata, namespace: str) -> tuple[JobKey, str] | None:
    """Return the job for which a request pod requests a node, and the group; None for any other pod."""
    labels = metadata.known_labels
    if not (name := labels.requests_node_for) or not metadata.owner_references:
        return None
    return JobKey(namespace, name), labels.node_group


def _owned_by_workload(metadata: PodMetadata, namespace: str) -> tuple[JobKey, Role, int | None] | None:
    """Return the workload whose controller made the pod; None if edl does not resize such workloads."""
    for owner in metadata.owner_references or ():
        kind = WORKLOAD_OWNERS.get((owner.api_version or "", owner.kind or ""))
        if kind is not None and owner.name:
            return JobKey.of(kind, namespace, owner.name), Role.TRAINER, None
    if (member := group_member(metadata)) is not None:
        return JobKey.of(WorkloadKind.LEADER_WORKER_SET, namespace, member.set_name), Role.TRAINER, None
    return None


def _role(labels: PodLabels, job: str, name: str) -> Role | None:
    """Return the role by the present label, else by the original project's labels, else by the pod's name."""
    if (value := labels.role) in set(Role):
        return Role(value)
    original = {Role.TRAINER: labels.trainer_of, Role.PSERVER: labels.pserver_of, Role.MASTER: labels.master_of}
    for role, owner in original.items():
        if owner == job:
            return role
    return next((role for role in Role if name.startswith(f"{job}-{role.value}-")), None)


def _index(labels: PodLabels, name: str) -> int | None:
    for number in (labels.index, name.rpartition("-")[2]):
        if _IS_INDEX.fullmatch(number):
            return int(number)
    return None


def _scheduler(spec: PodSpec) -> str:
    return "" if spec.scheduler_name in {None, "default-scheduler"} else spec.scheduler_name or ""


def _is_safe(annotation: str) -> bool | None:
    """Return whether the owner allows evictions; None if the annotation is absent. Any value but `true` is a no."""
    return None if not annotation else annotation.lower() == "true"


def _condition(status: PodStatus, kind: str) -> PodConditionObject | None:
    for condition in status.conditions or ():
        if condition.type == kind:
            return condition
    return None


def _is_true(condition: ConditionObject | None) -> bool:
    return condition is not None and condition.status == "True"


def _was_tried(scheduled: ConditionObject | None) -> bool:
    return scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"


def _has_met_error(scheduled: ConditionObject | None) -> bool:
    """True if kube-scheduler met an error, perhaps behind the node that it found for a pod."""
    return scheduled is not None and scheduled.status == "False" and scheduled.reason == "SchedulerError"


def _disruption(status: PodStatus) -> str:
    target = _condition(status, "DisruptionTarget")
    return (target.reason or "") if target is not None and target.status == "True" else ""


def _ended_by_kubelet(status: PodStatus) -> str:
    reason = status.reason or ""
    if status.phase == PodPhase.SUCCEEDED.value:
        return reason if reason in _AT_SHUTDOWN else ""
    if is_over_its_limit(status):
        return ""
    is_rejected = (
        (status.message or "").startswith(_REJECTED) or reason in _NOT_ADMITTED or reason.startswith("OutOf")
    )
    is_kubelets = reason in _ENDED_BY_KUBELET or is_rejected
    return reason if is_kubelets and status.phase == PodPhase.FAILED.value else ""


def _rejection(status: PodStatus, containers: Containers) -> str:
    """The kubelet's message about a pod that failed before any container ran; empty for any other pod."""
    if status.phase != PodPhase.FAILED.value or containers.any_ran or _disruption(status):
        return ""
    said = " ".join(printable((status.message or "").replace("\r", "\n")).split())
    words = (printable(status.reason or ""), shortened(said, _MOST_OF_REJECTION))
    return ": ".join(word for word in words if word) or "none of its containers ran"


def _missing_claim(spec: PodSpec, scheduled: PodConditionObject | None) -> str:
    """Return the name of the volume claim whose absence makes kube-scheduler reject the pod.

    Empty if there is none.
    """
    if spec.node_name or scheduled is None or not _was_tried(scheduled):
        return ""
    found = MISSING_CLAIM.search(scheduled.message or "")
    return f"{_CLAIM.format(name=printable(found[1]))}; {REMEDY}" if found else ""
