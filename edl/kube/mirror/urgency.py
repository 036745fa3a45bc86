"""Tells which changes a plan should follow soon, even while thousands of writes wait.

A growth of thousands of pods takes minutes, and each of its pods causes several events. Those are no reason to decide
again at once; what a person, a serving pod or a Workload of Kueue waits for is.
"""

from __future__ import annotations

from edl.kube.mirror.store import uid_of
from edl.kube.translate.books.deferred_resizes import deferred_resize
from edl.kube.translate.intent import intent_of
from edl.kube.translate.kueue.loads import REPLACES, index_of
from edl.kube.translate.kueue.objects import WorkloadObject
from edl.kube.translate.objects import HasMetadata, JobObject, NodeObject, PodObject
from edl.kube.translate.ownership import names_a_job

_WORKLOADS = "/workloads"
_FINISHED = frozenset({"Succeeded", "Failed"})


def is_urgent(before: HasMetadata | None, after: HasMetadata | None) -> bool:
    """Return True if a change is one that the controller should decide about soon.

    Args:
        before: the object before the change; None if it did not exist.
        after: the object now; None if it does not exist any more.
    """
    match after or before:
        case JobObject():
            return before is None or after is None or _spec_of(before) != _spec_of(after)
        case NodeObject():
            return True  # heartbeats are no changes
        case PodObject():
            return (
                _waits(before) != _waits(after) or _has_ended(after) > _has_ended(before) or _vanished(before, after)
            )
        case WorkloadObject():
            return _claim_of(before) != _claim_of(after)
    return False


def group_of(changed: HasMetadata) -> str:
    """Return the group of changes that a plan for this change waits for: a namespace's, or its Workloads' alone.

    The group of an object without namespace is empty.

    Whoever waits in a queue of Kueue waits for a plan and then up to a second for Kueue, so no pod that comes in the
    meantime postpones that plan.
    """
    namespace = (changed.metadata and changed.metadata.namespace) or ""
    return f"{namespace}{_WORKLOADS}" if isinstance(changed, WorkloadObject) else namespace


def _spec_of(job: HasMetadata) -> tuple[str, int | None, str | None]:
    """The fields that identify a job and its spec; a write of the status changes none of them."""
    metadata = job.metadata
    return (uid_of(job), *((metadata.generation, metadata.deletion_timestamp) if metadata else (None, None)))


def _claim_of(workload: HasMetadata | None) -> tuple[str, bool]:
    """Return the UID of a Workload that has not ended and whether Kueue has reserved quota for it; else no UID.

    Larger sizes of a running job and further trainers are left out: what edl asks for is no news to it.
    """
    if not isinstance(workload, WorkloadObject) or workload.metadata is None:
        return "", False
    conditions = (workload.status.conditions if workload.status is not None else None) or ()
    true = {condition.type for condition in conditions if condition.status == "True"}
    if "Finished" in true or REPLACES in (workload.metadata.annotations or {}) or index_of(workload.metadata):
        return "", False
    return uid_of(workload), "QuotaReserved" in true


def _waits(pod: HasMetadata | None) -> tuple[str, bool]:
    """Return the UID of a serving pod that waits, and whether kube-scheduler tried it; an empty UID for other pods.

    It waits without a node, or with one that cannot grant its larger requests yet.
    """
    if not isinstance(pod, PodObject) or pod.spec is None or pod.metadata is None or _is_of_job(pod):
        return "", False
    spec, status, metadata = pod.spec, pod.status, pod.metadata
    if spec.node_name and not metadata.deletion_timestamp and deferred_resize(status) is not None:
        return uid_of(pod), True
    is_settled = spec.node_name or spec.scheduling_gates or metadata.deletion_timestamp or (spec.priority or 0) < 0
    nominated = status is not None and (status.nominated_node_name or status.phase in _FINISHED)
    if is_settled or nominated:
        return "", False
    conditions = (status.conditions if status is not None else None) or ()
    return uid_of(pod), any(c.type == "PodScheduled" and c.status == "False" for c in conditions)


def _has_ended(pod: HasMetadata | None) -> bool:
    """True for a job's pod that has finished, or that another program than edl has deleted or evicted."""
    if not isinstance(pod, PodObject) or pod.metadata is None or not _is_of_job(pod):
        return False
    is_finished = pod.status is not None and pod.status.phase in _FINISHED
    return is_finished or (pod.metadata.deletion_timestamp is not None and not _is_marked(pod))


def _vanished(before: HasMetadata | None, after: HasMetadata | None) -> bool:
    """True if a job's pod is gone although edl did not delete it."""
    return isinstance(before, PodObject) and _is_of_job(before) and after is None and not _is_marked(before)


def _is_of_job(pod: PodObject) -> bool:
    metadata = pod.metadata
    if metadata is None:
        return False
    return names_a_job(metadata) or bool(metadata.known_labels.trainer_of)


def _is_marked(pod: PodObject) -> bool:
    return bool(intent_of(pod))
