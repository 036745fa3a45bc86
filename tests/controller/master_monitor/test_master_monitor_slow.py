"""Masters that hang do not delay the calls to others; what changes during a call does not confuse its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from edl.clock import SystemClock
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import MasterAddress
from edl.errors import TemporaryError
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry, model_of
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.progress import LOST_MODEL, Progress
from edl.model.status import JobPhase, JobStatus
from tests.worlds.builders import make_shape
from tests.worlds.controller_with_masters import sharded
from tests.worlds.fake_api import eventually
from tests.worlds.fakes import FakeLease

PACE = CallPace(interval_s=0.01, calls_at_once=2)


class Masters:
    """Answers for the honest jobs at once; calls to the others hang until `given_up`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.given_up = asyncio.Event()

    async def report(self, master: MasterAddress) -> MasterReport:
        self.calls[master.job.name] += 1
        if master.job.name.startswith("hangs"):
            await self.given_up.wait()
            raise TemporaryError("the master does not answer")
        return MasterReport(MasterState.RUNNING)

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        pass

    async def restore(self, master: MasterAddress) -> int:
        raise TemporaryError(f"{master.job} has no checkpoint")


def with_master(name: str) -> Job:
    job = sharded(name)
    pod = Pod(
        job.key.namespace, f"{name}-master-0", f"{name}-master", make_shape(0.25), job=job.key, role=Role.MASTER
    )
    return replace(job, uid=name, pods=(replace(pod, phase=PodPhase.RUNNING, ip="127.0.0.1", node="n000"),))


async def test_masters_that_let_calls_hang_do_not_use_up_the_calls_to_those_that_answer() -> None:
    masters = Masters()
    monitor = MasterMonitor(masters, SystemClock(), FakeLease(), lambda *_: None, PACE)
    honest, hanging = with_master("honest"), [with_master(f"hangs-{i}") for i in range(6)]
    try:
        monitor.update([honest])
        await eventually(lambda: masters.calls["honest"] >= 2)
        monitor.update([honest, *hanging])
        await eventually(lambda: sum(masters.calls[job.key.name] for job in hanging) == PACE.calls_at_once)
        before = masters.calls["honest"]
        await eventually(lambda: masters.calls["honest"] >= before + 5)
    finally:
        await monitor.close()


async def test_a_new_master_is_called_once_those_that_hang_are_given_up() -> None:
    masters = Masters()
    monitor = MasterMonitor(masters, SystemClock(), FakeLease(), lambda *_: None, PACE)
    hanging = [with_master(f"hangs-{i}") for i in range(4)]
    try:
        monitor.update(hanging)
        await eventually(lambda: masters.calls.total() == PACE.calls_at_once)
        monitor.update([*hanging, with_master("honest")])
        masters.given_up.set()
        await eventually(lambda: masters.calls["honest"] >= 5)
    finally:
        await monitor.close()


class LostModel:
    """A master of a job that has lost its model; the status that says so comes while the master is asked again."""

    def __init__(self) -> None:
        self.reports = self.restores = 0
        self.during_the_call: list[Callable[[], None]] = []

    async def report(self, master: MasterAddress) -> MasterReport:  # noqa: ARG002 - there is one job
        self.reports += 1
        if self.restores and self.during_the_call:
            self.during_the_call.pop()()
        return MasterReport(MasterState.RUNNING)

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        pass

    async def restore(self, master: MasterAddress) -> int:  # noqa: ARG002 - there is one job
        self.restores += 1
        return 0


def with_model(job: Job, model: str) -> Job:
    return replace(job, status=JobStatus(phase=JobPhase.RUNNING, dataset=Progress(done=30, total=60, model=model)))


async def test_a_status_that_comes_during_a_call_does_not_send_the_master_back_twice() -> None:
    masters, job = LostModel(), with_master("a")
    monitor = MasterMonitor(masters, SystemClock(), FakeLease(), lambda *_: None, PACE)
    masters.during_the_call = [lambda: monitor.update([with_model(job, model_of(job))])]
    try:
        monitor.update([with_model(job, LOST_MODEL)])
        await eventually(lambda: not masters.during_the_call)
        asked = masters.reports
        await eventually(lambda: masters.reports >= asked + 3)
        assert masters.restores == 1
    finally:
        await monitor.close()
