"""What must be so in the small scope once nothing happens any more and the controller writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from edl.lifecycle.status import is_over
from edl.model.jobs import Job
from edl.model.pods import PodPhase
from edl.model.resources import Resources
from tests.worlds.small_scope.cluster import Cluster, Jobs, Nodes, Pods, Serving, Stream, World, free_on, with_pods


def broken_at_rest(cluster: Cluster, world: World) -> list[str]:
    """The rules that a cluster at rest breaks."""
    jobs: Jobs = cluster.value(world, Stream.JOBS)
    pods: Pods = cluster.value(world, Stream.PODS)
    serving: Serving = cluster.value(world, Stream.SERVING)
    nodes: Nodes = cluster.value(world, Stream.NODES)
    free = {node.name: free_on(node, pods, serving) for node in nodes if node.ready}
    lent = {
        name: sum((o.pod.shape.request for o in pods if o.pod.node == name and o.pod.role == "trainer"), left)
        for name, left in free.items()
    }
    waits = [
        f"{p.name} waits, although trainers hold its capacity"
        for p in serving
        if not p.node and _fits(p.shape.request, lent)
    ]
    lost = [f"{o.pod.name} belongs to no job" for o in pods if o.owner not in {job.uid for job in jobs}]
    counted = sum(job.status.failures for job in jobs if job.status is not None)
    if counted != cluster.failures(world):
        lost.append(f"{counted} failures are counted, and {cluster.failures(world)} pods failed")
    return [
        *waits,
        *lost,
        *(rule for job in jobs for rule in _broken(with_pods(job, pods), free, is_waiting=bool(waits))),
    ]


def _broken(job: Job, free: dict[str, Resources], *, is_waiting: bool) -> Iterator[str]:
    live = len(job.live_trainers)
    bounds = job.bounds
    if job.status is None or job.status.observed_generation != job.generation:
        yield f"{job.key} has no status of its spec"
    elif job.suspended or is_over(job):
        yield from (f"{pod.name} runs, although its job must have no pods" for pod in job.pods if pod.is_live)
        return
    for pod in job.pods:
        if pod.phase is not PodPhase.RUNNING or pod.terminating or pod.intent:
            yield f"{pod.name} is left behind"
    for fixed in job.fixed:
        if sum(pod.role is fixed.role for pod in job.pods) != fixed.count and live:
            yield f"{job.key} lacks a {fixed.role.value}"
    if live > bounds.max_trainers or 0 < live < bounds.min_trainers:
        yield f"{job.key} has {live} trainers, not {bounds.min_trainers} to {bounds.max_trainers}"
    if 0 < live < bounds.max_trainers and not is_waiting and _fits(job.trainer.request, free):
        yield f"{job.key} has {live} of {bounds.max_trainers} trainers, and one more fits"
    if live == 0 and not job.fixed and _copies(job.trainer.request, free) >= bounds.min_trainers and not is_waiting:
        yield f"{job.key} has no trainers, although its minimum fits"
    desired = job.status.trainer.desired if job.status is not None else 0
    if job.status is not None and live and (desired, job.status.trainer.ready) != (live, live):
        yield f"the status of {job.key} says {job.status.trainer}, and {live} trainers run"


def _fits(request: Resources, free: dict[str, Resources]) -> bool:
    return any(request.fits(left) for left in free.values())


def _copies(request: Resources, free: dict[str, Resources]) -> int:
    count = 0
    for left in free.values():
        room = left
        while request.fits(room):
            room, count = room - request, count + 1
    return count
