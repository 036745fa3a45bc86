"""What a master's report means for its job: which trainers may hold leases, when to restore, when the job ends.

The master keeps the ledger itself. Everything here follows from the pods, the stored status and the last report of
the master, so a new controller continues where a killed one stopped.

The model and the ledger must match. The status stores which pservers hold the model (a hash of their UIDs). If other
pservers hold it later, or edl took the whole job down, the ledger must return to the last committed checkpoint. Until
that has happened no trainer may hold a lease.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

from edl.lifecycle.container_end import cause_of_end
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.progress import LOST_MODEL, Goodput, Measured, Progress
from edl.model.status import JobPhase
from edl.model.units import count

NO_PSERVERS = "trainers"
"""The model id of a job without pservers: its trainers hold the model."""

LEDGER_LOST = "LedgerLost"
FINISH_GRACE_S = 600.0
"""How long trainers may take to save the model after the last epoch has ended."""

STORE_AFTER_S, STORE_SOON_AFTER_S, STORE_SOON_FRACTION = 60.0, 10.0, 0.01
"""Progress is written after the first time or, if that fraction of an epoch is new, after the second."""

_MAX_SHOWN = 300


class MasterState(StrEnum):
    """The values of the field `state` in the status of a master."""

    EMPTY = "empty"  # no data set is declared yet
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"  # more positions are quarantined than the data set allows


@dataclass(frozen=True, slots=True)
class HungTrainer:
    """A trainer whose pod exists, but without which the others continue, because it does not answer.

    Attributes:
        pod_uid: the UID of its pod.
        is_silent: its process is stopped, or its node does not answer; otherwise its loop hangs.
        seconds: since the others went on.
    """

    pod_uid: str
    is_silent: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class MasterReport:
    """The fields of a master's status that the controller needs.

    Attributes:
        state: the state of the data set.
        epoch, done, total: positions of the current epoch, or of the last one if the job is finished.
        consumed: `done`, and the positions that trainers have processed within their current leases.
        waiting: positions without a lease.
        quarantined: positions of the epoch that are left out.
        left_out: positions of all epochs so far that were left out.
        working: UIDs of pods that hold leases and have made progress with them; in step, of those that have applied a
            step since their world began.
        roster: (generation, number of pods) of the current roster; None if there is none.
        blocked: why the master cannot write its journal; empty if it can.
        hung: the trainers in step that hang, by the time of the report.
        unsaved: positions that training would repeat if the model were lost now.
        goodput: of a job that may choose its batch, by number of trainers; empty if it is not known.
        batch: the global batch that such a job has chosen; 0 if it is not known.
        in_step: the trainers train in step, so an epoch begins where the one before it ends.
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
    hung: tuple[HungTrainer, ...] = ()
    unsaved: int = 0
    in_step: bool = False
    goodput: tuple[Goodput, ...] = ()
    batch: int = 0

    @property
    def course(self) -> tuple[int, int]:
        """(number of a stretch, positions consumed in it): only within one stretch can readings be subtracted.

        That is an epoch, at whose end trainers wait for the last leases. Trainers in step go through all epochs.
        """
        return (0, self.epoch * self.total + self.consumed) if self.in_step else (self.epoch, self.consumed)


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """A trainer that may hold leases."""

    uid: str
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class MasterView:
    """What the controller knows about a job's master.

    Attributes:
        report: the last report; None if the master has not answered this controller yet.
        progress: the progress to store; None without a data set.
        measured: the measurements to store; None if there are no new ones.
        lost_s: the training time that the last resize cost, in seconds; None if not measured.
        restored: the model for which the ledger was last restored; empty if it was not.
        is_current: the report is newer than the last change of the trainers.
        is_given_up: it is not, and edl no longer waits for a newer one.
        finished_for_s: seconds since the end of the last epoch.
    """

    report: MasterReport | None = None
    progress: Progress | None = None
    measured: Measured | None = None
    lost_s: float | None = None
    restored: str = ""
    is_current: bool = True
    is_given_up: bool = False
    finished_for_s: float = field(default=0.0)

    @property
    def is_finished(self) -> bool:
        """True if every epoch has ended."""
        return self.report is not None and self.report.state is MasterState.FINISHED


def master_of(job: Job) -> Pod | None:
    """The live pod of the job's master; None if there is none."""
    return next((p for p in job.pods if p.role is Role.MASTER and p.is_live), None)


def has_master(job: Job) -> bool:
    """True if the job runs a master."""
    return any(fixed.role is Role.MASTER for fixed in job.fixed)


