"""RayClusters as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import PodTemplateObject
from edl.kube.translate.scalars import ApiStruct
from edl.kube.workloads.workload_objects import WorkloadMetadata


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns: the list of groups belongs to the last who changed it."""

    groups: dict[str, Any] | None = msgspec.field(default=None, name="f:workerGroupSpecs")
    suspend: dict[str, Any] | None = msgspec.field(default=None, name="f:suspend")


class ScaleStrategyObject(ApiStruct):
    """The workers that KubeRay deletes by name."""

    workers_to_delete: list[str] | None = None


class WorkerGroupObject(ApiStruct):
    """One group of workers of one template; the CRD sets the three counts and numOfHosts if nobody does."""

    group_name: str | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    scale_strategy: ScaleStrategyObject | None = None
    template: PodTemplateObject | None = None


class HeadGroupObject(ApiStruct):
    """The head: one pod."""

    template: PodTemplateObject | None = None


class RayClusterSpec(ApiStruct):
    """The spec of a RayCluster."""

    suspend: bool | None = None
    managed_by: str | None = None
    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: HeadGroupObject | None = None
    worker_group_specs: list[WorkerGroupObject] | None = None


class RayClusterObject(ApiStruct):
    """A ray.io/v1 RayCluster."""

    metadata: WorkloadMetadata[ManagedSpec] | None = None
    spec: RayClusterSpec | None = None
