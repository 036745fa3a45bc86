"""What the leading controller has to do with the masters of its jobs: say who may hold leases, listen, take back.

One task per job, all behind one gate, so that a master that is away, which is normal while its pod starts or moves,
holds up neither the rounds nor another job's master. Who may hold leases is published when it has changed, or where a
master does not know it any more. Nothing here is the truth: what is worth keeping goes through a job's status, and a
task that is lost is started again by the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import SystemRandom

from edl.clock import Clock
from edl.controller.ports import LeaderLease, MasterAddress, MasterClient
from edl.errors import EdlError
from edl.lifecycle.data_progress import (
    MasterReport,
    MasterState,
    MasterView,
    RosterEntry,
    has_master,
    is_worth_storing,
    master_of,
    model_of,
    must_restore,
    roster_of,
)
from edl.lifecycle.measurement import WINDOW_S, ProgressReading, SpeedMeter, is_close_to, observe, rounded
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.pods import PodPhase
from edl.model.progress import NOTHING_MEASURED, Measured, Progress

_JITTER = SystemRandom()


@dataclass(frozen=True, slots=True)
class CallPace:
    """How often masters are called.

    Attributes:
        interval_s: between two calls to one master at rest.
        calls_per_s: to all of them; with many jobs each is called more rarely.
        at_once: calls under way.
        retry_s, retry_at_most_s: pause after a call that failed; doubled each time, jittered.
        told_after: after so many calls in vain it is said that a master is away; one that starts needs a few.
        patience_s: how long a job whose trainers have changed waits for its master to be heard since.
        tell_s: the least time between two writes of what was measured.
        window_s: see `measuring.observe`.
    """

    interval_s: float = 5.0
    calls_per_s: float = 50.0
    at_once: int = 16
    retry_s: float = 0.5
    retry_at_most_s: float = 10.0
    told_after: int = 4
    patience_s: float = 15.0
    tell_s: float = 60.0
    window_s: float = WINDOW_S


@dataclass(slots=True)
class _Post:
    """One job's master, as it is known.

    Attributes:
        since_s: when what has to be said to the master last changed.
        visited_s: when the last call that was answered began.
        published: the roster that the master took from us last, and its generation.
        restored: the model that the accounts were taken back for, until the status says so.
    """

    job: Job
    seats: tuple[RosterEntry, ...] = ()
    at: MasterAddress | None = None
    model: str = ""
    since_s: float = 0.0
    visited_s: float = -1.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    published: tuple[int, tuple[RosterEntry, ...]] | None = None
    report: MasterReport | None = None
    restored: str = ""
    meter: SpeedMeter = field(default_factory=SpeedMeter)
    progress: Progress | None = None
    progress_s: float = 0.0
    measured: Measured | None = None
    measured_s: float = 0.0
    finished_s: float | None = None
    failures: int = 0
    task: asyncio.Task[None] | None = None

    def see(self, job: Job, lost: frozenset[str], now_s: float) -> None:
        """Take the job as it is now; whatever the master has to hear of wakes the task."""
        before = (self.seats, self.at, self.model)
        self.job, self.seats, self.at, self.model = job, roster_of(job, lost), _address(job), model_of(job)
        stored = job.status.dataset if job.status is not None else None
        if stored is not None and stored.model == self.restored:
            self.restored = ""
        if before == (self.seats, self.at, self.model):
            return
        self.since_s = now_s
        if not self.failures or before[1] != self.at:
            self.changed.set()

    def hear(self, report: MasterReport, now_s: float, pace: CallPace) -> bool:
        """Take in what the master says; True where the next round should not wait for it."""
        before, self.report = self.report, report
        live = {p.uid for p in self.job.live_trainers}
        is_open = report.state is MasterState.RUNNING and report.waiting > 0 and not report.blocked
        is_steady = is_open and not must_restore(self.job, report, self.restored)
        reading = ProgressReading(
            now_s, report.epoch, report.consumed, len(live), len(live & report.working), is_steady
        )
        self.meter = observe(self.meter, reading, pace.window_s)
        if report.state is MasterState.FINISHED and self.finished_s is None:
            self.finished_s = now_s
        was_begun = self.progress is not None and self.progress.is_begun
        self._keep(report, now_s, pace)
        begins = self.progress is not None and self.progress.is_begun and not was_begun
        is_new = before is None or (before.state, before.blocked) != (report.state, report.blocked)
        return is_new or begins

    def _keep(self, report: MasterReport, now_s: float, pace: CallPace) -> None:
        """What is worth storing of it now."""
        if report.total:
            progress = Progress(report.epoch, report.done, report.total)
            is_last = not self.job.live_trainers
            if is_last or is_worth_storing(self.progress, progress, now_s - self.progress_s):
                self.progress, self.progress_s = progress, now_s
        told = self.measured or (self.job.status.measured if self.job.status is not None else NOTHING_MEASURED)
        measured = rounded(self.meter.measured)
        if not is_close_to(told, measured) and (not self.measured_s or now_s - self.measured_s >= pace.tell_s):
            self.measured, self.measured_s = measured, now_s


class MasterMonitor:
    """Keeps in touch with every job's master.

    Args:
        wire: makes the calls.
        clock: for pauses and ages.
        lease: without it nothing is said to anybody.
        tell: (job, what happened) for the log: a master that is away, one that is back, accounts taken back.
        pace: how often.

    Attributes:
        news: set when something was heard that a round should look at.
    """

    def __init__(
        self,
        wire: MasterClient,
        clock: Clock,
        lease: LeaderLease,
        tell: Callable[[JobKey, str], None],
        pace: CallPace | None = None,
    ) -> None:
        self._wire, self._clock, self._lease, self._tell = wire, clock, lease, tell
        self._pace = pace or CallPace()
        self._posts: dict[str, _Post] = {}
        self._gate = asyncio.Semaphore(self._pace.at_once)
        self.news = asyncio.Event()

    def update(self, jobs: Iterable[Job], lost: frozenset[str] = frozenset()) -> None:
        """Look after these jobs and no others; none while another replica leads.

        Args:
            jobs: with their pods.
            lost: UIDs of pods that no kubelet will ever end.
        """
        kept: dict[str, _Post] = {}
        for job in jobs:
            if has_master(job) and not (job.finished or job.deleting):
                post = self._posts.pop(job.uid, None) or self._begin(job)
                post.see(job, lost, self._clock.monotonic_s())
                kept[job.uid] = post
        for post in self._posts.values():
            _cancel(post)
        self._posts = kept

    def master_view(self, job: Job) -> MasterView | None:
        """What is known of a job's master; None where nobody looks after it."""
        post = self._posts.get(job.uid)
        if post is None:
            return None
        now_s = self._clock.monotonic_s()
        has_ledger = post.report is not None or (job.status is not None and job.status.dataset is not None)
        is_heard = post.visited_s >= post.since_s or now_s - post.since_s > self._pace.patience_s
        return MasterView(
            report=post.report,
            progress=post.progress,
            measured=post.measured,
            lost_s=post.meter.lost_s,
            restored=post.restored,
            is_current=is_heard or not has_ledger,
            finished_for_s=now_s - post.finished_s if post.finished_s is not None else 0.0,
        )

    async def or_news(self, change: Awaitable[bool]) -> bool:
        """Wait for a change, or for news of a master, whichever comes first; True where either came."""
        waiting = asyncio.ensure_future(change)
        hearing = asyncio.ensure_future(self.news.wait())
        try:
            await asyncio.wait({waiting, hearing}, return_when=asyncio.FIRST_COMPLETED)
            is_news = self.news.is_set()
            self.news.clear()
            return is_news or waiting.result()
        finally:
            for task in (waiting, hearing):
                task.cancel()
            await asyncio.gather(waiting, hearing, return_exceptions=True)

    async def close(self) -> None:
        """End every task."""
        posts, self._posts = list(self._posts.values()), {}
        for post in posts:
            _cancel(post)
        await asyncio.gather(*(p.task for p in posts if p.task is not None), return_exceptions=True)

    def _begin(self, job: Job) -> _Post:
        post = _Post(job)
        if job.status is not None:
            post.meter = SpeedMeter(job.status.measured)
        post.task = asyncio.create_task(self._attend(post), name=f"master of {job.key}")
        return post

    async def _attend(self, post: _Post) -> None:
        while True:
            post.changed.clear()
            pause_s = self._pace.interval_s
            if post.at is not None and self._lease.is_held():
                async with self._gate:
                    pause_s = await self._try(post, post.at)
            alarm = asyncio.ensure_future(self._clock.sleep(pause_s))
            change = asyncio.ensure_future(post.changed.wait())
            try:
                await asyncio.wait({alarm, change}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                alarm.cancel()
                change.cancel()

    async def _try(self, post: _Post, at: MasterAddress) -> float:
        """One visit; returns the pause after it."""
        try:
            await self._visit(post, at)
        except Exception as error:  # one poison answer must not end the task, nor be asked for without a pause
            post.failures += 1
            if post.failures == self._pace.told_after:
                said = str(error) if isinstance(error, EdlError) else repr(error)
                self._tell(post.job.key, f"the master is away: {said}")
            pause_s = self._pace.retry_s * 2.0 ** min(post.failures - 1, 10)
            return min(pause_s, self._pace.retry_at_most_s) * _JITTER.uniform(0.5, 1.0)
        if post.failures >= self._pace.told_after:
            self._tell(post.job.key, f"the master is back after {post.failures} calls in vain")
        post.failures = 0
        rest_s = max(self._pace.interval_s, len(self._posts) / self._pace.calls_per_s)
        return rest_s * _JITTER.uniform(0.8, 1.2)

    async def _visit(self, post: _Post, at: MasterAddress) -> None:
        began_s = self._clock.monotonic_s()
        job, seats, model = post.job, post.seats, post.model
        report = await self._wire.report(at)
        is_news = post.hear(report, self._clock.monotonic_s(), self._pace)
        if must_restore(job, report, post.restored):
            await self._publish(post, at, report, ())
            if not model:
                return
            await self._take_back(post, at, model)
            is_news = True
        await self._publish(post, at, report, seats)
        post.visited_s = began_s
        if is_news:
            self.news.set()

    async def _publish(
        self, post: _Post, at: MasterAddress, report: MasterReport, seats: tuple[RosterEntry, ...]
    ) -> None:
        """Say who may hold leases, where the master does not know it from us."""
        last, now = post.published, report.roster
        if last is not None and last[1] == seats and now == (last[0], len(seats)):
            return
        if not self._lease.is_held():
            return
        known = max(now[0] if now else 0, last[0] if last else 0)
        generation = max(int(self._clock.now_s() * 1000), known + 1)
        await self._wire.publish(at, generation, seats)
        post.published = (generation, seats)

    async def _take_back(self, post: _Post, at: MasterAddress, model: str) -> None:
        if not self._lease.is_held():
            return
        checkpoint = await self._wire.restore(at)
        post.restored = model
        where = f"to checkpoint {checkpoint}" if checkpoint else "to the start of the epoch"
        self._tell(post.job.key, f"the model was lost: the accounts went back {where}")


def _address(job: Job) -> MasterAddress | None:
    """Where the master is called; None while its pod does not run."""
    master = master_of(job)
    if master is None or not master.ip or master.phase is not PodPhase.RUNNING:
        return None
    return MasterAddress(job.key, job.uid, master.uid, master.ip)


def _cancel(post: _Post) -> None:
    if post.task is not None:
        post.task.cancel()
