"""`batch/v1` Jobs that ask to be resized: grown and shrunk by `spec.parallelism`.

The Job controller creates and deletes the pods, and it chooses which. It deletes pods without a node first, then
those that do not run, then those that are not ready, then those that became ready last; it ignores
pod-deletion-cost. A pod that it deletes so counts as no failure. What edl cannot resize without harm is refused in
words, and its pods then stay as they are.

Source: k8s.io/kubernetes/pkg/controller/job, funcs manageJob and activePodsForRemoval.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import PodMetadata, PodObject, PodSpec, PodTemplateObject
from edl.kube.translate.scalars import text
from edl.kube.workloads.annotations import INDEXES, MIN, is_elastic, read_wish
from edl.kube.workloads.batch_objects import BatchJobObject, BatchJobSpec, ManagedSpec
from edl.kube.workloads.deletion_order import deletion_key
from edl.kube.workloads.kueue import kueue_of, kueue_problem
from edl.kube.workloads.owned_by_kueue import added_to, owned_problem, owned_state, without_added
from edl.kube.workloads.read_alike import (
    End,
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
from edl.model.jobs import Job
from edl.model.names import JobKey, Role, WorkloadKind
from edl.model.pods import Pod
from edl.model.sizes import Sizes, within
from edl.model.status import JobPhase, JobStatus
from edl.model.times import seconds_of
from edl.model.units import count

RANKS, ITEMS = "ranks", "items"
"""What the indexes of an Indexed Job are: ranks of one training, whose number may change, or items that must run."""

GANG = "scheduling.volcano.sh/group-min-member"
"""The annotation with the number of pods with which Volcano starts a Job that it schedules.

