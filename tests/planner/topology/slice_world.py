"""Small clusters of racks with jobs whose trainers come and go in slices, and what the life cycle makes of a plan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from edl.lifecycle.desired_state import JobContext, desired_state
from edl.lifecycle.domains import require_domains
from edl.model.actions import CreatePod, DeletePod
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.plan import ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.topology import Level, Slices, Topology, TopologyMode, path_of, slice_of, with_labels
from edl.planner.starts import startable
from tests.worlds.builders import make_job, make_node

BLOCK, RACK = "example.com/block", "example.com/rack"
PREFERRED, REQUIRED = TopologyMode.PREFERRED, TopologyMode.REQUIRED
LEVELS = (Level(BLOCK, PREFERRED), Level(RACK, PREFERRED))


def racks(*cores: int, nodes: int = 2) -> tuple[Node, ...]:
    """Racks of equal nodes with so many cores each, two racks a block."""
    return tuple(
        make_node(f"r{i}n{k}", cpu, 64, labels={BLOCK: f"b{i // 2}", RACK: f"r{i % 2}"})
        for i, cpu in enumerate(cores)
        for k in range(nodes)
    )


def sliced(
    name: str,
    size: int,
    low: int,
    high: int,
    *,
    levels: tuple[Level, ...] = LEVELS,
    age_s: float = 0.0,
    tier: int = 0,
    cpu: int = 1,
) -> Job:
    """A job with slices of one rack each; its bounds are given in slices."""
    job = make_job(
        name, min_trainers=low * size, max_trainers=high * size, cpu=cpu, memory_gib=0.1, age_s=age_s, tier=tier
    )
    return replace(
        job,
        topology=Topology(levels, Slices(size, len(levels))),
        sizes=tuple(range(low * size, high * size + 1, size)),
    )


def carried_out(world: ClusterSnapshot, plan: ScalePlan) -> ClusterSnapshot:
    """The cluster once the life cycle has carried out a plan: victims are gone, and new pods run where planned."""
    labels, starts = {node.name: node.labels for node in world.nodes}, startable(world, plan)
    jobs = []
    for job in world.jobs:
        mine = [(start.role, start.node) for start in starts if start.job == job.key]
        context = JobContext(labels=labels)
        status, actions = desired_state(job, plan.decision(job.key), mine, world.observed_at_s, context)
        actions = require_domains(actions, job, world.nodes)
        gone = {action.pod for action in actions if isinstance(action, DeletePod)}
        new = [_pod(job, action, world.observed_at_s) for action in actions if isinstance(action, CreatePod)]
        pods = [pod for pod in job.pods if pod.name not in gone] + new
        jobs.append(replace(job, status=status, pods=tuple(sorted(pods, key=lambda p: (p.role or "", p.index or 0)))))
    return replace(world, jobs=tuple(jobs), observed_at_s=world.observed_at_s + 120.0)


def _pod(job: Job, action: CreatePod, now_s: float) -> Pod:
    shapes = {fixed.role: fixed.shape for fixed in job.fixed}
    return Pod(
        namespace=job.key.namespace,
        name=action.pod_name,
        uid=f"{action.pod_name}-{now_s}",
        shape=with_labels(shapes.get(action.role, job.trainer), action.labels),
        phase=PodPhase.RUNNING,
        node=action.node or "",
        planned=action.node or "",
        created_s=now_s,
        started_s=now_s,
        ready=True,
        job=job.key,
        role=action.role,
        index=action.index,
    )


def racks_of(world: ClusterSnapshot, name: str) -> dict[int, list[tuple[str, ...]]]:
    """For each slice of a job, the rack of each of its live trainers."""
    labels, found = {node.name: node.labels for node in world.nodes}, defaultdict(list)
    for job in world.jobs:
        if job.key.name == name and job.topology is not None and job.topology.slices is not None:
            for pod in job.live_trainers:
                rack = path_of(labels.get(pod.node, ()), job.topology.keys)
                found[slice_of(pod.index, job.topology.slices.size)].append(rack)
    return dict(found)
