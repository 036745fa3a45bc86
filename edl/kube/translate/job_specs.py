"""The spec of a TrainingJob becomes a `Job` without pods and status, and the pods that edl would create.

The shapes of a job's pods are read from these manifests, with the function that reads every other pod. So the plan
and the cluster always count the same resources. An invalid spec becomes a job with a problem, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from edl.api.checkpoints import checkpoints_warning
from edl.api.pods import pod_manifest
from edl.api.roles import MAX_INSTANCES
from edl.api.spec import Dataset, LedgerLoss
from edl.api.v1 import TrainingJob, parse_job
from edl.errors import ConfigError, InvalidJobError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.translate.objects import JobObject, PodObject, PodSpec
from edl.kube.translate.scalars import mapping
from edl.kube.translate.shapes import limits_of, preferences_of, qos_of, shape_of
from edl.lifecycle.tenancy import DEFAULT_QUEUE
from edl.model.job_policies import JobEvent, default_action
from edl.model.jobs import FixedPods, Job, RolePolicy
from edl.model.names import KUEUE_QUEUE, JobKey, Role
from edl.model.resources import PODS, PodShape, Resources
from edl.printable import printable

_ONE_POD = PodShape(Resources.of({PODS: 1}))


def job_of_spec(
    source: JobObject, key: JobKey, *, controller_namespace: str, default_master_image: str
) -> tuple[Job, Mapping[Role, PodObject]]:
    """Return the job that a spec describes, and the pod that edl would create in each role.

    Args:
        source: the object.
        key: its namespace and name.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.
        default_master_image: the image of a master whose job names none.

    Returns:
        The job without pods and status, and its manifests; a job with a problem and none if the spec is invalid.
    """
    if source.problem:
        return _invalid(source, key, source.problem), {}
    try:
        parsed = parse_job(source.body, controller_namespace=controller_namespace)
        manifests = {role: _manifest_of(parsed, role, default_master_image) for role in Role if parsed.minimum(role)}
        job = _job_of(parsed, key, {role: manifest.spec or PodSpec() for role, manifest in manifests.items()})
        problem = _two_queues(job, source)
        return (_invalid(source, key, problem), {}) if problem else (job, manifests)
    except InvalidJobError as error:
        return _invalid(source, key, "; ".join(error.problems)), {}
    except ConfigError as error:
        return _invalid(source, key, str(error)), {}
    except RecursionError:
        return _invalid(source, key, "the spec is nested too deeply; write it with fewer levels"), {}


def has_same_spec(known: JobObject, source: JobObject) -> bool:
    """Return True if spec and Kueue label of a job are unchanged, so that its translation can be used again."""
    if known.problem or source.problem or label(known, KUEUE_QUEUE) != label(source, KUEUE_QUEUE):
        return False
    try:
        return bool(known.body.get("spec") == source.body.get("spec"))
    except RecursionError:
        return False  # `job_of_spec` says that it is nested too deeply


def _job_of(parsed: TrainingJob, key: JobKey, specs: Mapping[Role, PodSpec]) -> Job:
    spec = parsed.spec
    fixed = tuple(
        FixedPods(
            role, shape_of(specs[role]), parsed.minimum(role), preferences_of(specs[role]), limits_of(specs[role])
        )
        for role in (Role.MASTER, Role.PSERVER)
        if role in specs
    )
    return Job(
        key=key,
        uid="",
        min_trainers=spec.trainer.min_trainers,
        max_trainers=spec.trainer.max_trainers,
        sizes=spec.sizes,
        trainer=shape_of(specs[Role.TRAINER]),
        preferred=preferences_of(specs[Role.TRAINER]),
        limits=limits_of(specs[Role.TRAINER]),
        qos=qos_of(specs[Role.TRAINER]),
        fixed=fixed,
        pinned=spec.trainer.instances,
        tier=spec.priority,
        queue=spec.queue,
        fault_tolerant=spec.fault_tolerant,
        gang=parsed.needs_pod_group,
        policies=tuple(_role_policies(parsed)),
        suspended=spec.suspend,
        backoff_limit=spec.backoff_limit,
        active_deadline_s=spec.active_deadline_seconds,
        ttl_s=spec.ttl_seconds_after_finished,
        cooldown_s=float(spec.elasticity.cooldown_seconds),
        throughput=tuple((p.instances, p.samples_per_second) for p in spec.elasticity.throughput),
        resize_cost_s=spec.elasticity.resize_cost_seconds,
        restarts_epoch=_restarts_epoch(spec.dataset),
        has_dataset=spec.dataset is not None,
        unkept=checkpoints_warning(parsed),
        lending=spec.elasticity.lending,
        scale_up=spec.elasticity.scale_up,
        topology=spec.topology.model if spec.topology else None,
    )


def _restarts_epoch(dataset: Dataset | None) -> bool | None:
    """Return what the spec sets for a lost ledger; None if it leaves that to the controller."""
    if dataset is None or dataset.on_ledger_lost is None:
        return None
    return dataset.on_ledger_lost is LedgerLoss.RESTART_EPOCH


def _role_policies(parsed: TrainingJob) -> Iterator[RolePolicy]:
    """Yield the policies that differ from the defaults of the job's mode; `Any` is expanded to every event."""
    for role in Role:
        for event in (JobEvent.POD_FAILED, JobEvent.POD_EVICTED, JobEvent.TASK_COMPLETED):
            action = parsed.action_for(role, event)
            usual = default_action(event, fault_tolerant=parsed.spec.fault_tolerant, of_trainers=role is Role.TRAINER)
            if action is not None and action is not usual:
                yield RolePolicy(role, event, action)


