"""Masters that lie all the time: what they say is kept to the pods of their job, and costs few writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from edl.clock import SystemClock
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import MasterAddress
from edl.errors import TemporaryError
from edl.lifecycle.data_progress import HungTrainer, MasterReport, MasterState, RosterEntry
from edl.model.jobs import Job
from edl.model.names import JobKey
from tests.controller.master_monitor.test_master_monitor_slow import with_master
from tests.worlds.fake_api import eventually
from tests.worlds.fakes import FakeLease

PACE = CallPace(interval_s=0.001, calls_per_s=1e6)


class Liar:
    """A master that answers with each of some reports in turn."""

    def __init__(self, *reports: MasterReport) -> None:
        self.reports, self.calls = reports, 0

    async def report(self, master: MasterAddress) -> MasterReport:
        assert master.pods == 1
        self.calls += 1
        return self.reports[self.calls % len(self.reports)]

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        pass

    async def restore(self, master: MasterAddress) -> int:
        raise TemporaryError(f"{master.job} has no checkpoint")


RUNNING = MasterReport(MasterState.RUNNING, total=100)


def hung(uid: str) -> tuple[HungTrainer, ...]:
    return (HungTrainer(uid, is_silent=True, seconds=1.0),)


async def said(job: Job, *reports: MasterReport, calls: int = 200) -> tuple[int, list[MasterReport]]:
    """How many times what the status is made from changed within so many calls, and what was kept."""
    liar = Liar(*reports)
    monitor = MasterMonitor(liar, SystemClock(), FakeLease(), lambda *_: None, PACE)
    monitor.update([job])
    changes, kept = 0, list[MasterReport]()
    last: tuple[object, ...] | None = None

    def seen() -> bool:
        nonlocal changes, last
        view = monitor.master_view(job)
        if view is not None and view.report is not None:
            now = (view.report.state, view.report.blocked, view.report.hung, view.report.left_out, view.progress)
            changes, last = changes + (last is not None and now != last), now
            kept.append(view.report)
        return liar.calls >= calls

    try:
        await eventually(seen)
    finally:
        await monitor.close()
    return changes, kept


@pytest.mark.parametrize(
    "other",
    [
        replace(RUNNING, blocked="the disk is full"),
        replace(RUNNING, state=MasterState.FAILED),
        replace(RUNNING, left_out=7),
        replace(RUNNING, epoch=1),
        replace(RUNNING, done=100),
        replace(RUNNING, total=99),
        replace(RUNNING, hung=hung("default/liar-master-0")),
    ],
)
async def test_a_master_that_changes_its_mind_all_the_time_causes_few_writes(other: MasterReport) -> None:
    job = with_master("liar")
    other = replace(other, hung=hung(job.pods[0].uid)) if other.hung else other
    changes, _ = await said(job, RUNNING, other)
    assert changes <= PACE.news + 2


async def test_the_end_of_the_data_counts_even_then() -> None:
    job = with_master("liar")
    flips = [RUNNING, replace(RUNNING, blocked="full")] * 30
    _, kept = await said(job, *flips, replace(RUNNING, state=MasterState.FINISHED), calls=300)
    assert any(one.state is MasterState.FINISHED for one in kept)


async def test_only_what_a_master_says_about_pods_of_its_job_is_kept() -> None:
    job = with_master("liar")
    own = job.pods[0].uid
    invented = frozenset(f"invented-{number}" for number in range(10_000))
    many = tuple(one for number in range(1000) for one in (*hung(f"invented-{number}"), *hung(own)))
    _, kept = await said(job, replace(RUNNING, working=invented | {own}, hung=many), calls=3)
    (last,) = {(one.working, len(one.hung)) for one in kept}
    assert last == (frozenset({own}), 1)


async def test_the_masters_of_one_namespace_use_up_the_calls_of_no_other() -> None:
    """They answered in time once, so they are called like honest ones; then they let calls hang."""
    honest_calls, slow_calls, given_up = 0, Counter[str](), asyncio.Event()

    class Both(Liar):
        async def report(self, master: MasterAddress) -> MasterReport:
            nonlocal honest_calls
            if master.job.namespace != "slow":
                honest_calls += 1
                return RUNNING
            slow_calls[master.job.name] += 1
            if slow_calls[master.job.name] > 1:
                await given_up.wait()
            return RUNNING

    monitor = MasterMonitor(Both(), SystemClock(), FakeLease(), lambda *_: None, replace(PACE, calls_at_once=8))
    many = []
    for number in range(40):
        job = with_master(f"slow-{number}")
        key = JobKey("slow", job.key.name)
        many.append(replace(job, key=key, pods=tuple(replace(pod, namespace="slow", job=key) for pod in job.pods)))
    try:
        monitor.update([*many, with_master("honest")])
        await eventually(lambda: len(slow_calls) == 40)
        await eventually(lambda: slow_calls.total() >= 44)
        before = honest_calls
        await eventually(lambda: honest_calls >= before + 5)
        assert slow_calls.total() <= 40 + 2 * PACE.calls_of_namespace
    finally:
        given_up.set()
        await monitor.close()
