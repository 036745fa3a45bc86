"""A job as it will be once the writes under way have succeeded, as kube-scheduler assumes pods that it binds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edl.model.actions import CreatePod, DeletePod
from edl.model.jobs import Job
from edl.model.names import SURPLUS_VALUE, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU

UID_OF_ASSUMED = "assumed "
"""The beginning of the UID that edl gives a pod while the pod is being created."""


def as_if_done(job: Job, actions: Iterable[CreatePod | DeletePod]) -> Job:
    """Return the job as if its creations had succeeded and the pods that are being deleted were terminating.

    Args:
        job: as the cache shows it.
        actions: the creations and deletions of its pods that are under way, or whose answer was lost.
    """
    actions = tuple(actions)
    if not actions:
        return job
    ends = {a.pod_uid: a.intent for a in actions if isinstance(a, DeletePod)}
    there = {pod.name for pod in job.pods}
    new = {a.pod_name: _pod(job, a) for a in actions if isinstance(a, CreatePod) and a.pod_name not in there}
    kept = [replace(p, terminating=True, intent=p.intent or ends[p.uid]) if p.uid in ends else p for p in job.pods]
    pods = sorted((*kept, *new.values()), key=lambda p: (p.role or "", p.index or 0, p.name))
    return replace(job, pods=tuple(pods))


def _pod(job: Job, action: CreatePod) -> Pod:
    """The pod that an action creates."""
    shape = next((fixed.shape for fixed in job.fixed if fixed.role is action.role), job.trainer)
    lent_milli = round(shape.request[CPU] * (1 - action.cpu_request)) if action.role is Role.TRAINER else 0
    is_surplus = action.role is Role.TRAINER and action.index >= job.min_trainers and not action.is_base
    return Pod(
        namespace=job.key.namespace,
        name=action.pod_name,
        priority=SURPLUS_VALUE if is_surplus else 0,
        uid=f"{UID_OF_ASSUMED}{action.pod_name}",
        shape=shape,
        planned=action.node or "",
        pinned=action.pinned,
        job=job.key,
        role=action.role,
        index=action.index,
        lent_cpu_milli=lent_milli,
    )


def is_foreseen(before: Job, now: Job, actions: Iterable[CreatePod | DeletePod]) -> bool:
    """Return True if nothing has happened to a job but pods that started and edl's own writes that took effect.

    Then what was computed for the job still holds, and only the counts in its status change.

    Args:
        before: the job when it was looked at last.
        now: the job as the cache shows it.
        actions: the creations and deletions of its pods that were under way since.
    """
    if before.status is not now.status and before.status != now.status:
        return False
    if replace(now, pods=before.pods, status=before.status) != before:
        return False
    created, deleted = set(), set()
    for action in actions:
        if isinstance(action, CreatePod):
            created.add(action.pod_name)
        else:
            deleted.add(action.pod_uid)
    missing = {pod.uid: pod for pod in before.pods}
    for pod in now.pods:
        old = missing.pop(pod.uid, None)
        if old is None and pod.name not in created:
            return False
        if old is not None and old is not pod and pod.uid not in deleted and not _has_only_started(old, pod):
            return False
    return missing.keys() <= deleted


def _has_only_started(before: Pod, now: Pod) -> bool:
    """True if the pod was bound, runs, or is ready or not ready, and nothing else about it has changed."""
    if now.phase not in {PodPhase.PENDING, PodPhase.RUNNING} or (now.tried and not before.tried):
        return False
    started = replace(
        before,
        phase=now.phase,
        node=now.node,
        nominated=now.nominated,
        ready=now.ready,
        ip=now.ip,
        started_s=now.started_s,
        begun=now.begun,
        answered_s=now.answered_s if now.node else before.answered_s,
        tried=now.tried,
    )
    return started == now
