"""Pods, nodes and other objects as the API server sends them: only the fields that a decision or a log line reads.

The official client's models cost 1,403 us and 110 KiB per pod. These cost about 20 us and 1 KiB, because decoding
skips every other field (managedFields, environment, probes...). Every field can be absent or null. This module
does not interpret: quantities stay text until `shapes` parses them. Containers are in `container_objects`, affinity
and volumes in `rule_objects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

import msgspec

from edl.kube.translate.container_objects import ContainerObject, ContainerStatus, ResourceAmounts
from edl.kube.translate.rule_objects import AffinityObject, PodDeviceClaimObject, SpreadObject, VolumeObject
from edl.kube.translate.scalars import ApiStruct, Scalar, text
from edl.model.pod_limits import (
    MAX_LABELS,
    MAX_READ_CLAIMS,
    MAX_READ_TOLERATIONS,
    MAX_READ_VOLUMES,
    MAX_RULES,
    check_counts,
)

TRAINING_JOB_API = "paddlepaddle.org/v1"


class OwnerReference(ApiStruct):
    """An owner of an object."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


ORPHAN = "orphan"
"""The finalizer of an object whose dependents stay when it is deleted."""


class ObjectMetadata(ApiStruct):
    """The metadata of any object; times are RFC 3339 text."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def orphans_dependents(self) -> bool:
        """True for an object that is deleted with `--cascade=orphan`: what it owns stays."""
        return self.deletion_timestamp is not None and ORPHAN in (self.finalizers or ())


class PodLabels:
    """The labels that assign a pod to a job: in the present form, in that of the original project, and of others."""

    __slots__ = ("_labels",)

    def __init__(self, labels: Mapping[str, Scalar] | None) -> None:
        self._labels = labels or {}

    def _text(self, name: str) -> str:
        return text(self._labels.get(name))

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._text("paddlepaddle.org/job")

    @property
    def role(self) -> str:
        """The role in the job."""
        return self._text("paddlepaddle.org/role")

    @property
    def index(self) -> str:
        """The number within the role."""
        return self._text("paddlepaddle.org/index")

    @property
    def trainer_of(self) -> str:
        """The job of a trainer, in the original form."""
        return self._text("paddle-job")

    @property
    def pserver_of(self) -> str:
        """The job of a pserver, in the original form."""
        return self._text("paddle-job-pserver")

    @property
    def master_of(self) -> str:
        """The job of a master, in the original form."""
        return self._text("paddle-job-master")

    @property
    def requests_node_for(self) -> str:
        """The job for which a request pod asks for a node."""
        return self._text("paddlepaddle.org/requests-node-for")

    @property
    def node_group(self) -> str:
        """The node group that a request pod asks for."""
        return self._text("paddlepaddle.org/node-group")

    @property
    def ray_group(self) -> str:
        """The group of a pod of KubeRay."""
        return self._text("ray.io/group")

    @property
    def leader_worker_set(self) -> str:
        """The LeaderWorkerSet of a pod."""
        return self._text("leaderworkerset.sigs.k8s.io/name")


class PodAnnotations(ApiStruct):
    """The annotations that edl writes on its pods, those of other controllers, and the one that allows evictions."""

    planned_node: Scalar = msgspec.field(default=None, name="paddlepaddle.org/planned-node")
    pinned: Scalar = msgspec.field(default=None, name="paddlepaddle.org/pinned")
    declared_cpu: Scalar = msgspec.field(default=None, name="paddlepaddle.org/declared-cpu")
    requests: Scalar = msgspec.field(default=None, name="paddlepaddle.org/requests")
    intent: Scalar = msgspec.field(default=None, name="paddlepaddle.org/intent")
    journal: Scalar = msgspec.field(default=None, name="paddlepaddle.org/journal")
    safe_to_evict: Scalar = msgspec.field(default=None, name="cluster-autoscaler.kubernetes.io/safe-to-evict")
    completion_index: Scalar = msgspec.field(default=None, name="batch.kubernetes.io/job-completion-index")
    default_container: Scalar = msgspec.field(default=None, name="kubectl.kubernetes.io/default-container")
    volcano_task: Scalar = msgspec.field(default=None, name="volcano.sh/task-spec")
    group_name: Scalar = msgspec.field(default=None, name="scheduling.k8s.io/group-name")
    volcano_group_name: Scalar = msgspec.field(default=None, name="scheduling.volcano.sh/group-name")
    kai_group_name: Scalar = msgspec.field(default=None, name="pod-group-name")
    koordinator_gang: Scalar = msgspec.field(default=None, name="gang.scheduling.koordinator.sh/name")
    koordinator_minimum: Scalar = msgspec.field(default=None, name="gang.scheduling.koordinator.sh/min-available")


class PodMetadata(ObjectMetadata):
    """Metadata of a pod: rules between pods read any label."""

    labels: dict[str, Scalar] | None = None
    annotations: PodAnnotations | None = None

    def __post_init__(self) -> None:
        """Refuse more labels and owners than edl reads."""
        check_counts(
            (len(self.labels or ()), MAX_LABELS, "labels"), (len(self.owner_references or ()), MAX_LABELS, "owners")
        )

    @property
    def known_labels(self) -> PodLabels:
        """The labels that edl knows."""
        return PodLabels(self.labels)


class NodeMetadata(ObjectMetadata):
    """Metadata of a node: its labels decide which pods may run there."""

    labels: dict[str, Scalar] | None = None


class TaintObject(ApiStruct):
    """A taint of a node."""

    key: str | None = None
    value: Scalar = None
    effect: str | None = None


class TolerationObject(ApiStruct):
    """A toleration of a pod; the operator defaults to Equal."""

    key: str | None = None
    operator: str | None = None
    value: Scalar = None
    effect: str | None = None
    toleration_seconds: Scalar = None


class PreemptionPolicy(Enum):
    """Whether kube-scheduler may evict other pods for a pod; an enum, because each value exists once in memory."""

    NEVER = "Never"
    LOWER_PRIORITY = "PreemptLowerPriority"

    @classmethod
    def _missing_(cls, _: object) -> PreemptionPolicy:
        """Take any other value as not Never."""
        return cls.LOWER_PRIORITY


class SchedulingGroupObject(ApiStruct):
    """The PodGroup of Kubernetes with which kube-scheduler starts a pod."""

    pod_group_name: str | None = None


class PodSpec(ApiStruct):
    """The spec of a pod or of a pod template."""

    node_name: str | None = None
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    overhead: dict[str, Scalar] | None = None
    resources: ResourceAmounts | None = None
    node_selector: dict[str, Scalar] | None = None
    affinity: AffinityObject | None = None
    tolerations: list[TolerationObject] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    host_network: bool | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    preemption_policy: PreemptionPolicy | None = None
    topology_spread_constraints: list[SpreadObject] | None = None
    volumes: list[VolumeObject] | None = None
    resource_claims: list[PodDeviceClaimObject] | None = None
    scheduling_group: SchedulingGroupObject | None = None

    def __post_init__(self) -> None:
        """Reject a spec with more entries than edl reads."""
        check_counts(
            (len(self.node_selector or ()), MAX_LABELS, "labels of the node selector"),
            (len(self.tolerations or ()), MAX_READ_TOLERATIONS, "tolerations"),
            (len(self.topology_spread_constraints or ()), MAX_RULES, "topology spread constraints"),
            (len(self.volumes or ()), MAX_READ_VOLUMES, "volumes"),
            (len(self.resource_claims or ()), MAX_READ_CLAIMS, "claims on devices"),
            (len(self.scheduling_gates or ()), MAX_READ_CLAIMS, "scheduling gates"),
        )


class ConditionObject(ApiStruct):
    """One condition of a pod or a node."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    last_transition_time: str | None = None


