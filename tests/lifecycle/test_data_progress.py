"""What a job does with its master's report: progress, completion, restores and losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.data_progress import (
    FINISH_GRACE_S,
    NO_PSERVERS,
    MasterReport,
    MasterState,
    MasterView,
    is_worth_storing,
    model_of,
    must_restore,
    roster_of,
)
from edl.lifecycle.desired_state import as_planned
from edl.model.actions import CreatePod, PatchStatus
from edl.model.jobs import FixedPods
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.progress import LOST_MODEL, Measured, Progress, Speed
from edl.model.status import JobPhase, JobStatus
from tests.worlds.builders import make_job
from tests.worlds.job_by_spec import MASTER, PSERVERS, Life, fault_tolerant


def report(done: int = 40, total: int = 100, **fields: Any) -> MasterReport:
    given = {"state": MasterState.RUNNING, "epoch": 1, "done": done, "total": total, "consumed": done, "waiting": 10}
    return MasterReport(**{**given, **fields})


def hear(life: Life, found: MasterReport, **fields: Any) -> None:
    progress = Progress(found.epoch, found.done, found.total) if found.total else None
    life.context = replace(life.context, master_view=MasterView(found, progress, **fields))


def trained(done: int = 40, **fields: Any) -> Life:
    """A job of a master, two pservers and four trainers that has done so many positions."""
    life = fault_tolerant(**fields)
    hear(life, report(done))
    life.settle(2)
    return life


def stored(life: Life) -> Progress:
    assert life.status.dataset is not None
    return life.status.dataset


def is_complete(life: Life) -> bool:
    return life.phase is JobPhase.SUCCEEDED


def cost_s(life: Life) -> float | None:
    assert life.status.last_resize is not None
    return life.status.last_resize.lost_s


def test_the_status_has_the_progress_that_the_master_reports() -> None:
    life = trained(40)
    assert stored(life) == Progress(1, 40, 100, model_of(life.job))
    hear(life, report(70), measured=Measured((Speed(4, 9.0, 30.0),), 3.0))
    life.round()
    assert stored(life).done == 70
    assert life.status.measured == Measured((Speed(4, 9.0, 30.0),), 3.0)


def test_an_unchanged_report_writes_nothing() -> None:
    life = trained(40)
    for _ in range(5):
        life.now_s += 100
        life.round()
        assert life.actions == ()


def test_a_new_controller_keeps_the_stored_progress_until_the_master_reports() -> None:
    life = trained(40)
    before = life.status
    life.context = replace(life.context, master_view=None)
    life.settle(3)
    assert life.status == before


def test_the_last_resize_gets_its_cost_once_it_is_measured() -> None:
    life = trained(40)
    life.settle(3, target=6)
    assert cost_s(life) is None
    hear(life, report(50), lost_s=7.26)
    life.round(target=6)
    assert cost_s(life) == 7.3
    hear(life, report(50))
    life.settle(3, target=6)
    assert cost_s(life) == 7.3
    life.settle(2, target=5)
    assert cost_s(life) is None


def test_a_job_completes_after_the_last_epoch_once_a_trainer_has_completed() -> None:
    life = trained(40)
    hear(life, report(100, state=MasterState.FINISHED))
    life.settle(3)
    assert not is_complete(life), "trainers still run: they may be saving the model"
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert is_complete(life)
    assert stored(life).done == 100
    assert life.names == {f"a-trainer-{i}" for i in range(4)}


def test_after_the_last_epoch_only_the_last_lost_trainer_is_replaced() -> None:
    life = trained(40)
    hear(life, report(100, state=MasterState.FINISHED))
    life.world.finish(life.key, "a-trainer-0")
    for name in ("a-trainer-1", "a-trainer-2"):
        life.evict(name)
    life.world.finish(life.key, "a-trainer-3", 1)
    life.settle(4)
    assert is_complete(life), "one trainer saw the end of the data and completed"
    other = trained(40)
    hear(other, report(100, state=MasterState.FINISHED))
    other.finish_all(Role.TRAINER, 1)
    other.settle(4)
    assert not is_complete(other), "no trainer has saved the model"
    assert len(other.job.live_trainers) == 1


def test_trainers_that_run_on_are_deleted_some_time_after_the_last_epoch() -> None:
    life = trained(40)
    hear(life, report(100, state=MasterState.FINISHED), finished_for_s=FINISH_GRACE_S - 1)
    life.settle(3)
    assert not is_complete(life)
    hear(life, report(100, state=MasterState.FINISHED), finished_for_s=FINISH_GRACE_S)
    life.settle(4)
    assert is_complete(life)
    assert life.job.pods == ()


def test_a_finishing_job_is_planned_with_its_live_trainers() -> None:
    job = trained(40).job
    assert as_planned(job).max_trainers == 6
    assert as_planned(job, is_finishing=True).max_trainers == 4


def test_completion_waits_for_a_report_of_the_master() -> None:
    life = trained(40)
    hear(life, report(40), is_current=False)
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert not is_complete(life)
    assert not life.created()
    hear(life, report(100, state=MasterState.FINISHED))
    life.settle(3)
    assert is_complete(life)
    assert stored(life).done == 100


def test_trainers_that_complete_early_leave_the_rest_of_the_data_in_the_message() -> None:
    life = trained(40)
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert is_complete(life)
    assert "40 of 100 positions of epoch 1 are done" in life.condition("Complete").message


def test_too_many_quarantined_positions_fail_the_job() -> None:
    life = trained(40)
    hear(life, report(40, state=MasterState.FAILED, quarantined=7))
    life.settle(3)
    assert (life.phase, life.status.reason) == (JobPhase.FAILED, "TooManyQuarantined")
    assert "7 of 100" in life.condition("Failed").message


def masters_created(life: Life) -> list[CreatePod]:
    return [a for a in life.world.writes if isinstance(a, CreatePod) and a.role is Role.MASTER]


def test_the_first_master_may_find_an_empty_journal() -> None:
    (first,) = masters_created(fault_tolerant())
    assert (first.expected, first.restarts_epoch) == (None, False)


@pytest.mark.parametrize(("declared", "restarts"), [(None, False), (False, False), (True, True)])
def test_a_master_that_was_lost_is_started_with_what_its_journal_must_hold(
    declared: bool | None, restarts: bool
) -> None:
    life = trained(40, restarts_epoch=declared)
    life.world.drop(life.key, "a-master-0")
    life.settle(3)
    again = masters_created(life)[-1]
    assert (again.expected, again.restarts_epoch) == ((1, 40), restarts)


@pytest.mark.parametrize(("declared", "restarts"), [(None, True), (False, False), (True, True)])
def test_a_ledger_lost_because_edl_stopped_the_job_restarts_its_epoch(declared: bool | None, restarts: bool) -> None:
    life = trained(40, restarts_epoch=declared)
    life.settle(4, target=0, admitted=False)
    assert stored(life) == Progress(1, 40, 100, LOST_MODEL)
    life.settle(4)
    again = masters_created(life)[-1]
    assert (again.expected, again.restarts_epoch) == ((1, 40), restarts)


def test_the_model_is_identified_by_its_pservers() -> None:
    life = fault_tolerant()
    whole = model_of(life.job)
    assert whole
    assert model_of(replace(life.job, pods=life.job.pods[::-1])) == whole
    life.world.drop(life.key, "a-pserver-1")
    assert model_of(life.job) == ""
    life.settle(3)
    assert model_of(life.job) not in {"", whole}
    assert model_of(make_job("b", fixed=(MASTER,))) == NO_PSERVERS


def test_the_ledger_is_restored_once_other_pservers_hold_the_model() -> None:
    life = trained(40)
    assert not must_restore(life.job, report(40), "")
    life.evict("a-pserver-0")
    assert must_restore(life.job, report(45), ""), "already while it is missing: no trainer may continue"
    life.settle(3)
    assert must_restore(life.job, report(45), "")
    now = model_of(life.job)
    assert not must_restore(life.job, report(40), now)
    hear(life, report(40), restored=now)
    life.round()
    assert stored(life).model == now
    assert not must_restore(life.job, report(40), "")


@pytest.mark.parametrize("fixed", [(MASTER,), (MASTER, PSERVERS)])
def test_accounts_of_a_job_that_was_taken_down_go_back_when_it_runs_again(fixed: tuple[FixedPods, ...]) -> None:
    life = trained(40, fixed=fixed)
    life.settle(4, target=0, admitted=False)
    life.settle(4)
    assert must_restore(life.job, report(40), "")


def test_a_lost_pserver_needs_no_restore_before_any_progress_or_after_the_end() -> None:
    life = fault_tolerant()
    hear(life, report(0, epoch=0))
    life.settle(2)
    life.evict("a-pserver-0")
    life.settle(3)
    assert not must_restore(life.job, report(0, epoch=0), "")
    assert stored(life).model == model_of(life.job)
    ended = trained(40)
    ended.evict("a-pserver-0")
    assert not must_restore(ended.job, report(100, state=MasterState.FINISHED), "")


def test_the_roster_holds_every_trainer_that_may_still_report() -> None:
    life = fault_tolerant()
    life.world.change(life.key, "a-trainer-0", phase=PodPhase.PENDING)
    life.evict("a-trainer-1")
    life.world.finish(life.key, "a-trainer-2")
    names = [seat.name for seat in roster_of(life.job)]
    assert names == ["a-trainer-0", "a-trainer-1", "a-trainer-3"]
    lost = frozenset({life.uid("a-trainer-1")})
    assert [seat.name for seat in roster_of(life.job, lost)] == ["a-trainer-0", "a-trainer-3"]


@pytest.mark.parametrize(
    ("stored", "current", "since_s", "is_worth_it"),
    [
        (None, (0, 0, 100), 0, True),
        ((0, 0, 100), (0, 1, 100), 0, True),
        ((0, 1, 100), (0, 1, 100), 999, False),
        ((0, 1, 100), (0, 90, 100), 5, False),
        ((0, 1, 100), (0, 90, 100), 10, True),
        ((0, 1000, 10**6), (0, 1010, 10**6), 30, False),
        ((0, 1000, 10**6), (0, 1010, 10**6), 60, True),
        ((0, 90, 100), (1, 0, 100), 0, True),
        ((0, 90, 100), (0, 100, 100), 0, True),
    ],
)
def test_progress_is_written_when_it_is_worth_it(
    stored: tuple[int, int, int] | None, current: tuple[int, int, int], since_s: float, is_worth_it: bool
) -> None:
    assert is_worth_storing(Progress(*stored) if stored else None, Progress(*current), since_s) is is_worth_it


def test_a_job_without_a_master_has_no_progress() -> None:
    assert JobStatus().dataset is None
    life = fault_tolerant(fixed=())
    life.settle(3)
    assert life.status.dataset is None
    assert not any(isinstance(a, PatchStatus) for a in life.actions)


def test_progress_within_the_first_lease_needs_a_restore_too() -> None:
    life = fault_tolerant()
    hear(life, report(0, epoch=0))
    life.settle(2)
    begun = report(0, epoch=0, consumed=7)
    hear(life, begun)
    life.evict("a-pserver-0")
    life.settle(3)
    assert must_restore(life.job, begun, "")
    other = fault_tolerant()
    hear(other, begun)
    other.settle(2)
    other.settle(4, target=0, admitted=False)
    assert stored(other).model == LOST_MODEL


def roles(life: Life) -> set[Role]:
    return {pod.role for pod in life.job.pods if pod.is_live and pod.role is not None}


@pytest.mark.parametrize("given", [{"suspended": True}, {}])
def test_the_trainers_of_a_job_that_gives_way_end_before_its_master_and_its_pservers(given: dict[str, Any]) -> None:
    life = trained()
    life.edit(**given)
    life.round(admitted=False, target=0)
    assert roles(life) == {Role.MASTER, Role.PSERVER}, "a save of the trainers needs the master"
    life.round(admitted=False, target=0)
    assert roles(life) == {Role.MASTER, Role.PSERVER}, "they have not ended yet"
    life.settle(3, admitted=False, target=0)
    assert not life.job.pods


def test_trainers_that_cannot_save_keep_nothing() -> None:
    lost = trained()
    lost.context = replace(lost.context, unreachable=frozenset(p.uid for p in lost.job.live_trainers))
    without_master = trained()
    without_master.world.change(without_master.key, "a-master-0", phase=PodPhase.PENDING)
    for life in (lost, without_master):
        life.edit(suspended=True)
        life.round()
        assert roles(life) == set()
