"""Which pods of a Deployment go when it shrinks."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from edl.sim.deployments import Deployment
from edl.sim.scenario import DeploymentSpec
from edl.sim.virtual_time import run_virtual
from edl.sim.world import Engine, World
from tests.worlds.builders import make_nodes

SPEC = DeploymentSpec.model_validate({"name": "web", "resources": {"cpu": 1}, "replicas": [(0, 20)]})
OLDEST = [f"web-{number:06d}" for number in range(1, 11)]


async def left_of_twenty(after_s: float, *, youngest_first: bool) -> list[str]:
    """The names that are left when ten of twenty pods, created one after the other, go some time later."""
    loop = asyncio.get_running_loop()
    world = World(make_nodes(1))
    engine = Engine(loop.time, loop.call_later, random.Random(0))  # noqa: S311 - no secret
    deployment = Deployment(world, engine, SPEC, create_per_s=1.0, youngest_first=youngest_first)
    deployment.scale(20)
    await asyncio.sleep(20.5 + after_s)
    deployment.scale(10)
    return sorted(name for _, name in world.pods)


def test_before_kubernetes_1_21_the_youngest_go() -> None:
    assert run_virtual(left_of_twenty(600, youngest_first=True)) == OLDEST


async def ready_of(*names: str) -> list[int]:
    """How many pods each of these Deployments of two replicas takes for its own and ready, once all are."""
    loop = asyncio.get_running_loop()
    world = World(make_nodes(1))
    engine = Engine(loop.time, loop.call_later, random.Random(0))  # noqa: S311 - no secret
    specs = [SPEC.model_copy(update={"name": name}) for name in names]
    deployments = [Deployment(world, engine, spec, create_per_s=1.0) for spec in specs]
    for deployment in deployments:
        deployment.scale(2)
    await asyncio.sleep(10)
    for pod in list(world.pods.values()):
        world.put(replace(pod, ready=True))
    return [deployment.ready for deployment in deployments]


def test_a_name_that_begins_like_another_is_another_deployment() -> None:
    assert run_virtual(ready_of("web", "web-api")) == [2, 2]


@pytest.mark.parametrize(("after_s", "by_chance"), [(600, True), (0, False)])
def test_chance_decides_among_pods_of_about_the_same_age(after_s: float, *, by_chance: bool) -> None:
    left = run_virtual(left_of_twenty(after_s, youngest_first=False))
    assert len(left) == 10
    assert (not set(OLDEST[:3]) <= set(left)) is by_chance, "soon after their creation the oldest are twice as old"
