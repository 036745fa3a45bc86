"""Pods become `Pod` values: their resources, their state, and the job that they belong to.

A pod belongs to the job that its label names in its namespace, and if it has an owner, the owner's UID must match
too. So a pod of a deleted job does not belong to a new job of the same name, and neither does a user's pod that
merely has the label. Such a foreign pod still occupies its node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from edl.kube.translate.intent import intent_of
from edl.kube.translate.objects import (
    ConditionObject,
    ContainerState,
    ContainerStatus,
    ObjectMetadata,
    OwnerReference,
    PodConditionObject,
    PodLabels,
    PodMetadata,
    PodObject,
    PodSpec,
    PodStatus,
    PreemptionPolicy,
    TerminatedState,
    WaitingState,
    text,
)
from edl.kube.translate.scheduling import MISSING_CLAIM, no_eviction_helps
from edl.model.lending import RunningRequest
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, PodShape, Resources
from edl.model.times import seconds_of
from edl.printable import printable, shortened

DEFAULT_NAMESPACE = "default"

WORKLOAD_OWNERS = {
    ("batch/v1", "Job"): WorkloadKind.BATCH_JOB,
    ("batch.volcano.sh/v1alpha1", "Job"): WorkloadKind.VOLCANO_JOB,
    ("ray.io/v1", "RayCluster"): WorkloadKind.RAY_CLUSTER,
}
"""(apiVersion, kind) of the owners of pods that edl may resize, besides TrainingJobs; see `edl.kube.workloads`."""

_OWNING_KINDS = {"TrainingJob", *(kind for _, kind in WORKLOAD_OWNERS)}

_PHASES = {phase.value: phase for phase in PodPhase} | {"Unknown": PodPhase.RUNNING}

_REMEDY = "to change the spec, suspend the job first"
_NOT_PULLED = (
    "image {image} cannot be pulled{why}; check the image name and tag, imagePullSecrets and the registry",
    re.compile(r'^Back-off pulling image "[^"]*"(: )?(ErrImagePull: )?'),
)
_CANNOT_START = {
    "ErrImagePull": _NOT_PULLED,
    "ImagePullBackOff": _NOT_PULLED,
    "ErrImageNeverPull": ("image {image} is not on the node, and imagePullPolicy is Never", re.compile(".*")),
    "InvalidImageName": ("image name {image} is not valid{why}", re.compile("")),
    "CreateContainerConfigError": (
        "it refers to a Secret, ConfigMap or user that does not exist or is not valid{why}",
        re.compile(""),
    ),
    "CreateContainerError": ("the container runtime cannot create its container{why}", re.compile("")),
}
"""The reason of a container that waits and never starts -> what it means, what of the kubelet's text is left out.

The kubelet puts `Back-off` before its text and takes it away again: the message must not change each time.
"""
_CLAIM = "its PersistentVolumeClaim {name} does not exist; create it in the namespace of the job"
_MOST_OF_KUBELET = 200

_OUT_OF_MEMORY = "OOMKilled: it used more memory than its limit; raise limits.memory of its role, or use less memory"


@dataclass(slots=True)
class KnownPod:
    """A translated pod.

    Attributes:
        source: the object that it was translated from.
        foreign: the pod without a job.
        owners: its owner references.
        labelled: the job that its label names, its role and its index; None if it has no such label or no role.
        declared: the shape with the CPU that its trainer declares, if it lends some; None if it does not.
        running_request: of its trainer, if its kubelet can change it.
        asks: the job that its label says it stands for a node for, and the group of that node; None if it has no such
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

    @property
    def is_orphan(self) -> bool:
        """True for a pod that a TrainingJob owns and that has no node.

        If that job no longer exists, the pod needs no capacity: garbage collection deletes it.
        """
        pod = self.foreign
        return not pod.node and not pod.nominated and any(o.kind == "TrainingJob" for o in self.owners)

    def as_owned(self) -> Pod:
        """Return the pod as part of the job that its label names."""
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
    container = _main_status(spec, status)
    main = container.state if container else None
    annotations = metadata.annotations
    scheduled = _condition(status, "PodScheduled")
    owners = tuple(metadata.owner_references or ())
    pod = Pod(
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name or "",
        uid=metadata.uid or "",
        shape=shape,
        phase=_PHASES.get(status.phase or "", PodPhase.PENDING),
        node=spec.node_name or "",
        nominated="" if spec.node_name else status.nominated_node_name or "",
        planned=text(annotations.planned_node) if annotations else "",
        pinned=bool(pinned_node(metadata)),
        priority=priority,
        created_s=now_s if created_s is None else created_s,
        started_s=_started_s(main, status),
        ready=_is_true(_condition(status, "Ready")),
        gated=bool(spec.scheduling_gates),
        tried=_was_tried(scheduled),
        answered_s=seconds_of(scheduled.last_transition_time) if scheduled else None,
        terminating=metadata.deletion_timestamp is not None,
        daemon=any(o.kind == "DaemonSet" for o in owners),
        exit_code=_exit_code(container),
        intent=intent_of(source),
        disruption=_disruption(_condition(status, "DisruptionTarget")),
        ip=status.pod_ip or "",
        container_message=_why_stopped(container) or _missing_claim(spec, scheduled),
        journal=text(annotations.journal) if annotations else "",
        safe_to_evict=_is_safe(text(annotations.safe_to_evict)) if annotations else None,
        scheduler=_scheduler(spec),
        limits=limits,
        grace_s=spec.termination_grace_period_seconds or 0,
        may_preempt=spec.preemption_policy is not PreemptionPolicy.NEVER,
        blocked="" if spec.node_name else no_eviction_helps(scheduled),
    )
    return KnownPod(source, pod, owners, _labelled(metadata, pod), asks=_asks(metadata, pod))


