"""The speed of a job is not measured while serving slows trainers that lend CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from edl.clock import SystemClock
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import MasterAddress
from edl.errors import TemporaryError
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.progress import NOTHING_MEASURED, Measured, Speed
from edl.model.status import JobStatus, LentCpu
from tests.worlds.builders import make_shape
from tests.worlds.controller_with_masters import sharded
from tests.worlds.fake_api import eventually
from tests.worlds.fakes import FakeLease

PACE = CallPace(interval_s=0.001, measured_interval_s=0.0, window_s=0.01)
CALLS = 100  # many more than a window has


class Master:
    """A master whose one trainer has come further at each call."""

    def __init__(self) -> None:
        self.calls = 0

    async def report(self, _: MasterAddress) -> MasterReport:
        self.calls += 1
        working = frozenset({"trainer"})
        return MasterReport(MasterState.RUNNING, consumed=100 * self.calls, waiting=10**6, working=working)

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        pass

    async def restore(self, master: MasterAddress) -> int:
        raise TemporaryError(f"{master.job} has no checkpoint")


def training(lending: LentCpu | None) -> Job:
    job = sharded("ctr")

    def pod(role: Role, uid: str) -> Pod:
        name = f"ctr-{role.value}-0"
        made = Pod(job.key.namespace, name, uid, make_shape(), job=job.key, role=role, index=0)
        return replace(made, phase=PodPhase.RUNNING, ready=True, ip="127.0.0.1", node="n000")

    pods = (pod(Role.MASTER, "master"), pod(Role.TRAINER, "trainer"))
    return replace(job, uid="ctr", pods=pods, status=JobStatus(lending=lending))


@pytest.mark.parametrize(
    ("lending", "is_measured"), [(LentCpu(900, 1), False), (LentCpu(900, 0), True), (None, True)]
)
async def test_a_slow_trainer_teaches_no_speed(lending: LentCpu | None, is_measured: bool) -> None:
    master, job = Master(), training(lending)
    monitor = MasterMonitor(master, SystemClock(), FakeLease(), lambda *_: None, PACE)

    def is_known() -> bool:
        view = monitor.master_view(job)
        return view is not None and view.measured is not None and bool(view.measured.speeds)

    try:
        monitor.update([job])
        await eventually(lambda: master.calls >= CALLS and (is_known() or not is_measured))
        assert is_known() is is_measured
    finally:
        await monitor.close()


async def test_the_price_of_lending_is_learned_and_the_speed_stays() -> None:
    """The trainer of 1 core lends 0.5, and does next to nothing of what it did before: 2 cores' worth for each."""
    master, job = Master(), training(LentCpu(500, 1))
    measured = Measured((Speed(1, 1e9, 60.0),))
    assert job.status is not None
    pods = tuple(replace(pod, lent_cpu_milli=500 if pod.role is Role.TRAINER else 0) for pod in job.pods)
    job = replace(job, pods=pods, status=replace(job.status, measured=measured))
    monitor = MasterMonitor(master, SystemClock(), FakeLease(), lambda *_: None, PACE)

    def found() -> Measured:
        view = monitor.master_view(job)
        return view.measured if view is not None and view.measured is not None else NOTHING_MEASURED

    try:
        monitor.update([job])
        await eventually(lambda: found().lending_price is not None)
        assert found().lending_price == pytest.approx(2.0, abs=0.01)
        assert found().speeds == measured.speeds
    finally:
        await monitor.close()
