"""The masters of simulated jobs: of what the controller measures through them, only the price of lending is kept."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from edl.model.cluster import Node
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.progress import Measured
from edl.model.resources import Resources
from edl.model.status import JobStatus, LentCpu
from edl.sim.masters import SimulatedMasters
from edl.sim.port import new_pod
from edl.sim.scenario import JobGroup
from edl.sim.shapes import job_of
from edl.sim.training import Training
from edl.sim.virtual_time import LoopClock, run_virtual
from edl.sim.world import Engine, World
from tests.sim.scenarios import make_group
from tests.worlds.fakes import FakeLease

GROUP = JobGroup.model_validate(
    make_group(throughput=[[1, 2.0], [8, 16.0]], master={"resources": {"cpu": 1, "memory": "1Gi"}})
)


class Masters:
    """A job of a master and two trainers on one node, and what the controller learns from its master."""

    def __init__(self) -> None:
        loop, rng = asyncio.get_running_loop(), random.Random(0)  # noqa: S311 - a simulation, no secret
        self.world = World([Node("n", Resources.of({"cpu": 8000, "memory": 2**35, "pods": 10}))])
        engine = Engine(loop.time, loop.call_later, rng)
        training = Training(self.world, engine, lambda _: None)
        job = job_of(GROUP, 0, loop.time())
        self.key = job.key
        training.add(job.key, job.uid, GROUP)
        self.world.put_job(job)
        for role, index in ((Role.MASTER, 0), (Role.TRAINER, 0), (Role.TRAINER, 1)):
            pod = replace(new_pod(self.world, job, role, index, loop.time()), node="n", lent_cpu_milli=500 * index)
            ip = "192.0.2.1" if role is Role.MASTER else ""
            self.world.put(replace(pod, phase=PodPhase.RUNNING, ready=True, ip=ip), owner=job.uid)
        self.monitor = SimulatedMasters(training, LoopClock(), FakeLease(), rng)

    async def watch(self, lending: LentCpu, seconds: float) -> Job:
        """Let time pass while the status says so of lending."""
        self.world.put_job(replace(self.world.jobs[self.key], status=JobStatus(lending=lending)))
        self.monitor.update([self.world.job(self.key)])
        await asyncio.sleep(seconds)
        return self.world.job(self.key)


def test_a_speed_that_was_measured_stays_with_the_monitor() -> None:
    async def main() -> None:
        masters = Masters()
        try:
            job = await masters.watch(LentCpu(500, 0), 200)
            assert masters.monitor.master_view(job) is None
            job = await masters.watch(LentCpu(500, 1), 30)
            view = masters.monitor.master_view(job)
            assert view is not None
            assert view.measured == Measured(lending_price=0.0), "nobody was slower than before"
            assert view.report is None
        finally:
            await masters.monitor.close()

    run_virtual(main())
