"""LeaderWorkerSets as the API server sends them: structs with only the fields that edl reads."""

from __future__ import annotations

from typing import Any

import msgspec

from edl.kube.translate.objects import ConditionObject, PodTemplateObject
from edl.kube.translate.scalars import ApiStruct
from edl.kube.workloads.workload_objects import WorkloadMetadata


class ManagedSpec(ApiStruct):
    """Which fields of the spec a manager owns."""

    replicas: dict[str, Any] | None = msgspec.field(default=None, name="f:replicas")


class RollingUpdateObject(ApiStruct):
    """How groups get a new template."""

    partition: int | None = None


class RolloutStrategyObject(ApiStruct):
    """The rollout strategy: its name, and the settings of a rolling update."""

    rolling_update_configuration: RollingUpdateObject | None = None


class GroupTemplateObject(ApiStruct):
    """The pods of one group: a leader and workers; without a template of its own the leader is like a worker."""

    leader_template: PodTemplateObject | None = None
    worker_template: PodTemplateObject | None = None
    size: int | None = None
    volume_claim_templates: list[Any] | None = None


class LeaderWorkerSetSpec(ApiStruct):
    """The spec of a LeaderWorkerSet."""

    replicas: int | None = None
    leader_worker_template: GroupTemplateObject | None = None
    rollout_strategy: RolloutStrategyObject | None = None
    startup_policy: str | None = None


class LeaderWorkerSetStatus(ApiStruct):
    """The status of a LeaderWorkerSet."""

    conditions: list[ConditionObject] | None = None


class LeaderWorkerSetObject(ApiStruct):
    """A leaderworkerset.x-k8s.io/v1 LeaderWorkerSet."""

    metadata: WorkloadMetadata[ManagedSpec] | None = None
    spec: LeaderWorkerSetSpec | None = None
    status: LeaderWorkerSetStatus | None = None