Source: volcano.sh/volcano, pkg/controllers/podgroup, func createNormalPodPGIfNotExist.
"""
JOB_CONTROLLER = "kubernetes.io/job-controller"
_DECIDING = frozenset(
    {
        "AppWrapper",
        "JobSet",
        "MPIJob",
        "PyTorchJob",
        "RayCluster",
        "RayJob",
        "RayService",
        "SparkApplication",
        "TrainJob",
    }
)
"""Owners that know how many pods their Jobs have, and rely on it."""
_POD_SET = "main"
"""The name of the pods of a Job in its Workload of Kueue."""
_INDEXES = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_ENDED = {
    "Complete": JobPhase.SUCCEEDED,
    "SuccessCriteriaMet": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
    "FailureTarget": JobPhase.FAILED,
}


class BatchJobs:
    """The adapter; see `edl.kube.workloads.adapter.Adapter`."""

    kind = WorkloadKind.BATCH_JOB
    api = ("batch/v1", "Job", "jobs")
    decoder: Decoder[Any] = Decoder("Job", BatchJobObject)
    template_path = ("template",)

    def key(self, source: BatchJobObject) -> JobKey:
        """The key of a Job."""
        return key_of(self.kind, _metadata(source))

    def is_elastic(self, source: BatchJobObject) -> bool:
        """True if the Job asks to be resized."""
        return is_elastic(_metadata(source).annotations or {})

    def problem(self, source: BatchJobObject) -> str:
        """Why edl does not resize a Job that asks for it, and the remedy; empty if it does."""
        if _end(source) is not None:
            return ""
        wish = read_wish(_metadata(source).annotations or {})
        return (
            _finishing(source)
            or _owner_problem(source)
            or wish.problem
            or owned_problem(_metadata(source), _stored_template(source))
            or kueue_problem(_metadata(source), wish, _spec(source).template, "pods")
            or gang_problem(wish, _gang(source), f"annotation {GANG}")
            or _index_problem(source)
            or _completions_problem(source, wish.min_trainers)
            or _ranks_problem(source, wish.min_trainers)
            or _other_writer(source)
            or template_problem(_template(source), "pods")
        )

    def read(
        self, source: BatchJobObject, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float
    ) -> Job:
        """Translate a Job.

        Raises:
            ConfigError: a quantity of the template cannot be parsed.
        """
        metadata, spec = _metadata(source), _spec(source)
        ordered = _with_indexes(pods, source_of, has_ranks=_has_ranks(source))
        wish = read_wish(metadata.annotations or {})
        job = read_job(self.key(source), metadata, wish, _template(source), ordered, now_s=now_s)
        kueue = owned_state(metadata) or kueue_of(metadata, _POD_SET, is_suspended=bool(spec.suspend))
        left = job.max_trainers
        if spec.completions is not None and not _has_ranks(source):
            left = max(1, spec.completions - _over(source))
        return replace(
            job,
            min_trainers=min(job.min_trainers, left),
            sizes=_sizes_up_to(left, job.sizes) if job.min_trainers <= left else (),
            max_trainers=min(job.max_trainers, left),
            pods=_with_doomed(ordered, _kept(source)),
            suspended=bool(spec.suspend) and kueue is None,
            kueue=kueue,
            finished=_end(source) is not None,
            problem=self.problem(source),
            finishing=bool(_finishing(source)),
            status=_status(source, ordered),
            owner_count=_kept(source),
        )

    def templates(self, source: BatchJobObject) -> dict[Role, PodObject]:
        """The pod template of the Job, by role."""
        name = _metadata(source).name or ""
        labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
        return {Role.TRAINER: with_labels(_spec(source).template, labels)}

    def template(self, source: BatchJobObject) -> PodSpec:
        """The pod template of the Job, as it is stored."""
        return _stored_template(source)

    def start_s(self, source: BatchJobObject) -> float | None:
        """When the Job was last started, in seconds since the epoch; while set, its template may not be changed."""
        return seconds_of(source.status.start_time) if source.status else None

    def count(self, source: BatchJobObject) -> int:
        """The number of pods of the Job: `spec.parallelism`; 0 while edl suspends it for Kueue."""
        return _kept(source)

    def patch(self, source: BatchJobObject, count: int, victims: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG002 - the Job controller chooses
        """Return the patch that sets another parallelism, and for ranks the same number of completions.

        Completions of 0 would complete the Job, so a Job that is stopped keeps its completions. One whose Workloads
        edl makes is suspended instead: only then may its template change.
        """
        is_owned = owned_state(_metadata(source)) is not None
        if is_owned and not count:
            return {"suspend": True}
        resume = {"suspend": False} if is_owned and _spec(source).suspend else {}
        return {**resume, "parallelism": count, **({"completions": count} if count and _has_ranks(source) else {})}

    def surplus(self, source: BatchJobObject, count: int) -> tuple[str, ...]:  # noqa: ARG002 - as the protocol has it
        """Return no pods: the Job controller does not count a pod that it deletes for a resize as failed."""
        return ()

    def mark(self, source: BatchJobObject, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - see above
        """Return no patch: the Job controller chooses its victims itself."""
        return []


def _sizes_up_to(left: int, sizes: Sizes) -> Sizes:
    """The sizes that a Job may still have; if fewer completions are left than a size, these are the last one."""
    return (*within(sizes, 1, left - 1), left) if sizes and left < sizes[-1] else sizes


def _parallelism(source: BatchJobObject) -> int:
    """The parallelism of a Job; the API server sets 1 if the field is missing."""
    parallelism = _spec(source).parallelism
    return 1 if parallelism is None else max(0, parallelism)


def _kept(source: BatchJobObject) -> int:
    is_stopped = bool(_spec(source).suspend) and owned_state(_metadata(source)) is not None
    return 0 if is_stopped else _parallelism(source)


def _owner_problem(source: BatchJobObject) -> str:
    """Why the Job belongs to another controller than Kubernetes' own; empty if it does not.

    Many owners, such as a CronJob or a Workflow of Argo, make Jobs and never write to them again. Should one write
    the count, `_other_writer` tells.
    """
    manager = _spec(source).managed_by
    if manager not in {None, "", JOB_CONTROLLER}:
        return f"spec.managedBy is {manager}, so its pods are not made here; remove the annotations of edl"
    owner = next((one for one in _metadata(source).owner_references or () if one.controller), None)
    if owner is not None and owner.kind in _DECIDING:
        return f"it belongs to {owner.kind} {owner.name}, which decides on its pods; remove the annotations of edl"
    return ""


def _gang(source: BatchJobObject) -> int:
    """The number of pods with which Volcano starts the Job; 0 if it is not given or no number."""
    value = text((_metadata(source).annotations or {}).get(GANG))
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


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
            f" {'(not set)' if spec.completions is None else spec.completions}; set both to the same number"
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


def _ranks_problem(source: BatchJobObject, low: int) -> str:
    """Why the API server would refuse as few completions as the minimum; empty if it would not.

    Source: k8s.io/kubernetes/pkg/apis/batch/validation, funcs validateJobSpec and validateSuccessPolicyRule.
    """
    spec = _spec(source)
    rules = (spec.success_policy.rules if spec.success_policy else None) or ()
    by_policy = [
        least
        for rule in rules
        for least in (rule.succeeded_count or 0, _last_index(text(rule.succeeded_indexes)) + 1)
    ]
    needs = {"spec.maxFailedIndexes": spec.max_failed_indexes or 0, "spec.successPolicy": max(by_policy, default=0)}
    field, least = max(needs.items(), key=lambda need: need[1])
    if least <= low or not _has_ranks(source):
        return ""
    return (
        f"{field} needs {least} completions, and the API server accepts no fewer, but {MIN} is {low}; raise it, or"
        " lower what the policy asks for"
    )


def _last_index(listed: str) -> int:
    """The highest index of a list such as `1,3-5`; -1 if there is none that can be read."""
    ranges = (_INDEXES.fullmatch(part) for part in listed.split(","))
    return max((int(found[2] or found[1]) for found in ranges if found), default=-1)


def _finishing(source: BatchJobObject) -> str:
    """Say why the Job is finishing, so that its controller starts no further pod; empty if it is not."""
    if _succeeded(source) and (_spec(source).completions is None or _has_ranks(source)):
        return "a pod of the Job has succeeded, so it is finishing; edl leaves the other pods to their end"
    if _failed_indexes(source) and _has_ranks(source):
        return "a rank of the Job has failed for good, so it is finishing; edl leaves the other pods to their end"
    return ""


def _other_writer(source: BatchJobObject) -> str:
    def owns(spec: ManagedSpec) -> bool:
        return spec.parallelism is not None

    metadata = _metadata(source)
    if owned_state(metadata) is not None and (_spec(source).suspend or read_record(metadata).get("to") == 0):
        return ""
    return writer_problem(metadata, _parallelism(source), "spec.parallelism", owns)


def _status(source: BatchJobObject, pods: Collection[Pod]) -> JobStatus:
    spec, failed = _spec(source), (source.status.failed if source.status else None) or 0
    limit = "" if spec.backoff_limit is None else f", spec.backoffLimit is {spec.backoff_limit}"
    return read_workload_status(
        _metadata(source),
        pods,
        _kept(source),
        is_suspended=bool(spec.suspend),
        end=_end(source),
        failures=f"{count(failed, 'pod')} of the Job failed{limit}" if failed else "",
    )


def _with_indexes(pods: Iterable[Pod], source_of: Callable[[Pod], PodObject], *, has_ranks: bool) -> tuple[Pod, ...]:
    """Give the pods their completion indexes: the Job controller deletes the highest index first."""
    last_first = sorted(pods, key=lambda pod: _deletion_key(pod, source_of(pod), has_ranks=has_ranks), reverse=True)
    return tuple(replace(pod, index=index) for index, pod in enumerate(last_first))


def _deletion_key(pod: Pod, source: PodObject, *, has_ranks: bool) -> tuple[Any, ...]:
    """Sort key of pods in the order in which the Job controller deletes them."""
    return -_completion_index(source) if has_ranks else 0, *deletion_key(pod, source)


def _completion_index(source: PodObject) -> int:
    annotations = (source.metadata or PodMetadata()).annotations
    value = text(annotations.completion_index) if annotations else ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _with_doomed(pods: tuple[Pod, ...], count: int) -> tuple[Pod, ...]:
    """Mark pods beyond the Job's count as terminating, because its controller is about to delete them."""
    live = [pod for pod in pods if pod.is_live]
    doomed = {pod.uid for pod in live[count:]}
    return tuple(replace(pod, terminating=True) if pod.uid in doomed else pod for pod in pods)


