"""The simulated cluster as the controller sees it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from edl.model.actions import CreatePod, DeleteJob, DeletePod, PatchStatus, Result
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.resources import NodeTerm, Requirement
from edl.model.status import JobPhase, JobStatus
from edl.model.topology import Topology, TopologyMode
from edl.sim.port import SimulatedCluster
from edl.sim.scenario import LatencySpec, Scenario
from edl.sim.shapes import job_of
from edl.sim.virtual_time import run_virtual
from edl.sim.world import Engine, World
from tests.sim.scenarios import make_group, make_scenario
from tests.worlds.builders import changed_jobs, make_nodes

PSERVER = {"count": 1, "resources": {"cpu": 1, "memory": "1Gi"}}
AT_ONCE = LatencySpec(write_s=0.0)
Script = Callable[[SimulatedCluster, World, Job], Awaitable[None]]


def scenario() -> Scenario:
    return make_scenario(jobs=[make_group(min=2, pserver=PSERVER)])


def play(script: Script, latency: LatencySpec = AT_ONCE) -> None:
    """Run a script against a cluster with one job and no other part."""

    async def main() -> None:
        world = World(make_nodes(2))
        loop = asyncio.get_running_loop()
        engine = Engine(loop.time, lambda *_: None, random.Random(0))  # noqa: S311 - no secret
        cluster = SimulatedCluster(world, engine, latency)
        job = job_of(scenario().jobs[0], 0, 1000.0)
        world.put_job(job)
        await script(cluster, world, job)

    run_virtual(main())


def create(job: Job, index: int, role: Role = Role.TRAINER) -> CreatePod:
    return CreatePod(job.key, job.uid, role, index, "n001")


def test_pods_have_the_priority_of_their_class() -> None:
    async def script(cluster: SimulatedCluster, world: World, job: Job) -> None:
        for action in (create(job, 1), create(job, 2), create(job, 0, Role.PSERVER)):
            assert (await cluster.apply(action)).result is Result.DONE
        priorities = {name: pod.priority for (_, name), pod in world.pods.items()}
        assert priorities == {"job-0-trainer-1": -5, "job-0-trainer-2": -100, "job-0-pserver-0": -1}

    play(script)


def test_a_trainer_that_stays_with_others_requires_their_domain() -> None:
    async def script(cluster: SimulatedCluster, world: World, job: Job) -> None:
        world.put_job(replace(job, topology=Topology.of("rack", TopologyMode.REQUIRED)))
        await cluster.apply(replace(create(job, 0), labels=(("rack", "r1"),)))
        (pod,) = world.pods.values()
        assert pod.shape.placement.required == (NodeTerm((Requirement("rack", "In", ("r1",)),)),)

    play(script)


def test_a_snapshot_shows_a_write_at_once() -> None:
    async def script(cluster: SimulatedCluster, _: World, job: Job) -> None:
        await cluster.apply(create(job, 0))
        (seen,) = (await cluster.observe()).jobs
        assert [(pod.name, pod.planned) for pod in seen.pods] == [("job-0-trainer-0", "n001")]

    play(script)


@pytest.mark.parametrize(("rate", "last_s"), [(None, 0.1), (10.0, 2.1)])
def test_the_api_server_carries_out_one_write_after_the_other(rate: float | None, last_s: float) -> None:
    async def script(cluster: SimulatedCluster, _: World, job: Job) -> None:
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(cluster.apply(create(job, index)) for index in range(20)))
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(last_s)

    play(script, LatencySpec(write_s=0.1, writes_per_s=rate))


def test_a_name_in_use_is_a_conflict() -> None:
    async def script(cluster: SimulatedCluster, _: World, job: Job) -> None:
        await cluster.apply(create(job, 0))
        assert (await cluster.apply(create(job, 0))).result is Result.CONFLICT

    play(script)


def test_another_job_of_the_same_name_is_a_conflict() -> None:
    async def script(cluster: SimulatedCluster, _: World, job: Job) -> None:
        assert (await cluster.apply(replace(create(job, 0), job_uid="other"))).result is Result.CONFLICT

    play(script)


@pytest.mark.parametrize("node", ["", "n000"])
def test_an_unbound_pod_goes_at_once_and_a_bound_one_terminates(node: str) -> None:
    async def script(cluster: SimulatedCluster, world: World, job: Job) -> None:
        await cluster.apply(create(job, 0))
        pod = replace(world.pods["training", "job-0-trainer-0"], node=node)
        world.put(pod)
        outcome = await cluster.apply(DeletePod(job.key, job.uid, pod.name, pod.uid, "Suspended"))
        assert outcome.result is Result.DONE
        assert [left.terminating for left in world.pods.values()] == ([True] if node else [])

    play(script)


def test_a_status_is_no_reason_for_another_round_and_a_pod_is() -> None:
    async def script(cluster: SimulatedCluster, _: World, job: Job) -> None:
        await cluster.observe()
        await cluster.apply(PatchStatus(job.key, job.uid, JobStatus(phase=JobPhase.PENDING)))
        assert not await cluster.wait_for_change(1.0)
        await cluster.apply(create(job, 0))
        assert await cluster.wait_for_change(1.0)

    play(script)


def test_a_deleted_job_takes_its_pods_along() -> None:
    async def script(cluster: SimulatedCluster, world: World, job: Job) -> None:
        await cluster.apply(create(job, 0))
        await cluster.apply(DeleteJob(JobKey("training", "job-0"), job.uid))
        assert not world.pods
        assert not world.jobs

    play(script)


def test_an_unchanged_job_is_the_same_object_in_the_next_snapshot() -> None:
    async def script(cluster: SimulatedCluster, world: World, job: Job) -> None:
        other = replace(job, key=JobKey("default", "other"), uid="other")
        world.put_job(other)
        before = await cluster.observe()
        await cluster.apply(create(job, 1))
        assert changed_jobs(before, await cluster.observe()) == {job.key}

    play(script)
