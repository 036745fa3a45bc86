"""Which changes a plan should follow soon, also while thousands of writes wait.

A growth of thousands of pods takes minutes, and each of its pods causes several events. Those are no reason to decide
again at once; what a person or a serving pod waits for is.
"""

from __future__ import annotations

from edl.kube.mirror.store import uid_of
from edl.kube.translate.intent import intent_of
from edl.kube.translate.objects import (
    HasMetadata,
    JobObject,
    NodeObject,
    PodObject,
)
from edl.kube.translate.ownership import names_a_job

_FINISHED = frozenset({"Succeeded", "Failed"})


def is_urgent(before: HasMetadata | None, after: HasMetadata | None) -> bool:
    """Return True if the controller should decide again soon.

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
    return False


def _spec_of(job: HasMetadata) -> tuple[str, int | None, str | None]:
    """What identifies the job and its spec: a status changes none of it."""
    metadata = job.metadata
    return (uid_of(job), *((metadata.generation, metadata.deletion_timestamp) if metadata else (None, None)))


def _waits(pod: HasMetadata | None) -> tuple[str, bool]:
    """The UID of a serving pod that waits for room, and whether kube-scheduler has tried it; else an empty UID."""
    if not isinstance(pod, PodObject) or pod.spec is None or pod.metadata is None or _is_of_job(pod):
        return "", False
    spec, status, metadata = pod.spec, pod.status, pod.metadata
    is_settled = spec.node_name or spec.scheduling_gates or metadata.deletion_timestamp or (spec.priority or 0) < 0
    nominated = status is not None and (status.nominated_node_name or status.phase in _FINISHED)
    if is_settled or nominated:
        return "", False
    conditions = (status.conditions if status is not None else None) or ()
    return uid_of(pod), any(c.type == "PodScheduled" and c.status == "False" for c in conditions)


def _has_ended(pod: HasMetadata | None) -> bool:
    """True for a job's pod that finished, or that somebody else than edl ends."""
    if not isinstance(pod, PodObject) or pod.metadata is None or not _is_of_job(pod):
        return False
    is_finished = pod.status is not None and pod.status.phase in _FINISHED
    return is_finished or (pod.metadata.deletion_timestamp is not None and not _is_marked(pod))


def _vanished(before: HasMetadata | None, after: HasMetadata | None) -> bool:
    """True if a job's pod is gone that edl did not end."""
    return isinstance(before, PodObject) and _is_of_job(before) and after is None and not _is_marked(before)


def _is_of_job(pod: PodObject) -> bool:
    metadata = pod.metadata
    if metadata is None:
        return False
    return names_a_job(metadata) or (metadata.labels is not None and bool(metadata.labels.trainer_of))


def _is_marked(pod: PodObject) -> bool:
    return bool(intent_of(pod))
