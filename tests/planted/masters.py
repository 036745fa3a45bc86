"""Bugs in what the life of a job takes from its master: the ledger's accounts and the measured speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.lifecycle.data_progress import MasterReport, MasterView, RosterEntry, model_of
from edl.lifecycle.measurement import ProgressReading, SpeedMeter
from edl.model.jobs import Job
from edl.model.progress import Progress
from tests.planted import Right, bug, targets
from tests.planted.lifecycle import MASTERS

LOST_LEDGER = "lifecycle/test_data_progress_lost_ledger.py"
MASTER_CRASHES = "controller/master_monitor/test_master_monitor_crashes.py"
MEASURING = "lifecycle/test_measurement.py"
PROGRESS = "lifecycle/test_data_progress.py"


@bug(
    "a new master does not hear what its journal must hold",
    at=targets.EXPECTED_PROGRESS,
    caught_by=f"{PROGRESS}::test_a_master_that_was_lost_is_started_with_what_its_journal_must_hold",
)
def journal_not_expected(_: Right) -> Right:
    return lambda _: None


@bug(
    "a lost ledger does not fail the job",
    at=targets.LEDGER_LOSS,
    caught_by=f"{LOST_LEDGER}::test_a_master_without_its_journal_exits_and_the_job_fails_with_its_message",
)
def lost_ledger_ignored(_: Right) -> Right:
    return lambda _: ""


@bug(
    "the roster omits a trainer that may still report",
    at=targets.ROSTER_OF,
    caught_by=f"{PROGRESS}::test_the_roster_holds_every_trainer_that_may_still_report",
)
def terminating_trainer_off_the_roster(right: Right) -> Right:
    def wrong(job: Job, lost: frozenset[str] = frozenset()) -> tuple[RosterEntry, ...]:
        live = {pod.uid for pod in job.pods if pod.is_live}
        return tuple(entry for entry in right(job, lost) if entry.uid in live)

    return wrong


@bug(
    "the roster keeps a trainer on an unreachable node",
    at=targets.ROSTER_OF,
    caught_by=f"{PROGRESS}::test_the_roster_holds_every_trainer_that_may_still_report",
)
def unreachable_trainer_on_the_roster(right: Right) -> Right:
    def wrong(job: Job, _: frozenset[str] = frozenset()) -> Any:
        return right(job)

    return wrong


@bug(
    "training continues without a pserver",
    at=targets.MUST_RESTORE,
    caught_by=f"{MASTERS}::test_no_trainer_gets_a_lease_while_a_pserver_is_missing",
)
def training_without_pserver(right: Right) -> Right:
    def wrong(job: Job, report: MasterReport, restored: str) -> bool:
        return bool(model_of(job)) and bool(right(job, report, restored))

    return wrong


@bug(
    "a new model counts as the one that the progress belongs to",
    at=targets.PROGRESS_TO_STORE,
    caught_by=MASTER_CRASHES,
)
def new_model_taken_for_the_old(right: Right) -> Right:
    def wrong(job: Job, view: MasterView | None, *, runs: bool) -> Progress | None:
        progress: Progress | None = right(job, view, runs=runs)
        has_report = runs and view is not None and view.progress is not None
        if progress is None or not has_report or not model_of(job):
            return progress
        return replace(progress, model=model_of(job))

    return wrong


@bug(
    "progress that was taken back is never stored as such",
    at=targets.PROGRESS_TO_STORE,
    caught_by=MASTER_CRASHES,
)
def restore_not_stored(right: Right) -> Right:
    def wrong(job: Job, view: MasterView | None, *, runs: bool) -> Any:
        view = replace(view, restored="") if view is not None else None
        return right(job, view, runs=runs)

    return wrong


@bug(
    "the model counts as kept although all pods of the job were deleted",
    at=targets.PROGRESS_TO_STORE,
    caught_by=f"{PROGRESS}::test_accounts_of_a_job_that_was_taken_down_go_back_when_it_runs_again",
)
def model_kept_without_pods(right: Right) -> Right:
    def wrong(job: Job, view: MasterView | None, *, runs: bool) -> Progress | None:
        progress: Progress | None = right(job, view, runs=runs)
        stored = job.status.dataset if job.status is not None else None
        if progress is None or runs:
            return progress
        return replace(progress, model=stored.model if stored is not None else "")

    return wrong


@bug(
    "progress is written each time the master reports it",
    at=targets.IS_WORTH_STORING,
    caught_by=f"{PROGRESS}::test_progress_is_written_when_it_is_worth_it",
)
def all_progress_is_news(right: Right) -> Right:
    def wrong(stored: Progress | None, now: Progress, since_s: float) -> bool:
        return bool(right(stored, now, since_s)) or (stored is not None and stored.done != now.done)

    return wrong


@bug(
    "the planner never gets the measured speeds",
    at=targets.AS_PLANNED,
    caught_by=f"{MASTERS}::test_a_job_that_does_not_scale_gets_no_more_trainers",
)
def measured_speed_not_planned_with(right: Right) -> Right:
    def wrong(job: Job, **options: Any) -> Job:
        planned: Job = right(job, **options)
        return replace(planned, throughput=job.throughput)

    return wrong


@bug(
    "a speed is measured across a resize",
    at=targets.OBSERVE_SPEED,
    caught_by=f"{MEASURING}::test_speed_is_stored_by_number_of_trainers",
)
def speed_across_a_resize(right: Right) -> Right:
    def wrong(meter: SpeedMeter, reading: ProgressReading, *rest: Any) -> Any:
        last = replace(meter.last, trainers=reading.trainers) if meter.last is not None else None
        return right(replace(meter, last=last), reading, *rest)

    return wrong


@bug(
    "a speed is measured before new trainers work",
    at=targets.OBSERVE_SPEED,
    caught_by=f"{MEASURING}::test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet",
)
def speed_before_all_work(right: Right) -> Right:
    def wrong(meter: SpeedMeter, reading: ProgressReading, *rest: Any) -> Any:
        return right(meter, replace(reading, working=reading.trainers), *rest)

    return wrong


@bug(
    "trainers in step are measured within one epoch only",
    at=targets.COURSE,
    caught_by="kube/test_master_client.py::test_trainers_in_step_are_read_and_their_epochs_are_one_stretch",
)
def epochs_of_trainers_in_step_apart(_: property) -> property:
    return property(lambda report: (report.epoch, report.consumed))


@bug(
    "trainers in step work as soon as their world has formed",
    at=targets.STATUS_OF_GROUP,
    caught_by="ledger/test_group.py::test_trainers_work_once_their_world_has_made_a_step",
)
def a_formed_world_works(right: Right) -> Right:
    def wrong(self: Any, now_s: float) -> Any:
        status = right(self, now_s)
        if status is not None:
            status["working"] = [f"pod-{name}" for name in status["members"]]
        return status

    return wrong


@bug(
    "a resize costs trainers that keep working as much as if they had stopped",
    at=targets.OBSERVE_SPEED,
    caught_by=f"{MEASURING}::test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet",
)
def resize_cost_without_the_work_done(right: Right) -> Right:
    def wrong(meter: SpeedMeter, *rest: Any) -> Any:
        change = meter.change
        if change is not None and change.settled is not None:
            before = replace(change.before, consumed=change.settled.consumed)
            meter = replace(meter, change=replace(change, before=before))
        return right(meter, *rest)

    return wrong


@bug(
    "a single outlier is believed",
    at=targets.OUTLIER,
    caught_by=f"{MEASURING}::test_one_window_that_is_far_off_moves_a_known_speed_by_a_bounded_part",
)
def outlier_believed(right: float) -> float:
    return right * 10**6


@bug(
    "a measured speed replaces a declared one",
    at=targets.WITH_MEASURED,
    caught_by=f"{MEASURING}::test_the_planner_uses_what_was_measured_only_where_nothing_is_declared",
)
def measured_speed_replaces_declared(right: Right) -> Right:
    def wrong(job: Job) -> Any:
        measured: Job = right(replace(job, throughput=()))
        return measured if measured.throughput else right(job)

    return wrong
