"""`batch/v1` Jobs that ask to be resized: grown and shrunk by `spec.parallelism`.

The Job controller creates and deletes the pods, and it chooses which. It deletes pods without a node first, then
those that do not run, then those that are not ready, then those that became ready last; it ignores
pod-deletion-cost. A pod that it deletes so counts as no failure. What edl cannot resize without harm is refused in
words, and its pods then count as those of somebody else.

Source: k8s.io/kubernetes/pkg/controller/job, funcs manageJob and activePodsForRemoval.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.jobs import read_status
from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec, PodTemplateObject, text
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.shapes import limits_of, preferences_of, qos_of, shape_of
from edl.kube.workloads.annotations import MANAGER, is_elastic, other_writer, read_record, read_wish
from edl.kube.workloads.batch_objects import BatchJobMetadata, BatchJobObject, BatchJobSpec
from edl.kube.workloads.deletion_order import deletion_key
from edl.model.jobs import Job
from edl.model.lending import Lending
from edl.model.names import JobKey, WorkloadKind
from edl.model.pods import Pod
from edl.model.resources import CPU, GPU, MEMORY
from edl.model.status import JobPhase, JobStatus, RoleCount
from edl.model.times import seconds_of

INDEXES = "paddlepaddle.org/indexes"
RANKS, ITEMS = "ranks", "items"
"""What the indexes of an Indexed Job are: ranks of one training, whose number may change, or items that must run."""

JOB_CONTROLLER = "kubernetes.io/job-controller"
KUEUE = "kueue.x-k8s.io/queue-name"
_ENDED = {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}


class BatchJobs:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`."""

    kind = WorkloadKind.BATCH_JOB
    api = ("batch/v1", "Job", "jobs")
    decoder: Decoder[Any] = Decoder("Job", BatchJobObject)

    def key(self, source: BatchJobObject) -> JobKey:
        """The key of a Job."""
        metadata = _metadata(source)
        return JobKey.of(self.kind, metadata.namespace or DEFAULT_NAMESPACE, metadata.name or "")

    def is_elastic(self, source: BatchJobObject) -> bool:
        """True if the Job asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: BatchJobObject) -> str:
        """Why edl does not resize a Job that asks for it, and the remedy; empty if it does."""
        if _is_ended(source):
            return ""
        wish = read_wish(_metadata(source).annotations or {})
        return (
            _owner_problem(source)
            or wish.problem
            or _index_problem(source)
            or _completions_problem(source, wish.min_trainers)
            or _finishing(source)
            or self._other_writer(source)
            or _template_problem(source)
        )

    def read(
        self, source: BatchJobObject, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float
    ) -> Job:
        """Translate a Job.

        Raises:
            ConfigError: a quantity of the template cannot be parsed.
        """
        metadata, spec = _metadata(source), _spec(source)
        wish, template = read_wish(metadata.annotations or {}), _template(source)
        record = read_record(metadata.annotations or {})
        created_s = seconds_of(metadata.creation_timestamp)
        low, high = wish.min_trainers, wish.max_trainers
        if spec.completions is not None and not _has_ranks(source):
            left = max(1, spec.completions - _succeeded(source))
            low, high = min(low, left), min(high, left)
        ordered = _with_indexes(pods, source_of, has_ranks=_has_ranks(source))
        newest = max(ordered, key=lambda pod: pod.created_s, default=None)
        return Job(
            key=self.key(source),
            uid=metadata.uid or "",
            generation=metadata.generation or 1,
            created_s=now_s if created_s is None else created_s,
            min_trainers=low,
            max_trainers=high,
            trainer=shape_of(template) if newest is None else newest.shape,
            preferred=preferences_of(template),
            limits=limits_of(template),
            qos=qos_of(template),
            pods=_with_doomed(ordered, _parallelism(source)),
            queue=wish.queue,
            suspended=bool(spec.suspend),
            finished=_is_ended(source),
            deleting=metadata.deletion_timestamp is not None,
            problem=self.problem(source),
            status=_status(source, ordered, record),
            owner_count=_parallelism(source),
            lending=Lending.NEVER,  # its own controller writes what its pods request
        )

    def count(self, source: BatchJobObject) -> int:
        """`spec.parallelism`."""
        return _parallelism(source)

    def patch(self, source: BatchJobObject, count: int, victims: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG002 - the Job controller chooses
        """Another parallelism; of a Job whose indexes are ranks also the same completions.

        Completions of 0 would complete the Job, so a Job that is stopped keeps its completions.
        """
        return {"parallelism": count, **({"completions": count} if count and _has_ranks(source) else {})}

    def surplus(self, source: BatchJobObject, count: int) -> tuple[str, ...]:  # noqa: ARG002 - as the protocol has it
        """No pod: the Job controller counts a pod that it deletes for a resize as no failure."""
        return ()

    def mark(self, source: BatchJobObject, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - see above
        """Nothing."""
        return []

    def _other_writer(self, source: BatchJobObject) -> str:
        metadata = _metadata(source)
        owners = {
            entry.manager or ""
            for entry in metadata.managed_fields or ()
            if entry.fields_v1 and entry.fields_v1.spec and entry.fields_v1.spec.parallelism is not None
        }
        managers = tuple(sorted(owners - {MANAGER, ""}))
        return other_writer(
            _parallelism(source), read_record(metadata.annotations or {}), managers, "spec.parallelism"
        )


def _parallelism(source: BatchJobObject) -> int:
    """The API server sets 1 if nobody sets it."""
    parallelism = _spec(source).parallelism
    return 1 if parallelism is None else parallelism


def _owner_problem(source: BatchJobObject) -> str:
    """Why the Job belongs to another controller than Kubernetes' own; empty if it does not."""
    manager = _spec(source).managed_by
    if manager not in {None, "", JOB_CONTROLLER}:
        return f"spec.managedBy is {manager}, so its pods are not made here; remove the annotations of edl"
    if KUEUE in (_metadata(source).labels or {}):
        return f"label {KUEUE} gives the Job to Kueue, which admits and suspends it; use one of both"
    return ""


