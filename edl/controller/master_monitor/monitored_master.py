"""The master of one job: its address, its last report, and which part of it the status of the job stores.

Calls nothing: `monitor` calls the masters and passes each report on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import MasterAddress
from edl.lifecycle.data_progress import (
    STORE_SOON_AFTER_S,
    MasterReport,
    MasterState,
    RosterEntry,
    is_worth_storing,
    master_of,
    model_of,
    must_restore,
    roster_of,
)
from edl.lifecycle.lent_cpu.price import WINDOW_S as PRICE_WINDOW_S
from edl.lifecycle.lent_cpu.price import PriceMeter, observe_price, reading_of
from edl.lifecycle.measurement import ProgressReading, SpeedMeter, is_close_to, observe, rounded
from edl.model.jobs import Job
from edl.model.pods import PodPhase
from edl.model.progress import NOTHING_MEASURED, Measured, Progress

Roster = tuple[RosterEntry, ...]


@dataclass(eq=False)
class Lanes:
    """Limits on concurrent calls to the masters of one namespace: of those that answer in time, and of others."""

    prompt: asyncio.Semaphore
    others: asyncio.Semaphore


@dataclass(slots=True)
class MonitoredMaster:
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
    lanes: Lanes
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
        goodputs, batch = report.goodput or stored.goodputs, report.batch or stored.batch
        known = replace(self.meter.measured, lending_price=self.price.price, goodputs=goodputs, batch=batch)
        measured = rounded(known)
        is_due = not self.measured_s or now_s - self.measured_s >= pace.measured_interval_s
        if is_due and not is_close_to(stored, measured):
            self.measured, self.measured_s = measured, now_s


def _about_pods_of(job: Job, report: MasterReport) -> MasterReport:
    """Remove from a report what it says about pods that the job does not have."""
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
    """The address of the master; None while its pod does not run."""
    master = master_of(job)
    if master is None or not master.ip or master.phase is not PodPhase.RUNNING:
        return None
    return MasterAddress(job.key, job.uid, master.uid, master.ip)
