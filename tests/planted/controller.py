"""Bugs in the controller's loop and in what it says to masters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from edl.controller.write_queue import Lane

from edl.controller.ports import RoundResult
from edl.lifecycle.data_progress import MasterReport, RosterEntry
from edl.model.actions import Action
from edl.model.jobs import Job
from tests.planted import Right, bug, targets

Roster = tuple[RosterEntry, ...]
MASTERS = "controller/master_monitor/test_master_monitor.py"


@bug(
    "an action that the API server refuses is tried again at once",
    at=targets.BACKOFF_ALLOWS,
    caught_by="controller/loop/test_loop.py::test_a_refused_job_is_degraded_and_retried_rarely_while_other_jobs_run",
)
def refused_action_repeated_at_once(_: Right) -> Right:
    return lambda *_: True


@bug(
    "trainers start although their pservers could not be created",
    at=targets.CREATION_LANE,
    caught_by="controller/loop/test_loop_with_planner.py::test_no_trainer_starts_if_a_pserver_could_not_be_created",
)
def trainers_without_pservers(right: Right) -> Right:
    def wrong(job: Job, actions: Iterable[Action]) -> Lane:
        stages: Lane = right(job, actions)
        *needs, base, trainers = stages if len(stages) > 1 else ((), (), *stages)
        return (*needs, (*base, *trainers))

    return wrong


@bug(
    "a stale cache shortens the pauses after failed rounds",
    at=targets.ROUND,
    caught_by="controller/loop/test_loop_pace.py::test_a_skipped_round_after_a_failure_does_not_shorten_the_pause",
)
def skipped_round_ends_failures(right: Right) -> Right:
    async def wrong(self: Any) -> RoundResult:
        result: RoundResult = await right(self)
        if result is RoundResult.SKIPPED:
            self._failed_rounds = 0
        return result

    return wrong


@bug(
    "a replica that is not the leader calls the masters",
    at=targets.UPDATE_MASTERS,
    caught_by=f"{MASTERS}::test_only_the_leader_monitors_masters",
)
def follower_calls_masters(right: Right) -> Right:
    known: list[Job] = []

    def wrong(self: Any, jobs: Iterable[Job], *rest: Any) -> None:
        known[:] = [*jobs] or known
        right(self, known, *rest)

    return wrong


@bug(
    "a roster is published only once",
    at=targets.PUBLISH_ROSTER,
    caught_by=f"{MASTERS}::test_the_leases_of_a_pod_that_is_gone_end_at_once",
)
def roster_published_once(right: Right) -> Right:
    async def wrong(self: Any, master: Any, address: Any, report: MasterReport, roster: Roster) -> None:
        if report.roster is None:
            await right(self, master, address, report, roster)

    return wrong


@bug(
    "an unchanged roster is published again and again",
    at=targets.PUBLISH_ROSTER,
    caught_by=f"{MASTERS}::test_without_changes_nothing_is_published_and_nothing_is_written",
)
def roster_published_always(right: Right) -> Right:
    async def wrong(self: Any, master: Any, address: Any, report: MasterReport, roster: Roster) -> None:
        await right(self, master, address, replace(report, roster=None) if roster else report, roster)

    return wrong


@bug(
    "a roster is published with an older generation than the master knows",
    at=targets.PUBLISH_ROSTER,
    caught_by=f"{MASTERS}::test_a_master_with_a_roster_newer_than_the_clock_gets_a_newer_one",
)
def roster_with_old_generation(right: Right) -> Right:
    async def wrong(self: Any, master: Any, address: Any, report: MasterReport, roster: Roster) -> None:
        pods = report.roster[1] if report.roster is not None else 0
        await right(self, master, address, replace(report, roster=(0, pods)), roster)

    return wrong


@bug(
    "the ledger does not go back although the model is lost",
    at=targets.RESTORE_LEDGER,
    caught_by=f"{MASTERS}::test_the_master_goes_back_to_the_last_checkpoint_if_a_pserver_is_lost",
)
def ledger_not_restored(_: Right) -> Right:
    async def wrong(*_: Any) -> int:
        return 0

    return wrong
