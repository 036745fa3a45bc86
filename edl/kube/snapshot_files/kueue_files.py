"""Warnings about jobs in saved files that name queues of Kueue: missing objects, and jobs that Kueue would manage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from edl.kube.translate.job_specs import label
from edl.kube.translate.kueue.objects import LocalQueueObject, LocalQueueSpec, QuotaObject, QuotaSpec
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import text
from edl.kube.translate.workload_reader import WorkloadObject
from edl.kube.workloads.owned_by_kueue import DEFAULT_QUEUE
from edl.model.names import ANNOTATION_KUEUE_QUEUE, KUEUE_QUEUE

_SAVE = (
    "save it with the other objects of Kueue: kubectl get localqueues.kueue.x-k8s.io,clusterqueues.kueue.x-k8s.io,"
    "cohorts.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io,workloads.kueue.x-k8s.io -A -o yaml"
)


class _Named(NamedTuple):
    """A job that names a queue of Kueue.

    Attributes:
        job: its key, as a plan writes it.
        has_label: the queue is in Kueue's label; else in edl's annotation.
        is_new: the object is not from a cluster.
    """

    job: str
    namespace: str
    queue: str
    has_label: bool
    is_new: bool


def kueue_warnings(of: Callable[[str], list[Any]], workloads: Iterable[WorkloadObject]) -> Iterator[str]:
    """Yield a warning for each job whose quota the files do not contain, or which Kueue would take for itself.

    Args:
        of: gives the objects of a kind.
        workloads: the jobs of other kinds.
    """
    named = [*_training_jobs(of("TrainingJob")), *_workloads(workloads)]
    if not named:
        return
    locals_ = {_key(one): (one.spec or LocalQueueSpec()).cluster_queue or "" for one in of("LocalQueue")}
    queues = {(one.metadata or ObjectMetadata()).name or "": one for one in of("ClusterQueue")}
    flavors = {(one.metadata or ObjectMetadata()).name or "" for one in of("ResourceFlavor")}
    found: dict[str, list[str]] = {}
    for one in named:
        cluster_queue = locals_.get((one.namespace, one.queue))
        if cluster_queue is None:
            lacks = f"LocalQueue {one.namespace}/{one.queue} is not in the files"
            found.setdefault(f"the plan gives it nothing, because {lacks}; {_SAVE}", []).append(one.job)
        elif cluster_queue not in queues:
            lacks = f"ClusterQueue {cluster_queue or '(none)'} of LocalQueue {one.namespace}/{one.queue}"
            message = f"the plan gives it nothing, because {lacks} is not in the files; {_SAVE}"
            found.setdefault(message, []).append(one.job)
        else:
            for flavor in sorted(_flavors(queues[cluster_queue]) - flavors):
                lacks = f"ResourceFlavor {flavor} of ClusterQueue {cluster_queue} is not in the files"
                found.setdefault(f"{lacks}, so the plan takes all nodes for its nodes; {_SAVE}", []).append(one.job)
        if one.is_new and not one.has_label and (one.namespace, DEFAULT_QUEUE) in locals_:
            found.setdefault(_taken_by_default(one.namespace), []).append(one.job)
    for message, jobs in found.items():
        yield f"job {jobs[0]}{f' and {len(jobs) - 1} more' if len(jobs) > 1 else ''}: {message}"


def _taken_by_default(namespace: str) -> str:
    return (
        f"namespace {namespace} has a LocalQueue named {DEFAULT_QUEUE}, so Kueue gives the job label {KUEUE_QUEUE}"
        f" when it is created, and edl then refuses annotation {ANNOTATION_KUEUE_QUEUE}; create the job in another"
        " namespace, or rename that LocalQueue"
    )


def _training_jobs(sources: Iterable[Any]) -> Iterator[_Named]:
    for source in sources:
        metadata = source.metadata or ObjectMetadata()
        if queue := label(source, KUEUE_QUEUE):
            namespace = metadata.namespace or DEFAULT_NAMESPACE
            yield _Named(f"{namespace}/{metadata.name}", namespace, queue, True, not metadata.uid)


def _workloads(sources: Iterable[WorkloadObject]) -> Iterator[_Named]:
    for adapter, source in sources:
        if source.metadata is None or not adapter.is_elastic(source):
            continue
        key, labelled = adapter.key(source), text((source.metadata.labels or {}).get(KUEUE_QUEUE))
        queue = labelled or text((source.metadata.annotations or {}).get(ANNOTATION_KUEUE_QUEUE))
        if queue:
            yield _Named(str(key), key.namespace, queue, bool(labelled), not source.metadata.uid)


def _key(source: LocalQueueObject) -> tuple[str, str]:
    metadata = source.metadata or ObjectMetadata()
    return metadata.namespace or DEFAULT_NAMESPACE, metadata.name or ""


def _flavors(source: QuotaObject) -> set[str]:
    groups = (source.spec or QuotaSpec()).resource_groups or ()
    return {flavor.name or "" for group in groups for flavor in group.flavors or ()}