def _index_problem(source: BatchJobObject) -> str:
    spec, value = _spec(source), text((_metadata(source).annotations or {}).get(INDEXES))
    if spec.completion_mode != "Indexed":
        return f"annotation {INDEXES} needs spec.completionMode Indexed; remove it" if value else ""
    if value not in {"", RANKS, ITEMS}:
        return f'annotation {INDEXES} is "{value[:40]}"; write "{RANKS}" or "{ITEMS}"'
    parallelism = _parallelism(source)
    if value == RANKS and parallelism not in {0, spec.completions}:
        return (
            f"annotation {INDEXES} is {RANKS}, but spec.parallelism {parallelism} differs from spec.completions"
            f" {spec.completions}; set both to the same number"
        )
    if not value and parallelism == spec.completions:
        return (
            f"the indexes of this Job may be ranks or items; set annotation {INDEXES} to {RANKS} if completions may"
            f" change with the number of pods, or to {ITEMS} if every index must run"
        )
    return ""


def _completions_problem(source: BatchJobObject, low: int) -> str:
    completions = _spec(source).completions
    if completions is not None and completions < low and not _has_ranks(source):
        return f"min-instance {low} exceeds spec.completions {completions}, so the Job never has that many pods"
    return ""


def _finishing(source: BatchJobObject) -> str:
    """After this the Job controller starts and deletes no pod, whatever the parallelism is."""
    if _succeeded(source) and (_spec(source).completions is None or _has_ranks(source)):
        return "a pod of the Job has succeeded, so it is finishing; edl leaves the other pods to their end"
    return ""


def _template_problem(source: BatchJobObject) -> str:
    request = shape_of(_template(source)).request
    if not any(request[name] for name in (CPU, MEMORY, GPU)):
        return "its pods request neither cpu nor memory; set resources.requests, so that edl knows what one needs"
    return ""


def _status(source: BatchJobObject, pods: Collection[Pod], record: dict[str, Any]) -> JobStatus:
    """The status of the Job in the terms of a TrainingJob, with the last resize that edl recorded."""
    live = [pod for pod in pods if pod.is_live]
    ready = sum(pod.ready for pod in live)
    phase = JobPhase.RUNNING if live else JobPhase.PENDING
    if _spec(source).suspend:
        phase = JobPhase.SUSPENDED
    if _is_ended(source):
        phase = JobPhase.SUCCEEDED
    counts = RoleCount(_parallelism(source), ready, len(live) - ready)
    stored = read_status({"status": {"lastResize": record}} if record else {}) or JobStatus()
    return replace(stored, phase=phase, trainer=counts)


def _with_indexes(pods: Iterable[Pod], source_of: Callable[[Pod], PodObject], *, has_ranks: bool) -> tuple[Pod, ...]:
    """The pods with indexes: the Job controller deletes the highest index first."""
    last_first = sorted(pods, key=lambda pod: _deletion_key(pod, source_of(pod), has_ranks=has_ranks), reverse=True)
    return tuple(replace(pod, index=index) for index, pod in enumerate(last_first))


def _deletion_key(pod: Pod, source: PodObject, *, has_ranks: bool) -> tuple[Any, ...]:
    """The order in which the Job controller deletes pods, as it sorts them."""
    return -_completion_index(source) if has_ranks else 0, *deletion_key(pod, source)


def _completion_index(source: PodObject) -> int:
    annotations = (source.metadata or PodMetadata()).annotations
    value = text(annotations.completion_index) if annotations else ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _with_doomed(pods: tuple[Pod, ...], count: int) -> tuple[Pod, ...]:
    """The pods by index; those beyond the count of the Job are terminating: its controller deletes them."""
    live = [pod for pod in pods if pod.is_live]
    doomed = {pod.uid for pod in live[count:]}
    return tuple(replace(pod, terminating=True) if pod.uid in doomed else pod for pod in pods)


def _has_ranks(source: BatchJobObject) -> bool:
    is_indexed = _spec(source).completion_mode == "Indexed"
    return is_indexed and text((_metadata(source).annotations or {}).get(INDEXES)) == RANKS


def _is_ended(source: BatchJobObject) -> bool:
    conditions = source.status.conditions if source.status else None
    return any(c.type in _ENDED and c.status == "True" for c in conditions or ())


def _succeeded(source: BatchJobObject) -> int:
    return (source.status.succeeded if source.status else None) or 0


def _metadata(source: BatchJobObject) -> BatchJobMetadata:
    return source.metadata or BatchJobMetadata()


def _spec(source: BatchJobObject) -> BatchJobSpec:
    return source.spec or BatchJobSpec()


def _template(source: BatchJobObject) -> PodSpec:
    return (_spec(source).template or PodTemplateObject()).spec or PodSpec()
