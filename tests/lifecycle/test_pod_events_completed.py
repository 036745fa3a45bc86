"""Trainers that completed count as completed after a clean-up has deleted their pods."""

from __future__ import annotations

import pytest

from edl.model.names import Role
from edl.model.status import JobPhase
from tests.worlds.job_by_spec import Life, fault_tolerant, gang


def clean_up(life: Life, name: str, *, is_seen: bool) -> None:
    """Somebody deletes a finished pod; the API server removes it at once, or the deletion is seen first."""
    if is_seen:
        life.world.change(life.key, name, terminating=True)
        life.round()
    life.world.drop(life.key, name)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_gang_goes_on_when_a_clean_up_deletes_a_trainer_that_completed(is_seen: bool) -> None:
    life = gang(3)
    others = {name: life.uid(name) for name in ("a-trainer-1", "a-trainer-2")}
    life.world.finish(life.key, "a-trainer-0")
    life.settle(2)
    assert life.status.completed == (0,)
    clean_up(life, "a-trainer-0", is_seen=is_seen)
    life.settle(3)
    assert {name: life.uid(name) for name in others} == others, "no restart"
    assert "a-trainer-0" not in life.names, "finished work is not done again"
    assert "Restarting" not in life.event_reasons
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert life.phase is JobPhase.SUCCEEDED


def test_a_job_all_of_whose_finished_pods_are_cleaned_up_still_succeeds() -> None:
    life = fault_tolerant()
    life.world.finish(life.key, "a-trainer-0")
    life.settle(2)
    clean_up(life, "a-trainer-0", is_seen=False)
    life.settle(2)
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert life.phase is JobPhase.SUCCEEDED


def test_a_trainer_that_is_deleted_and_exits_with_code_0_did_not_complete() -> None:
    life = gang(3)
    life.world.change(life.key, "a-trainer-0", terminating=True, ready=False)
    life.world.finish(life.key, "a-trainer-0")
    life.round()
    assert life.status.completed == ()
    assert "Restarting" in life.event_reasons


def test_a_restart_forgets_what_completed() -> None:
    life = gang(3)
    life.world.finish(life.key, "a-trainer-0")
    life.settle(2)
    life.evict("a-trainer-1")
    life.settle(8)
    assert life.status.completed == ()
    assert life.phase is JobPhase.RUNNING
    assert len(life.job.live_trainers) == 3
