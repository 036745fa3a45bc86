"""What one request of the controller does to the cluster of the small scope, as `edl.kube.writer` sends it.

Each request is conditional: on the UID of a pod, on the UID of a job, on the version of a status. A deletion is two
requests, the mark and the deletion itself, with everything that may happen between them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from edl.model.actions import (
    SHORTER_FOR_SERVING_S,
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    MarkPod,
    PatchStatus,
    Result,
)
from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.model.status import JobStatus, Reason
from tests.worlds.small_scope.cluster import Cluster, Jobs, Owned, Pods, Stream, Told, World, changed, find, with_pod

GRACE_S = 30
"""How long a pod has to end by its spec."""


@dataclass(frozen=True)
class Effect:
    """What a request did.

    Attributes:
        world: the state after it; the controller has no answer yet.
        result: what the API server answers; None if the action has another request to send.
        is_urgent: the cache showed something urgent, because its watch may not be later.
        broken: the rules that it broke.
        told: what the answer shows.
    """

    world: World
    result: Result | None = Result.DONE
    is_urgent: bool = False
    broken: tuple[str, ...] = ()
    told: Told | None = None


def carry_out(cluster: Cluster, world: World, action: Action, stage: int, known_uids: Collection[str]) -> Effect:
    """Carry out the next request of an action.

    Args:
        cluster: the scene.
        world: the state before.
        action: what the controller requests.
        stage: how many requests of the action were carried out.
        known_uids: UIDs of pods that the controller may remember, which no new pod gets.
    """
    seen = find(cluster.value(world, Stream.JOBS, is_shown=True), action.job)
    if isinstance(action, MarkPod | DeletePod):
        return _end(cluster, world, action, stage)
    if seen is None or seen.uid != action.job_uid:
        return Effect(world, Result.CONFLICT)
    match action:
        case CreatePod():
            return _create(cluster, world, action, seen, known_uids)
        case PatchStatus():
            return _patch(cluster, world, action, seen)
        case DeleteJob():
            left = tuple(job for job in cluster.value(world, Stream.JOBS) if job.key != action.job)
            after, is_urgent = cluster.put(world, Stream.JOBS, left)
            return Effect(after, Result.DONE, is_urgent, told=(Stream.JOBS, action.job))
    return Effect(world, Result.UNCHANGED)


def _create(cluster: Cluster, world: World, action: CreatePod, job: Job, known_uids: Collection[str]) -> Effect:
    pods: Pods = cluster.value(world, Stream.PODS)
    there = next((o for o in pods if o.pod.name == action.pod_name), None)
    if there is not None:
        if there.owner != action.job_uid or there.pod.terminating:
            return Effect(world, Result.CONFLICT)
        return Effect(world, Result.UNCHANGED, told=(Stream.PODS, action.pod_name))
    pod = Pod(
        namespace=action.job.namespace,
        name=action.pod_name,
        uid=_free_uid(cluster, world, action.pod_name, known_uids),
        shape=next((f.shape for f in job.fixed if f.role is action.role), job.trainer),
        planned=action.node or "",
        pinned=action.pinned,
        created_s=world.now_s,
        priority=-5,
        job=action.job,
        role=action.role,
        index=action.index,
        grace_s=GRACE_S,
    )
    more = with_pod(pods, pod.name, Owned(pod, action.job_uid))
    after, is_urgent = cluster.put(world, Stream.PODS, more)
    return Effect(after, Result.DONE, is_urgent, tuple(_too_many(cluster, world, more, job)), (Stream.PODS, pod.name))


def _too_many(cluster: Cluster, world: World, pods: Pods, seen: Job) -> list[str]:
    """The true number of trainers against the maximum that is true, or was when the controller looked."""
    true = find(cluster.value(world, Stream.JOBS), seen.key)
    most = max(job.bounds.max_trainers for job in (seen, true) if job is not None)
    live = sum(o.owner == seen.uid and o.pod.role == "trainer" and o.pod.is_live for o in pods)
    return [f"{seen.key} has {live} trainers of at most {most}"] if live > most else []


def _free_uid(cluster: Cluster, world: World, name: str, known_uids: Collection[str]) -> str:
    """A UID that nothing remembers; small numbers come back, so that equal states are equal."""
    kept = {o.pod.uid for number in world.streams[Stream.PODS] for o in cluster.tables[Stream.PODS].values[number]}
    return next(uid for n in range(100) if (uid := f"{name}#{n}") not in kept and uid not in known_uids)


def _end(cluster: Cluster, world: World, action: MarkPod | DeletePod, stage: int) -> Effect:
    pods: Pods = cluster.value(world, Stream.PODS)
    owned = next((o for o in pods if o.pod.name == action.pod), None)
    if owned is None:
        return Effect(world, Result.UNCHANGED)
    if owned.pod.uid != action.pod_uid:
        return Effect(world, Result.CONFLICT)
    broken = () if owned.owner == action.job_uid else (f"{action.pod} belongs to another job",)
    if isinstance(action, DeletePod) and action.grace_s is not None:
        return _end_at_once(cluster, world, action, owned)
    is_marking = isinstance(action, MarkPod) or not (action.marked or stage)
    if is_marking:
        marked = changed(pods, action.pod, intent=action.intent)
        after, is_urgent = cluster.put(world, Stream.PODS, marked)
        result = Result.DONE if isinstance(action, MarkPod) else None
        return Effect(after, result, is_urgent, broken, (Stream.PODS, action.pod))
    if not owned.pod.intent:
        broken = (*broken, f"{action.pod} is deleted, and nothing on it says why")
    force = isinstance(action, DeletePod) and action.force
    if force or owned.pod.is_finished or not owned.pod.node:
        left = with_pod(pods, action.pod, None)
    else:
        left = changed(pods, action.pod, terminating=True, ready=False)
    after, is_urgent = cluster.put(world, Stream.PODS, left)
    return Effect(after, Result.DONE, is_urgent, broken, (Stream.PODS, action.pod))


def _end_at_once(cluster: Cluster, world: World, action: DeletePod, owned: Owned) -> Effect:
    """A deletion whose grace period says why; a pod that does not run has none, and is gone without a word."""
    broken = [] if owned.owner == action.job_uid else [f"{action.pod} belongs to another job"]
    if action.grace_s != GRACE_S - SHORTER_FOR_SERVING_S or action.intent != Reason.SERVING_NEEDS_ROOM:
        broken.append(f"{action.pod} is deleted with {action.grace_s} s, which does not say {action.intent}")
    pods: Pods = cluster.value(world, Stream.PODS)
    if owned.pod.is_finished or not owned.pod.node:
        left = with_pod(pods, action.pod, None)
    else:
        intent = owned.pod.intent or action.intent
        left = changed(pods, action.pod, terminating=True, ready=False, intent=intent)
    after, is_urgent = cluster.put(world, Stream.PODS, left)
    return Effect(after, Result.DONE, is_urgent, tuple(broken), (Stream.PODS, action.pod))


def _patch(cluster: Cluster, world: World, action: PatchStatus, seen: Job) -> Effect:
    """A status is written only if the job is the version that the cache shows."""
    if seen.status == action.status:
        return Effect(world, Result.UNCHANGED)
    versions = [cluster.tables[Stream.JOBS].values[number] for number in world.streams[Stream.JOBS]]
    if any(find(version, action.job) != seen for version in versions[1:]):
        return Effect(world, Result.CONFLICT)
    jobs: Jobs = versions[-1]
    written = tuple(replace(job, status=action.status) if job.key == action.job else job for job in jobs)
    after, is_urgent = cluster.put(world, Stream.JOBS, written)
    return Effect(
        after, Result.DONE, is_urgent, tuple(_judge_status(seen.status, action.status)), (Stream.JOBS, action.job)
    )


def _judge_status(before: JobStatus | None, after: JobStatus) -> list[str]:
    if before is None:
        return []
    broken = []
    if after.observed_generation < before.observed_generation:
        broken.append("the status is of an older spec than before")
    if after.failures < before.failures:
        broken.append("failures are forgotten")
    return broken
