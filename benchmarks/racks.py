"""Measures gangs in blocks and racks: seconds of a decision, the domains used, and the gap to an integer program.

`python -m benchmarks.racks` prints two tables. The first has gangs of 512 pods in large clusters: CPU seconds of a
decision, the trainers of others that are deleted, and the racks and blocks that the gang uses beside the fewest
that could hold it. The second compares plans of random small clusters with `benchmarks.racks_exact`.
`speed` or `exact` prints one of them; `exact N` compares N clusters.

The first scene is that of KAI-Scheduler's scale tests (`test/e2e/scale/kwok_test.go` in
https://github.com/kai-scheduler/KAI-Scheduler): 4 zones of 8 blocks of 8 racks of 2 nodes with 8 GPUs each, and one
job of 512 pods with 2 GPUs each that prefers racks.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.racks_exact import random_world, solve
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.resources import GPU, Resources
from edl.model.topology import Level, Slices, Topology, TopologyMode
from edl.planner.guard import check
from edl.planner.policies.registry import POLICIES
from edl.planner.topology.whole import count_spread
from tests.worlds.builders import make_job, make_node, make_snapshot

PREFERRED, REQUIRED = TopologyMode.PREFERRED, TopologyMode.REQUIRED
LIMITS = Limits(deadline_s=60.0)
REPEATS = 3
GPUS, PODS = 8, 512
INSTANCES = 100


def nodes_of(*counts: int, most: int) -> tuple[Node, ...]:
    """Nodes of 8 GPUs in a tree: so many domains of each level in one of the next wider level, then nodes in each."""
    names = ("zone", "block", "rack")[-len(counts) + 1 :]
    nodes = []
    for i in range(most):
        labels, rest = {}, i
        for level in range(len(counts) - 1, 0, -1):
            rest //= counts[level]
            labels[f"example.com/{names[level - 1]}"] = f"{names[level - 1]}-{rest % counts[level - 1]}"
        node = make_node(f"n{i:04d}", 96, 1024, labels=labels)
        nodes.append(replace(node, allocatable=node.allocatable + Resources.of({GPU: GPUS})))
    return tuple(nodes)


def with_gpus(job: Job, gpus: int) -> Job:
    """The job whose trainers, those that run included, request so many GPUs each."""
    shape = replace(job.trainer, request=job.trainer.request + Resources.of({GPU: gpus}))
    return replace(job, trainer=shape, pods=tuple(replace(pod, shape=shape) for pod in job.pods))


def gang(levels: tuple[TopologyMode, ...], names: tuple[str, ...], gpus: int, slice_size: int = 0) -> Job:
    """A new job of 512 trainers."""
    job = with_gpus(make_job("gang", min_trainers=PODS, max_trainers=PODS, age_s=1.0), gpus)
    if not levels:
        return job
    topology = Topology(
        tuple(Level(f"example.com/{name}", mode) for name, mode in zip(names, levels, strict=True)),
        Slices(slice_size, len(levels)) if slice_size else None,
    )
    return replace(job, topology=topology, sizes=(PODS,) if slice_size else ())


def others(nodes: tuple[Node, ...], places: list[int], least: int) -> Iterator[Job]:
    """Elastic jobs of 35 running trainers with one GPU each, on these nodes in turn."""
    for number in range(len(places) // 35):
        on = tuple(nodes[place].name for place in places[number * 35 : (number + 1) * 35])
        job = make_job(
            f"j{number:03d}", trainers=35, min_trainers=least, max_trainers=60, on=on, age_s=500.0 - number
        )
        yield with_gpus(job, 1)


def beside_others(job: Job, *, is_packed: bool) -> ClusterSnapshot:
    """500 nodes in blocks of 8 racks of 16, with 3,500 trainers of others: 7 on each node, or 8 on the first ones."""
    nodes = nodes_of(4, 8, 16, most=500)
    places = [i // GPUS if is_packed else i // 7 for i in range(3_500)]
    return make_snapshot(nodes, (*others(nodes, places, 5), job))


def kai(levels: tuple[TopologyMode, ...]) -> ClusterSnapshot:
    """KAI's scene."""
    return make_snapshot(nodes_of(4, 8, 8, 2, most=512), (gang(levels, ("zone", "block", "rack"), 2),))


