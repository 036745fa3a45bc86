"""`batch/v1` Jobs as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import ApiStruct, ConditionObject, ObjectMetadata, PodTemplateObject, Scalar


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns."""

    parallelism: dict[str, Any] | None = msgspec.field(default=None, name="f:parallelism")


class ManagedFields(ApiStruct):
    """The fields that a manager owns."""

    spec: ManagedSpec | None = msgspec.field(default=None, name="f:spec")


class Manager(ApiStruct):
    """One entry of managedFields."""

    manager: str | None = None
    fields_v1: ManagedFields | None = msgspec.field(default=None, name="fieldsV1")


class BatchJobMetadata(ObjectMetadata):
    """Metadata of a Job."""

    annotations: dict[str, Scalar] | None = None
    labels: dict[str, Scalar] | None = None
    managed_fields: list[Manager] | None = None


class BatchJobSpec(ApiStruct):
    """The spec of a Job; the API server sets parallelism and completionMode if nobody does."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    template: PodTemplateObject | None = None


class BatchJobStatus(ApiStruct):
    """The status of a Job."""

    succeeded: int | None = None
    conditions: list[ConditionObject] | None = None


class BatchJobObject(ApiStruct):
    """A batch/v1 Job."""

    metadata: BatchJobMetadata | None = None
    spec: BatchJobSpec | None = None
    status: BatchJobStatus | None = None
