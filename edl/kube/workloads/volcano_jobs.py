"""Volcano Jobs that ask to be resized: grown and shrunk by the replicas of one task, with `minAvailable`.

Volcano keeps the pods with the lowest indexes. Its controller answers the deletion of a surplus pod as it answers an
eviction, so a policy that restarts the job on PodEvicted would restart it at each shrink. It does nothing about pods
of a former version of the job. So edl first marks the surplus pods as such, and then lowers the count.

A job that gives way has all of its tasks set to 0, because its other tasks are of no use alone; an annotation keeps
their numbers.

Source: volcano.sh/volcano v1.10.0, pkg/controllers/job, funcs syncJob, deletePod and applyPolicies;
pkg/webhooks/admission/jobs/validate, func validateJobUpdate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.jobs import read_status
from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec, PodTemplateObject, text
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.shapes import limits_of, preferences_of, qos_of, shape_of
from edl.kube.workloads.annotations import MANAGER, TASK, is_elastic, other_writer, read_record, read_wish
from edl.kube.workloads.volcano_objects import (
    TaskObject,
    VolcanoJobMetadata,
    VolcanoJobObject,
    VolcanoJobSpec,
    VolcanoJobStatus,
)
from edl.kube.workloads.volcano_tasks import OUTDATED, Stopped, Tasks, read_stopped, resize_operations
from edl.model.jobs import FixedPods, Job
from edl.model.lending import Lending
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.resources import CPU, GPU, MEMORY
from edl.model.status import JobPhase, JobStatus, RoleCount
from edl.model.times import seconds_of

_OTHERS = (Role.PSERVER, Role.MASTER)
"""What other tasks count as in a plan: the pods that the job needs besides its trainers."""

_ENDED = {"Completing", "Completed", "Failed", "Terminating", "Terminated"}
_SUSPENDED = {"Aborting", "Aborted"}
_FIXED_SIZE = ("mpi", "pytorch", "tensorflow")


class VolcanoJobs:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`."""

    kind = WorkloadKind.VOLCANO_JOB
    api = ("batch.volcano.sh/v1alpha1", "Job", "jobs")
    decoder: Decoder[Any] = Decoder(WorkloadKind.VOLCANO_JOB.value, VolcanoJobObject)

    def key(self, source: VolcanoJobObject) -> JobKey:
        """The key of a Volcano Job."""
        metadata = _metadata(source)
        return JobKey.of(self.kind, metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")

    def is_elastic(self, source: VolcanoJobObject) -> bool:
        """True if the job asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: VolcanoJobObject) -> str:
        """Why edl does not resize a job that asks for it, and the remedy; empty if it does."""
        if _phase(source) in _ENDED:
            return ""
        return (
            read_wish(_metadata(source).annotations or {}).problem
            or _task_problem(source)
            or _plugin_problem(source)
            or _finishing(source)
            or self._other_writer(source)
            or _template_problem(source)
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
        record = read_record(metadata.annotations or {})
        roles = dict(zip((task.name or "" for task in tasks.others), _OTHERS, strict=False))
        ordered = _with_roles(pods, source_of, tasks, roles)
        created_s = seconds_of(metadata.creation_timestamp)
        newest = max((p for p in ordered if p.role is Role.TRAINER), key=lambda pod: pod.created_s, default=None)
        return Job(
            key=self.key(source),
            uid=metadata.uid or "",
            generation=metadata.generation or 1,
            created_s=now_s if created_s is None else created_s,
            min_trainers=wish.min_trainers,
            max_trainers=wish.max_trainers,
            trainer=shape_of(template) if newest is None else newest.shape,
            preferred=preferences_of(template),
            limits=limits_of(template),
            qos=qos_of(template),
            fixed=_fixed(tasks, roles, read_stopped(metadata.annotations or {})),
            pods=ordered,
            queue=wish.queue if wish.queue != "default" else _spec(source).queue or "default",
            fault_tolerant=False,  # no pod of it is moved: Volcano may answer that with a restart
            gang=True,
            suspended=_phase(source) in _SUSPENDED,
            finished=_phase(source) in _ENDED,
            deleting=metadata.deletion_timestamp is not None,
            problem=self.problem(source),
            status=_status(source, ordered, record),
            owner_count=self.count(source),
            lending=Lending.NEVER,  # its own controller writes what its pods request
        )

    def count(self, source: VolcanoJobObject) -> int:
        """The replicas of the task that edl resizes."""
        return _tasks(source).elastic.replicas or 0

    def patch(self, source: VolcanoJobObject, count: int, victims: tuple[str, ...]) -> list[dict[str, Any]]:  # noqa: ARG002 - Volcano chooses
        """The operations of a JSON patch: a merge patch would replace the whole list of tasks."""
        annotations = _metadata(source).annotations or {}
        low = read_wish(annotations).min_trainers
        return resize_operations(_tasks(source), _spec(source).min_available, low, count, read_stopped(annotations))

    def surplus(self, source: VolcanoJobObject, count: int) -> tuple[str, ...]:
        """The names of the pods that Volcano will delete, if they exist."""
        metadata, tasks = _metadata(source), _tasks(source)
        kept = {id(task): count if task is tasks.elastic else task.replicas or 0 for task in tasks.all}
        return tuple(
            f"{metadata.name}-{task.name}-{index}"
            for task in tasks.all
            for index in range(kept[id(task)] if count else 0, task.replicas or 0)
        )

    def mark(self, source: VolcanoJobObject, *, is_surplus: bool) -> list[dict[str, Any]]:
        """The JSON patch that marks a pod of the job as surplus, or takes the mark away; of no other pod."""
        version = OUTDATED if is_surplus else str((source.status or VolcanoJobStatus()).version or 0)
        return [
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": _metadata(source).uid},
            {"op": "replace", "path": "/metadata/annotations/volcano.sh~1job-version", "value": version},
        ]

    def _other_writer(self, source: VolcanoJobObject) -> str:
        metadata = _metadata(source)
        owners = {
            entry.manager or ""
            for entry in metadata.managed_fields or ()
            if entry.fields_v1 and entry.fields_v1.spec and entry.fields_v1.spec.tasks is not None
        }
        managers, field = tuple(sorted(owners - {MANAGER, ""})), f"replicas of task {_tasks(source).elastic.name}"
        return other_writer(self.count(source), read_record(metadata.annotations or {}), managers, field)


def _task_problem(source: VolcanoJobObject) -> str:
    """Why there is no task that edl could resize beside the others."""
    tasks, wanted = _spec(source).tasks or [], text((_metadata(source).annotations or {}).get(TASK))
    names = ", ".join(task.name or "" for task in tasks)
    if wanted and not any(task.name == wanted for task in tasks):
        return f'annotation {TASK} is "{wanted[:80]}", but the tasks are {names[:200]}; write the name of one of them'
    if not wanted and len(tasks) != 1 and not any(task.name == "trainer" for task in tasks):
        return f"the job has the tasks {names[:200]}; set annotation {TASK} to the one that edl may resize"
    if len(tasks) > len(_OTHERS) + 1:
        return f"the job has {len(tasks)} tasks; edl plans one and at most {len(_OTHERS)} others"
    return ""


def _plugin_problem(source: VolcanoJobObject) -> str:
    """Plugins that write the number of pods into each pod, where a resize does not change it."""
    found = next((name for name in _FIXED_SIZE if name in (_spec(source).plugins or {})), "")
    if not found:
        return ""
    return (
        f"plugin {found} writes the number of pods into each pod when it starts, so a resize would leave pods that"
        " disagree; remove the plugin and let the trainers find each other, or remove the annotations of edl"
    )


def _finishing(source: VolcanoJobObject) -> str:
    counts = (source.status or VolcanoJobStatus()).task_status_count or {}
    found = counts.get(_tasks(source).elastic.name or "")
    if found is not None and (found.phase or {}).get("Succeeded"):
        return "a pod of the task has succeeded, so the job is finishing; edl leaves the other pods to their end"
    return ""


def _template_problem(source: VolcanoJobObject) -> str:
    request = shape_of(_template(_tasks(source).elastic)).request
    if not any(request[name] for name in (CPU, MEMORY, GPU)):
        return "its pods request neither cpu nor memory; set resources.requests, so that edl knows what one needs"
    return ""


def _fixed(tasks: Tasks, roles: dict[str, Role], stopped: Stopped | None) -> tuple[FixedPods, ...]:
    """The pods of the other tasks, as many as there are, or were before edl stopped the job."""
    found = []
    for task in tasks.others:
        template, name = _template(task), task.name or ""
        count = stopped.replicas(name, task) if stopped is not None else task.replicas or 0
        if name in roles and count:
            shape = shape_of(template)
            found.append(FixedPods(roles[name], shape, count, preferences_of(template), limits_of(template)))
    return tuple(sorted(found, key=lambda fixed: list(Role).index(fixed.role)))


def _with_roles(
    pods: Collection[Pod], source_of: Callable[[Pod], PodObject], tasks: Tasks, roles: dict[str, Role]
) -> tuple[Pod, ...]:
    """The pods with roles and indexes; those beyond the replicas of their task are terminating."""
    replicas = {task.name or "": task.replicas or 0 for task in tasks.all}
    found = []
    for pod in pods:
        annotations = (source_of(pod).metadata or PodMetadata()).annotations
        name = text(annotations.volcano_task) if annotations else ""
        number = pod.name.rpartition("-")[2]
        index = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        is_doomed = index >= replicas.get(name, 0)
        role = roles.get(name, Role.TRAINER)
        found.append(replace(pod, role=role, index=index, terminating=pod.terminating or is_doomed))
    return tuple(sorted(found, key=lambda pod: (pod.role or "", pod.index or 0, pod.name)))


def _status(source: VolcanoJobObject, pods: Collection[Pod], record: dict[str, Any]) -> JobStatus:
    """The status of the job in the terms of a TrainingJob, with the last resize that edl recorded."""
    live = [pod for pod in pods if pod.is_live and pod.role is Role.TRAINER]
    ready = sum(pod.ready for pod in live)
    phase = JobPhase.RUNNING if live else JobPhase.PENDING
    if _phase(source) in _SUSPENDED:
        phase = JobPhase.SUSPENDED
    if _phase(source) in _ENDED:
        phase = JobPhase.SUCCEEDED
    counts = RoleCount(_tasks(source).elastic.replicas or 0, ready, len(live) - ready)
    stored = read_status({"status": {"lastResize": record}} if record else {}) or JobStatus()
    return replace(stored, phase=phase, trainer=counts)


def _tasks(source: VolcanoJobObject) -> Tasks:
    tasks = tuple(_spec(source).tasks or ())
    wanted = text((_metadata(source).annotations or {}).get(TASK)) or "trainer"
    default = tasks[0] if len(tasks) == 1 else TaskObject()
    return Tasks(tasks, next((task for task in tasks if task.name == wanted), default))


def _phase(source: VolcanoJobObject) -> str:
    state = (source.status or VolcanoJobStatus()).state
    return (state.phase if state else None) or ""


def _metadata(source: VolcanoJobObject) -> VolcanoJobMetadata:
    return source.metadata or VolcanoJobMetadata()


def _spec(source: VolcanoJobObject) -> VolcanoJobSpec:
    return source.spec or VolcanoJobSpec()


def _template(task: TaskObject) -> PodSpec:
    return (task.template or PodTemplateObject()).spec or PodSpec()
