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
from edl.model.resources import Resources
from edl.model.status import JobStatus, Reason
from tests.worlds.small_scope.cluster import (
    START_S,
    Cluster,
    Jobs,
    Owned,
    Pods,
    Stream,
    World,
    changed,
    find,
    with_pod,
)

GRACE_S = 30
"""How long a pod has to end by its spec."""


@dataclass(frozen=True)
class Effect:
    """What a request did.

    Attributes:
        world: the state after it; the controller has no answer yet.
        result: what the API server answers; None if the action has another request to send.
        broken: the rules that it broke.
    """

    world: World
    result: Result | None = Result.DONE
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """A request of the controller.

    Attributes:
        action: of which it is a part.
        stage: how many requests of the action were carried out before.
        known_uids: UIDs of pods that the controller may remember, which no new pod gets.
        most: the maximum of trainers that the controller saw when it sent a creation.
    """

    action: Action
    stage: int = 0
    known_uids: Collection[str] = ()
    most: int = 0


def carry_out(cluster: Cluster, world: World, request: Request) -> Effect:
    """Carry out the next request of an action.

    Args:
        cluster: the scene.
        world: the state before.
        request: what the controller requests.
    """
    action = request.action
    seen = find(cluster.value(world, Stream.JOBS, is_shown=True), action.job)
    if isinstance(action, MarkPod | DeletePod):
        return _end(cluster, world, action, request.stage)
    if seen is None or seen.uid != action.job_uid:
        return Effect(world, Result.CONFLICT)
    match action:
        case CreatePod():
            return _create(cluster, world, action, seen, request)
        case PatchStatus():
            return _patch(cluster, world, action, seen)
        case DeleteJob():
            left = tuple(job for job in cluster.value(world, Stream.JOBS) if job.key != action.job)
            return Effect(cluster.put(world, Stream.JOBS, left))
    return Effect(world, Result.UNCHANGED)


def answer(cluster: Cluster, world: World, action: Action) -> World:
    """The state after the answer to a request that took effect: the cache shows the object as it was then."""
    match action:
        case CreatePod():
            name, uid = action.pod_name, action.job_uid
            return cluster.tell(
                world, Stream.PODS, name, lambda pods: any(o.pod.name == name and o.owner == uid for o in pods)
            )
        case MarkPod() | DeletePod():
            return cluster.tell(world, Stream.PODS, action.pod, lambda pods: _has_effect(pods, action))
        case PatchStatus():
            status, key = action.status, action.job
            return cluster.tell(
                world, Stream.JOBS, key, lambda jobs: any(j.key == key and j.status == status for j in jobs)
            )
    return world


def _has_effect(pods: Pods, action: MarkPod | DeletePod) -> bool:
    """True if a pod is marked, or if it is gone or terminates."""
    pod = next((o.pod for o in pods if o.pod.uid == action.pod_uid), None)
    if pod is None:
        return True
    return bool(pod.intent) if isinstance(action, MarkPod) else pod.terminating and not action.force


def _create(cluster: Cluster, world: World, action: CreatePod, job: Job, request: Request) -> Effect:
    pods: Pods = cluster.value(world, Stream.PODS)
    there = next((o for o in pods if o.pod.name == action.pod_name), None)
    if there is not None:
        if there.owner != action.job_uid or there.pod.terminating:
            return Effect(world, Result.CONFLICT)
        return Effect(world, Result.UNCHANGED)
    pod = Pod(
        namespace=action.job.namespace,
        name=action.pod_name,
        uid=_free_uid(cluster, world, action.pod_name, request.known_uids),
        shape=next((f.shape for f in job.fixed if f.role is action.role), job.trainer),
        planned=action.node or "",
        pinned=action.pinned,
        created_s=START_S,
        priority=-5,
        job=action.job,
        role=action.role,
        index=action.index,
        grace_s=GRACE_S,
    )
    more = with_pod(pods, pod.name, Owned(pod, action.job_uid))
    broken = (*_too_many(cluster, world, more, job, request.most), *_two_on_a_slot(cluster, world, more, action))
    return Effect(cluster.put(world, Stream.PODS, more), Result.DONE, broken)


def _too_many(cluster: Cluster, world: World, pods: Pods, seen: Job, most: int) -> list[str]:
    """The true number of trainers against the maximum that is true, or was when the controller looked."""
    true = find(cluster.value(world, Stream.JOBS), seen.key)
    most = max(most, true.bounds.max_trainers if true is not None else 0)
    live = sum(o.owner == seen.uid and o.pod.role == "trainer" and o.pod.is_live for o in pods)
    return [f"{seen.key} has {live} trainers of at most {most}"] if live > most else []


def _two_on_a_slot(cluster: Cluster, world: World, pods: Pods, action: CreatePod) -> list[str]:
    """Pods that were created for a node, and are on no other, request more than it has; all that exist count."""
    node = next((n for n in cluster.value(world, Stream.NODES) if n.name == action.node), None)
    if node is None:
        return []
    on_it = [o.pod for o in pods if o.pod.planned == node.name and o.pod.node in {"", node.name}]
    requested = sum((pod.shape.request for pod in on_it if not pod.is_finished), Resources())
    names = ", ".join(pod.name for pod in on_it if not pod.is_finished)
    return [] if requested.fits(node.allocatable) else [f"{names} were created for {node.name}, which has less"]


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
        result = Result.DONE if isinstance(action, MarkPod) else None
        return Effect(cluster.put(world, Stream.PODS, marked), result, broken)
    if not owned.pod.intent:
        broken = (*broken, f"{action.pod} is deleted, and nothing on it says why")
    force = isinstance(action, DeletePod) and action.force
    if force or owned.pod.is_finished or not owned.pod.node:
        left = with_pod(pods, action.pod, None)
    else:
        left = changed(pods, action.pod, terminating=True, ready=False)
    return Effect(cluster.put(world, Stream.PODS, left), Result.DONE, broken)


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
    return Effect(cluster.put(world, Stream.PODS, left), Result.DONE, tuple(broken))


def _patch(cluster: Cluster, world: World, action: PatchStatus, seen: Job) -> Effect:
    """A status is written only if the job is the version that the cache shows."""
    if seen.status == action.status:
        return Effect(world, Result.UNCHANGED)
    versions = [cluster.tables[Stream.JOBS].values[number] for number in world.streams[Stream.JOBS]]
    if any(find(version, action.job) != seen for version in versions[1:]):
        return Effect(world, Result.CONFLICT)
    jobs: Jobs = versions[-1]
    written = tuple(replace(job, status=action.status) if job.key == action.job else job for job in jobs)
    return Effect(
        cluster.put(world, Stream.JOBS, written), Result.DONE, tuple(_judge_status(seen.status, action.status))
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