def pinned_node(metadata: PodMetadata) -> str:
    """Return the node that edl pinned the pod to; empty if the pod is not pinned or has no job label."""
    annotations, labels = metadata.annotations, metadata.labels
    if annotations is None or labels is None or not text(labels.job):
        return ""
    return text(annotations.planned_node) if text(annotations.pinned) == "true" else ""


def is_owned_by(owners: Iterable[OwnerReference], job: ObjectMetadata) -> bool:
    """Return True if a labelled pod has no owner, or the job is one: by UID, or by name if one side has no UID."""
    owners = tuple(owners)
    if not owners:
        return True
    return any(
        o.uid == job.uid if o.uid and job.uid else o.kind in _OWNING_KINDS and o.name == job.name for o in owners
    )


def _labelled(metadata: PodMetadata, pod: Pod) -> tuple[JobKey, Role, int | None] | None:
    labels = metadata.labels
    if labels is None or not (name := text(labels.job)):
        return _owned_by_workload(metadata, pod)
    role = _role(labels, name, pod.name)
    if role is None:
        return None
    return JobKey(pod.namespace, name), role, _index(labels, pod.name)


def _asks(metadata: PodMetadata, pod: Pod) -> tuple[JobKey, str] | None:
    """Return the job that a request pod stands for a node for, and the group; None for any other pod."""
    labels = metadata.labels
    if labels is None or not (name := text(labels.requests_node_for)) or not metadata.owner_references:
        return None
    return JobKey(pod.namespace, name), text(labels.node_group)


def _owned_by_workload(metadata: PodMetadata, pod: Pod) -> tuple[JobKey, Role, int | None] | None:
    """Return the workload whose controller made the pod; None if edl does not resize such workloads."""
    for owner in metadata.owner_references or ():
        kind = WORKLOAD_OWNERS.get((owner.api_version or "", owner.kind or ""))
        if kind is not None and owner.name:
            return JobKey.of(kind, pod.namespace, owner.name), Role.TRAINER, None
    return None


def _role(labels: PodLabels, job: str, name: str) -> Role | None:
    """Return the role by the present label, else by the original project's labels, else by the pod's name."""
    if (value := text(labels.role)) in set(Role):
        return Role(value)
    original = {Role.TRAINER: labels.trainer_of, Role.PSERVER: labels.pserver_of, Role.MASTER: labels.master_of}
    for role, owner in original.items():
        if text(owner) == job:
            return role
    return next((role for role in Role if name.startswith(f"{job}-{role.value}-")), None)


def _index(labels: PodLabels, name: str) -> int | None:
    for number in (text(labels.index), name.rpartition("-")[2]):
        if number.isascii() and number.isdigit() and len(number) <= 9:
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


def _disruption(target: ConditionObject | None) -> str:
    return (target.reason or "") if target is not None and target.status == "True" else ""


def _main_status(spec: PodSpec, status: PodStatus) -> ContainerStatus | None:
    """Return the status of the first container of the spec; the others are helpers."""
    if not status.container_statuses:
        return None
    main = spec.containers[0].name if spec.containers else None
    return next((c for c in status.container_statuses if c.name == main), status.container_statuses[0])


def _why_stopped(container: ContainerStatus | None) -> str:
    """Return why the container cannot start, else the message of its last termination; empty if there is neither."""
    states = [s for s in (container.state, container.last_state) if s] if container else []
    waiting = next((_why_not_started(container, s.waiting) for s in states if s.waiting), "") if container else ""
    return waiting or next((m for s in states if s.terminated and (m := _termination_message(s.terminated))), "")


def _missing_claim(spec: PodSpec, scheduled: PodConditionObject | None) -> str:
    """Return which volume claim does not exist, if kube-scheduler refuses the pod for it; empty if there is none."""
    if spec.node_name or scheduled is None or not _was_tried(scheduled):
        return ""
    found = MISSING_CLAIM.search(scheduled.message or "")
    return f"{_CLAIM.format(name=printable(found[1]))}; {_REMEDY}" if found else ""


def _why_not_started(container: ContainerStatus, waiting: WaitingState) -> str:
    """Return why a container never starts, with the kubelet's text on one line; empty if it may still start."""
    if waiting.reason not in _CANNOT_START:
        return ""
    meaning, left_out = _CANNOT_START[waiting.reason]
    said = " ".join(left_out.sub("", printable((waiting.message or "").replace("\r", "\n"))).split())
    why = f" ({shortened(said, _MOST_OF_KUBELET)})" if said else ""
    return f"{meaning.format(image=printable(container.image or 'of the container'), why=why)}; {_REMEDY}"


def _exit_code(container: ContainerStatus | None) -> int | None:
    """Return the exit code of the current or the previous end."""
    states = [s for s in (container.state, container.last_state) if s] if container else []
    if any(s.waiting and s.waiting.reason in _CANNOT_START for s in states):
        return None
    return next((s.terminated.exit_code for s in states if s.terminated), None)


def _termination_message(ended: TerminatedState) -> str:
    """Return the termination message; if the container reached its memory limit, a line about that follows."""
    message = printable((ended.message or "").replace("\r", "\n"))  # a progress bar is many lines, the last counts
    if ended.reason != "OOMKilled":
        return message
    return f"{message.rstrip()}\n{_OUT_OF_MEMORY}" if message.strip() else _OUT_OF_MEMORY


def _started_s(main: ContainerState | None, status: PodStatus) -> float | None:
    """Return when the main container started, else when the kubelet took the pod; seconds since the epoch."""
    state = (main.running or main.terminated) if main else None
    started_s = seconds_of(state.started_at) if state else None
    return seconds_of(status.start_time) if started_s is None else started_s
