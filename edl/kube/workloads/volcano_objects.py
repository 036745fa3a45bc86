"""Volcano Jobs as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import ApiStruct, ObjectMetadata, PodTemplateObject, Scalar


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns: the list of tasks belongs to the last who changed it."""

    tasks: dict[str, Any] | None = msgspec.field(default=None, name="f:tasks")


class ManagedFields(ApiStruct):
    """The fields that a manager owns."""

    spec: ManagedSpec | None = msgspec.field(default=None, name="f:spec")


class Manager(ApiStruct):
    """One entry of managedFields."""

    manager: str | None = None
    fields_v1: ManagedFields | None = msgspec.field(default=None, name="fieldsV1")


class VolcanoJobMetadata(ObjectMetadata):
    """Metadata of a Volcano Job."""

    annotations: dict[str, Scalar] | None = None
    managed_fields: list[Manager] | None = None


class TaskObject(ApiStruct):
    """One task: pods of one template. Volcano's admission sets name and minAvailable if nobody does."""

    name: str | None = None
    replicas: int | None = None
    min_available: int | None = None
    template: PodTemplateObject | None = None


class VolcanoJobSpec(ApiStruct):
    """The spec of a Volcano Job."""

    min_available: int | None = None
    queue: str | None = None
    tasks: list[TaskObject] | None = None
    plugins: dict[str, Any] | None = None


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
    task_status_count: dict[str, TaskStatusObject] | None = None


class VolcanoJobObject(ApiStruct):
    """A batch.volcano.sh/v1alpha1 Job."""

    metadata: VolcanoJobMetadata | None = None
    spec: VolcanoJobSpec | None = None
    status: VolcanoJobStatus | None = None