class PodConditionObject(ConditionObject):
    """One condition of a pod, with its text: kube-scheduler says only there which claim does not exist."""

    message: str | None = None


class PodStatus(ApiStruct):
    """The status of a pod, from the kubelet and kube-scheduler.

    `resources` and `allocated_resources` are what the kubelet has granted at the level of the pod.
    """

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[PodConditionObject] | None = None
    nominated_node_name: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    start_time: str | None = None
    qos_class: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceAmounts | None = None
    allocated_resources: dict[str, Scalar] | None = None


class PodObject(ApiStruct):
    """A v1 Pod."""

    metadata: PodMetadata | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeSpec(ApiStruct):
    """The spec of a node."""

    unschedulable: bool | None = None
    taints: list[TaintObject] | None = None


class NodeStatus(ApiStruct):
    """The status of a node, from its kubelet."""

    allocatable: dict[str, Scalar] | None = None
    capacity: dict[str, Scalar] | None = None
    conditions: list[ConditionObject] | None = None


class NodeObject(ApiStruct):
    """A v1 Node."""

    metadata: NodeMetadata | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class TemplateAnnotations(ApiStruct):
    """The annotation of a template with which Kueue places so many pods together."""

    slice_size: Scalar = msgspec.field(default=None, name="kueue.x-k8s.io/podset-slice-size")


class TemplateMetadata(ApiStruct):
    """Metadata of a template: rules between pods read any label."""

    labels: dict[str, Scalar] | None = None
    annotations: TemplateAnnotations | None = None

    def __post_init__(self) -> None:
        """Refuse more labels than edl reads."""
        check_counts((len(self.labels or ()), MAX_LABELS, "labels"))


class PodTemplateObject(ApiStruct):
    """The template of a workload's pods."""

    metadata: TemplateMetadata | None = None
    spec: PodSpec | None = None


class DaemonSetSpec(ApiStruct):
    """The spec of a DaemonSet."""

    template: PodTemplateObject | None = None


class DaemonSetObject(ApiStruct):
    """An apps/v1 DaemonSet."""

    metadata: ObjectMetadata | None = None
    spec: DaemonSetSpec | None = None


class PriorityClassObject(ApiStruct):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMetadata | None = None
    value: int | None = None
    global_default: bool | None = None
    preemption_policy: PreemptionPolicy | None = None


class ScopeObject(ApiStruct):
    """One expression of a scope selector."""

    scope_name: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class ScopeSelector(ApiStruct):
    """Which pods a ResourceQuota counts."""

    match_expressions: list[ScopeObject] | None = None


class ResourceQuotaSpec(ApiStruct):
    """The spec of a ResourceQuota."""

    hard: dict[str, Scalar] | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(ApiStruct):
    """The status of a ResourceQuota, which admission decides by."""

    used: dict[str, Scalar] | None = None


class ResourceQuotaObject(ApiStruct):
    """A v1 ResourceQuota."""

    metadata: ObjectMetadata | None = None
    spec: ResourceQuotaSpec | None = None
    status: ResourceQuotaStatus | None = None


class JobObject(ApiStruct):
    """A TrainingJob: its metadata decoded, and the whole object raw for the parser of `edl.api`.

    Attributes:
        body: the whole object without managedFields; without its spec if it is too large.
        problem: why it is not read; empty if it is.
    """

    metadata: ObjectMetadata | None = None
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    problem: str = ""


class HasMetadata(Protocol):
    """Any object of this module."""

    @property
    def metadata(self) -> ObjectMetadata | None:
        """Name, namespace, uid and resourceVersion."""
