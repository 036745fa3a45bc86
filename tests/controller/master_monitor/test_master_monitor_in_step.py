"""The speed of trainers in step is measured through the ends of short epochs, and their resizes have a price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.clock import SystemClock
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.ports import MasterAddress
from edl.lifecycle.data_progress import MasterReport, MasterState
from edl.lifecycle.measurement import with_measured
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.progress import LOST_MODEL, NOTHING_MEASURED, Goodput, Measured, Progress
from edl.model.status import JobPhase, JobStatus
from edl.planner.policies.registry import policy_named
from tests.controller.master_monitor.test_master_monitor_lending import PACE, Master, training
from tests.worlds.fake_api import eventually
from tests.worlds.fakes import FakeLease

EPOCH = 300  # three calls: much less than a window


class InStep(Master):
    """A master whose trainers are in step; with two of them they begin to work after some calls."""

    def __init__(self) -> None:
        super().__init__()
        self.working = frozenset({"trainer"})

    async def report(self, master: MasterAddress) -> MasterReport:
        await super().report(master)
        epoch, consumed = divmod(100 * self.calls, EPOCH)
        return MasterReport(
            MasterState.RUNNING, epoch, consumed, EPOCH, consumed, EPOCH, working=self.working, in_step=True
        )


def with_another_trainer(job: Job) -> Job:
    (trainer,) = (pod for pod in job.pods if pod.role is Role.TRAINER)
    return replace(job, pods=(*job.pods, replace(trainer, name="ctr-trainer-1", uid="other", index=1)))


async def test_trainers_in_step_are_measured_however_short_their_epochs_are() -> None:
    master, job = InStep(), training(None)
    monitor = MasterMonitor(master, SystemClock(), FakeLease(), lambda *_: None, PACE)

    def found() -> Measured:
        view = monitor.master_view(job)
        return view.measured if view is not None and view.measured is not None else NOTHING_MEASURED

    try:
        monitor.update([job])
        await eventually(lambda: bool(found().speeds))
        monitor.update([with_another_trainer(job)])
        calls = master.calls
        await eventually(lambda: master.calls > calls + 20)
        assert [speed.trainers for speed in found().speeds] == [1], "the new trainer has made no step yet"
        master.working = frozenset({"trainer", "other"})
        await eventually(lambda: found().resize_s is not None)
        assert [speed.trainers for speed in found().speeds] == [2]
    finally:
        await monitor.close()


async def test_the_goodput_that_trainers_report_is_what_policy_goodput_plans_with() -> None:
    """Beside it the speed of one count is measured; the policy divides by what the records teach."""
    said = (Goodput(1, 100.0, 64, 1.0, is_measured=True), Goodput(4, 130.0, 128, 0.75, is_measured=False))
    pairs = tuple((one.trainers, one.per_s) for one in said)

    class Chooses(InStep):
        async def report(self, master: MasterAddress) -> MasterReport:
            return replace(await super().report(master), goodput=said, batch=64)

    job = training(None)
    monitor = MasterMonitor(Chooses(), SystemClock(), FakeLease(), lambda *_: None, PACE)

    def found() -> Measured:
        view = monitor.master_view(job)
        return view.measured if view is not None and view.measured is not None else NOTHING_MEASURED

    try:
        monitor.update([job])
        await eventually(lambda: bool(found().goodputs and found().speeds))
        known = found()
    finally:
        await monitor.close()
    assert (known.goodputs, known.batch) == (said, 64)
    seen = with_measured(replace(job, status=JobStatus(measured=known)))
    assert seen.goodput == pairs
    planned = policy_named("goodput").adapt(seen)
    assert (planned.throughput, planned.speeds_seen_to) == (pairs, 1)
    assert policy_named("utility").adapt(seen).throughput == ()


class Restored(Master):
    """A master that goes back to a checkpoint, or to the start if that is 0."""

    def __init__(self, checkpoint: int, *, in_step: bool) -> None:
        super().__init__()
        self._checkpoint, self._in_step = checkpoint, in_step

    async def report(self, master: MasterAddress) -> MasterReport:
        return replace(await super().report(master), epoch=3, in_step=self._in_step)

    async def restore(self, master: MasterAddress) -> int:  # noqa: ARG002 - there is one job
        return self._checkpoint


@pytest.mark.parametrize(
    ("checkpoint", "in_step", "where"),
    [
        (0, False, "the start of the epoch"),
        (0, True, "the start of the first epoch"),
        (7, False, "checkpoint 7"),
        (7, True, "checkpoint 7"),
    ],
)
async def test_the_log_says_where_the_accounts_go_back_to(checkpoint: int, in_step: bool, where: str) -> None:
    said: list[str] = []
    master, job = Restored(checkpoint, in_step=in_step), training(None)
    lost = replace(job, status=JobStatus(JobPhase.RUNNING, dataset=Progress(3, 100, 300, LOST_MODEL)))
    monitor = MasterMonitor(master, SystemClock(), FakeLease(), lambda _, text: said.append(text), PACE)
    try:
        monitor.update([lost])
        await eventually(lambda: bool(said))
        assert said[0] == f"the pods that held the model are gone; the master went back to {where}"
    finally:
        await monitor.close()
