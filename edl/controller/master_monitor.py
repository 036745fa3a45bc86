"""Calls the masters of all jobs: publishes who may hold leases, reads reports, restores checkpoints.

Each job has one task, and a semaphore limits the calls under way. A master that does not answer (normal while its pod
starts or moves) delays neither writes nor the other masters. A roster is published if it has changed or if the
master does not know it any more. Nothing here is the only copy: what is worth keeping is stored in the status of the
job, and edl starts a lost task again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from weakref import WeakValueDictionary

from edl.clock import Clock
from edl.controller.ports import LeaderLease, MasterAddress, MasterClient
from edl.errors import EdlError, PermanentError
from edl.lifecycle.data_progress import (
    STORE_SOON_AFTER_S,
    MasterReport,
    MasterState,
    MasterView,
    RosterEntry,
    has_ledger,
    has_master,
    is_worth_storing,
    master_of,
    model_of,
    must_restore,
    roster_of,
    saving_trainers,
)
from edl.lifecycle.lent_cpu.price import WINDOW_S as PRICE_WINDOW_S
from edl.lifecycle.lent_cpu.price import PriceMeter, observe_price, reading_of
from edl.lifecycle.measurement import WINDOW_S, ProgressReading, SpeedMeter, is_close_to, observe, rounded
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import PodPhase
from edl.model.progress import NOTHING_MEASURED, Measured, Progress
from edl.waiting import retry_pause_s, wait_for_first

Roster = tuple[RosterEntry, ...]


@dataclass(frozen=True, slots=True)
class CallPace:
    """How often masters are called.

    Attributes:
        interval_s: between two calls to one master.
        calls_per_s: to all masters together; with many jobs each master is called less often.
        calls_at_once: calls under way to masters that answered the last one in time; as many to all the others.
        calls_of_namespace: the most of them to the masters of one namespace.
        news: reports of one master in a row that change what a plan should follow; then one each `news_s` counts.
        news_s: see `news`.
        prompt_s: the longest time in which a master answers in time.
        retry_s, retry_at_most_s: pause after a failed call; doubled each time, with jitter.
        failures_until_log: failed calls in a row before the log says so; a master that starts needs a few.
        report_wait_s: after the end of its trainers, how long a job waits for a report that counts all of their work.
        first_report_wait_s: the same for a job whose data set edl does not know, because its master never reported.
        measured_interval_s: the shortest time between two writes of measured speeds.
        window_s: see `lifecycle.measurement.observe`.
    """

    interval_s: float = 5.0
    calls_per_s: float = 50.0
    calls_at_once: int = 16
    calls_of_namespace: int = 4
    news: int = 10
    news_s: float = 60.0
    prompt_s: float = 1.0
    retry_s: float = 0.5
    retry_at_most_s: float = 10.0
    failures_until_log: int = 4
    report_wait_s: float = 60.0
    first_report_wait_s: float = 15.0
    measured_interval_s: float = 60.0
    window_s: float = WINDOW_S


@dataclass(eq=False)
class _Lanes:
    """Limit the concurrent calls to the masters of one namespace: one limit for those in time, one for the others."""

    prompt: asyncio.Semaphore
    others: asyncio.Semaphore


@dataclass(slots=True)
class _MonitoredMaster:
    """The address, the last report and the call state of the master of one job.

    Attributes:
        lost: UIDs of pods that no kubelet will end; None until the job was taken.
        roster: the trainers that may hold leases now.
        address: where the master answers; None while its pod does not run.
        model: the pods that hold the model, as `model_of` names them.
        changed_s: when roster, address or model last changed.
        roster_s: when the roster last changed.
        called_s: when the last call that succeeded started.
        changed: set if the task should call the master at once.
        published: generation and roster of the last publication that the master accepted.
        restored: the model for which the master went back to a checkpoint; empty once the status says so.
        is_foreign: the last call was answered by a program that is not an edl master of this job.
        is_prompt: the last call was answered in time.
        lanes: the lanes of the namespace.
        news: how many more reports may change what a plan should follow, and when that was counted.
    """

    job: Job
    lanes: _Lanes
    lost: frozenset[str] | None = None
    roster: Roster = ()
    address: MasterAddress | None = None
    model: str = ""
    is_ready: bool = False
    changed_s: float = 0.0
    roster_s: float = 0.0
    called_s: float = -1.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    published: tuple[int, Roster] | None = None
    report: MasterReport | None = None
    restored: str = ""
    meter: SpeedMeter = field(default_factory=SpeedMeter)
    price: PriceMeter = field(default_factory=PriceMeter)
    progress: Progress | None = None
    progress_s: float = 0.0
    measured: Measured | None = None
    measured_s: float = 0.0
    finished_s: float | None = None
    failures: int = 0
    is_foreign: bool = False
    is_prompt: bool = False
    news: tuple[float, float] | None = None
    task: asyncio.Task[None] | None = None

    def take_job(self, job: Job, lost: frozenset[str], now_s: float) -> None:
        """Take the job as it is now; wake the task if the master must learn about a change."""
        if job is self.job and lost == self.lost and not self.restored:  # most jobs, most times
            return
        self.lost = lost
        before, was_ready = (self.roster, self.address, self.model), self.is_ready
        self.job, self.roster, self.address, self.model = job, roster_of(job, lost), _address(job), model_of(job)
        pod = master_of(job)
        self.is_ready = pod is not None and pod.ready
        stored = job.status.dataset if job.status is not None else None
        if stored is not None and stored.model == self.restored:
            self.restored = ""
        # A master that does not answer is called again at once only if that may have changed, or for its last report.
        may_answer = before[1] != self.address or (self.is_ready and not was_ready)
        if self.failures and (may_answer or (before[0] and not self.roster)):
            self.changed.set()
        if before == (self.roster, self.address, self.model):
            return
        self.changed_s = now_s
        if before[0] != self.roster:
            self.roster_s = now_s
        if not self.failures:
            self.changed.set()

    def take_report(self, report: MasterReport, now_s: float, pace: CallPace) -> bool:
        """Take a report of the master; True if a plan should follow at once.

        Each time that it says something else about its state, the job's status is written. A master that does so all
        the time is believed more rarely.
        """
        report = _about_pods_of(self.job, report)
        before = self.report
        if before is not None and _written_part(before) != _written_part(report):
            is_end = report.state is MasterState.FINISHED and self.finished_s is None
            if not (is_end or self._may_change(now_s, pace)):
                old = before
                report = replace(report, state=old.state, blocked=old.blocked, hung=old.hung, left_out=old.left_out)
        is_new = before is None or _urgent_part(before) != _urgent_part(report)
        self.report = report
        live = {p.uid for p in self.job.live_trainers}
        is_open = report.state is MasterState.RUNNING and report.waiting > 0 and not report.blocked
        lending = self.job.status.lending if self.job.status is not None else None
        is_slowed = lending is not None and lending.slowed > 0  # its speed is not that of so many trainers
        goes_on = is_open and not must_restore(self.job, report, self.restored)
        working = len(live & report.working)
        reading = ProgressReading(now_s, *report.course, len(live), working, goes_on and not is_slowed)
        self.meter = observe(self.meter, reading, pace.window_s)
        all_work = goes_on and working >= len(live)
        slowed = reading_of(self.job, now_s, *report.course, is_steady=all_work)
        self.price = observe_price(self.price, slowed, self.meter.measured.speeds, min(pace.window_s, PRICE_WINDOW_S))
        if report.state is MasterState.FINISHED and self.finished_s is None:
            self.finished_s = now_s
        was_begun = self.progress is not None and self.progress.is_begun
        self._select_stored(report, now_s, pace)
        begins = self.progress is not None and self.progress.is_begun and not was_begun
        return is_new or begins

    def _may_change(self, now_s: float, pace: CallPace) -> bool:
        left, since_s = self.news or (float(pace.news), now_s)
        left = min(float(pace.news), left + (now_s - since_s) / pace.news_s)
        self.news = (max(left - 1, left if left < 1 else 0.0), now_s)
        return left >= 1

    def _select_stored(self, report: MasterReport, now_s: float, pace: CallPace) -> None:
        """Choose what the status should store: small and frequent changes are not worth a write."""
        if report.total:
            progress = Progress(report.epoch, report.done, report.total, unsaved=report.unsaved)
            is_last = not self.job.live_trainers
            since_s = now_s - self.progress_s
            is_worth = is_last or is_worth_storing(self.progress, progress, since_s)
            if is_worth and (since_s >= STORE_SOON_AFTER_S or self._may_change(now_s, pace)):
                self.progress, self.progress_s = progress, now_s
        stored = self.measured or (self.job.status.measured if self.job.status is not None else NOTHING_MEASURED)
        measured = rounded(replace(self.meter.measured, lending_price=self.price.price))
        is_due = not self.measured_s or now_s - self.measured_s >= pace.measured_interval_s
        if is_due and not is_close_to(stored, measured):
            self.measured, self.measured_s = measured, now_s


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
        self._masters: dict[str, _MonitoredMaster] = {}
        # Masters run in pods of users. Those that let a call hang must not use up the calls to the others.
        self._prompt, self._others = (asyncio.Semaphore(self._pace.calls_at_once) for _ in range(2))
        self._lanes: WeakValueDictionary[str, _Lanes] = WeakValueDictionary()
        self.has_report = asyncio.Event()

    def update(self, jobs: Iterable[Job], lost: frozenset[str] = frozenset()) -> None:
        """Monitor the masters of these jobs and of no others.

        Args:
            jobs: with their pods; empty while another replica leads.
            lost: UIDs of pods that no kubelet will end.
        """
        kept: dict[str, _MonitoredMaster] = {}
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

    def _report_wait_s(self, master: _MonitoredMaster, job: Job) -> float:
        if has_ledger(job, master.report):
            return self._pace.report_wait_s
        return 0.0 if master.is_foreign or master.address is None else self._pace.first_report_wait_s

    def _start(self, job: Job) -> _MonitoredMaster:
        now_s = self._clock.monotonic_s()
        master = _MonitoredMaster(job, self._lanes_of(job.key.namespace), changed_s=now_s, roster_s=now_s)
        if job.status is not None:
            master.meter = SpeedMeter(job.status.measured)
            master.price = PriceMeter(job.status.measured.lending_price)
        master.task = asyncio.create_task(self._monitor(master), name=f"master of {job.key}")
        return master

    def _lanes_of(self, namespace: str) -> _Lanes:
        lanes = self._lanes.get(namespace)
        if lanes is None:
            lanes = _Lanes(*(asyncio.Semaphore(self._pace.calls_of_namespace) for _ in range(2)))
            self._lanes[namespace] = lanes
        return lanes

    async def _monitor(self, master: _MonitoredMaster) -> None:
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

    async def _try_call(self, master: _MonitoredMaster, address: MasterAddress) -> float:
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

    async def _call(self, master: _MonitoredMaster, address: MasterAddress) -> None:
        started_s = self._clock.monotonic_s()
        job, roster, model = master.job, master.roster, master.model
        report = await self._client.report(address._replace(pods=max(len(job.pods), len(roster))))
        needs_round = master.take_report(report, self._clock.monotonic_s(), self._pace)
        if must_restore(job, report, master.restored):
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
        self, master: _MonitoredMaster, address: MasterAddress, report: MasterReport, roster: Roster
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
        self, master: _MonitoredMaster, address: MasterAddress, report: MasterReport, model: str
    ) -> None:
        if not self._lease.is_held():
            return
        checkpoint = await self._client.restore(address)
        master.restored = model
        start = "the start of the first epoch" if report.in_step else "the start of the epoch"
        where = f"checkpoint {checkpoint}" if checkpoint else start
        self._log(master.job.key, f"the pods that held the model are gone; the master went back to {where}")


def _about_pods_of(job: Job, report: MasterReport) -> MasterReport:
    """The report without what it says about pods that the job does not have."""
    known = {pod.uid for pod in job.pods}
    hung = tuple(one for one in report.hung if one.pod_uid in known)[: len(known)]
    return replace(report, working=frozenset(known & report.working), hung=hung)


def _written_part(report: MasterReport) -> tuple[object, ...]:
    """The part of a report that the job's status shows, without progress and speeds."""
    return *_urgent_part(report), report.left_out


def _urgent_part(report: MasterReport) -> tuple[object, ...]:
    """The part of a report whose change makes a new plan due at once."""
    return report.state, report.blocked, frozenset(one.pod_uid for one in report.hung)


def _address(job: Job) -> MasterAddress | None:
    """Where the master answers; None while its pod does not run."""
    master = master_of(job)
    if master is None or not master.ip or master.phase is not PodPhase.RUNNING:
        return None
    return MasterAddress(job.key, job.uid, master.uid, master.ip)


def _cancel(master: _MonitoredMaster) -> None:
    if master.task is not None:
        master.task.cancel()
