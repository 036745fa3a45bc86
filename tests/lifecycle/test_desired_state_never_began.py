"""Trainers that never began, once others of their job have finished."""

from __future__ import annotations

import pytest

from edl.lifecycle.data_progress import MasterReport, MasterState, MasterView
from edl.lifecycle.desired_state import JobContext
from edl.model.actions import DeletePod
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import JobPhase
from tests.worlds.job_by_spec import Life, fault_tolerant, gang


def hold_back(life: Life, *names: str, node: str = "gpu-a") -> None:
    """These trainers are bound, if a node is given, and no kubelet starts them."""
    for name in names:
        life.world.change(life.key, name, phase=PodPhase.PENDING, ready=False, node=node, started_s=None)


def finish(life: Life, *names: str) -> None:
    for name in names:
        life.world.finish(life.key, name)


@pytest.mark.parametrize("node", ["gpu-a", ""])
def test_a_trainer_that_never_began_is_withdrawn_once_others_have_finished(node: str) -> None:
    life = fault_tolerant(1, 3, wanted=3)
    hold_back(life, "a-trainer-2", node=node)
    finish(life, "a-trainer-0", "a-trainer-1")
    life.round()
    assert life.deleted() == ["a-trainer-2"]
    assert [a.intent for a in life.actions if isinstance(a, DeletePod)] == ["NotStarted"]
    life.settle(4)
    assert life.phase is JobPhase.SUCCEEDED
    assert life.status.failures == 0


def test_it_is_withdrawn_while_another_trainer_goes_on_and_that_one_is_still_replaced() -> None:
    life = fault_tolerant(2, 4)
    hold_back(life, "a-trainer-0", "a-trainer-3")
    finish(life, "a-trainer-1")
    life.round()
    assert life.deleted() == ["a-trainer-0", "a-trainer-3"]
    life.settle(2)
    assert [p.name for p in life.job.live_trainers] == ["a-trainer-2"]
    life.evict("a-trainer-2")
    life.settle(3)
    assert [p.phase for p in life.job.live_trainers] == [PodPhase.RUNNING], "the last trainer is replaced"


def test_the_replacement_of_the_last_trainer_is_not_withdrawn_before_it_runs() -> None:
    life = fault_tolerant(1, 2, wanted=2)
    finish(life, "a-trainer-0")
    life.evict("a-trainer-1")
    life.round()
    life.world.drop(life.key, "a-trainer-1")
    life.round()
    (new,) = life.job.live_trainers
    hold_back(life, new.name)
    for _ in range(3):
        life.round()
        assert life.deleted() == []
        assert life.condition("Complete").reason == "TrainerLost"
    assert life.phase == "Creating"
    life.world.step()
    life.finish_all(Role.TRAINER)
    life.settle(3)
    assert life.phase == "Succeeded"


def test_it_is_withdrawn_once_the_master_has_closed_the_last_epoch() -> None:
    life = fault_tolerant(1, 3, wanted=3)
    hold_back(life, "a-trainer-2")
    life.context = JobContext(master_view=MasterView(MasterReport(MasterState.FINISHED, done=8, total=8)))
    life.round()
    assert life.deleted() == ["a-trainer-2"]
    finish(life, "a-trainer-0", "a-trainer-1")
    life.settle(4)
    assert life.phase is JobPhase.SUCCEEDED


def test_a_gang_waits_for_each_of_its_ranks() -> None:
    life = gang(3)
    hold_back(life, "a-trainer-2")
    finish(life, "a-trainer-0", "a-trainer-1")
    life.round()
    assert life.deleted() == []
    assert life.phase is JobPhase.CREATING


def test_nothing_says_that_a_minimum_is_ready_of_which_nothing_runs() -> None:
    life = fault_tolerant(1, 3, wanted=3)
    hold_back(life, "a-trainer-1", "a-trainer-2")
    finish(life, "a-trainer-0")
    for _ in range(4):
        life.round()
        assert "minimum of trainers is ready" not in life.condition("Running").message
        life.world.step()
