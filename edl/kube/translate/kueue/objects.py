"""The objects of Kueue as the API server sends them (v1beta2): structs with only the fields that edl reads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import (
    ConditionObject,
    ObjectMetadata,
    PodTemplateObject,
    TaintObject,
    TolerationObject,
)
from edl.kube.translate.rule_objects import LabelSelectorObject
from edl.kube.translate.scalars import ApiStruct, Scalar

API = "kueue.x-k8s.io/v1beta2"
INDEX = "paddlepaddle.org/workload-index"
"""An annotation of a Workload that edl has made: 0 for the base of its job, a higher number for more trainers."""
DIGEST = "paddlepaddle.org/workload-digest"
"""An annotation of such a Workload: what edl asked for, as a short text."""

Quantities = dict[str, Scalar]


class PodSetObject(ApiStruct):
    """Equal pods of a Workload."""

    name: str | None = None
    count: int | None = None
    min_count: int | None = None
    template: PodTemplateObject | None = None


class WorkloadSpec(ApiStruct):
    """The spec of a Workload."""

    queue_name: str | None = None
    priority: int | None = None
    active: bool | None = None
    pod_sets: list[PodSetObject] | None = None


class PodSetAssignmentObject(ApiStruct):
    """What Kueue has reserved for the pods of one kind; the usage is that of all of them."""

    name: str | None = None
    flavors: dict[str, str] | None = None
    resource_usage: Quantities | None = None
    count: int | None = None


class AdmissionObject(ApiStruct):
    """The ClusterQueue and the flavors in which a Workload has its reservation."""

    cluster_queue: str | None = None
    pod_set_assignments: list[PodSetAssignmentObject] | None = None


class ReclaimablePodObject(ApiStruct):
    """Pods that need their reservation no more."""

    name: str | None = None
    count: int | None = None


class ConditionWithText(ConditionObject):
    """One condition of a Workload or a ClusterQueue, with its text."""

    message: str | None = None


class WorkloadStatus(ApiStruct):
    """The status of a Workload."""

    conditions: list[ConditionWithText] | None = None
    admission: AdmissionObject | None = None
    reclaimable_pods: list[ReclaimablePodObject] | None = None


class AnnotatedMetadata(ObjectMetadata):
    """Metadata with annotations."""

    annotations: dict[str, Scalar] | None = None


class WorkloadObject(ApiStruct):
    """A Workload: what Kueue admits for a job, or for one of its sizes."""

    metadata: AnnotatedMetadata | None = None
    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class ResourceQuotaObject(ApiStruct):
    """The quota of one resource of a flavor."""

    name: str | None = None
    nominal_quota: Scalar = None
    borrowing_limit: Scalar = None
    lending_limit: Scalar = None


class FlavorQuotasObject(ApiStruct):
    """The quotas of one flavor."""

    name: str | None = None
    resources: list[ResourceQuotaObject] | None = None


class ResourceGroupObject(ApiStruct):
    """Resources that come from one flavor together, and the flavors in the order in which Kueue tries them."""

    covered_resources: list[str] | None = None
    flavors: list[FlavorQuotasObject] | None = None


class FairSharingObject(ApiStruct):
    """The weight of a ClusterQueue or Cohort."""

    weight: Scalar = None


class NamespaceSelectorObject(LabelSelectorObject):
    """Which namespaces a ClusterQueue admits Workloads of."""

    def __post_init__(self) -> None:
        """Accept any number of expressions: an administrator may list each namespace of a large cluster."""


class QuotaSpec(ApiStruct):
    """The spec of a ClusterQueue or of a Cohort."""

    resource_groups: list[ResourceGroupObject] | None = None
    cohort_name: str | None = None
    parent_name: str | None = None
    namespace_selector: NamespaceSelectorObject | None = None
    queueing_strategy: str | None = None
    stop_policy: str | None = None
    fair_sharing: FairSharingObject | None = None


class QuotaStatus(ApiStruct):
    """The status of a ClusterQueue."""

    conditions: list[ConditionWithText] | None = None


class QuotaObject(ApiStruct):
    """A ClusterQueue or a Cohort."""

    metadata: ObjectMetadata | None = None
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class LocalQueueSpec(ApiStruct):
    """The spec of a LocalQueue."""

    cluster_queue: str | None = None
    stop_policy: str | None = None


class LocalQueueObject(ApiStruct):
    """A LocalQueue: a ClusterQueue as a namespace sees it."""

    metadata: ObjectMetadata | None = None
    spec: LocalQueueSpec | None = None


class FlavorSpec(ApiStruct):
    """The spec of a ResourceFlavor."""

    node_labels: dict[str, Scalar] | None = None
    node_taints: list[TaintObject] | None = None
    tolerations: list[TolerationObject] | None = None


class FlavorObject(ApiStruct):
    """A ResourceFlavor: a set of nodes with common labels and taints."""

    metadata: ObjectMetadata | None = None
    spec: FlavorSpec | None = None


WORKLOADS = Decoder("Workload", WorkloadObject)
CLUSTER_QUEUES = Decoder("ClusterQueue", QuotaObject)
COHORTS = Decoder("Cohort", QuotaObject)
LOCAL_QUEUES = Decoder("LocalQueue", LocalQueueObject)
FLAVORS = Decoder("ResourceFlavor", FlavorObject)


DECODERS: dict[str, Decoder[Any]] = {
    "Workload": WORKLOADS,
    "ClusterQueue": CLUSTER_QUEUES,
    "Cohort": COHORTS,
    "LocalQueue": LOCAL_QUEUES,
    "ResourceFlavor": FLAVORS,
}
"""By kind."""


@dataclass(frozen=True, slots=True)
class KueueObjects:
    """The objects of Kueue in a cluster.

    Attributes:
        problem: why they cannot be read, or are of no use, and the remedy; empty if they can.
    """

    workloads: Collection[WorkloadObject] = ()
    cluster_queues: Collection[QuotaObject] = ()
    cohorts: Collection[QuotaObject] = ()
    local_queues: Collection[LocalQueueObject] = ()
    flavors: Collection[FlavorObject] = ()
    problem: str = ""


NO_KUEUE = KueueObjects(problem="the objects of Kueue are not known")


def kueue_of(objects: Callable[[str], Collection[Any]]) -> KueueObjects:
    """The objects of Kueue in saved files.

    Args:
        objects: the decoded objects of a kind.
    """
    found = {kind: objects(kind) for kind in DECODERS}
    return KueueObjects(
        workloads=found["Workload"],
        cluster_queues=found["ClusterQueue"],
        cohorts=found["Cohort"],
        local_queues=found["LocalQueue"],
        flavors=found["ResourceFlavor"],
    )
