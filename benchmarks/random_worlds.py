"""Random worlds over all families of worst days, made unlike in what else a cluster can have.

A number names a world: equal numbers give equal worlds. Sizes are small, so that thousands can be planned.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from benchmarks.worst_worlds import FAMILIES, World, running
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Quota
from edl.model.names import Role
from edl.model.resources import CPU, MEMORY, Resources
from tests.worlds.builders import make_serving, make_shape


def random_world(number: int) -> World:
    """A world of a family, changed in some of: curves, weights, tiers, pins, pservers, quotas, load, running pods."""
    random = Random(number)  # noqa: S311
    family = list(FAMILIES)[number % len(FAMILIES)]
    nodes, jobs = random.randint(2, 24), random.randint(2, 30)
    world = FAMILIES[family](nodes, jobs, number)
    changed = tuple(_changed(job, random) for job in world.snapshot.jobs)
    world = replace(world, snapshot=replace(world.snapshot, jobs=changed))
    if random.random() < 0.3:
        total = sum(node.allocatable[CPU] for node in world.snapshot.nodes)
        quotas = tuple(Quota(q, ((CPU, int(total * random.random() / 2)),)) for q in ("p", "q"))
        world = replace(world, limits=replace(world.limits, quotas=(*world.limits.quotas, *quotas)))
    if random.random() < 0.2:
        load = random.choice((0.6, 0.8, 0.97))
        world = replace(
            world, limits=replace(world.limits, sharing=replace(world.limits.sharing, max_load_desired=load))
        )
    if random.random() < 0.3:
        world = running(world)
        count = random.randint(0, 9)
        waiting = [make_serving(f"late-{k}", cpu=random.uniform(0.3, 9), memory_gib=2) for k in range(count)]
        pods = sorted((*world.snapshot.pods, *waiting), key=lambda pod: (pod.namespace, pod.name))
        world = replace(world, snapshot=replace(world.snapshot, pods=tuple(pods)))
    return world


def _changed(job: Job, random: Random) -> Job:
    """The job with a few other properties."""
    if random.random() < 0.15:
        job = replace(job, weight=random.choice((0.5, 2.0, 5.0)), tier=random.choice((-1, 0, 1)))
    if random.random() < 0.1:
        job = replace(job, pinned=random.randint(1, job.max_trainers))
    if random.random() < 0.2:
        job = replace(job, queue=random.choice(("p", "q")))
    if random.random() < 0.15 and not job.pods:
        shape = make_shape(round(random.uniform(0.1, 4), 2), round(random.uniform(0.1, 9), 2))
        job = replace(job, fixed=(FixedPods(Role.PSERVER, shape, random.randint(1, 4)),))
    if random.random() < 0.2:
        job = replace(job, throughput=tuple((n, 100.0 * n ** random.uniform(0.3, 1.0)) for n in (1, 2, 4, 8)))
    if random.random() < 0.1 and not job.pods:
        tiny = Resources.of({CPU: 1, MEMORY: random.randint(1, 100), "pods": 1})
        job = replace(job, trainer=replace(job.trainer, request=tiny))
    return job
