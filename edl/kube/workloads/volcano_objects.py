"""Volcano Jobs as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import PodTemplateObject
from edl.kube.translate.scalars import ApiStruct
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.pod_limits import MAX_READ_VOLUMES, check_counts


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns: the list of tasks belongs to the last who changed it."""

    tasks: dict[str, Any] | None = msgspec.field(default=None, name="f:tasks")


class PolicyObject(ApiStruct):
    """What Volcano does when something happens to a pod: an event, one of several events, or an exit code."""

    event: str | None = None
    events: list[str] | None = None
    exit_code: int | None = None


class PartitionPolicyObject(ApiStruct):
    """Into which equal parts a task is divided: each is placed as a whole."""

    partition_size: int | None = None


class TaskObject(ApiStruct):
    """One task: pods of one template. Volcano's admission sets name and minAvailable if nobody does."""

    name: str | None = None
    replicas: int | None = None
    min_available: int | None = None
    policies: list[PolicyObject] | None = None
    partition_policy: PartitionPolicyObject | None = None
    template: PodTemplateObject | None = None


class NetworkTopologyObject(ApiStruct):
    """How near to each other the pods of a job run; Volcano takes hard if nobody sets a mode."""

    mode: str | None = None
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class JobVolumeObject(ApiStruct):
    """A claim that every pod of the job uses; Volcano makes one and names it here, if it has no name."""

    volume_claim_name: str | None = None


class VolcanoJobSpec(ApiStruct):
    """The spec of a Volcano Job."""

    min_available: int | None = None
    queue: str | None = None
    tasks: list[TaskObject] | None = None
    plugins: dict[str, Any] | None = None
    policies: list[PolicyObject] | None = None
    max_retry: int | None = None
    network_topology: NetworkTopologyObject | None = None
    volumes: list[JobVolumeObject] | None = None

    def __post_init__(self) -> None:
        """Refuse more volumes than edl reads."""
        check_counts((len(self.volumes or ()), MAX_READ_VOLUMES, "volumes"))


class StateObject(ApiStruct):
    """The state of a Volcano Job."""

    phase: str | None = None


class TaskStatusObject(ApiStruct):
    """How many pods of a task are in each phase."""

    phase: dict[str, int] | None = None


class VolcanoJobStatus(ApiStruct):
    """The status of a Volcano Job; the version grows with each restart."""

    state: StateObject | None = None
    version: int | None = None
    failed: int | None = None
    retry_count: int | None = None
    task_status_count: dict[str, TaskStatusObject] | None = None


class VolcanoJobObject(ApiStruct):
    """A batch.volcano.sh/v1alpha1 Job."""

    metadata: WorkloadMetadata[ManagedSpec] | None = None
    spec: VolcanoJobSpec | None = None
    status: VolcanoJobStatus | None = None
