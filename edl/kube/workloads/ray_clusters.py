"""RayClusters that ask to be resized: grown and shrunk by the replicas of one group of workers.

KubeRay deletes surplus workers in any order, unless `scaleStrategy.workersToDelete` names them. It deletes what is
named at every reconciliation and never empties the list. So edl writes the count and the names of the workers that go
in one patch. Names are never used again, so a list that has been obeyed does no harm.

KubeRay keeps the replicas between `minReplicas` and `maxReplicas` of the group, whatever they are. A cluster that
loses all workers is suspended, because its head is of no use without workers. A cluster that its owner suspends is
left alone: edl knows its own suspension by the record of its last resize. The cluster of a RayJob is suspended only
as long as its job cannot have been submitted; see `ray_jobs`.

Source: github.com/ray-project/kuberay/ray-operator v1.5.1, controllers/ray, funcs reconcilePods and
GetWorkerGroupDesiredReplicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.decoders import Decoder
from edl.kube.translate.makers import maker_of
from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec, PodTemplateObject
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import limits_of, preferences_of, shape_of
from edl.kube.workloads.annotations import MAX, MIN, TASK, Wish, is_elastic, read_wish
from edl.kube.workloads.deletion_order import deletion_key
from edl.kube.workloads.kueue import kueue_of, kueue_problem
from edl.kube.workloads.owned_by_kueue import not_owned_problem
from edl.kube.workloads.ray_jobs import keeps_minimum, ray_job_problem
from edl.kube.workloads.ray_objects import (
    HeadGroupObject,
    ManagedSpec,
    RayClusterObject,
    RayClusterSpec,
    WorkerGroupObject,
    worker_spec,
)
from edl.kube.workloads.read_alike import (
    deciding_owner,
    key_of,
    read_job,
    read_workload_status,
    template_problem,
    with_labels,
    writer_problem,
)
from edl.kube.workloads.record import read_record
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.quota_trees import KueueState

OPERATOR = "ray.io/kuberay-operator"
_HEAD = "headgroup"
"""The group of the head, as KubeRay labels its pod."""


class RayClusters:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`."""

    kind = WorkloadKind.RAY_CLUSTER
    api = ("ray.io/v1", "RayCluster", "rayclusters")
    decoder: Decoder[Any] = Decoder(WorkloadKind.RAY_CLUSTER.value, RayClusterObject)

    def key(self, source: RayClusterObject) -> JobKey:
        """The key of a RayCluster."""
        return key_of(self.kind, _metadata(source))

    def is_elastic(self, source: RayClusterObject) -> bool:
        """True if the cluster asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: RayClusterObject) -> str:
        """Why edl does not resize a cluster that asks for it, and the remedy; empty if it does."""
        return (
            _owner_problem(source)
            or _group_problem(source)
            or _wish(source).problem
            or not_owned_problem(_metadata(source), "RayCluster")
            or kueue_problem(_metadata(source), _wish(source), _elastic(source).template, "workers")
            or _bounds_problem(source)
            or self._other_writer(source)
            or template_problem(_spec_of(_elastic(source).template), "workers")
        )

    def read(
        self, source: RayClusterObject, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float
    ) -> Job:
        """Translate a cluster.

        Raises:
            ConfigError: a quantity of a template cannot be parsed.
        """
        metadata, template = _metadata(source), worker_spec(_elastic(source).template)
        ordered = _with_roles(pods, source_of, source)
        kueue = _kueue(source)
        is_suspended = kueue is None and _is_suspended_by_owner(source)
        return replace(
            read_job(self.key(source), metadata, _wish(source), template, ordered, now_s=now_s),
            fixed=_fixed(source),
            fault_tolerant=False,  # no pod of it is moved: KubeRay would replace it anywhere
            suspended=is_suspended,
            kueue=kueue,
            problem=self.problem(source),
            status=read_workload_status(metadata, ordered, self.count(source), is_suspended=is_suspended),
            owner_count=self.count(source),
            keeps_minimum=keeps_minimum(source),
        )

    def templates(self, source: RayClusterObject) -> dict[Role, PodObject]:
        """The pod templates of the head, the elastic group and the other groups."""
        head, elastic = _spec(source).head_group_spec or HeadGroupObject(), _elastic(source)
        found = {Role.MASTER: with_labels(head.template, _labels(source, "head", _HEAD))}
        for group in (*_groups(source), elastic):
            role = Role.TRAINER if group is elastic else Role.PSERVER
            pod = with_labels(group.template, _labels(source, "worker", group.group_name or ""))
            found[role] = PodObject(pod.metadata, worker_spec(group.template))
        return found

    def count(self, source: RayClusterObject) -> int:
        """The workers that KubeRay keeps of the group that edl resizes; 0 while the cluster is suspended.

        A cluster that Kueue has suspended waits with the size that it asks for.
        """
        return 0 if _spec(source).suspend and _kueue(source) is None else _replicas(_elastic(source))

    def patch(self, source: RayClusterObject, count: int, victims: tuple[str, ...]) -> list[dict[str, Any]]:
        """The operations of a JSON patch: a merge patch would replace the whole list of groups."""
        if not count:
            return [{"op": "add", "path": "/spec/suspend", "value": True}]
        is_stopped = _spec(source).suspend and _kueue(source) is None
        resume = [{"op": "add", "path": "/spec/suspend", "value": False}] if is_stopped else []
        path = f"/spec/workerGroupSpecs/{_groups(source).index(_elastic(source))}"
        return [
            *resume,
            {"op": "add", "path": f"{path}/replicas", "value": count},
            {"op": "add", "path": f"{path}/scaleStrategy", "value": {"workersToDelete": [*victims]}},
        ]

    def surplus(self, source: RayClusterObject, count: int) -> tuple[str, ...]:  # noqa: ARG002 - as the protocol has it
        """Return no pods: after the deletion of a worker KubeRay only creates a missing one."""
        return ()

    def mark(self, source: RayClusterObject, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - see above
        """Return no patch: KubeRay needs no mark on a pod that it is to delete."""
        return []

    def _other_writer(self, source: RayClusterObject) -> str:
        if _kueue(source) is None and _is_suspended_by_owner(source):
            return ""

        def owns(spec: ManagedSpec) -> bool:
            return spec.groups is not None or spec.suspend is not None

        field = f"replicas of group {_elastic(source).group_name}"
        return writer_problem(_metadata(source), self.count(source), field, owns)


def _owner_problem(source: RayClusterObject) -> str:
    """Why the workers belong to another controller than KubeRay's for RayClusters; empty if they do not."""
    metadata, spec = _metadata(source), _spec(source)
    if spec.enable_in_tree_autoscaling:
        return "spec.enableInTreeAutoscaling is true, so Ray's own autoscaler sets the count; set it to false"
    if spec.managed_by not in {None, "", OPERATOR}:
        return f"spec.managedBy is {spec.managed_by}, so its pods are not made here; remove the annotations of edl"
    if maker_of(metadata) is not None:
        return ray_job_problem(metadata)
    if (owner := deciding_owner(metadata)) is not None:
        return (
            f"it belongs to {owner.kind} {owner.name}, which suspends and deletes it; remove the annotations of edl"
        )
    return ""


