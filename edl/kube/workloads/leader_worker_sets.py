"""LeaderWorkerSets that ask to be resized: grown and shrunk by whole groups of a leader and its workers.

The controller keeps the groups with the lowest indexes: it sets the replicas of a StatefulSet of leaders, and each
leader has a StatefulSet of workers, which goes with it. All pods of a group are of use together, so the planner sees
the pods, and numbers of pods that are whole groups as the only sizes. The annotations count groups, as the spec does.

The spec may have 0 replicas, so a set that loses all groups has none. A set that its owner gave no replicas is left
alone: edl knows its own stop by the record of its last resize.

Source: sigs.k8s.io/lws v0.7.0, pkg/controllers/leaderworkerset_controller.go, funcs rollingUpdateParameters and
updateConditions; pkg/controllers/pod_controller.go, func Reconcile; pkg/webhooks/pod_webhook.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec, PodTemplateObject
from edl.kube.translate.ownership import SET_NAME, group_member
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import limits_of, shape_of
from edl.kube.workloads.annotations import MAX, Wish, is_elastic, read_wish
from edl.kube.workloads.leader_worker_objects import (
    GroupTemplateObject,
    LeaderWorkerSetObject,
    LeaderWorkerSetSpec,
    LeaderWorkerSetStatus,
    ManagedSpec,
    RollingUpdateObject,
    RolloutStrategyObject,
)
from edl.kube.workloads.owned_by_kueue import not_owned_problem
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
from edl.model.jobs import Job
from edl.model.names import KUEUE_QUEUE, JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.sizes import SLICE_TOPOLOGY, TPU, hosts_of_slice, in_steps

_EXCLUSIVE = (
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
"""Annotations with which each group, or part of one, gets a domain of its own, by rules that its pods get later."""
_LEADER_READY = "LeaderReady"
_UPDATES = "UpdateInProgress"


class LeaderWorkerSets:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`."""

    kind = WorkloadKind.LEADER_WORKER_SET
    api = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets")
    decoder: Decoder[Any] = Decoder(WorkloadKind.LEADER_WORKER_SET.value, LeaderWorkerSetObject)

    def key(self, source: LeaderWorkerSetObject) -> JobKey:
        """The key of a LeaderWorkerSet."""
        return key_of(self.kind, _metadata(source))

    def is_elastic(self, source: LeaderWorkerSetObject) -> bool:
        """True if the set asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: LeaderWorkerSetObject) -> str:
        """Why edl does not resize a set that asks for it, and the remedy; empty if it does.

        Raises:
            ConfigError: a quantity of a template cannot be parsed.
        """
        return (
            _owner_problem(source)
            or _wish(source).problem
            or not_owned_problem(_metadata(source), "LeaderWorkerSet")
            or _group_problem(source)
            or _update_problem(source)
            or self._other_writer(source)
            or template_problem(_pods(source), "pods")
        )

    def read(
        self,
        source: LeaderWorkerSetObject,
        pods: Collection[Pod],
        source_of: Callable[[Pod], PodObject],
        now_s: float,
    ) -> Job:
        """Translate a set.

        Raises:
            ConfigError: a quantity of a template cannot be parsed.
        """
        metadata, ordered = _metadata(source), _with_roles(pods, source_of, source)
        is_suspended = not _replicas(source) and read_record(metadata).get("to") != 0
        return replace(
            read_job(self.key(source), metadata, _wish(source), _pods(source), ordered, now_s=now_s),
            fault_tolerant=False,  # no pod of it is moved: its group would start anew
            suspended=is_suspended,
            problem=self.problem(source),
            status=read_workload_status(metadata, ordered, self.count(source), is_suspended=is_suspended),
            owner_count=self.count(source),
        )

    def templates(self, source: LeaderWorkerSetObject) -> dict[Role, PodObject]:
        """The pod templates of the set, by role; see `_template_problem` for the leader."""
        return {Role.TRAINER: with_labels(_template(source), {SET_NAME: _metadata(source).name or ""})}

    def count(self, source: LeaderWorkerSetObject) -> int:
        """The pods of all groups that the controller keeps."""
        return _replicas(source) * _size(source)

    def patch(self, source: LeaderWorkerSetObject, count: int, victims: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG002 - as the protocol has it
        """The spec of a merge patch that sets the number of groups for a number of pods."""
        return {"replicas": count // _size(source)}

    def surplus(self, source: LeaderWorkerSetObject, count: int) -> tuple[str, ...]:  # noqa: ARG002 - as the protocol has it
        """Return no pods: the end of a group's pods counts as no failure."""
        return ()

    def mark(self, source: LeaderWorkerSetObject, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - as the protocol has it
        """Return no patch: the set's controller deletes the groups of the highest indexes."""
        return []

    def _other_writer(self, source: LeaderWorkerSetObject) -> str:
        if not _replicas(source):
            return ""
        field = f"spec.replicas, counted in pods of groups of {_size(source)},"
        return writer_problem(_metadata(source), self.count(source), field, lambda spec: spec.replicas is not None)


def _owner_problem(source: LeaderWorkerSetObject) -> str:
    """Why somebody else sets the replicas, or lets the groups run."""
    metadata = _metadata(source)
    if (owner := deciding_owner(metadata)) is not None:
        return f"it belongs to {owner.kind} {owner.name}, which sets its replicas; remove the annotations of edl"
    if queue := text((metadata.labels or {}).get(KUEUE_QUEUE)):
        return (
            f"label {KUEUE_QUEUE} is {queue[:80]}, and Kueue admits each of its groups by itself; edl does not plan"
            " that: remove the label, or the annotations of edl"
        )
    return ""


def _group_problem(source: LeaderWorkerSetObject) -> str:
    """Why edl cannot plan the groups."""
    pods = _replicas(source) * _size(source)
    if pods > MAX_INSTANCES:
        return f"it has {_replicas(source)} groups of {_size(source)} pods; edl plans at most {MAX_INSTANCES} pods"
    asked = _metadata(source).annotations or {}
    if exclusive := next((name for name in _EXCLUSIVE if text(asked.get(name))), ""):
        return (
            f"annotation {exclusive} is {text(asked.get(exclusive))[:80]}, so each group needs a domain without any"
            " other one, which edl does not plan; remove it, or the annotations of edl"
        )
    if _spec(source).startup_policy == _LEADER_READY and _size(source) > 1:
        return (
            f"spec.startupPolicy is {_LEADER_READY}, so the workers of a new group do not exist before its leader is"
            " ready, and others get the capacity meanwhile; set LeaderCreated"
        )
    if _group(source).volume_claim_templates:
        return (
            "spec.leaderWorkerTemplate.volumeClaimTemplates gives each pod a claim that stays when its group goes,"
            " and edl does not plan where a group that comes back finds it; write ephemeral volumes in the templates"
        )
    return _slice_problem(source) or _template_problem(source)


def _slice_problem(source: LeaderWorkerSetObject) -> str:
    """Why each group would need nodes that are one slice.

    Raises:
        ConfigError: a quantity of a template cannot be parsed.
    """
    worker = _pods(source)
    topology = text((worker.node_selector or {}).get(SLICE_TOPOLOGY))
    if hosts_of_slice(topology, shape_of(worker).request[TPU]) == 1:
        return ""
    return (
        f"nodeSelector {SLICE_TOPOLOGY} is {topology}, so its pods are hosts of a TPU slice, and edl does not plan"
        " which nodes are one slice; take slices of one host, or remove the annotations of edl"
    )


def _template_problem(source: LeaderWorkerSetObject) -> str:
    """Why the pods of a group are of two kinds: the planner knows one for each workload.

    Raises:
        ConfigError: a quantity of a template cannot be parsed.
    """
    template = _group(source).leader_template
    if template is None or _size(source) == 1:
        return ""
    leader, worker = template.spec or PodSpec(), _pods(source)
    one, other = shape_of(leader), shape_of(worker)
    where = "leaderTemplate and workerTemplate of spec.leaderWorkerTemplate"
    if (one.request, limits_of(leader)) != (other.request, limits_of(worker)):
        return f"{where} have other resources, and edl plans pods of one kind; give both the same requests and limits"
    if one.placement != other.placement:
        return (
            f"{where} have another nodeSelector, affinity or tolerations, and edl plans pods of one kind; give both"
            " the same"
        )
    return ""


def _update_problem(source: LeaderWorkerSetObject) -> str:
    """Why the groups are not all alike now."""
    strategy = _spec(source).rollout_strategy or RolloutStrategyObject()
    partition = (strategy.rolling_update_configuration or RollingUpdateObject()).partition or 0
    if partition > 0:
        return (
            f"spec.rolloutStrategy.rollingUpdateConfiguration.partition is {partition}, so the first groups keep an"
            " older template than new ones get; set it to 0"
        )
    if _is_updating(source):
        return (
            f"condition {_UPDATES} is True, and its controller replaces groups and may add some for the time being;"
            " edl resizes it again once the update has ended"
        )
    return ""


def _wish(source: LeaderWorkerSetObject) -> Wish:
    """Read what the annotations ask for, converted from groups to pods."""
    wish, size = read_wish(_metadata(source).annotations or {}), _size(source)
    if wish.problem or size == 1:
        return wish
    low, high = wish.min_trainers * size, wish.max_trainers * size
    if high > MAX_INSTANCES:
        return Wish(
            queue=wish.queue,
            problem=f"annotation {MAX} is {wish.max_trainers}, and so many groups of {size} pods are {high} pods; edl"
            f" plans at most {MAX_INSTANCES}: lower it",
        )
    sizes = tuple(groups * size for groups in wish.sizes) or in_steps(low, high, size)
    return Wish(low, high, wish.queue, sizes=sizes)


def _with_roles(
    pods: Collection[Pod], source_of: Callable[[Pod], PodObject], source: LeaderWorkerSetObject
) -> tuple[Pod, ...]:
    """The pods with indexes, the leader of a group before its workers.

    Those of groups beyond the replicas are terminating, unless they are additional ones for a rolling update.
    """
    size, kept = _size(source), _replicas(source)
    found = []
    for pod in pods:
        member = group_member(source_of(pod).metadata or PodMetadata())
        group, number = (member.group, member.number) if member is not None else (0, 0)
        is_doomed = group >= kept and not _is_updating(source)
        found.append(replace(pod, index=group * size + number, terminating=pod.terminating or is_doomed))
    return tuple(sorted(found, key=lambda pod: (pod.index or 0, pod.name)))


def _is_updating(source: LeaderWorkerSetObject) -> bool:
    conditions = (source.status or LeaderWorkerSetStatus()).conditions or ()
    return any(one.type == _UPDATES and one.status == "True" for one in conditions)


def _replicas(source: LeaderWorkerSetObject) -> int:
    """How many groups the controller keeps; the CRD sets 1 if nobody does."""
    replicas = _spec(source).replicas
    return 1 if replicas is None else max(0, replicas)


def _size(source: LeaderWorkerSetObject) -> int:
    """How many pods a group is; the CRD sets 1 if nobody does."""
    return max(1, _group(source).size or 1)


def _metadata(source: LeaderWorkerSetObject) -> WorkloadMetadata[ManagedSpec]:
    return source.metadata or WorkloadMetadata()


def _spec(source: LeaderWorkerSetObject) -> LeaderWorkerSetSpec:
    return source.spec or LeaderWorkerSetSpec()


def _group(source: LeaderWorkerSetObject) -> GroupTemplateObject:
    return _spec(source).leader_worker_template or GroupTemplateObject()


def _template(source: LeaderWorkerSetObject) -> PodTemplateObject:
    """What the pods are made of: a group of one pod is a leader alone; in others the leader is as its workers are."""
    group = _group(source)
    leader = group.leader_template if _size(source) == 1 else None
    return leader or group.worker_template or PodTemplateObject()


def _pods(source: LeaderWorkerSetObject) -> PodSpec:
    return _template(source).spec or PodSpec()
