"""Bugs in the controller's loop and in what it says to masters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from edl.controller.pending_writes import Lane, Write
from edl.lifecycle.data_progress import MasterReport, RosterEntry
from edl.model.actions import Action, CreatePod
from edl.model.jobs import Job
from edl.model.names import Role
from tests.planted import Right, bug, targets

Roster = tuple[RosterEntry, ...]
MASTERS = "controller/master_monitor/test_master_monitor.py"
KUEUE = "controller/core/test_core_kueue.py"


@bug(
    "an action that the API server refuses is tried again at once",
    at=targets.BACKOFF_ALLOWS,
    caught_by="controller/loop/test_loop.py::test_a_refused_job_is_degraded_and_retried_rarely_while_other_jobs_run",
)
def refused_action_repeated_at_once(_: Right) -> Right:
    return lambda *_: True


@bug(
    "trainers start although their pservers could not be created",
    at=targets.CREATIONS,
    caught_by="controller/loop/test_loop_with_planner.py::test_no_trainer_starts_if_a_pserver_could_not_be_created",
)
def trainers_without_pservers(right: Right) -> Right:
    def wrong(self: Any, job: Job, actions: Iterable[Action], *rest: Any) -> Iterator[Write]:
        actions = tuple(actions)
        yield from right(self, job, actions, *rest)
        trainers = [a for a in actions if isinstance(a, CreatePod) and a.role is Role.TRAINER]
        yield from (Write((action,), Lane.BASE) for action in trainers)

    return wrong


@bug(
    "a cache that is not complete is looked at again and again without a pause",
    at=targets.WAIT_FOR_TURN,
    caught_by="controller/loop/test_loop_pace.py"
    "::test_a_cache_that_is_not_complete_is_looked_at_twice_a_second_and_nothing_is_written",
)
def no_pause_without_a_cache(right: Right) -> Right:
    async def wrong(self: Any, pause_s: float, stop: Any) -> None:
        await right(self, pause_s if self._has_looked else 0.01, stop)

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


@bug(
    "a count is raised by a plan that does not know of the owner that waits",
    at=targets.AS_ACCEPTED,
    caught_by=f"{KUEUE}::test_a_count_that_is_not_admitted_goes_back_at_once_if_an_owner_comes",
)
def raised_beside_an_owner(_: Right) -> Right:
    return lambda decision, _job: decision


@bug(
    "a job asks for quota that others use since the plan was begun",
    at=targets.ASKABLE,
    caught_by=f"{KUEUE}::test_what_others_hold_by_now_is_not_asked_for",
)
def quota_of_others_asked_for(_: Right) -> Right:
    return lambda _now, targets: targets
