"""Masters that let calls hang do not delay the calls to masters that answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from edl.clock import SystemClock
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import MasterAddress
from edl.errors import TemporaryError
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
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
