"""Volcano Jobs that ask to be resized: grown and shrunk by the replicas of one task, with `minAvailable`.

Volcano keeps the pods with the lowest indexes. Its controller answers the deletion of a surplus pod as it answers an
eviction, so a policy that restarts the job on PodEvicted would restart it at each shrink. It does nothing about pods
of a former version of the job. So edl first marks the surplus pods as such, and then lowers the count.

A job that loses all trainers has all of its tasks set to 0, because its other tasks are of no use alone; an
annotation keeps their numbers.

Source: volcano.sh/volcano v1.10.0, pkg/controllers/job, funcs syncJob, deletePod and applyPolicies;
pkg/webhooks/admission/jobs/validate, func validateJobUpdate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec, PodTemplateObject
from edl.kube.translate.scalars import text
from edl.kube.translate.shapes import limits_of, preferences_of, shape_of
from edl.kube.workloads.annotations import TASK, is_elastic, read_wish
from edl.kube.workloads.owned_by_kueue import not_owned_problem
from edl.kube.workloads.read_alike import (
    End,
    key_of,
    read_job,
    read_workload_status,
    template_problem,
    with_labels,
    writer_problem,
)
from edl.kube.workloads.volcano_objects import (
    JobVolumeObject,
    ManagedSpec,
    TaskObject,
    VolcanoJobObject,
    VolcanoJobSpec,
    VolcanoJobStatus,
)
from edl.kube.workloads.volcano_tasks import (
    MOST_OTHERS,
    OUTDATED,
    Stopped,
    Tasks,
    read_stopped,
    replicas_of,
    resize_operations,
    with_volumes,
)
from edl.kube.workloads.workload_objects import WorkloadMetadata
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.status import JobPhase, JobStatus
from edl.model.units import count
from edl.printable import printable

_OTHERS = (Role.PSERVER, Role.MASTER)
"""The roles that other tasks have in a plan: pods that the job needs besides its trainers."""

_ENDED = {
    "Completing": JobPhase.SUCCEEDED,
    "Completed": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
    "Terminating": JobPhase.FAILED,
    "Terminated": JobPhase.FAILED,
}
_SUSPENDED = {"Aborting", "Aborted"}
_ON_FAILURE = {"PodFailed", "*"}
_FIXED_SIZE = ("mpi", "pytorch", "tensorflow")


class VolcanoJobs:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`."""

    kind = WorkloadKind.VOLCANO_JOB
    api = ("batch.volcano.sh/v1alpha1", "Job", "jobs")
    decoder: Decoder[Any] = Decoder(WorkloadKind.VOLCANO_JOB.value, VolcanoJobObject)

    def key(self, source: VolcanoJobObject) -> JobKey:
        """The key of a Volcano Job."""
        return key_of(self.kind, _metadata(source))

    def is_elastic(self, source: VolcanoJobObject) -> bool:
        """True if the job asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: VolcanoJobObject) -> str:
        """Why edl does not resize a job that asks for it, and the remedy; empty if it does."""
        if _phase(source) in _ENDED:
            return ""
        return (
            _finishing(source)
            or read_wish(_metadata(source).annotations or {}).problem
            or not_owned_problem(_metadata(source), "Volcano Job")
            or _task_problem(source)
            or _plugin_problem(source)
            or _other_writer(source)
            or template_problem(_template(_tasks(source).elastic), "pods")
        )

    def read(
        self, source: VolcanoJobObject, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float
    ) -> Job:
        """Translate a job.

        Raises:
            ConfigError: a quantity of a template cannot be parsed.
        """
        metadata, tasks = _metadata(source), _tasks(source)
        wish, template = read_wish(metadata.annotations or {}), _template(tasks.elastic)
        roles = dict(zip((task.name or "" for task in tasks.others), _OTHERS, strict=False))
        ordered = _with_roles(pods, source_of, source, roles)
        return replace(
            read_job(self.key(source), metadata, wish, template, ordered, now_s=now_s),
            fixed=_fixed(tasks, roles, read_stopped(metadata.annotations or {}, tasks)),
            queue=wish.queue if wish.queue != "default" else _spec(source).queue or "default",
            fault_tolerant=False,  # no pod of it is moved: Volcano may answer that with a restart
            gang=True,
            suspended=_phase(source) in _SUSPENDED,
            finished=_phase(source) in _ENDED,
            problem=self.problem(source),
            finishing=bool(_finishing(source)),
            status=_status(source, ordered),
            owner_count=self.count(source),
        )

    def templates(self, source: VolcanoJobObject) -> dict[Role, PodObject]:
        """The pod template of each task."""
        job, tasks = {"volcano.sh/job-name": _metadata(source).name or ""}, _tasks(source)
        roles, shared = ((Role.TRAINER, tasks.elastic), *zip(_OTHERS, tasks.others, strict=False)), _volumes(source)
        return {
            role: with_labels(with_volumes(task, shared), {**job, "volcano.sh/task-spec": task.name or ""})
            for role, task in roles
        }

    def count(self, source: VolcanoJobObject) -> int:
        """The replicas of the task that edl resizes."""
        return replicas_of(_tasks(source).elastic)

    def patch(self, source: VolcanoJobObject, count: int, victims: tuple[str, ...]) -> list[dict[str, Any]]:  # noqa: ARG002 - Volcano chooses
        """The operations of a JSON patch: a merge patch would replace the whole list of tasks."""
        annotations = _metadata(source).annotations or {}
        low = read_wish(annotations).min_trainers
        tasks = _tasks(source)
        return resize_operations(tasks, _spec(source).min_available, low, count, read_stopped(annotations, tasks))

    def surplus(self, source: VolcanoJobObject, count: int) -> tuple[str, ...]:
        """The names of the pods that Volcano will delete, if they exist."""
        metadata, tasks = _metadata(source), _tasks(source)
        kept = {id(task): count if task is tasks.elastic else replicas_of(task) for task in tasks.all}
        return tuple(
            f"{metadata.name}-{task.name}-{index}"
            for task in tasks.all
            for index in range(kept[id(task)] if count else 0, replicas_of(task))
        )

    def mark(self, source: VolcanoJobObject, *, is_surplus: bool) -> list[dict[str, Any]]:
        """The JSON patch that marks a pod of the job as surplus, or takes the mark away; of no other pod."""
        version = OUTDATED if is_surplus else str((source.status or VolcanoJobStatus()).version or 0)
        return [
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": _metadata(source).uid},
            {"op": "replace", "path": "/metadata/annotations/volcano.sh~1job-version", "value": version},
        ]


def _task_problem(source: VolcanoJobObject) -> str:
    """Explain why edl can resize no task of a Volcano Job; empty if it can."""
    tasks, wanted = _spec(source).tasks or [], text((_metadata(source).annotations or {}).get(TASK))
    if not tasks:
        return "the job has no tasks; add one"
    names = ", ".join(task.name or "" for task in tasks)
    if wanted and not any(task.name == wanted for task in tasks):
        return f'annotation {TASK} is "{wanted[:80]}", but the tasks are {names[:200]}; write the name of one of them'
    if not wanted and len(tasks) != 1 and not any(task.name == "trainer" for task in tasks):
        return f"the job has the tasks {names[:200]}; set annotation {TASK} to the one that edl may resize"
    if len(tasks) > MOST_OTHERS + 1:
        return f"the job has {len(tasks)} tasks; edl plans one and at most {MOST_OTHERS} others"
    large = next((task for task in tasks if replicas_of(task) > MAX_INSTANCES), None)
    if large is not None:
        return f"task {large.name} has {large.replicas} replicas; edl plans at most {MAX_INSTANCES}"
    return _partition_problem(_tasks(source).elastic) or _topology_problem(source)


def _partition_problem(task: TaskObject) -> str:
    """Why a resize by single pods would take a part of a unit away; another task keeps all of its units, or none."""
    size = task.partition_policy.partition_size if task.partition_policy else None
    if size is None or size <= 1:
        return ""
    return (
        f"a partition of task {task.name} is {size} pods; edl resizes by single pods: set"
        " partitionPolicy.partitionSize to 1, or remove the annotations of edl"
    )


def _topology_problem(source: VolcanoJobObject) -> str:
    """Why some pods of another count might start nowhere: Volcano keeps all of them in one HyperNode."""
    asked = _spec(source).network_topology
    if asked is None or asked.mode == "soft":
        return ""
    tier = asked.highest_tier_name or asked.highest_tier_allowed
    if tier is None:
        return ""
    return (
        f"spec.networkTopology is hard up to tier {printable(str(tier))}, so Volcano keeps all pods of the job in one"
        " HyperNode of that tier, and edl does not know which nodes those are: set its mode to soft, or remove the"
        " annotations of edl"
    )


def _plugin_problem(source: VolcanoJobObject) -> str:
    """Say which plugin writes the number of pods into each pod, where a resize would not change it."""
    found = next((name for name in _FIXED_SIZE if name in (_spec(source).plugins or {})), "")
    if not found:
        return ""
    return (
        f"plugin {found} writes the number of pods into each pod when it starts, so a resize would leave pods that"
        " disagree; remove the plugin and let the trainers find each other, or remove the annotations of edl"
    )


def _finishing(source: VolcanoJobObject) -> str:
    """Say why the job is finishing, so that Volcano makes no new pods for ended ones; empty if it is not."""
    counts = (source.status or VolcanoJobStatus()).task_status_count or {}
    found = counts.get(_tasks(source).elastic.name or "")
    phases = (found.phase if found is not None else None) or {}
    if phases.get("Succeeded"):
        return "a pod of the task has succeeded, so the job is finishing; edl leaves the other pods to their end"
    if phases.get("Failed") and not _acts_on_failure(source):
        return (
            "a pod of the task has failed, and no policy of the job answers PodFailed, so it is finishing; edl leaves"
            " the other pods to their end"
        )
    return ""


def _acts_on_failure(source: VolcanoJobObject) -> bool:
    """True if a policy of the job or of the elastic task may start failed pods again."""
    policies = (*(_spec(source).policies or ()), *(_tasks(source).elastic.policies or ()))
    return any(
        policy.exit_code is not None or not _ON_FAILURE.isdisjoint((policy.event, *(policy.events or ())))
        for policy in policies
    )


def _other_writer(source: VolcanoJobObject) -> str:
    def owns(spec: ManagedSpec) -> bool:
        return spec.tasks is not None

    task = _tasks(source).elastic
    return writer_problem(_metadata(source), replicas_of(task), f"replicas of task {task.name}", owns)


def _fixed(tasks: Tasks, roles: dict[str, Role], stopped: Stopped | None) -> tuple[FixedPods, ...]:
    """Return the pods of the tasks that edl does not resize.

    For a stopped job, their numbers before it was stopped.
    """
    found = []
    for task in tasks.others:
        template, name = _template(task), task.name or ""
        count = stopped.replicas(name, task) if stopped is not None else replicas_of(task)
        if name in roles and count:
            shape = shape_of(template)
            found.append(FixedPods(roles[name], shape, count, preferences_of(template), limits_of(template)))
    return tuple(sorted(found, key=lambda fixed: list(Role).index(fixed.role)))


def _with_roles(
    pods: Collection[Pod], source_of: Callable[[Pod], PodObject], source: VolcanoJobObject, roles: dict[str, Role]
) -> tuple[Pod, ...]:
    """The pods with roles and indexes; those beyond the replicas of their task are terminating.

    The name of a pod says its task, whatever somebody writes in its annotations.
    """
    replicas = {task.name or "": replicas_of(task) for task in _tasks(source).all}
    found = []
    for pod in pods:
        start, _, number = pod.name.removeprefix(f"{_metadata(source).name}-").rpartition("-")
        annotations = (source_of(pod).metadata or PodMetadata()).annotations
        name = start if start in replicas or annotations is None else text(annotations.volcano_task)
        index = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        is_doomed = index >= replicas.get(name, 0)
        role = roles.get(name, Role.TRAINER)
        found.append(replace(pod, role=role, index=index, terminating=pod.terminating or is_doomed))
    return tuple(sorted(found, key=lambda pod: (pod.role or "", pod.index or 0, pod.name)))


def _status(source: VolcanoJobObject, pods: Collection[Pod]) -> JobStatus:
    return read_workload_status(
        _metadata(source),
        pods,
        replicas_of(_tasks(source).elastic),
        is_suspended=_phase(source) in _SUSPENDED,
        end=End(_ENDED[phase], phase) if (phase := _phase(source)) in _ENDED else None,
        failures=_failures(source),
    )


def _failures(source: VolcanoJobObject) -> str:
    """Read how many restarts, or failed pods, Volcano has counted since the job was created."""
    status = source.status or VolcanoJobStatus()
    if status.retry_count:
        limit = "" if _spec(source).max_retry is None else f", spec.maxRetry is {_spec(source).max_retry}"
        return f"Volcano has restarted the job {count(status.retry_count, 'time')}{limit}"
    return f"{count(status.failed, 'pod')} of the job failed" if status.failed else ""


def _volumes(source: VolcanoJobObject) -> list[JobVolumeObject]:
    return _spec(source).volumes or []


def _tasks(source: VolcanoJobObject) -> Tasks:
    tasks = tuple(_spec(source).tasks or ())
    wanted = text((_metadata(source).annotations or {}).get(TASK)) or "trainer"
    default = tasks[0] if len(tasks) == 1 else TaskObject()
    return Tasks(tasks, next((task for task in tasks if task.name == wanted), default))


def _phase(source: VolcanoJobObject) -> str:
    state = (source.status or VolcanoJobStatus()).state
    return (state.phase if state else None) or ""


def _metadata(source: VolcanoJobObject) -> WorkloadMetadata[ManagedSpec]:
    return source.metadata or WorkloadMetadata()


def _spec(source: VolcanoJobObject) -> VolcanoJobSpec:
    return source.spec or VolcanoJobSpec()


def _template(task: TaskObject) -> PodSpec:
    return (task.template or PodTemplateObject()).spec or PodSpec()
