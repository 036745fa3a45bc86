"""Why edl deletes a pod, as the pod itself says."""

from __future__ import annotations

from edl.kube.translate.objects import PodObject
from edl.kube.translate.ownership import names_a_job
from edl.kube.translate.scalars import text
from edl.model.actions import SHORTER_FOR_SERVING_S
from edl.model.status import Reason


def intent_of(pod: PodObject) -> str:
    """Return why edl deletes the pod, from its annotation or its grace period; empty if neither says it.

    A trainer that edl deletes for serving may have no annotation. Then it has a second less to end than by its spec.
    A later deletion with the usual grace period does not change that: a grace period can only become shorter.
    """
    metadata = pod.metadata
    if metadata is None:
        return ""
    if metadata.annotations is not None and (written := text(metadata.annotations.intent)):
        return written
    left_s = metadata.deletion_grace_period_seconds
    whole_s = pod.spec.termination_grace_period_seconds if pod.spec is not None else None
    is_trainer = names_a_job(metadata)
    if left_s is None or whole_s is None or not is_trainer or left_s != whole_s - SHORTER_FOR_SERVING_S:
        return ""
    return Reason.SERVING_NEEDS_ROOM.value
