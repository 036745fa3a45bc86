"""PyTorchJobs with an `elasticPolicy` that ask to be resized: grown and shrunk by the replicas of the workers.

The training operator keeps the workers with the lowest indexes, and tells each of them `PET_NNODES=min:max` of the
elasticPolicy when it starts. So torchrun meets anew after each change, with the script unchanged, as long as the
count stays between these bounds. Its meeting point is the first worker, which goes last.

The operator deletes the pods beyond the count and looks at how they end, too: one that exits with 0 completes the
job, and one that fails may fail it, unless the policy is to restart. It allows no job of 0 workers, so a job that
loses all trainers is suspended. A job that its owner suspends is left alone: edl knows its own suspension by the
record of its last resize.

Source: github.com/kubeflow/training-operator v1.9.3, pkg/controller.v1/common, funcs ReconcileJobs and ReconcilePods;
pkg/controller.v1/pytorch, func UpdateJobStatus; pkg/webhooks/pytorch, func validatePyTorchReplicaSpecs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import PodObject, PodSpec, PodTemplateObject
from edl.kube.translate.shapes import limits_of, preferences_of, shape_of
from edl.kube.workloads.annotations import MAX, MIN, Wish, is_elastic, read_wish
from edl.kube.workloads.owned_by_kueue import added_to, owned_problem, owned_state, without_added
from edl.kube.workloads.pytorch_objects import (
    ElasticPolicyObject,
    ManagedSpec,
    PyTorchJobObject,
    PyTorchJobSpec,
    ReplicaSpecObject,
    RunPolicyObject,
    SchedulingPolicyObject,
)
from edl.kube.workloads.read_alike import (
    End,
    deciding_owner,
    end_by_conditions,
    gang_problem,
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
from edl.model.names import ANNOTATION_KUEUE_QUEUE, KUEUE_QUEUE, JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.status import JobPhase

OPERATOR = "kubeflow.org/training-operator"
_MASTER, _WORKER = "Master", "Worker"
_ENDED = {"Succeeded": JobPhase.SUCCEEDED, "Failed": JobPhase.FAILED}
_NUMBER = re.compile(r"-(master|worker)-([0-9]{1,9})$")


class PyTorchJobs:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`.

    Args:
        as_if: read jobs that have no elasticPolicy, or a master, as if they could be resized; `edl shadow` asks that.
    """

    def __init__(self, *, as_if: bool = False) -> None:
        self._as_if = as_if

    kind = WorkloadKind.PYTORCH_JOB
    api = ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs")
    decoder: Decoder[Any] = Decoder(WorkloadKind.PYTORCH_JOB.value, PyTorchJobObject)
    template_path = ("pytorchReplicaSpecs", _WORKER, "template")

    def key(self, source: PyTorchJobObject) -> JobKey:
        """The key of a PyTorchJob."""
        return key_of(self.kind, _metadata(source))

    def is_elastic(self, source: PyTorchJobObject) -> bool:
        """True if the job asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: PyTorchJobObject) -> str:
        """Why edl does not resize a job that asks for it, and the remedy; empty if it does."""
        if _end(source) is not None:
            return ""
        return (
            _finishing(source)
            or _owner_problem(source)
            or ("" if self._as_if else _policy_problem(source) or _restart_problem(source))
            or _wish(source).problem
            or owned_problem(_metadata(source), _template(source, _WORKER))
            or ("" if self._as_if else _bounds_problem(source) or self._other_writer(source))
            or template_problem(_template(source, _WORKER), "workers")
        )

    def read(
        self, source: PyTorchJobObject, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float
    ) -> Job:
        """Translate a job.

        Raises:
            ConfigError: a quantity of a template cannot be parsed.
        """
        del source_of  # the names of the pods say what they are
        metadata = _metadata(source)
        template = without_added(_template(source, _WORKER), added_to(metadata))
        ordered = _with_roles(pods, source)
        end, is_suspended = _end(source), _is_suspended_by_owner(source)
        return replace(
            read_job(self.key(source), metadata, _wish(source), template, ordered, now_s=now_s),
            fixed=_fixed(source),
            fault_tolerant=False,  # no pod of it is moved: the operator would make another one anywhere
            suspended=is_suspended,
            kueue=owned_state(metadata),
            finished=end is not None,
            problem=self.problem(source),
            finishing=bool(_finishing(source)),
            status=read_workload_status(metadata, ordered, self.count(source), is_suspended=is_suspended, end=end),
            owner_count=self.count(source),
        )

    def templates(self, source: PyTorchJobObject) -> dict[Role, PodObject]:
        """The pod templates of the job, by role (master and workers)."""
        job, found = {"training.kubeflow.org/job-name": _metadata(source).name or ""}, {}
        for role, name in ((Role.MASTER, _MASTER), (Role.TRAINER, _WORKER)):
            if (replicas := _replica_specs(source).get(name)) is not None:
                labels = {**job, "training.kubeflow.org/replica-type": name.lower()}
                found[role] = with_labels(replicas.template, labels)
        return found

    def template(self, source: PyTorchJobObject) -> PodSpec:
        """The pod template of the workers, as it is stored."""
        return _template(source, _WORKER)

    def start_s(self, source: PyTorchJobObject) -> float | None:  # noqa: ARG002 - as the protocol has it
        """Return None: the API server always accepts another template."""
        return None

    def count(self, source: PyTorchJobObject) -> int:
        """The workers that the operator keeps; 0 while the job is suspended."""
        return 0 if _run_policy(source).suspend else _replicas(_replica_specs(source).get(_WORKER))

    def patch(self, source: PyTorchJobObject, count: int, victims: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG002 - the operator chooses
        """The patch that sets the number of workers, or suspends the job: the operator rejects 0 workers."""
        if not count:
            return {"runPolicy": {"suspend": True}}
        resume = {"runPolicy": {"suspend": False}} if _run_policy(source).suspend else {}
        return {"pytorchReplicaSpecs": {_WORKER: {"replicas": count}}, **resume}

    def surplus(self, source: PyTorchJobObject, count: int) -> tuple[str, ...]:  # noqa: ARG002 - as the protocol has it
        """Return no pods: the operator does not restart the job for a pod that it deletes."""
        return ()

    def mark(self, source: PyTorchJobObject, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - see above
        """Return no patch: the training operator deletes the workers of the highest indexes."""
        return []

    def declared_bounds(self, source: PyTorchJobObject) -> dict[str, int]:
        """The bounds of `spec.elasticPolicy`, by annotation of edl; empty if the job has none."""
        policy = _spec(source).elastic_policy or ElasticPolicyObject()
        found = {MIN: policy.min_replicas, MAX: policy.max_replicas}
        return {name: value for name, value in found.items() if value is not None}

    def _other_writer(self, source: PyTorchJobObject) -> str:
        is_owned = owned_state(_metadata(source)) is not None
        is_stopped = not self.count(source) or read_record(_metadata(source)).get("to") == 0
        if _is_suspended_by_owner(source) or (is_owned and is_stopped):
            return ""

        def owns(spec: ManagedSpec) -> bool:
            workers = (spec.replica_specs or {}).get(f"f:{_WORKER}") or {}
            return "f:replicas" in workers or "f:suspend" in (spec.run_policy or {})

        return writer_problem(_metadata(source), self.count(source), f"replicas of {_WORKER}", owns)


def _owner_problem(source: PyTorchJobObject) -> str:
    """Why there are no workers, or why they belong to another controller than the training operator."""
    manager = _run_policy(source).managed_by
    if manager not in {None, "", OPERATOR}:
        return f"spec.runPolicy.managedBy is {manager}, so its pods are not made here; remove the annotations of edl"
    metadata = _metadata(source)
    if KUEUE_QUEUE in (metadata.labels or {}):
        return (
            f"label {KUEUE_QUEUE} gives the job to Kueue, which admits and suspends it as a whole; name the queue in"
            f" annotation {ANNOTATION_KUEUE_QUEUE} instead, and create the job again"
        )
    if (owner := deciding_owner(metadata)) is not None:
        return f"it belongs to {owner.kind} {owner.name}, which sets its replicas; remove the annotations of edl"
    if _WORKER not in _replica_specs(source):
        return "it has a master and no workers, so there is nothing to resize"
    workers = _replicas(_replica_specs(source)[_WORKER])
    return f"it has {workers} workers; edl plans at most {MAX_INSTANCES}" if workers > MAX_INSTANCES else ""


def _policy_problem(source: PyTorchJobObject) -> str:
    """Why the workers could not agree on another count."""
    policy = _spec(source).elastic_policy
    if _MASTER in _replica_specs(source):
        return (
            "it has a Master, so the operator writes the number of pods into each when it starts; remove the Master,"
            " and torchrun meets at the first worker"
        )
    if policy is None:
        return (
            "it has no spec.elasticPolicy, so the operator writes the number of pods into each when it starts; set"
            " elasticPolicy.minReplicas and maxReplicas, and start the script with torchrun"
        )
    if policy.metrics:
        return (
            "spec.elasticPolicy.metrics lets a HorizontalPodAutoscaler set the replicas; remove metrics, or the"
            " annotations of edl"
        )
    if policy.min_replicas is None or policy.max_replicas is None:
        return "spec.elasticPolicy lacks minReplicas or maxReplicas, so torchrun takes one number only; set both"
    return ""


def _restart_problem(source: PyTorchJobObject) -> str:
    """Why the operator might fail the job for a worker that ends because of a resize."""
    policy = _replica_specs(source)[_WORKER].restart_policy
    if policy not in {None, "", "OnFailure", "Always"}:
        return (
            f"restartPolicy of {_WORKER} is {policy}, so the operator may fail the job for a worker that ends because"
            " of a resize; set OnFailure or Always"
        )
    if _run_policy(source).backoff_limit == 0:
        return (
            "spec.runPolicy.backoffLimit is 0, so the operator may fail the job for a worker that ends because of a"
            " resize; raise it"
        )
    return ""


def _bounds_problem(source: PyTorchJobObject) -> str:
    """Why torchrun would not train with each count between the bounds."""
    wish, policy = _wish(source), _spec(source).elastic_policy or ElasticPolicyObject()
    low, high = policy.min_replicas or 1, policy.max_replicas or MAX_INSTANCES
    if wish.min_trainers < low:
        return (
            f"{MIN} {wish.min_trainers} is below elasticPolicy.minReplicas {low}, and torchrun waits for that many;"
            " make both equal"
        )
    if wish.max_trainers > high:
        return (
            f"{MAX} {wish.max_trainers} exceeds elasticPolicy.maxReplicas {high}, and torchrun takes no more; make"
            " both equal"
        )
    least = (_run_policy(source).scheduling_policy or SchedulingPolicyObject()).min_available or 0
    return gang_problem(wish, least, "spec.runPolicy.schedulingPolicy.minAvailable")


def _wish(source: PyTorchJobObject) -> Wish:
    """Read what the annotations ask for; without annotations, the bounds of the elasticPolicy."""
    asked = dict(_metadata(source).annotations or {})
    policy = _spec(source).elastic_policy or ElasticPolicyObject()
    if policy.min_replicas:
        asked.setdefault(MIN, str(policy.min_replicas))
    if policy.max_replicas:
        asked.setdefault(MAX, str(policy.max_replicas))
    return read_wish(asked)


def _with_roles(pods: Collection[Pod], source: PyTorchJobObject) -> tuple[Pod, ...]:
    """The pods with roles and indexes; those that the operator is about to delete are terminating."""
    kept = 0 if _run_policy(source).suspend else _replicas(_replica_specs(source).get(_WORKER))
    found = []
    for pod in map(_with_role, pods):
        is_doomed = bool(_run_policy(source).suspend) or (pod.role is Role.TRAINER and (pod.index or 0) >= kept)
        found.append(replace(pod, terminating=pod.terminating or is_doomed))
    return tuple(sorted(found, key=lambda pod: (pod.role or "", pod.index or 0, pod.name)))


def _with_role(pod: Pod) -> Pod:
    found = _NUMBER.search(pod.name)
    role = Role.MASTER if found and found[1] == "master" else Role.TRAINER
    return replace(pod, role=role, index=int(found[2]) if found else None)


def _fixed(source: PyTorchJobObject) -> tuple[FixedPods, ...]:
    """The master; a job without one elects a worker."""
    if (count := _replicas(_replica_specs(source).get(_MASTER))) == 0:
        return ()
    spec = _template(source, _MASTER)
    return (FixedPods(Role.MASTER, shape_of(spec), count, preferences_of(spec), limits_of(spec)),)


def _end(source: PyTorchJobObject) -> End | None:
    """How the job has ended; None if it has not."""
    return end_by_conditions((source.status.conditions if source.status else None) or (), _ENDED)


def _finishing(source: PyTorchJobObject) -> str:
    """Say why the job is finishing: torchrun has no work for another worker once one has succeeded; empty if not."""
    statuses = (source.status.replica_statuses if source.status else None) or {}
    if any(one.succeeded for one in statuses.values()):
        return "a pod of the job has succeeded, so it is finishing; edl leaves the other pods to their end"
    return ""


def _is_suspended_by_owner(source: PyTorchJobObject) -> bool:
    """True if the job is suspended, and not because edl stopped it; it stops one whose Workloads it makes."""
    if not _run_policy(source).suspend or owned_state(_metadata(source)) is not None:
        return False
    return read_record(_metadata(source)).get("to") != 0


def _replicas(spec: ReplicaSpecObject | None) -> int:
    return 0 if spec is None else 1 if spec.replicas is None else max(0, spec.replicas)


def _metadata(source: PyTorchJobObject) -> WorkloadMetadata[ManagedSpec]:
    return source.metadata or WorkloadMetadata()


def _spec(source: PyTorchJobObject) -> PyTorchJobSpec:
    return source.spec or PyTorchJobSpec()


def _run_policy(source: PyTorchJobObject) -> RunPolicyObject:
    return _spec(source).run_policy or RunPolicyObject()


def _replica_specs(source: PyTorchJobObject) -> dict[str, ReplicaSpecObject]:
    return _spec(source).replica_specs or {}


def _template(source: PyTorchJobObject, role: str) -> PodSpec:
    found = _replica_specs(source).get(role) or ReplicaSpecObject()
    return (found.template or PodTemplateObject()).spec or PodSpec()
