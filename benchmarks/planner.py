"""The planner's cost and its distance from the optimum: `make benchmarks`.

Prints a line per size: CPU seconds of one decision on an empty cluster and of the next on the full one, the trainers
placed, the gap to the certified bound, and the peak memory so far. Figures of one run on one machine compare with
each other, not with those of another machine.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace

from edl.core.model import ClusterSnapshot, FixedPods, Job, Node, Pod, PodPhase, Role
from edl.core.plan import Limits, ScalePlan
from edl.core.policy import POLICIES, decide
from tests.builders import make_job, make_node, make_shape, make_snapshot

LIMITS = Limits(deadline_s=120.0)


def nodes_2017() -> tuple[Node, ...]:
    """The surrogate of the 2017 experiment: 133 nodes, 2,348 cores in all, 0.38 cores of each in use."""
    sizes = [12] * 69 + [24] * 63 + [8]
    return tuple(make_node(f"n{i:03d}", cpu - 0.38, 8 * cpu) for i, cpu in enumerate(sizes))


def jobs_2017(count: int) -> tuple[Job, ...]:
    """Its jobs: trainers of 5 cores, ten parameter servers and a master each."""
    fixed = (
        FixedPods(Role.MASTER, make_shape(1, 1), 1),
        FixedPods(Role.PSERVER, make_shape(4, 5), 10),
    )
    return tuple(
        make_job(f"j{i:02d}", minimum=2, maximum=60, cpu=5, memory_gib=8, fixed=fixed, age_s=100.0 - i)
        for i in range(count)
    )


def mixed(node_count: int, job_count: int) -> ClusterSnapshot:
    """Nodes of four sizes and jobs of six shapes."""
    nodes = tuple(
        make_node(f"n{i:05d}", (8, 16, 32, 64)[i % 4], (32, 64, 128, 512)[i % 4]) for i in range(node_count)
    )
    shapes = ((1, 2), (2, 4), (3, 8), (5, 8), (7, 30), (4, 4))
    jobs = tuple(
        make_job(f"j{i:05d}", minimum=1 + i % 3, maximum=10 + i % 50, cpu=cpu, memory_gib=memory, age_s=float(i))
        for i in range(job_count)
        for cpu, memory in (shapes[i % len(shapes)],)
    )
    return make_snapshot(nodes, jobs)


def carried_out(snapshot: ClusterSnapshot, plan: ScalePlan) -> ClusterSnapshot:
    """The world in which everything that a plan for an empty cluster creates is running."""
    jobs = []
    for job in snapshot.jobs:
        decision = plan.decision(job.key)
        assert decision is not None, f"the plan says nothing about {job.key}"  # noqa: S101
        places = [node for node, count in decision.nodes for _ in range(count)]
        pods = [_pod(job, Role.TRAINER, i, node) for i, node in enumerate(places)]
        pods += [_pod(job, role, i, node) for i, (role, node) in enumerate(decision.fixed_nodes)]
        jobs.append(replace(job, pods=tuple(sorted(pods, key=lambda p: (p.role or Role.MASTER, p.name)))))
    return replace(snapshot, jobs=tuple(jobs))


def _pod(job: Job, role: Role, index: int, node: str) -> Pod:
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
        priority=-5 if index < job.min_trainers else -100,
    )


def measure(name: str, snapshot: ClusterSnapshot) -> None:
    """Decide on an empty cluster and on the full one, and print the line."""
    started_s = time.process_time()
    plan = decide(snapshot, POLICIES["maxmin"], LIMITS)
    cold_s = time.process_time() - started_s
    full = carried_out(snapshot, plan)
    started_s = time.process_time()
    again = decide(full, POLICIES["maxmin"], LIMITS)
    steady_s = time.process_time() - started_s
    trainers = sum(d.target for d in plan.decisions)
    changed = sum(d.target != d.current for d in again.decisions)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<24} {cold_s:8.2f} {steady_s:8.2f} {trainers:9d} {plan.certificate.gap:9.4%} "
        f"{changed:8d} {memory_mib:8.0f}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    print(f"{'size':<24} {'cold s':>8} {'full s':>8} {'trainers':>9} {'gap':>9} {'changed':>8} {'MiB':>8}")
    measure("2017: 20 jobs x 133", make_snapshot(nodes_2017(), jobs_2017(20)))
    for node_count, job_count in ((20, 10), (200, 50), (500, 100), (1000, 200)):
        measure(f"mixed: {job_count} jobs x {node_count}", mixed(node_count, job_count))


if __name__ == "__main__":
    main()