def _manifest_of(job: TrainingJob, role: Role, master_image: str) -> PodObject:
    """Return the pod of a role that edl would create.

    Raises:
        ConfigError: the role's template is not a valid pod template.
    """
    manifest = pod_manifest(job, role, 0, default_master_image=master_image, priority_classes=())
    try:
        return msgspec.convert(manifest, PodObject)
    except UNREADABLE as error:
        raise ConfigError(f"spec.{role.value}.template is not a valid pod template: {error}") from error


def label(source: JobObject, name: str) -> str:
    """The value of a label of a job; empty if it has none."""
    value = mapping(mapping(source.body.get("metadata")).get("labels")).get(name)
    return value if isinstance(value, str) else ""


def _two_queues(job: Job, source: JobObject) -> str:
    """Say why a job with a queue of Kueue does not start, such as a second queue of edl; empty if it may start.

    A job that has started goes on, because a label that somebody adds must not end it.
    """
    queue = label(source, KUEUE_QUEUE)
    if not queue or mapping(source.body.get("status")).get("startTime"):
        return ""
    named = f"label {KUEUE_QUEUE}: {printable(queue[:63])!r}"
    if job.queue != DEFAULT_QUEUE:
        return f"{named} names a queue of Kueue, and spec.queue {job.queue} one of edl; remove one of both"
    if job.is_best_effort:
        return f"{named} needs trainers that request cpu or memory, which Kueue counts; set spec.trainer.resources"
    return ""


def _invalid(source: JobObject, key: JobKey, problem: str) -> Job:
    """Return a job that gets no pods; its bounds are those of the spec if they are numbers and in order."""
    spec = mapping(source.body.get("spec"))
    trainer = mapping(spec.get("trainer"))
    low = _bounded(trainer.get("min-instance"))
    high = _bounded(trainer.get("max-instance"))
    return Job(
        key=key,
        uid="",
        min_trainers=low,
        max_trainers=max(low, high),
        trainer=_ONE_POD,
        fault_tolerant=spec.get("fault_tolerant") is True,
        problem=problem or "the spec is invalid",
        is_oversized=bool(source.problem),
    )


def _bounded(value: object) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(max(1, value), MAX_INSTANCES) if is_number and isinstance(value, int) else 1