BLOCKS = ("block", "rack")
SCENES: dict[str, Callable[[], ClusterSnapshot]] = {
    "KAI: 512 x 2 GPUs, racks preferred": lambda: kai((PREFERRED, PREFERRED, PREFERRED)),
    "KAI: the same without topology": lambda: kai(()),
    "3,500 others spread, one block": lambda: beside_others(gang((REQUIRED, PREFERRED), BLOCKS, 1), is_packed=False),
    "3,500 others packed, one block": lambda: beside_others(gang((REQUIRED, PREFERRED), BLOCKS, 1), is_packed=True),
    "the same, racks preferred": lambda: beside_others(gang((PREFERRED, PREFERRED), BLOCKS, 1), is_packed=True),
    "3,500 others, slices of 64": lambda: beside_others(gang((PREFERRED, PREFERRED), BLOCKS, 1, 64), is_packed=False),
    "3,500 others without topology": lambda: beside_others(gang((), BLOCKS, 1), is_packed=False),
}


def planned(world: ClusterSnapshot) -> tuple[ScalePlan, float]:
    """A plan that passes its checks, and the median of its CPU seconds."""
    seconds = []
    for _ in range(REPEATS):
        started_s = time.process_time()
        plan = decide(world, POLICIES["maxmin"], LIMITS)
        seconds.append(time.process_time() - started_s)
    if problems := check(world, plan):
        sys.exit(f"the plan breaks a rule: {problems}")
    return plan, statistics.median(seconds)


def used(world: ClusterSnapshot, plan: ScalePlan, depth: int) -> int:
    """How many domains of a level the gang uses; the level is given by the number of labels that name a domain."""
    keys = [f"example.com/{name}" for name in ("zone", "block", "rack")[:depth]]
    labels = {node.name: dict(node.labels) for node in world.nodes}
    places = next(d.nodes for d in plan.decisions if d.job.name == "gang")
    return len({tuple(labels[name].get(key) for key in keys) for name, _ in places})


def speed() -> None:
    """Print the table of large clusters."""
    print(f"{'gang of 512':<38} {'CPU s':>6} {'runs':>5} {'deleted':>8} {'racks':>6} {'blocks':>7}")
    for name, scene in SCENES.items():
        world = scene()
        plan, cpu_s = planned(world)
        runs = next(d.admitted for d in plan.decisions if d.job.name == "gang")
        deleted = sum(len(d.victims) for d in plan.decisions)
        blocks, racks = used(world, plan, 2), used(world, plan, 3)
        print(f"{name:<38} {cpu_s:6.2f} {'yes' if runs else 'no':>5} {deleted:8d} {racks:6d} {blocks:7d}", flush=True)


def exact(count: int) -> None:
    """Print the table of random small clusters."""
    total, equal, seconds = Counter[str](), Counter[str](), 0.0
    for seed in range(count):
        world = random_world(seed)
        best = solve(world)
        if best is None:
            total["not proved"] += 1
            continue
        started_s = time.process_time()
        plan = decide(world, POLICIES["maxmin"], LIMITS)
        seconds += time.process_time() - started_s
        if problems := check(world, plan):
            sys.exit(f"seed {seed}: the plan breaks a rule: {problems}")
        jobs = sorted(world.jobs, key=lambda job: job.created_s)
        decisions = {d.job: d for d in plan.decisions}
        runs = tuple(decisions[job.key].admitted for job in jobs)
        total.update(
            {
                "clusters": 1,
                "jobs": len(jobs),
                "jobs of edl": sum(runs),
                "jobs at best": sum(best.runs),
                "trainers of edl": sum(d.target for d in plan.decisions),
                "trainers at best": sum(job.min_trainers for job, run in zip(jobs, best.runs, strict=True) if run),
            }
        )
        equal["runs"] += runs == best.runs
        if runs == best.runs:
            total.update({"domains of edl": count_spread(world, plan), "domains at best": best.domains})
            equal["domains"] += count_spread(world, plan) == best.domains
    print(f"{total['clusters']} clusters of up to 60 nodes, {total['jobs']} jobs, {seconds:.1f} CPU s of edl")
    print(f"{'not proved in 20 s':<32} {total['not proved']:6d}")
    print(
        f"{'the same jobs run in':<32} {equal['runs']:6d} clusters, in {equal['domains']} of them in as few domains"
    )
    for what in ("jobs", "trainers", "domains"):
        print(f"{what:<32} {total[f'{what} of edl']:6d} of edl, {total[f'{what} at best']:6d} at best")


def main() -> None:
    """Print what the arguments ask for; both tables by default."""
    words = sys.argv[1:] or ["speed", "exact"]
    if "speed" in words:
        speed()
    if "exact" in words:
        exact(int(words[-1]) if words[-1].isdecimal() else INSTANCES)


if __name__ == "__main__":
    main()
