"""RayClusters and RayJobs as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from edl.kube.translate.container_objects import ContainerObject, ResourceAmounts
from edl.kube.translate.objects import ConditionObject, PodSpec, PodTemplateObject
from edl.kube.translate.scalars import ApiStruct
from edl.kube.workloads.workload_objects import WorkloadMetadata

_AMOUNTS = {"cpu": "200m", "memory": "256Mi"}
_WAITS_FOR_HEAD = ContainerObject(name="wait-gcs-ready", resources=ResourceAmounts(dict(_AMOUNTS), dict(_AMOUNTS)))
"""The init container that KubeRay adds to each worker: it waits for the head.

Source: github.com/ray-project/kuberay v1.5.1, ray-operator/controllers/ray/common, func DefaultWorkerPodTemplate.
"""


def worker_spec(template: PodTemplateObject | None) -> PodSpec:
    """Return the spec of the workers that KubeRay makes of a template.

    An operator may be told to add nothing (`ENABLE_INIT_CONTAINER_INJECTION`); the first worker shows that.
    """
    spec = (template or PodTemplateObject()).spec or PodSpec()
    own = spec.init_containers or []
    if any(one.name == _WAITS_FOR_HEAD.name for one in own):
        return spec
    return replace(spec, init_containers=[*own, _WAITS_FOR_HEAD])


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


class RayClusterStatus(ApiStruct):
    """The status of a RayCluster; its times of transition are by state, and stay when the state changes."""

    state: str | None = None
    state_transition_times: dict[str, Any] | None = None
    conditions: list[ConditionObject] | None = None


class RayClusterObject(ApiStruct):
    """A ray.io/v1 RayCluster."""

    metadata: WorkloadMetadata[ManagedSpec] | None = None
    spec: RayClusterSpec | None = None
    status: RayClusterStatus | None = None


class RayJobSpec(ApiStruct):
    """The spec of a RayJob."""

    suspend: bool | None = None


class RayJobStatus(ApiStruct):
    """The status of a RayJob: of the job that runs on Ray, and of what KubeRay does for it."""

    job_status: str | None = None
    job_deployment_status: str | None = None


class RayJobObject(ApiStruct):
    """A ray.io/v1 RayJob."""

    metadata: WorkloadMetadata[dict[str, Any]] | None = None
    spec: RayJobSpec | None = None
    status: RayJobStatus | None = None