def _group_problem(source: RayClusterObject) -> str:
    """Explain why edl can resize no group of a RayCluster; empty if it can."""
    groups, wanted = _groups(source), text((_metadata(source).annotations or {}).get(TASK))
    names = ", ".join(group.group_name or "" for group in groups)
    if wanted and not any(group.group_name == wanted for group in groups):
        return (
            f'annotation {TASK} is "{wanted[:80]}", but the groups are {names[:200]}; write the name of one of them'
        )
    if not wanted and len(groups) != 1:
        return f"the cluster has the groups {names[:200]}; set annotation {TASK} to the one that edl may resize"
    if len(groups) > 2:
        return f"the cluster has {len(groups)} groups; edl plans one and at most one other"
    return _size_problem(groups, _elastic(source))


def _size_problem(groups: Collection[WorkerGroupObject], elastic: WorkerGroupObject) -> str:
    """Why edl cannot plan the workers of the groups, or resize the elastic one."""
    for group in groups:
        workers = _replicas(group) * _hosts(group)
        if workers > MAX_INSTANCES:
            return f"group {group.group_name} has {workers} workers; edl plans at most {MAX_INSTANCES}"
    if _hosts(elastic) > 1:
        return (
            f"a replica of group {elastic.group_name} is {elastic.num_of_hosts} pods; edl resizes only numOfHosts 1"
        )
    if elastic.suspend:
        return f"group {elastic.group_name} is suspended; resume it, or remove the annotations of edl"
    return ""


def _bounds_problem(source: RayClusterObject) -> str:
    """Why KubeRay would not keep each count between the bounds."""
    wish, group = _wish(source), _elastic(source)
    low, high = group.min_replicas or 0, group.max_replicas
    if wish.min_trainers < low:
        return (
            f"{MIN} {wish.min_trainers} is below minReplicas {low} of group {group.group_name}, and KubeRay keeps"
            " that many; make both equal"
        )
    if high is not None and wish.max_trainers > high:
        return (
            f"{MAX} {wish.max_trainers} exceeds maxReplicas {high} of group {group.group_name}, and KubeRay keeps no"
            " more; make both equal"
        )
    return ""


