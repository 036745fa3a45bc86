"""Calls the masters of all jobs: publishes who may hold leases, reads reports, restores checkpoints.

Each job has one task, and a semaphore limits the calls under way. A master that does not answer (normal while its pod
starts or moves) delays neither writes nor the other masters. A roster is published if it has changed or if the
master does not know it any more. Nothing here is the only copy: what is worth keeping is stored in the status of the
job, and edl starts a lost task again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random, SystemRandom
from weakref import WeakValueDictionary

from edl.clock import Clock
from edl.controller.master_monitor.monitored_master import Lanes, MonitoredMaster, Roster
from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import LeaderLease, MasterAddress, MasterClient
from edl.errors import EdlError, PermanentError
from edl.lifecycle.data_progress import (
    MasterReport,
    MasterState,
    MasterView,
    has_ledger,
    has_master,
    must_restore,
    saving_trainers,
)
from edl.lifecycle.lent_cpu.price import PriceMeter
from edl.lifecycle.measurement import SpeedMeter
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.waiting import retry_pause_s, wait_for_first


class MasterMonitor:
    """Keeps contact with the master of every job.

    Args:
        client: makes the calls.
        clock: for pauses and ages.
        lease: without it no master is called.
        log: gets (job, message) if calls fail, if they succeed again, and if a checkpoint was restored.
        pace: how often masters are called.
        jitter: varies the pauses, so that the calls to many masters spread.

    Attributes:
        has_report: set if a master reported something that a plan should follow at once.
    """

    def __init__(
        self,
        client: MasterClient,
        clock: Clock,
        lease: LeaderLease,
        log: Callable[[JobKey, str], None],
        pace: CallPace | None = None,
        *,
        jitter: Random | None = None,
    ) -> None:
        self._client, self._clock, self._lease, self._log = client, clock, lease, log
        self._pace, self._jitter = pace or CallPace(), jitter or SystemRandom()
        self._masters: dict[str, MonitoredMaster] = {}
        # Masters run in pods of users. Those that let a call hang must not use up the calls to the others.
        self._prompt, self._others = (asyncio.Semaphore(self._pace.calls_at_once) for _ in range(2))
        self._lanes: WeakValueDictionary[str, Lanes] = WeakValueDictionary()
        self.has_report = asyncio.Event()

    def update(self, jobs: Iterable[Job], lost: frozenset[str] = frozenset()) -> None:
        """Monitor the masters of these jobs and of no others.

        Args:
            jobs: with their pods; empty while another replica leads.
            lost: UIDs of pods that no kubelet will end.
        """
        kept: dict[str, MonitoredMaster] = {}
        for job in jobs:
            if has_master(job) and not (job.finished or job.deleting):
                master = self._masters.pop(job.uid, None) or self._start(job)
                master.take_job(job, lost, self._clock.monotonic_s())
                kept[job.uid] = master
        for master in self._masters.values():
            _cancel(master)
        self._masters = kept

    def is_finished(self, job: Job) -> bool:
        """True if the job's master has said that all data is consumed."""
        master = self._masters.get(job.uid)
        return master is not None and master.report is not None and master.report.state is MasterState.FINISHED

    def master_view(self, job: Job) -> MasterView | None:
        """What is known about the job's master; None if it is not monitored."""
        master = self._masters.get(job.uid)
        if master is None:
            return None
        now_s = self._clock.monotonic_s()
        is_current = master.called_s >= master.changed_s
        return MasterView(
            report=master.report,
            progress=master.progress,
            measured=master.measured,
            lost_s=master.meter.lost_s,
            restored=master.restored,
            is_current=is_current,
            is_given_up=not is_current and now_s - master.roster_s >= self._report_wait_s(master, job),
            finished_for_s=now_s - master.finished_s if master.finished_s is not None else 0.0,
        )

    async def close(self) -> None:
        """End every task."""
        masters, self._masters = list(self._masters.values()), {}
        for master in masters:
            _cancel(master)
        await asyncio.gather(*(m.task for m in masters if m.task is not None), return_exceptions=True)

    def _report_wait_s(self, master: MonitoredMaster, job: Job) -> float:
        if has_ledger(job, master.report):
            return self._pace.report_wait_s
        return 0.0 if master.is_foreign or master.address is None else self._pace.first_report_wait_s

    def _start(self, job: Job) -> MonitoredMaster:
        now_s = self._clock.monotonic_s()
        master = MonitoredMaster(job, self._lanes_of(job.key.namespace), changed_s=now_s, roster_s=now_s)
        if job.status is not None:
            master.meter = SpeedMeter(job.status.measured)
            master.price = PriceMeter(job.status.measured.lending_price)
        master.task = asyncio.create_task(self._monitor(master), name=f"master of {job.key}")
        return master

    def _lanes_of(self, namespace: str) -> Lanes:
        lanes = self._lanes.get(namespace)
        if lanes is None:
            lanes = Lanes(*(asyncio.Semaphore(self._pace.calls_of_namespace) for _ in range(2)))
            self._lanes[namespace] = lanes
        return lanes

    async def _monitor(self, master: MonitoredMaster) -> None:
        while True:
            master.changed.clear()
            if master.address is None:
                await master.changed.wait()
                continue
            pause_s = self._pace.interval_s
            if self._lease.is_held():
                lane = master.lanes.prompt if master.is_prompt else master.lanes.others
                async with lane, self._prompt if master.is_prompt else self._others:
                    pause_s = await self._try_call(master, master.address)
            await wait_for_first(self._clock.sleep(pause_s), master.changed.wait())

    async def _try_call(self, master: MonitoredMaster, address: MasterAddress) -> float:
        """Call the master once; returns the pause after the call."""
        started_s, master.is_prompt = self._clock.monotonic_s(), False
        try:
            await self._call(master, address)
            master.is_prompt = self._clock.monotonic_s() - started_s <= self._pace.prompt_s
        except Exception as error:  # an invalid answer must neither end the task nor be requested without a pause
            master.failures += 1
            master.is_foreign = isinstance(error, PermanentError)
            if master.failures == self._pace.failures_until_log:
                reason = str(error) if isinstance(error, EdlError) else repr(error)
                self._log(master.job.key, f"{master.failures} calls to the master failed; edl keeps trying: {reason}")
            return retry_pause_s(master.failures, self._pace.retry_s, self._pace.retry_at_most_s)
        if master.failures >= self._pace.failures_until_log:
            self._log(master.job.key, f"the master answers again after {master.failures} failed calls")
        master.failures, master.is_foreign = 0, False
        pause_s = max(self._pace.interval_s, len(self._masters) / self._pace.calls_per_s)
        return pause_s * self._jitter.uniform(0.8, 1.2)

    async def _call(self, master: MonitoredMaster, address: MasterAddress) -> None:
        started_s = self._clock.monotonic_s()
        # Of one moment: a status that comes during the call makes `restored` empty, and names the model of it.
        job, roster, model, restored = master.job, master.roster, master.model, master.restored
        report = await self._client.report(address._replace(pods=max(len(job.pods), len(roster))))
        needs_round = master.take_report(report, self._clock.monotonic_s(), self._pace)
        if must_restore(job, report, restored):
            may_save = saving_trainers(job)
            saving = tuple(entry for entry in roster if entry.uid in may_save)
            await self._publish(master, address, report, saving)
            if saving or not model:
                return
            await self._restore(master, address, report, model)
            needs_round = True
        await self._publish(master, address, report, roster)
        master.called_s = started_s
        if needs_round:
            self.has_report.set()

    async def _publish(
        self, master: MonitoredMaster, address: MasterAddress, report: MasterReport, roster: Roster
    ) -> None:
        """Publish who may hold leases, unless the master already has this roster from this controller."""
        last, in_force = master.published, report.roster
        if last is not None and last[1] == roster and in_force == (last[0], len(roster)):
            return
        if not self._lease.is_held():
            return
        known = max(in_force[0] if in_force else 0, last[0] if last else 0)
        generation = max(int(self._clock.now_s() * 1000), known + 1)
        await self._client.publish(address, generation, roster)
        master.published = (generation, roster)

    async def _restore(
        self, master: MonitoredMaster, address: MasterAddress, report: MasterReport, model: str
    ) -> None:
        if not self._lease.is_held():
            return
        checkpoint = await self._client.restore(address)
        master.restored = model
        start = "the start of the first epoch" if report.in_step else "the start of the epoch"
        where = f"checkpoint {checkpoint}" if checkpoint else start
        self._log(master.job.key, f"the pods that held the model are gone; the master went back to {where}")


def _cancel(master: MonitoredMaster) -> None:
    if master.task is not None:
        master.task.cancel()
