"""PyTorchJobs as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import ConditionObject, PodTemplateObject
from edl.kube.translate.scalars import ApiStruct
from edl.kube.workloads.workload_objects import WorkloadMetadata


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns."""

    replica_specs: dict[str, Any] | None = msgspec.field(default=None, name="f:pytorchReplicaSpecs")
    run_policy: dict[str, Any] | None = msgspec.field(default=None, name="f:runPolicy")


class ReplicaSpecObject(ApiStruct):
    """The pods of one role; the training operator takes 1 replica and OnFailure if nobody sets them."""

    replicas: int | None = None
    restart_policy: str | None = None
    template: PodTemplateObject | None = None


class ElasticPolicyObject(ApiStruct):
    """How many workers the job can run with, as its owner says."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    metrics: list[Any] | None = None


class SchedulingPolicyObject(ApiStruct):
    """With how many pods a scheduler of groups starts the job."""

    min_available: int | None = None


class RunPolicyObject(ApiStruct):
    """Whether the job is suspended, when it fails, who makes its pods, and how they are scheduled."""

    suspend: bool | None = None
    backoff_limit: int | None = None
    managed_by: str | None = None
    scheduling_policy: SchedulingPolicyObject | None = None


class PyTorchJobSpec(ApiStruct):
    """The spec of a PyTorchJob."""

    replica_specs: dict[str, ReplicaSpecObject] | None = msgspec.field(default=None, name="pytorchReplicaSpecs")
    elastic_policy: ElasticPolicyObject | None = None
    run_policy: RunPolicyObject | None = None


class ReplicaStatusObject(ApiStruct):
    """How many pods of one role have ended well, of those that still exist."""

    succeeded: int | None = None


class PyTorchJobStatus(ApiStruct):
    """The status of a PyTorchJob."""

    conditions: list[ConditionObject] | None = None
    replica_statuses: dict[str, ReplicaStatusObject] | None = None


class PyTorchJobObject(ApiStruct):
    """A kubeflow.org/v1 PyTorchJob."""

    metadata: WorkloadMetadata[ManagedSpec] | None = None
    spec: PyTorchJobSpec | None = None
    status: PyTorchJobStatus | None = None
