"""The worlds of the planner's worst days: one function for each family, of so many nodes and jobs, from a seed.

Tests draw small ones of them, `benchmarks.worst_days` measures large ones. Equal arguments give equal worlds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from benchmarks import overload_worlds
from benchmarks.worlds import carried_out
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, Quota
from edl.model.names import Role
from edl.model.resources import (
    CPU,
    HOST_PORT_PREFIX,
    NodeTerm,
    Placement,
    PodShape,
    Requirement,
    Resources,
    Taint,
    Toleration,
)
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.policies.registry import POLICIES
from tests.worlds.builders import GIB, make_job, make_node, make_serving, make_shape, make_snapshot

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class World:
    """A cluster and what its operator allows."""

    snapshot: ClusterSnapshot
    limits: Limits = field(default_factory=Limits)


def running(world: World) -> World:
    """The world some time later: its best plan is carried out."""
    limits = replace(world.limits, deadline_s=120.0)
    clock = Clock(limits.deadline_s, time.process_time)  # a busy machine makes the same world
    plan = study(world.snapshot, POLICIES["maxmin"], limits, clock=clock).plan
    return replace(world, snapshot=carried_out(world.snapshot, plan))


def many_sizes(nodes: int, jobs: int, seed: int) -> World:
    """Nodes with odd amounts free, and jobs that all ask for another odd amount and want more than there is."""
    random = Random(seed)  # noqa: S311
    rows = tuple(_odd_node(i, random) for i in range(nodes))
    return World(make_snapshot(rows, tuple(_odd_job(i, 8.0 * nodes / jobs, random) for i in range(jobs))))


def _odd_node(i: int, random: Random) -> Node:
    cpu = random.choice((16, 32, 48, 64)) - 0.05 * random.randint(1, 30)
    return make_node(f"n{i:05d}", cpu, random.choice((128, 192, 256)) - 0.125 * random.randint(1, 40))


def _odd_job(i: int, share: float, random: Random) -> Job:
    """A job of an amount of its own; it wants half to twice its share of the nodes."""
    least = 1 + i % 3
    return make_job(
        f"j{i:05d}",
        min_trainers=least,
        max_trainers=least + max(2, int(random.uniform(0.5, 2.0) * share)),
        cpu=round(random.uniform(0.5, 9.0), 2),
        memory_gib=round(random.uniform(1, 30) * 8) / 8,
        age_s=float(i),
    )


def tight_memory(nodes: int, jobs: int, seed: int) -> World:
    """Many sizes on nodes of three ratios of memory to cpu, so that two resources have a price."""
    random = Random(seed)  # noqa: S311
    world = many_sizes(nodes, jobs, seed).snapshot
    rows = tuple(
        make_node(node.name, cpu, cpu * random.choice((1.5, 3.0, 6.0)) + 0.125 * random.randint(0, 9))
        for node in world.nodes
        for cpu in (node.allocatable[CPU] / 1000,)
    )
    return World(replace(world, nodes=rows))


def one_odd_job(nodes: int, jobs: int, seed: int) -> World:
    """Jobs of twenty round sizes on nodes of twelve kinds, and one job of 100 millicores and 2 GiB."""
    random = Random(seed)  # noqa: S311
    rows = tuple(make_node(f"n{i:05d}", (16, 32, 48, 64)[i % 4], (64, 128, 256)[i % 3]) for i in range(nodes))
    round_ones = tuple(
        make_job(
            f"j{i:05d}",
            max_trainers=3 + int(random.uniform(0.5, 2.0) * 6 * nodes / jobs),
            cpu=(1, 2, 4, 8)[i % 4],
            memory_gib=(4, 8, 16, 24, 48)[i % 5],
            age_s=float(i),
        )
        for i in range(jobs)
    )
    return World(make_snapshot(rows, (*round_ones, make_job("odd", cpu=0.1, memory_gib=2.0, max_trainers=5))))


def host_ports(nodes: int, jobs: int, seed: int) -> World:
    """Round sizes; every fifth job asks for 256 host ports that partly overlap those of another."""
    random = Random(seed)  # noqa: S311
    world = one_odd_job(nodes, jobs, seed)
    made = []
    for i, job in enumerate(world.snapshot.jobs):
        first = 20_000 + 128 * random.randrange(max(1, jobs // 5))
        ports = {f"{HOST_PORT_PREFIX}TCP/{first + k}": 1 for k in range(256)} if i % 5 == 0 else {}
        made.append(replace(job, trainer=replace(job.trainer, request=job.trainer.request + Resources.of(ports))))
    return World(replace(world.snapshot, jobs=tuple(made)))


def affinity_lists(nodes: int, jobs: int, seed: int) -> World:
    """Many sizes; every fifth job keeps away from hundreds of nodes by name, and tolerates fifty taints."""
    random = Random(seed)  # noqa: S311
    world = many_sizes(nodes, jobs, seed)
    names = [node.name for node in world.snapshot.nodes]
    made = []
    for i, job in enumerate(world.snapshot.jobs):
        apart = tuple(sorted(random.sample(names, min(len(names) // 2, 1000))))
        gone = tuple(f"gone-{k:04d}" for k in range(1000 - len(apart)))
        term = NodeTerm((Requirement("kubernetes.io/hostname", "NotIn", (*apart, *gone)),))
        tolerations = tuple(Toleration(f"taint-{k}", "Exists") for k in range(50))
        placement = Placement(required=(term,), tolerations=tolerations) if i % 5 == 0 else Placement()
        made.append(replace(job, trainer=replace(job.trainer, placement=placement)))
    return World(replace(world.snapshot, jobs=tuple(made)))


def quotas_exhausted(nodes: int, jobs: int, seed: int) -> World:
    """Ten queues, each of which may use a third of its share of the cluster."""
    world = many_sizes(nodes, jobs, seed)
    queued = tuple(replace(job, queue=f"q{i % 10}") for i, job in enumerate(world.snapshot.jobs))
    total = sum(node.allocatable[CPU] for node in world.snapshot.nodes)
    quotas = tuple(Quota(f"q{k}", ((CPU, total // 30),)) for k in range(10))
    return World(replace(world.snapshot, jobs=queued), Limits(quotas=quotas))


def fragmented_gpus(nodes: int, jobs: int, seed: int) -> World:
    """Nodes of eight GPUs of which other pods hold some; trainers ask for one, two, four or eight."""
    random = Random(seed)  # noqa: S311
    rows, pods = [], []
    for i in range(nodes):
        node = _odd_node(i, random)
        gpus = 8 if i % 3 else 0
        rows.append(replace(node, allocatable=node.allocatable + Resources.of({GPU: gpus})))
        if gpus and (held := random.randint(0, 5)):
            pod = make_serving(f"s{i:05d}", cpu=1, memory_gib=2, node=node.name)
            pods.append(replace(pod, shape=PodShape(pod.shape.request + Resources.of({GPU: held}))))
    made = []
    for i in range(jobs):
        job = _odd_job(i, 4.0 * nodes / jobs, random)
        gpus = random.choice((0, 0, 1, 1, 2, 4, 8))
        made.append(
            replace(job, trainer=replace(job.trainer, request=job.trainer.request + Resources.of({GPU: gpus})))
        )
    return World(make_snapshot(tuple(rows), tuple(made), tuple(pods)))


def mixed_architectures(nodes: int, jobs: int, seed: int) -> World:
    """Three architectures, tainted pools, and jobs that may use one, two or all of them."""
    random = Random(seed)  # noqa: S311
    world = many_sizes(nodes, jobs, seed).snapshot
    kinds = ("amd64", "arm64", "s390x")
    rows = tuple(
        replace(
            node,
            labels=tuple(sorted({**dict(node.labels), "kubernetes.io/arch": kinds[i % 7 % 3]}.items())),
            taints=(Taint("pool", f"p{i % 4}", "NoSchedule"),) if i % 5 == 0 else (),
        )
        for i, node in enumerate(world.nodes)
    )
    made = []
    for job in world.jobs:
        some = tuple(sorted(random.sample(kinds, random.randint(1, 3))))
        required = (NodeTerm((Requirement("kubernetes.io/arch", "In", some),)),) if len(some) < 3 else ()
        tolerations = tuple(
            Toleration("pool", "Equal", f"p{k}", "NoSchedule") for k in range(4) if random.random() < 0.3
        )
        placement = Placement(required=required, tolerations=tolerations)
        made.append(replace(job, trainer=replace(job.trainer, placement=placement)))
    return World(replace(world, nodes=rows, jobs=tuple(made)))


def everything(nodes: int, jobs: int, seed: int) -> World:
    """GPUs, architectures, quotas, masters and pservers, ports, tiers and weights on a full cluster with serving."""
    random = Random(seed)  # noqa: S311
    gpus = fragmented_gpus(nodes, jobs, seed).snapshot
    places = mixed_architectures(nodes, jobs, seed).snapshot
    fixed = (FixedPods(Role.MASTER, make_shape(0.7, 1.3), 1), FixedPods(Role.PSERVER, make_shape(1.9, 3.1), 2))
    made = []
    for i, (job, placed) in enumerate(zip(gpus.jobs, places.jobs, strict=True)):
        trainer = replace(job.trainer, placement=placed.trainer.placement if i % 2 else Placement())
        if i % 9 == 0:
            port = {f"{HOST_PORT_PREFIX}TCP/{20_000 + i % 40}": 1}
            trainer = replace(trainer, request=trainer.request + Resources.of(port))
        made.append(
            replace(
                job,
                trainer=trainer,
                fixed=fixed if i % 3 == 0 else (),
                tier=random.choice((0, 0, 0, 1)),
                weight=random.choice((1.0, 1.0, 2.0)),
                queue=f"q{i % 5}" if i % 4 == 0 else "",
            )
        )
    both = tuple(replace(a, labels=b.labels, taints=b.taints) for a, b in zip(gpus.nodes, places.nodes, strict=True))
    total = sum(node.allocatable[CPU] for node in both)
    limits = Limits(quotas=tuple(Quota(f"q{k}", ((CPU, total // 25),)) for k in range(5)))
    full = running(World(replace(gpus, nodes=both, jobs=tuple(made)), limits)).snapshot
    waiting = tuple(
        make_serving(f"w{i:05d}", cpu=round(random.uniform(0.5, 4.0), 2), memory_gib=3) for i in range(nodes // 10)
    )
    return World(replace(full, pods=(*full.pods, *waiting)), limits)


def tiny_requests(nodes: int, jobs: int, seed: int) -> World:
    """Requests below a millionth of what a node has, beside large ones, with little capacity to spare."""
    random = Random(seed)  # noqa: S311
    world = many_sizes(nodes, jobs, seed).snapshot
    made = tuple(
        replace(
            job,
            trainer=replace(
                job.trainer,
                request=Resources.of({CPU: random.randint(1, 3), "memory": random.randint(1, 4096), "pods": 1})
                if i % 4 == 0
                else job.trainer.request + Resources.of({"memory": random.randint(1, GIB)}),
            ),
        )
        for i, job in enumerate(world.jobs)
    )
    return World(replace(world, jobs=made))


def _plain(make: Callable[[int, int, int], ClusterSnapshot]) -> Callable[[int, int, int], World]:
    """A family whose operator sets nothing."""
    return lambda nodes, jobs, seed: World(make(nodes, jobs, seed))


FAMILIES: dict[str, Callable[[int, int, int], World]] = {
    "many sizes": many_sizes,
    "tight memory": tight_memory,
    "one odd job": one_odd_job,
    "overload": _plain(overload_worlds.overload),
    "outage": _plain(overload_worlds.outage),
    "mass arrival": _plain(overload_worlds.mass_arrival),
    "half lost": _plain(overload_worlds.half_lost),
    "host ports": host_ports,
    "affinity lists": affinity_lists,
    "quotas exhausted": quotas_exhausted,
    "GPUs fragmented": fragmented_gpus,
    "architectures": mixed_architectures,
    "tiny requests": tiny_requests,
    "everything": everything,
}
