"""TrainingJobs become `Job` values; an invalid one becomes a job with a problem, never an error.

`job_specs` reads the spec. Here the pods of a job correct what its spec says about their shape, because admission may
change them. The stored status is validated field by field, because a user may have written it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from edl.api.base import MAX_INT32
from edl.api.roles import MAX_INSTANCES
from edl.api.status import MAX_SPEEDS, MAX_TROUBLES
from edl.errors import ConfigError
from edl.kube.translate.job_specs import has_same_spec, job_of_spec, label
from edl.kube.translate.learned import learned_shape
from edl.kube.translate.lending import declared_spec, lends
from edl.kube.translate.objects import JobObject, ObjectMetadata, PodObject, PodSpec
from edl.kube.translate.rules.terms import has_rules, has_terms
from edl.kube.translate.scalars import mapping, text
from edl.kube.translate.shapes import limits_of, qos_of, shape_of
from edl.lifecycle.status import is_over
from edl.model.jobs import FixedPods, Job
from edl.model.names import KUEUE_PRIORITY, KUEUE_QUEUE, JobKey, Role
from edl.model.pods import Pod
from edl.model.progress import Goodput, Measured, Progress, Speed
from edl.model.quantity import parse_quantity
from edl.model.quota_trees import KueueState
from edl.model.ranges import indexes_of
from edl.model.resources import CPU, PodShape, QosClass, Resources
from edl.model.status import Condition, JobPhase, JobStatus, LentCpu, NodeTrouble, Resize, RoleCount, Unseen
from edl.model.times import seconds_of

MAX_AMOUNT = 1e15
"""A rate or a duration of this size or more is not a measurement."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A translated job without its pods, and the object it was translated from.

    Attributes:
        manifests: what edl would create for each role; empty for an invalid job.
        has_rules: any of these requires something of the pods or the volumes beside it.
        taught_s: by role, when the pod was created that last changed the shape, in seconds since the epoch.
    """

    source: JobObject
    job: Job
    manifests: Mapping[Role, PodObject] = field(default_factory=dict)
    has_rules: bool = False
    taught_s: Mapping[Role, float] = field(default_factory=dict)


class JobReader:
    """Translates TrainingJobs; an unchanged one is not parsed again.

    Args:
        default_master_image: the image of a master whose job names none.
        controller_namespace: jobs are invalid in this namespace; empty if it is unknown.
    """

    def __init__(self, *, default_master_image: str = "", controller_namespace: str = "") -> None:
        self._default_master_image = default_master_image
        self._controller_namespace = controller_namespace
        self._known: dict[JobKey, Translated] = {}

    def read(self, source: JobObject, key: JobKey, pods: Iterable[Pod], now_s: float) -> Job:
        """Translate one job.

        Args:
            source: the object.
            key: its namespace and name.
            pods: its pods, in any order.
            now_s: the creation time of a job without one, in seconds since the epoch.
        """
        return replace(self.prepare(source, key, now_s).job, pods=tuple(sorted(pods, key=_pod_order)))

    def prepare(self, source: JobObject, key: JobKey, now_s: float) -> Translated:
        """Translate one job without its pods, unless that was done; `read` then costs little."""
        known = self._known.get(key)
        if known is None or known.source is not source:
            job, manifests = self._job_of_spec(source, key, known)
            is_ruled = any(has_rules(manifest.spec) for manifest in manifests.values() if manifest.spec)
            taught_s = known.taught_s if known is not None and job is known.job else {}
            job = _with_metadata_and_status(job, source, now_s)
            known = self._known[key] = Translated(source, job, manifests, is_ruled, taught_s)
        return known

    def manifest_of(self, key: JobKey, role: Role) -> PodObject | None:
        """The pod manifest that edl would create for a role of a job; None if it cannot be made."""
        known = self._known.get(key)
        return known.manifests.get(role) if known is not None else None

    def has_rules(self) -> bool:
        """Return True if the pods of any job require something of the pods or the volumes beside them."""
        return any(known.has_rules for known in self._known.values())

    def has_terms(self) -> bool:
        """Return True if the pods of any job require something of the pods beside them."""
        specs = (m.spec for known in self._known.values() if known.has_rules for m in known.manifests.values())
        return any(has_terms(spec) for spec in specs if spec is not None)

    def forget(self, key: JobKey) -> None:
        """Forget a job that no longer exists."""
        self._known.pop(key, None)

    def learn(self, key: JobKey, uid: str, role: Role, source: PodObject, *, shows_nodes: bool = True) -> bool:
        """Read from a pod what admission makes of the pods of a role; True if that changes their shape.

        It holds until the spec changes. A pod of another spec teaches nothing, and nor does one that is older than
        the pod that taught last: what admission made then is past, also once the newer pod is gone.

        Args:
            key: of the job.
            uid: of the job.
            role: of the pod.
            source: a pod that exists, or the answer to a dry run.
            shows_nodes: see `learned_shape`.

        Raises:
            ConfigError: a quantity of the pod cannot be parsed.
        """
        known = self._known.get(key)
        if known is None or known.job.uid != uid or role not in known.manifests:
            return False
        manifest, asked = known.manifests[role], _asked(source)
        made_s = seconds_of(source.metadata.creation_timestamp) if source.metadata else None
        last_s = known.taught_s.get(role, -inf)
        if (asked and asked != _asked(manifest)) or (made_s is not None and made_s < last_s):
            return False
        fixed = next((f for f in known.job.fixed if f.role is role), None)
        before, pod, spec = known.job.trainer if fixed is None else fixed.shape, declared_spec(source), manifest.spec
        planned = shape_of(spec or PodSpec()).request
        if lends(source) and before.request != planned:  # its own request is not what its job asks for
            return False
        shape = learned_shape(
            spec or PodSpec(),
            before,
            pod,
            is_of_manifest=bool(asked) and not lends(source),
            shows_nodes=shows_nodes,
        )
        if shape is None or shape == before:
            return False
        job = _with_shape(known.job, fixed, shape, pod, declared=planned if planned != shape.request else None)
        taught_s = {**known.taught_s, role: last_s if made_s is None else made_s}
        self._known[key] = replace(known, job=job, taught_s=taught_s)
        return True

    def _job_of_spec(
        self, source: JobObject, key: JobKey, known: Translated | None
    ) -> tuple[Job, Mapping[Role, PodObject]]:
        """Return the job that the spec describes; an unchanged spec is not parsed: most changes are of the status."""
        if known is not None and has_same_spec(known.source, source):
            return known.job, known.manifests
        return job_of_spec(
            source,
            key,
            controller_namespace=self._controller_namespace,
            default_master_image=self._default_master_image,
        )


def _with_shape(
    job: Job, fixed: FixedPods | None, shape: PodShape, pod: PodSpec, *, declared: Resources | None
) -> Job:
    """The job with another shape of its fixed pods, or of its trainers if that is None, with the limits of a pod."""
    limits = limits_of(pod)
    if fixed is None:
        return replace(job, trainer=shape, limits=limits, qos=qos_of(pod), declared=declared)
    changed = (replace(one, shape=shape, limits=limits) if one is fixed else one for one in job.fixed)
    return replace(job, fixed=tuple(changed))


def read_status(body: Mapping[str, Any]) -> JobStatus | None:
    """Read the stored status of a job; invalid fields count as absent. None if there is no status."""
    status = body.get("status")
    if not isinstance(status, dict) or not status:
        return None
    phase = _text(status.get("phase"))
    return JobStatus(
        phase=JobPhase(phase) if phase in set(JobPhase) else JobPhase.PENDING,
        reason=_text(status.get("reason")),
        selector=_text(status.get("selector")),
        observed_generation=_count(status.get("observedGeneration")),
        conditions=_conditions(status.get("conditions")),
        trainer=_role_count(status.get("trainer")),
        pserver=_role_count(status.get("pserver")),
        master=_role_count(status.get("master")),
        start_s=seconds_of(status.get("startTime")),
        completion_s=seconds_of(status.get("completionTime")),
        last_resize=_resize(status.get("lastResize")),
        failures=_count(status.get("failures")),
        explanation=_text(status.get("explanation")),
        dataset=_progress(status.get("dataset")),
        measured=_measured(status),
        completed=indexes_of(_text(status.get("completed"))),
        lending=_lending(status.get("lending")),
        troubles=_troubles(status.get("nodeTroubles")),
        qos=_qos(status.get("qosClass")),
    )


def _asked(pod: PodObject) -> str:
    """Return the digest of the manifest from which edl created the pod; empty for a pod of an older edl."""
    annotations = pod.metadata.annotations if pod.metadata else None
    return text(annotations.requests) if annotations else ""


def _with_metadata_and_status(job: Job, source: JobObject, now_s: float) -> Job:
    metadata = source.metadata or ObjectMetadata()
    created_s = seconds_of(metadata.creation_timestamp)
    queue = "" if job.problem else label(source, KUEUE_QUEUE)
    job = replace(
        job,
        kueue=KueueState(queue, Role.TRAINER.value, is_owned=True, priority_class=label(source, KUEUE_PRIORITY))
        if queue
        else None,
        uid=metadata.uid or "",
        generation=metadata.generation or 1,
        created_s=now_s if created_s is None else created_s,
        deleting=metadata.deletion_timestamp is not None,
        orphans_pods=metadata.orphans_dependents,
        status=read_status(source.body),
        finished=False,
    )
    return replace(job, finished=is_over(job))


def _pod_order(pod: Pod) -> tuple[str, int, str]:
    return (pod.role or "", -1 if pod.index is None else pod.index, pod.name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _role_count(value: object) -> RoleCount:
    counts = mapping(value)
    return RoleCount(*(_count(counts.get(name)) for name in ("desired", "ready", "pending")))


def _resize(value: object) -> Resize | None:
    resize = mapping(value)
    time_s = seconds_of(resize.get("time"))
    if time_s is None:
        return None
    return Resize(
        time_s,
        _count(resize.get("from")),
        _count(resize.get("to")),
        _text(resize.get("reason")),
        seconds_of(resize.get("voluntaryTime")),
        _amount(resize.get("seconds")),
        _unseen(resize.get("unseen")),
    )


def _unseen(value: object) -> Unseen | None:
    unseen = mapping(value)
    until_s = seconds_of(unseen.get("until"))
    return None if until_s is None else Unseen(_count(unseen.get("count")), until_s)


def _qos(value: object) -> QosClass | None:
    return QosClass(_text(value)) if _text(value) in set(QosClass) else None


def _lending(value: object) -> LentCpu | None:
    lending = mapping(value)
    try:
        milli = parse_quantity(_text(lending.get("cpu")), CPU)
    except ConfigError:
        return None
    return LentCpu(milli, _count(lending.get("slowed"))) if milli > 0 else None


def _troubles(value: object) -> tuple[NodeTrouble, ...]:
    """Read the nodes on which trainers failed or hung; an entry without a node or a time is left out."""
    entries = [mapping(entry) for entry in value[:MAX_TROUBLES]] if isinstance(value, list) else []
    found = {
        node: NodeTrouble(
            node, time_s, entry.get("hung") is True, _count(entry.get("waits")), entry.get("confirmed") is True
        )
        for entry in entries
        if (node := _text(entry.get("node"))) and (time_s := seconds_of(entry.get("time"))) is not None
    }
    return tuple(found[node] for node in sorted(found))


def _progress(value: object) -> Progress | None:
    if not isinstance(value, dict):
        return None
    epoch, done, total, unsaved = (_count(value.get(name)) for name in ("epoch", "done", "total", "unsaved"))
    return Progress(epoch, done, total, _text(value.get("model")), unsaved)


def _measured(status: Mapping[str, Any]) -> Measured:
    """Read the earlier measurements; impossible numbers are left out."""
    stored = status.get("throughput")
    entries = [mapping(entry) for entry in stored[:MAX_SPEEDS]] if isinstance(stored, list) else []
    speeds = {
        count: Speed(count, per_s, weight_s)
        for entry in entries
        if 0 < (count := _count(entry.get("instances"))) <= MAX_INSTANCES
        and (per_s := _amount(entry.get("samplesPerSecond")))
        and (weight_s := _amount(entry.get("seconds")))
    }
    return Measured(
        tuple(speeds[count] for count in sorted(speeds)),
        _amount(status.get("resizeSeconds")),
        _amount(status.get("lendingPrice")),
        _goodputs(status.get("goodput")),
        _batch(status.get("globalBatch")),
    )


def _goodputs(value: object) -> tuple[Goodput, ...]:
    """Read the goodput by number of trainers; impossible numbers are left out."""
    entries = [mapping(entry) for entry in value[:MAX_SPEEDS]] if isinstance(value, list) else []
    found = {
        count: Goodput(
            count,
            per_s,
            _batch(entry.get("globalBatch")),
            min(1.0, _amount(entry.get("efficiency")) or 0.0),
            entry.get("measured") is True,
        )
        for entry in entries
        if 0 < (count := _count(entry.get("instances"))) <= MAX_INSTANCES
        and (per_s := _amount(entry.get("samplesPerSecond")))
    }
    return tuple(found[count] for count in sorted(found))


def _batch(value: object) -> int:
    """Return a global batch; 0 for one that the API does not allow."""
    return count if (count := _count(value)) <= MAX_INT32 else 0


def _amount(value: object) -> float | None:
    """Return a finite number that is not negative; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, int | float) and 0 <= value < MAX_AMOUNT else None


def _conditions(value: object) -> tuple[Condition, ...]:
    entries = [mapping(entry) for entry in value] if isinstance(value, list) else []
    return tuple(
        Condition(
            type=_text(entry.get("type")),
            status=_text(entry.get("status")),
            reason=_text(entry.get("reason")),
            message=_text(entry.get("message")),
            since_s=seconds_of(entry.get("lastTransitionTime")) or 0.0,
            observed_generation=_count(entry.get("observedGeneration")),
        )
        for entry in entries
        if _text(entry.get("type"))
    )