def _has_ranks(source: BatchJobObject) -> bool:
    is_indexed = _spec(source).completion_mode == "Indexed"
    return is_indexed and text((_metadata(source).annotations or {}).get(INDEXES)) == RANKS


def _end(source: BatchJobObject) -> End | None:
    """How the Job has ended, or is about to: its controller starts no pod once nothing is left to run."""
    conditions = source.status.conditions if source.status else None
    if (end := end_by_conditions(conditions or (), _ENDED)) is not None:
        return end
    completions = _spec(source).completions
    if completions is None or not 0 < completions <= _over(source):
        return None
    if _failed_indexes(source):
        return End(JobPhase.FAILED, "FailedIndexes")
    return End(JobPhase.SUCCEEDED, "CompletionsReached")


def _over(source: BatchJobObject) -> int:
    """How many completions need no further pod: those that succeeded, and the indexes that failed for good."""
    return _succeeded(source) + _failed_indexes(source)


def _failed_indexes(source: BatchJobObject) -> int:
    """How many indexes the Job controller counts as failed; their text is a list such as `1,3-5`.

    A part that cannot be read counts as nothing.
    """
    listed = text(source.status.failed_indexes) if source.status else ""
    ranges = (_INDEXES.fullmatch(part) for part in listed.split(","))
    return sum(max(0, int(found[2] or found[1]) - int(found[1]) + 1) for found in ranges if found)


def _succeeded(source: BatchJobObject) -> int:
    """How many pods have succeeded, those included that the Job controller has still to count."""
    status = source.status
    if status is None:
        return 0
    uncounted = status.uncounted_terminated_pods.succeeded if status.uncounted_terminated_pods else None
    return (status.succeeded or 0) + len(uncounted or ())


def _metadata(source: BatchJobObject) -> WorkloadMetadata[ManagedSpec]:
    return source.metadata or WorkloadMetadata()


def _spec(source: BatchJobObject) -> BatchJobSpec:
    return source.spec or BatchJobSpec()


def _template(source: BatchJobObject) -> PodSpec:
    """The pod template as the owner of the Job wrote it."""
    return without_added(_stored_template(source), added_to(_metadata(source)))


def _stored_template(source: BatchJobObject) -> PodSpec:
    return (_spec(source).template or PodTemplateObject()).spec or PodSpec()
