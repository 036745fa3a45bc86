"""PodGroups, and the queues of Volcano, as the API server sends them; see `edl.kube.translate.objects`."""

from __future__ import annotations

from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.scalars import ApiStruct, Scalar


class GangPolicyObject(ApiStruct):
    """With how many pods a PodGroup of Kubernetes starts."""

    min_count: int | None = None


class SchedulingPolicyObject(ApiStruct):
    """How kube-scheduler starts the pods of a PodGroup: as a gang, or else one by one."""

    gang: GangPolicyObject | None = None


class PodGroupSpec(ApiStruct):
    """The spec of a PodGroup; that of Kubernetes has a policy."""

    min_member: int | None = None
    scheduling_policy: SchedulingPolicyObject | None = None
    min_resources: dict[str, Scalar] | None = None
    queue: str | None = None


class PodGroupStatus(ApiStruct):
    """The status of a PodGroup."""

    phase: str | None = None


class PodGroupObject(ApiStruct):
    """A PodGroup of Kubernetes, of Volcano, of scheduler-plugins or of KAI-Scheduler."""

    metadata: ObjectMetadata | None = None
    spec: PodGroupSpec | None = None
    status: PodGroupStatus | None = None


class VolcanoQueueSpec(ApiStruct):
    """The spec of a Queue of Volcano."""

    capability: dict[str, Scalar] | None = None
    parent: str | None = None


class VolcanoQueueStatus(ApiStruct):
    """The status of a Queue of Volcano."""

    allocated: dict[str, Scalar] | None = None
    state: str | None = None


class VolcanoQueueObject(ApiStruct):
    """A Queue of Volcano."""

    metadata: ObjectMetadata | None = None
    spec: VolcanoQueueSpec | None = None
    status: VolcanoQueueStatus | None = None
