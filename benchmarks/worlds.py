"""Clusters to measure the planner on: a surrogate of the 2017 experiment, a mix of four node sizes, a large fleet."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod, PodPhase
from edl.model.resources import Resources
from edl.model.status import JobStatus
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot

NODE_KINDS = (
    (8, 32, 0),
    (16, 64, 0),
    (16, 128, 0),
    (24, 96, 0),
    (32, 128, 0),
    (32, 256, 0),
    (48, 192, 4),
    (32, 192, 8),
)
TRAINERS = (
    (2, 4, 0), (3, 8, 0), (3, 14, 0), (4, 16, 0), (5, 8, 0), (5, 20, 0), (6, 24, 0), (7, 14, 0), (7, 30, 0),
    (9, 18, 0), (8, 40, 0), (4, 24, 1),
)  # fmt: skip
SERVING = ((0.5, 1), (1, 2), (2, 4), (3, 3), (4, 8), (5, 16), (6, 12))


def nodes_2017() -> tuple[Node, ...]:
    """The nodes of the 2017 surrogate: 133 nodes, 2,348 cores in all, 0.38 cores of each in use."""
    sizes = [12] * 69 + [24] * 63 + [8]
    return tuple(make_node(f"n{i:03d}", cpu - 0.38, 8 * cpu) for i, cpu in enumerate(sizes))


def jobs_2017(count: int) -> tuple[Job, ...]:
    """The jobs of the 2017 surrogate: trainers of 5 cores, ten parameter servers and a master each."""
    fixed = (
        FixedPods(Role.MASTER, make_shape(1, 1), 1),
        FixedPods(Role.PSERVER, make_shape(4, 5), 10),
    )
    return tuple(
        make_job(f"j{i:02d}", min_trainers=2, max_trainers=60, cpu=5, memory_gib=8, fixed=fixed, age_s=100.0 - i)
        for i in range(count)
    )


def mixed(node_count: int, job_count: int) -> ClusterSnapshot:
    """Nodes of four sizes, and jobs of six shapes, nearly all of which reach their maximum."""
    nodes = tuple(
        make_node(f"n{i:05d}", (8, 16, 32, 64)[i % 4], (32, 64, 128, 512)[i % 4]) for i in range(node_count)
    )
    shapes = ((1, 2), (2, 4), (3, 8), (5, 8), (7, 30), (4, 4))
    jobs = tuple(
        make_job(
            f"j{i:05d}", min_trainers=1 + i % 3, max_trainers=10 + i % 50, cpu=cpu, memory_gib=memory, age_s=float(i)
        )
        for i in range(job_count)
        for cpu, memory in (shapes[i % len(shapes)],)
    )
    return make_snapshot(nodes, jobs)


def fleet(node_count: int, job_count: int, seed: int = 1) -> ClusterSnapshot:
    """Nodes of eight kinds with one to three serving pods each, and jobs that could use 1.5 times the cluster.

    About four trainers fit on a node; twelve shapes of trainers, one of them with a GPU; every third job has a master
    and two parameter servers; minimums of 1 to 4.
    """
    random = Random(seed)  # noqa: S311
    nodes, pods = [], []
    for i in range(node_count):
        cpu, memory, gpus = NODE_KINDS[i % len(NODE_KINDS)]
        node = make_node(f"n{i:05d}", cpu, memory)
        if gpus:
            node = replace(node, allocatable=node.allocatable + Resources.of({"nvidia.com/gpu": gpus}))
        nodes.append(node)
        for k in range(random.randint(1, 3)):
            size = random.choice(SERVING)
            pods.append(make_serving(f"s{i:05d}-{k}", cpu=size[0], memory_gib=size[1], node=node.name))
    share = 8.4 * node_count / job_count
    jobs = tuple(_fleet_job(i, share, random) for i in range(job_count))
    return make_snapshot(tuple(nodes), jobs, tuple(pods))


def _fleet_job(i: int, share: float, random: Random, prefix: str = "j") -> Job:
    cpu, memory, gpus = TRAINERS[i % len(TRAINERS)]
    fixed = (FixedPods(Role.MASTER, make_shape(1, 1), 1), FixedPods(Role.PSERVER, make_shape(2, 4), 2))
    min_trainers = random.randint(1, 4)
    job = make_job(
        f"{prefix}{i:05d}",
        min_trainers=min_trainers,
        max_trainers=min_trainers + max(1, round(share * random.uniform(0.4, 1.6))),
        cpu=cpu,
        memory_gib=memory,
        fixed=fixed if i % 3 == 0 else (),
        age_s=float(1000 - i % 1000),
    )
    if not gpus:
        return job
    request = job.trainer.request + Resources.of({"nvidia.com/gpu": gpus})
    return replace(job, trainer=replace(job.trainer, request=request))


def few_kinds(node_count: int, job_count: int, shapes: int, seed: int = 1) -> ClusterSnapshot:
    """Empty nodes of eight kinds, and jobs of so many odd shapes that could use 1.5 times the cluster."""
    random = Random(seed)  # noqa: S311
    nodes = tuple(make_node(f"n{i:05d}", *NODE_KINDS[i % len(NODE_KINDS)][:2]) for i in range(node_count))
    sizes = [(round(random.uniform(0.5, 9), 2), round(random.uniform(1, 30) * 8) / 8) for _ in range(shapes)]
    share = 1.5 * sum(NODE_KINDS[i % len(NODE_KINDS)][0] for i in range(node_count)) / job_count
    jobs = tuple(
        make_job(
            f"j{i:05d}",
            min_trainers=1 + i % 3,
            max_trainers=1 + i % 3 + max(1, round(share / cpu * random.uniform(0.5, 1.5))),
            cpu=cpu,
            memory_gib=memory,
            age_s=float(i % 900),
        )
        for i in range(job_count)
        for cpu, memory in (sizes[i % shapes],)
    )
    return make_snapshot(nodes, jobs)


def with_changes(snapshot: ClusterSnapshot, count: int, seed: int = 2) -> ClusterSnapshot:
    """The cluster after `count` changes: in turn a job is created, a job is deleted, a maximum is halved."""
    random = Random(seed)  # noqa: S311
    jobs = list(snapshot.jobs)
    share = 8.4 * len(snapshot.nodes) / max(1, len(jobs))
    for i in range(count):
        if i % 3 == 0:
            jobs.append(replace(_fleet_job(i, share, random, "new"), created_s=snapshot.observed_at_s))
            continue
        at = random.randrange(len(jobs))
        if i % 3 == 1:
            jobs[at] = replace(jobs[at], finished=True)
        else:
            jobs[at] = replace(jobs[at], max_trainers=max(jobs[at].min_trainers, jobs[at].max_trainers // 2))
    return replace(snapshot, jobs=tuple(sorted(jobs, key=lambda job: job.key)))


def carried_out(snapshot: ClusterSnapshot, plan: ScalePlan, *, after_s: float = 1000.0) -> ClusterSnapshot:
    """The cluster some time later: all pods of the plan run, and its victims are gone."""
    jobs = []
    for job, decision in zip(snapshot.jobs, plan.decisions, strict=True):
        deleted = set(decision.victims)
        kept = [pod for pod in job.pods if decision.admitted and pod.name not in deleted]
        places = [node for node, count in decision.nodes for _ in range(count)]
        first = 1 + max((pod.index or 0 for pod in job.pods), default=-1)
        kept += [running_pod(job, Role.TRAINER, first + i, node) for i, node in enumerate(places)]
        kept += [running_pod(job, role, i, node) for i, (role, node) in enumerate(decision.fixed_nodes)]
        status = job.status or JobStatus()
        jobs.append(replace(job, pods=tuple(sorted(kept, key=lambda p: (p.role or "", p.name))), status=status))
    return replace(snapshot, jobs=tuple(jobs), observed_at_s=snapshot.observed_at_s + after_s)


def running_pod(job: Job, role: Role, index: int, node: str) -> Pod:
    """A pod of a job that runs on a node."""
    shape = job.trainer if role is Role.TRAINER else next(f.shape for f in job.fixed if f.role is role)
    name = f"{job.key.name}-{role.value}-{index}"
    return Pod(
        namespace=job.key.namespace,
        name=name,
        uid=name,
        shape=shape,
        phase=PodPhase.RUNNING,
        node=node,
        job=job.key,
        role=role,
        index=index,
        ready=True,
        started_s=900.0,
        priority=(-5 if index < job.min_trainers else -100) if role is Role.TRAINER else -1,
    )