def _wish(source: RayClusterObject) -> Wish:
    """Read what the annotations ask for; without annotations, the bounds of the worker group."""
    group, asked = _elastic(source), dict(_metadata(source).annotations or {})
    if group.min_replicas:
        asked.setdefault(MIN, str(group.min_replicas))
    if group.max_replicas is not None and group.max_replicas <= MAX_INSTANCES:
        asked.setdefault(MAX, str(group.max_replicas))
    return read_wish(asked)


def _fixed(source: RayClusterObject) -> tuple[FixedPods, ...]:
    """The head, and the workers of the other group."""
    head = _spec_of((_spec(source).head_group_spec or HeadGroupObject()).template)
    found = [FixedPods(Role.MASTER, shape_of(head), 1, preferences_of(head), limits_of(head))]
    elastic = _elastic(source)
    for group in _groups(source):
        count = 0 if group is elastic or group.suspend else _replicas(group) * _hosts(group)
        if count:
            spec = worker_spec(group.template)
            found.append(FixedPods(Role.PSERVER, shape_of(spec), count, preferences_of(spec), limits_of(spec)))
    return tuple(sorted(found, key=lambda fixed: list(Role).index(fixed.role)))


def _labels(source: RayClusterObject, kind: str, group: str) -> dict[str, str]:
    """The labels that KubeRay sets on the pods of a group."""
    return {"ray.io/cluster": _metadata(source).name or "", "ray.io/node-type": kind, "ray.io/group": group}


def _with_roles(
    pods: Collection[Pod], source_of: Callable[[Pod], PodObject], source: RayClusterObject
) -> tuple[Pod, ...]:
    """The pods with roles and indexes; workers that KubeRay is about to delete are terminating."""
    group, spec = _elastic(source), _spec(source)
    strategy = group.scale_strategy
    named = set((strategy.workers_to_delete if strategy else None) or ())
    by_role: dict[Role, list[Pod]] = {}
    for pod in pods:
        name = (source_of(pod).metadata or PodMetadata()).known_labels.ray_group
        role = Role.MASTER if name == _HEAD else Role.TRAINER if name == group.group_name else Role.PSERVER
        is_doomed = bool(spec.suspend) or (role is Role.TRAINER and pod.name in named)
        by_role.setdefault(role, []).append(replace(pod, role=role, terminating=pod.terminating or is_doomed))
    found = []
    for role, members in by_role.items():
        # Those that go come last, so that the others have the indexes from 0.
        members.sort(key=lambda pod: (pod.is_live, *deletion_key(pod, source_of(pod))), reverse=True)
        kept = _replicas(group) * _hosts(group) if role is Role.TRAINER else len(members)
        for index, pod in enumerate(members):
            found.append(replace(pod, index=index, terminating=pod.terminating or index >= kept))
    return tuple(sorted(found, key=lambda pod: (pod.role or "", pod.index or 0, pod.name)))


def _kueue(source: RayClusterObject) -> KueueState | None:
    """Read which queue of Kueue the cluster names; Kueue suspends and resumes it."""
    name = (_elastic(source).group_name or "").lower()
    return kueue_of(_metadata(source), name, is_suspended=bool(_spec(source).suspend))


def _is_suspended_by_owner(source: RayClusterObject) -> bool:
    """True if the cluster is suspended, and not because edl stopped it."""
    return bool(_spec(source).suspend) and read_record(_metadata(source)).get("to") != 0


def _elastic(source: RayClusterObject) -> WorkerGroupObject:
    groups = _groups(source)
    wanted = text((_metadata(source).annotations or {}).get(TASK))
    default = groups[0] if len(groups) == 1 and not wanted else WorkerGroupObject()
    return next((group for group in groups if wanted and group.group_name == wanted), default)


def _replicas(group: WorkerGroupObject) -> int:
    """How many replicas KubeRay keeps: those of the spec within the bounds of the group; no number below 0 counts."""
    wanted = max(group.replicas or 0, group.min_replicas or 0, 0)
    return wanted if group.max_replicas is None else max(0, min(wanted, group.max_replicas))


def _hosts(group: WorkerGroupObject) -> int:
    """How many pods a replica is."""
    return max(1, group.num_of_hosts or 1)


def _metadata(source: RayClusterObject) -> WorkloadMetadata[ManagedSpec]:
    return source.metadata or WorkloadMetadata()


def _spec(source: RayClusterObject) -> RayClusterSpec:
    return source.spec or RayClusterSpec()


def _groups(source: RayClusterObject) -> list[WorkerGroupObject]:
    return _spec(source).worker_group_specs or []


def _spec_of(template: PodTemplateObject | None) -> PodSpec:
    return (template or PodTemplateObject()).spec or PodSpec()
