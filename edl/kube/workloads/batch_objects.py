"""`batch/v1` Jobs as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import ConditionObject, PodTemplateObject
from edl.kube.translate.scalars import ApiStruct, Scalar
from edl.kube.workloads.workload_objects import WorkloadMetadata


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns."""

    parallelism: dict[str, Any] | None = msgspec.field(default=None, name="f:parallelism")


class SuccessRuleObject(ApiStruct):
    """With which indexes a Job has succeeded."""

    succeeded_indexes: Scalar | None = None
    succeeded_count: int | None = None


class SuccessPolicyObject(ApiStruct):
    """When a Job has succeeded although some of its indexes have not."""

    rules: list[SuccessRuleObject] | None = None


class BatchJobSpec(ApiStruct):
    """The spec of a Job; the API server sets parallelism and completionMode if nobody does."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    backoff_limit: int | None = None
    max_failed_indexes: int | None = None
    success_policy: SuccessPolicyObject | None = None
    template: PodTemplateObject | None = None


class UncountedObject(ApiStruct):
    """Pods that have ended and that the counts of the status do not contain yet, by UID."""

    succeeded: list[str] | None = None


class BatchJobStatus(ApiStruct):
    """The status of a Job."""

    start_time: str | None = None
    succeeded: int | None = None
    failed: int | None = None
    uncounted_terminated_pods: UncountedObject | None = None
    failed_indexes: Scalar | None = None
    conditions: list[ConditionObject] | None = None


class BatchJobObject(ApiStruct):
    """A batch/v1 Job."""

    metadata: WorkloadMetadata[ManagedSpec] | None = None
    spec: BatchJobSpec | None = None
    status: BatchJobStatus | None = None
