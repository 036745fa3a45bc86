"""What a job's ledger means for its life: who may hold leases, when it goes back, when it is over, what is wrong.

The ledger itself is the master's. What is decided here follows from the pods, from what is stored in the status, and
from what the master was last heard to say; so a controller that was killed anywhere goes on where it stopped.

Model and accounts belong together. The status names the pservers that hold the model (by their UIDs); once others
hold it, or the whole job was taken down, the accounts go back to the last committed checkpoint, and until that has
happened nobody holds a lease.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.progress import LOST_MODEL, Measured, Progress

NO_PSERVERS = "trainers"
LEDGER_LOST = "LedgerLost"
FINISH_GRACE_S = 600.0
"""Trainers may take so long to save the model after the last epoch is closed."""

TELL_S, TELL_SOON_S, TELL_PART = 60.0, 10.0, 0.01
"""Progress is stored after so long; sooner where it is that part of an epoch, but not sooner than the second."""

_SHOWN = 300


class MasterState(StrEnum):
    """`state` of a master."""

    EMPTY = "empty"  # nobody has said yet what it shards
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"  # more is quarantined than the data set allows


@dataclass(frozen=True, slots=True)
class MasterReport:
    """What a master says of its ledger, as far as the controller needs it.

    Attributes:
        epoch, done, total: positions of the present epoch, or of the last one where the job is finished.
        consumed: `done`, and what trainers have behind them of leases in work.
        waiting: positions that nobody has a lease for.
        quarantined: positions of the epoch that were left out.
        left_out: positions of all epochs so far that were.
        working: UIDs of pods that hold leases and have made progress with their work.
        roster: (generation, number of pods) of the roster in force; None where there is none.
        blocked: why nothing can be written to its journal; empty where it can.
    """

    state: MasterState
    epoch: int = 0
    done: int = 0
    total: int = 0
    consumed: int = 0
    waiting: int = 0
    quarantined: int = 0
    left_out: int = 0
    working: frozenset[str] = frozenset()
    roster: tuple[int, int] | None = None
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One trainer that may hold leases."""

    uid: str
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class MasterView:
    """What was heard of a job's master, and what came of listening.

    Attributes:
        report: its last answer; None where it has not answered this controller yet.
        progress: how far the data set is consumed, as it is worth storing; None without a data set.
        measured: what was measured, as it is worth storing; None where nothing new was.
        lost_s: what the last resize cost; None while that is not known.
        restored: the model that the accounts were last taken back for; empty where they were not.
        is_current: it was heard after the last change of the trainers, or is not to be waited for.
        finished_for_s: for how long the last epoch has been closed.
    """

    report: MasterReport | None = None
    progress: Progress | None = None
    measured: Measured | None = None
    lost_s: float | None = None
    restored: str = ""
    is_current: bool = True
    finished_for_s: float = field(default=0.0)

    @property
    def is_finished(self) -> bool:
        """True where every epoch is closed."""
        return self.report is not None and self.report.state is MasterState.FINISHED


def master_of(job: Job) -> Pod | None:
    """The pod of the job's master, where one lives."""
    return next((p for p in job.pods if p.role is Role.MASTER and p.is_live), None)


def has_master(job: Job) -> bool:
    """True where the job runs a master."""
    return any(fixed.role is Role.MASTER for fixed in job.fixed)


def roster_of(job: Job, lost: frozenset[str] = frozenset()) -> tuple[RosterEntry, ...]:
    """Who may hold leases: trainers that exist and have not ended.

    One that is on its way out stays, because it may still report what it has done; one that no kubelet will ever end
    does not, wherever it may still run.
    """
    return tuple(
        RosterEntry(p.uid, p.name, p.index or 0)
        for p in job.pods
        if p.role is Role.TRAINER and not p.is_finished and p.uid not in lost
    )


def model_of(job: Job) -> str:
    """Who holds the model now; empty while not every pserver runs."""
    wanted = sum(fixed.count for fixed in job.fixed if fixed.role is Role.PSERVER)
    if not wanted:
        return NO_PSERVERS
    uids = [p.uid for p in job.pods if p.role is Role.PSERVER and p.is_live and p.phase is PodPhase.RUNNING]
    return sha256(",".join(sorted(uids)).encode()).hexdigest()[:12] if len(uids) >= wanted else ""


def must_go_back(job: Job, report: MasterReport, restored: str) -> bool:
    """True where the accounts count work that the model does not hold any more.

    Args:
        job: with its stored status and its pods.
        report: of the master.
        restored: the model that they were last taken back for.
    """
    stored = job.status.dataset if job.status is not None else None
    if stored is None or not stored.model or report.state is not MasterState.RUNNING:
        return False
    if not (stored.is_begun or report.epoch or report.consumed):
        return False
    now = model_of(job)
    return now not in {stored.model, restored} or not now