def has_ledger(job: Job, report: MasterReport | None) -> bool:
    """True if the job is known to have a data set: from its spec, its stored status or a report of its master."""
    return job.has_dataset or _stored_progress(job) is not None or (report is not None and report.total > 0)


def roster_of(job: Job, unreachable: frozenset[str] = frozenset()) -> tuple[RosterEntry, ...]:
    """The trainers that may hold leases: those that exist and have not ended.

    A terminating trainer is included, because it may still report completed work. An unreachable one is not, although
    its container may still run.

    Args:
        job: the job with its pods.
        unreachable: UIDs of pods whose end no kubelet will confirm.
    """
    return tuple(
        RosterEntry(p.uid, p.name, p.index or 0)
        for p in job.pods
        if p.role is Role.TRAINER and not p.is_finished and p.uid not in unreachable
    )


def saving_trainers(job: Job) -> frozenset[str]:
    """UIDs of the running trainers of a job that edl takes down: until they have ended, they may save the model."""
    stored = _stored_progress(job)
    if job.status is None or stored is None or stored.model != LOST_MODEL:
        return frozenset()
    gives_way = job.status.phase in {JobPhase.PENDING, JobPhase.SUSPENDED}
    return frozenset(
        p.uid
        for p in job.pods
        if p.role is Role.TRAINER and p.phase is PodPhase.RUNNING and (p.terminating or gives_way)
    )


def pods_to_end(job: Job, unreachable: frozenset[str]) -> tuple[Pod, ...]:
    """The pods to delete now of a job that lost its admission: master and pservers end after the trainers.

    A trainer saves the model when it gets SIGTERM, and the save counts once the master has it.

    Args:
        job: the job with its pods.
        unreachable: UIDs of pods whose end no kubelet will confirm.
    """
    master = master_of(job)
    is_served = master is not None and master.phase is PodPhase.RUNNING and master.uid not in unreachable
    trainers = tuple(p for p in job.pods if p.role is Role.TRAINER)
    may_save = any(p.phase is PodPhase.RUNNING and p.uid not in unreachable for p in trainers)
    return trainers if is_served and may_save else job.pods


def model_of(job: Job) -> str:
    """Identify the pservers that hold the model now; empty while a pserver is missing or does not run."""
    pservers = sum(fixed.count for fixed in job.fixed if fixed.role is Role.PSERVER)
    if not pservers:
        return NO_PSERVERS
    uids = [p.uid for p in job.pods if p.role is Role.PSERVER and p.is_live and p.phase is PodPhase.RUNNING]
    return sha256(",".join(sorted(uids)).encode()).hexdigest()[:12] if len(uids) >= pservers else ""


def must_restore(job: Job, report: MasterReport, restored: str) -> bool:
    """True if the ledger counts work that the model has lost, so that it must return to a checkpoint.

    Args:
        job: the job with its stored status and its pods.
        report: the report of its master.
        restored: the model for which the ledger was last restored.
    """
    stored = _stored_progress(job)
    if stored is None or not stored.model or report.state is not MasterState.RUNNING:
        return False
    if not (stored.is_begun or report.epoch or report.consumed):
        return False
    model = model_of(job)
    return model not in {stored.model, restored} or not model


def progress_to_store(job: Job, master_view: MasterView | None, *, runs: bool) -> Progress | None:
    """The progress for the status of a job.

    Args:
        job: the job with its stored status.
        master_view: what its master reports; None if nothing is known.
        runs: True if the job should run; otherwise its pods are deleted, and the model with them.
    """
    stored = _stored_progress(job)
    reported = master_view.progress if master_view is not None else None
    if reported is None and stored is None:
        return None
    before = stored or Progress()
    report = master_view.report if master_view is not None else None
    is_begun = before.is_begun or (report is not None and bool(report.epoch or report.consumed))
    model = before.model
    if not runs:
        model = LOST_MODEL if is_begun else ""
    elif (current := model_of(job)) and master_view is not None and reported is not None:
        model = current if not (model and is_begun) or current == master_view.restored else model
    return replace(reported or before, model=model)


def expected_progress(job: Job) -> tuple[int, int] | None:
    """(epoch, positions done) that the journal of a new master must contain; None if it may be empty."""
    stored = _stored_progress(job)
    return (stored.epoch, stored.done) if stored is not None and stored.is_begun else None


