"""Small contended clusters: serving everywhere, jobs that run, jobs that wait, and more demand than capacity.

The trainers that run were placed by no planner, so two versions of the planner can be measured on equal worlds. Equal
arguments give equal worlds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.model.resources import CPU
from edl.model.status import Condition, JobStatus
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

NODE_CPU = (8, 16, 24, 32)
SIZES = ((2.5, 5), (1, 4), (5, 8), (7, 14), (2, 3), (3, 12), (4, 7), (1.5, 9), (6, 10), (3.5, 6), (9, 20), (0.5, 2))
"""Cores and GiB of trainers; the first few are used where sizes are few."""
MEMORY_GIB_EACH = 4  # of a node, for each core
WANTED = 1.5  # the demand of all jobs together, in parts of what serving leaves
RUNNING = 0.8  # of the jobs; the others have just arrived
FULL = 0.95  # of the capacity for trainers, that running jobs use
SPREAD = 0.6  # the chance that the next trainer of a job is on another node, although this one has capacity
ARRIVED_S = 5.0  # ago, for a job that waits


def contended(nodes: int, jobs: int, sizes: int, seed: int) -> ClusterSnapshot:
    """A contended cluster.

    Args:
        nodes: how many nodes, of 8 to 32 cores; serving uses a tenth to a third of each.
        jobs: how many jobs; four of five run, the others wait.
        sizes: how many different requests their trainers have, 1 to 12.
        seed: which of such clusters.
    """
    random = Random(f"{nodes} {jobs} {sizes} {seed}")  # noqa: S311
    rows = [_node(i, random) for i in range(nodes)]
    pods, free = list[Pod](), dict[str, tuple[float, float]]()
    for node in rows:
        total = node.allocatable[CPU] / 1000
        cpu = round(total * random.uniform(0.1, 0.33) * 2) / 2
        pods.append(make_serving(f"s-{node.name}", cpu=cpu, memory_gib=2 * cpu, node=node.name))
        free[node.name] = (total - cpu, MEMORY_GIB_EACH * total - 2 * cpu)
    capacity = sum(cpu for cpu, _ in free.values())
    declared = [_job(i, jobs, SIZES[i % sizes], capacity, random) for i in range(jobs)]
    left, running = FULL * capacity, round(RUNNING * jobs)
    placed = []
    for i, job in enumerate(declared):
        if i >= running:
            placed.append(replace(job, created_s=1000.0 - ARRIVED_S))
            continue
        most = max(job.min_trainers, round(random.uniform(0.2, 1.6) * left / (running - i) / _cpu(job)))
        ran = _run(job, SIZES[i % sizes], min(most, job.max_trainers), free, random)
        left -= len(ran.pods) * _cpu(job)
        placed.append(ran)
    for i in range(random.randint(0, 1 + nodes // 30)):
        pods.append(replace(make_serving(f"w-{i}", cpu=random.choice((1, 2, 4))), tried=True))
    return make_snapshot(tuple(rows), tuple(placed), tuple(pods))


def _node(i: int, random: Random) -> Node:
    cpu = random.choice(NODE_CPU)
    return make_node(f"n{i:04d}", cpu, MEMORY_GIB_EACH * cpu)


def _cpu(job: Job) -> float:
    return job.trainer.request[CPU] / 1000


def _job(i: int, jobs: int, size: tuple[float, float], capacity: float, random: Random) -> Job:
    """A job that wants half to one and a half times its part of the demand."""
    share = WANTED * capacity / jobs / size[0]
    least = random.randint(1, max(1, min(3, int(share / 3))))
    return make_job(
        f"j{i:03d}",
        min_trainers=least,
        max_trainers=least + max(1, round(share * random.uniform(0.5, 1.5))),
        cpu=size[0],
        memory_gib=size[1],
        age_s=float(900 - i),
    )


def _run(job: Job, size: tuple[float, float], most: int, free: dict[str, tuple[float, float]], random: Random) -> Job:
    """The job with trainers on random nodes, as many as fit up to `most`; it waits if not even its minimum fits."""
    (cpu, memory), places, left = size, list[str](), dict(free)
    for name in random.sample(sorted(free), len(free)):
        while len(places) < most and left[name][0] >= cpu and left[name][1] >= memory:
            left[name] = (left[name][0] - cpu, left[name][1] - memory)
            places.append(name)
            if random.random() < SPREAD:
                break
    if len(places) < job.min_trainers:
        return job
    free.update(left)
    ran = make_job(job.key.name, trainers=len(places), min_trainers=job.min_trainers, on=tuple(places))
    pods = tuple(replace(pod, shape=job.trainer) for pod in ran.pods)
    admitted = Condition("Admitted", "True", "", "", 100.0)
    return replace(job, pods=pods, status=JobStatus(conditions=(admitted,), start_s=100.0))
