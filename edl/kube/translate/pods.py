"""Raw pods become core pods: what they take, how they fare, and whose they are.

A pod is a job's own by label and namespace, and by its owner's UID where it has an owner: a pod of a job that was
deleted and created again under the same name is foreign to the new one, and so is a user's pod that merely carries
our label. A foreign pod holds its room all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edl.kube.translate.objects import (
    ConditionObject,
    ContainerState,
    ContainerStatus,
    Metadata,
    OwnerReference,
    PodLabels,
    PodMetadata,
    PodObject,
    PodSpec,
    PodStatus,
    TerminatedState,
    text,
)
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape
from edl.model.times import seconds_of

DEFAULT_NAMESPACE = "default"

_PHASES = {phase.value: phase for phase in PodPhase} | {"Unknown": PodPhase.RUNNING}

_BACK = "suspend the job to change its spec"
_CANNOT_START = {
    **dict.fromkeys(
        ("ErrImagePull", "ImagePullBackOff"),
        f"its image cannot be pulled; look at its name and tag, at imagePullSecrets and at the registry; {_BACK}",
    ),
    "ErrImageNeverPull": f"its image is not on the node, and imagePullPolicy is Never; {_BACK}",
    "InvalidImageName": f"its image's name is not valid; {_BACK}",
    "CreateContainerConfigError": f"a Secret, ConfigMap or user that it names is not there or not fit; {_BACK}",
    "CreateContainerError": f"the container runtime refuses it; kubectl describe pod has its words; {_BACK}",
}
"""What a kubelet says of a container that waits without an end -> what that means, and what to do."""

_OUT_OF_MEMORY = "OOMKilled: it took more memory than its limit; raise limits.memory of its role, or let it take less"


@dataclass(slots=True)
class KnownPod:
    """A translated pod.

    Attributes:
        source: what it was translated from.
        foreign: the pod as nobody's.
        owners: whom the pod names as its owners.
        claim: the job that its label names, its role and its index there; None where there is no such label, or
            where the pod is no pod that we make.
        owned: the pod as that job's, once it was asked for.
    """

    source: PodObject
    foreign: Pod
    owners: tuple[OwnerReference, ...]
    claim: tuple[JobKey, Role, int | None] | None
    owned: Pod | None = None

    @property
    def is_stray(self) -> bool:
        """True for a pod that some TrainingJob owns and that holds no room: it is collected with its owner."""
        pod = self.foreign
        return not pod.node and not pod.nominated and any(o.kind == "TrainingJob" for o in self.owners)

    def as_owned(self) -> Pod:
        """The pod as the job's that it claims."""
        if self.owned is None:
            if self.claim is None:
                return self.foreign
            job, role, index = self.claim
            self.owned = replace(self.foreign, job=job, role=role, index=index)
        return self.owned


def read_pod(source: PodObject, shape: PodShape, priority: int, now_s: float) -> KnownPod:
    """Translate a pod whose shape and priority are known; `now_s` stands in for a creation time that is missing."""
    metadata = source.metadata or PodMetadata()
    spec, status = source.spec or PodSpec(), source.status or PodStatus()
    created_s = seconds_of(metadata.creation_timestamp)
    found = _main_status(spec, status)
    main = found.state if found else None
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
        exit_code=main.terminated.exit_code if main and main.terminated else None,
        intent=text(annotations.intent) if annotations else "",
        disruption=_disruption(_condition(status, "DisruptionTarget")),
        ip=status.pod_ip or "",
        container_message=_last_words(found),
        journal=text(annotations.journal) if annotations else "",
        safe_to_evict=_is_safe(text(annotations.safe_to_evict)) if annotations else None,
    )
    return KnownPod(source, pod, owners, _claim(metadata, pod))


def pinned_node(metadata: PodMetadata) -> str:
    """The only node that a pod of ours may go to by our own demand; empty where it is free, or not labelled ours."""
    notes, labels = metadata.annotations, metadata.labels
    is_ours = labels is not None and bool(text(labels.job))
    return text(notes.planned_node) if is_ours and notes is not None and text(notes.pinned) == "true" else ""


def is_owned_by(owners: Iterable[OwnerReference], job: Metadata) -> bool:
    """True where a labelled pod's owners do not say otherwise: by UID, or by name where one of them has no UID."""
    owners = tuple(owners)
    if not owners:
        return True
    return any(
        o.uid == job.uid if o.uid and job.uid else o.kind == "TrainingJob" and o.name == job.name for o in owners
    )


def _claim(metadata: PodMetadata, pod: Pod) -> tuple[JobKey, Role, int | None] | None:
    labels = metadata.labels
    if labels is None or not (name := text(labels.job)):
        return None
    role = _role(labels, name, pod.name)
    if role is None:
        return None
    return JobKey(pod.namespace, name), role, _index(labels, pod.name)


def _role(labels: PodLabels, job: str, name: str) -> Role | None:
    """By label, else by the labels of the original, else by the pod's name."""
    if (said := text(labels.role)) in set(Role):
        return Role(said)
    olden = {Role.TRAINER: labels.trainer_of, Role.PSERVER: labels.pserver_of, Role.MASTER: labels.master_of}
    for role, owner in olden.items():
        if text(owner) == job:
            return role
    return next((role for role in Role if name.startswith(f"{job}-{role.value}-")), None)


def _index(labels: PodLabels, name: str) -> int | None:
    for said in (text(labels.index), name.rpartition("-")[2]):
        if said.isascii() and said.isdigit() and len(said) <= 9:
            return int(said)
    return None


def _is_safe(said: str) -> bool | None:
    """What an owner says of evictions; what cannot be understood is taken for a no."""
    return None if not said else said.lower() == "true"


def _condition(status: PodStatus, kind: str) -> ConditionObject | None:
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
    """That of the first container of the spec: what stands beside it only helps it."""
    if not status.container_statuses:
        return None
    main = spec.containers[0].name if spec.containers else None
    return next((c for c in status.container_statuses if c.name == main), status.container_statuses[0])


def _last_words(container: ContainerStatus | None) -> str:
    """The termination message of its present end, else why it cannot start, else of the end before this start."""
    states = [s for s in (container.state, container.last_state) if s] if container else []
    stuck = next((_CANNOT_START.get(s.waiting.reason or "", "") for s in states if s.waiting), "")
    return stuck or next((said for s in states if s.terminated and (said := _end_of(s.terminated))), "")


def _end_of(ended: TerminatedState) -> str:
    """Its termination message, and behind it what the kernel did where the container's memory was at its limit."""
    said = ended.message or ""
    if ended.reason != "OOMKilled":
        return said
    return f"{said.rstrip()}\n{_OUT_OF_MEMORY}" if said.strip() else _OUT_OF_MEMORY


def _started_s(main: ContainerState | None, status: PodStatus) -> float | None:
    """Since when its main container runs or ran; else since when the kubelet has the pod."""
    state = (main.running or main.terminated) if main else None
    started_s = seconds_of(state.started_at) if state else None
    return seconds_of(status.start_time) if started_s is None else started_s