def restarts_lost_epoch(job: Job) -> bool:
    """True if a new master restarts the epoch when its journal is lost; False if it refuses to start.

    If the spec does not set it, only a job that edl itself took down restarts the epoch: the model is lost too, so
    the epoch must restart in any case.
    """
    if job.restarts_epoch is not None:
        return job.restarts_epoch
    stored = _stored_progress(job)
    return stored is not None and stored.model == LOST_MODEL


def is_worth_storing(stored: Progress | None, current: Progress, since_s: float) -> bool:
    """True if progress has changed enough for a write of the status.

    Args:
        stored: the progress of the last write.
        current: the progress now.
        since_s: seconds since the last write.
    """
    if stored is None or (stored.epoch, stored.total) != (current.epoch, current.total):
        return True
    if stored.is_begun != current.is_begun:
        return True
    if stored.done == current.done:
        return False
    is_much = abs(current.done - stored.done) >= STORE_SOON_FRACTION * current.total
    return current.done == current.total or since_s >= STORE_AFTER_S or (since_s >= STORE_SOON_AFTER_S and is_much)


def ledger_loss(job: Job) -> str:
    """Why the job cannot continue without its ledger, from the message of its master; empty if it can."""
    master = master_of(job)
    if master is None or master.ready or LEDGER_LOST not in master.container_message:
        return ""
    line = next(line for line in master.container_message.splitlines() if LEDGER_LOST in line)
    detail = line[line.index(LEDGER_LOST) + len(LEDGER_LOST) :].lstrip(": ")[:_MAX_SHOWN]
    return (
        f"the master lost its ledger: {detail} (in a new job, spec.dataset.onLedgerLost: RestartEpoch restarts the"
        " epoch instead)"
    )


def quarantine_failure(master_view: MasterView | None) -> str:
    """Why the job failed because of bad records; empty if it did not."""
    if master_view is None or master_view.report is None or master_view.report.state is not MasterState.FAILED:
        return ""
    report = master_view.report
    return (
        f"trainers could not process {report.quarantined} of {report.total} positions of epoch {report.epoch}, more"
        " than spec.dataset.maxQuarantinedFraction allows; the trainers' logs show why"
    )


def master_problem(job: Job, master_view: MasterView | None) -> tuple[str, str] | None:
    """(reason, message) if the master cannot work; None if it can."""
    master = master_of(job)
    if master_view is not None and master_view.report is not None and master_view.report.blocked:
        return (
            "JournalBlocked",
            f"the master cannot write its journal: {master_view.report.blocked}; training is paused and resumes"
            " automatically once the journal's volume has free space",
        )
    if master is not None and not (master.ready or master.cannot_start) and master.container_message:
        return "MasterFailing", f"{master.name} failed and is restarted: {cause_of_end(master)}"
    return None


def ledger_warning(job: Job, master_view: MasterView | None) -> tuple[str, str] | None:
    """(reason, message) if positions were left out, or if the ledger or the model can be lost; None otherwise."""
    report = master_view.report if master_view is not None else None
    if report is not None and report.left_out:
        left_out = count(report.left_out, "position")
        return (
            "RecordsQuarantined",
            f"the master left out {left_out} of the data set after repeated failures; `edl audit` lists them",
        )
    master = master_of(job)
    is_sharded = job.has_dataset or (report is not None and report.total > 0)
    if is_sharded and master is not None and master.journal == "emptyDir":
        return (
            "LedgerNotDurable",
            "the master's journal is on an emptyDir volume and is lost if its pod is deleted; set"
            " spec.master.storage, or give the cluster a default StorageClass",
        )
    return ("CheckpointsNotDurable", job.unkept) if job.unkept else None


def is_awaited(master_view: MasterView | None) -> bool:
    """True while a job whose trainers have ended must wait for the last report of its master."""
    return master_view is not None and not (master_view.is_current or master_view.is_given_up)


def data_at_end(job: Job, master_view: MasterView | None) -> str:
    """Name the records that are unfinished or unknown, for the trainers' completion message; empty if none are."""
    report = master_view.report if master_view is not None else None
    if master_view is not None and master_view.is_given_up and has_ledger(job, report):
        stored = master_view.progress or _stored_progress(job)
        last = f"{stored.done} of {stored.total} positions of epoch {stored.epoch}" if stored is not None else "none"
        return (
            "; the master did not report after their end, so the final accounts of the data are unknown (the last"
            f" reported positions: {last})"
        )
    if report is None or report.state is not MasterState.RUNNING:
        return ""
    return f" before the end of the data: {report.done} of {report.total} positions of epoch {report.epoch} are done"


def _stored_progress(job: Job) -> Progress | None:
    return job.status.dataset if job.status is not None else None