def stored_progress(job: Job, master_view: MasterView | None, *, runs: bool) -> Progress | None:
    """How far the job is, as its status should say.

    Args:
        job: with its stored status.
        master_view: what its master says; None where it has said nothing.
        runs: the job is to run; else its pods, and with them the model, go.
    """
    stored = job.status.dataset if job.status is not None else None
    told = master_view.progress if master_view is not None else None
    if told is None and stored is None:
        return None
    before = stored or Progress()
    report = master_view.report if master_view is not None else None
    is_begun = before.is_begun or (report is not None and bool(report.epoch or report.consumed))
    model = before.model
    if not runs:
        model = LOST_MODEL if is_begun else ""
    elif (now := model_of(job)) and master_view is not None and told is not None:
        model = now if not (model and is_begun) or now == master_view.restored else model
    return replace(told or before, model=model)


def expected_of(job: Job) -> tuple[int, int] | None:
    """(epoch, positions done) that a new master must find in its journal; None where there need be none."""
    stored = job.status.dataset if job.status is not None else None
    return (stored.epoch, stored.done) if stored is not None and stored.is_begun else None


def begins_epoch_again(job: Job) -> bool:
    """What a new master does where its journal is lost: begin the epoch again, or refuse.

    Where the spec does not say, only a ledger that went because we took the whole job down is done without: the model
    is gone as well, so the epoch has to begin again in any case.
    """
    if job.restarts_epoch is not None:
        return job.restarts_epoch
    stored = job.status.dataset if job.status is not None else None
    return stored is not None and stored.model == LOST_MODEL


def is_news(told: Progress | None, now: Progress, since_s: float) -> bool:
    """True where progress is worth a write.

    Args:
        told: what was stored last.
        now: what is known.
        since_s: how long ago that was.
    """
    if told is None or (told.epoch, told.total, told.is_begun) != (now.epoch, now.total, now.is_begun):
        return True
    if told.done == now.done:
        return False
    is_much = abs(now.done - told.done) >= TELL_PART * now.total
    return now.done == now.total or since_s >= TELL_S or (since_s >= TELL_SOON_S and is_much)


def loss(job: Job) -> str:
    """Why the job cannot go on, as its master said it; empty where it can."""
    master = master_of(job)
    if master is None or master.ready or LEDGER_LOST not in master.container_message:
        return ""
    line = next(line for line in master.container_message.splitlines() if LEDGER_LOST in line)
    words = line[line.index(LEDGER_LOST) + len(LEDGER_LOST) :].lstrip(": ")
    return f"{words[:_SHOWN]} (spec.dataset.onLedgerLost: RestartEpoch, of a new job)"


def quarantine_of(master_view: MasterView | None) -> str:
    """Why the job has failed by its data; empty where it has not."""
    if master_view is None or master_view.report is None or master_view.report.state is not MasterState.FAILED:
        return ""
    report = master_view.report
    return (
        f"{report.quarantined} of {report.total} positions of epoch {report.epoch} cannot be worked on, more than"
        " spec.dataset.maxQuarantinedFraction; the trainers' logs say why"
    )


def master_problem(job: Job, master_view: MasterView | None) -> tuple[str, str] | None:
    """(reason, sentence) of what keeps the master from its work."""
    master = master_of(job)
    if master_view is not None and master_view.report is not None and master_view.report.blocked:
        said = master_view.report.blocked
        remedy = "" if "make room" in said else "; make room on its volume"
        return (
            "JournalBlocked",
            f"the master cannot write its journal: {said}{remedy}; training stands still and goes on by itself then",
        )
    if master is not None and not master.ready and master.container_message:
        last = master.container_message.strip().splitlines()[-1][:_SHOWN]
        return "MasterFailing", f"{master.name} ended and is started again: {last}"
    return None


def ledger_warning(job: Job, master_view: MasterView | None) -> tuple[str, str] | None:
    """(reason, sentence) of what may go wrong with the ledger, or has gone wrong in part."""
    report = master_view.report if master_view is not None else None
    if report is not None and report.left_out:
        told = f"{report.left_out} positions failed again and again and are left out; edl audit names them"
        return "RecordsQuarantined", told
    master = master_of(job)
    is_sharded = job.has_dataset or (report is not None and report.total > 0)
    if is_sharded and master is not None and master.journal == "emptyDir":
        return (
            "LedgerNotDurable",
            "the master's journal is on an emptyDir and goes with its pod; give spec.master.storage, or the cluster a"
            " default StorageClass",
        )
    return None


def unfinished(master_view: MasterView | None) -> str:
    """What is left of the data set, for a job whose trainers say that they are done; empty where nothing is."""
    report = master_view.report if master_view is not None else None
    if report is None or report.state is not MasterState.RUNNING:
        return ""
    return f", with {report.done} of {report.total} positions of epoch {report.epoch} done"
