"""What a job says, and does, when its master fails, loses its journal, cannot write it or leaves records out."""

from __future__ import annotations

import pytest

from edl.model.pods import PodPhase
from edl.model.status import JobPhase
from tests.lifecycle.test_data_progress import hear, report, stored, trained
from tests.worlds.job_by_spec import Life, fault_tolerant

LOST = (
    "t=2026 lvl=info msg=x\nedl: LedgerLost: the journal is empty, but 40 positions of epoch 1 were done; put it back"
)


def lose_master(life: Life, message: str) -> None:
    life.world.change(life.key, "a-master-0", ready=False, container_message=message)


def test_a_lost_ledger_fails_the_job_with_the_message_of_the_master() -> None:
    life = trained(40)
    lose_master(life, LOST)
    life.settle(3)
    assert (life.phase, life.status.reason) == (JobPhase.FAILED, "LedgerLost")
    message = life.condition("Failed").message
    assert "40 positions of epoch 1" in message
    assert "onLedgerLost" in message
    assert stored(life).done == 40


def test_an_old_message_of_a_ready_master_is_ignored() -> None:
    life = trained(40)
    life.world.change(life.key, "a-master-0", ready=True, container_message=LOST)
    life.settle(3)
    assert life.phase is JobPhase.RUNNING


def test_a_master_that_was_killed_is_described_by_the_signal_and_not_by_its_last_line() -> None:
    life = trained(40)
    lose_master(life, 't=2026-01-05T10:00:00Z lvl=info msg="master started"')
    life.world.change(life.key, "a-master-0", exit_code=137)
    life.settle(2)
    why = "Killed: out of memory, or still running at the end of the grace period"
    assert life.condition("Degraded").message == f"a-master-0 failed and is restarted: {why}"


def test_a_master_whose_image_cannot_be_pulled_is_not_called_failed() -> None:
    life = trained(40)
    lose_master(life, "image you/edl cannot be pulled")
    life.world.change(life.key, "a-master-0", phase=PodPhase.PENDING)
    life.round()
    degraded = life.condition("Degraded")
    assert (degraded.reason, degraded.message) == (
        "PodCannotStart",
        "a-master-0 cannot start: image you/edl cannot be pulled",
    )


@pytest.mark.parametrize(
    ("message", "reason", "word"),
    [
        ("edl: journal /j: damaged at byte 9; put it back from a copy", "MasterFailing", "damaged at byte 9"),
        ("", "", ""),
    ],
)
def test_a_failing_master_degrades_the_job_with_its_last_message(message: str, reason: str, word: str) -> None:
    life = trained(40)
    lose_master(life, message)
    life.settle(2)
    degraded = life.condition("Degraded")
    assert degraded.status == ("True" if reason else "False")
    assert not reason or (degraded.reason == reason and word in degraded.message)


def test_a_full_journal_degrades_the_job_until_there_is_space() -> None:
    life = trained(40)
    hear(life, report(40, blocked="No space left on device"))
    life.settle(2)
    assert life.condition("Degraded").reason == "JournalBlocked"
    assert life.condition("Degraded").message == (
        "the master cannot write its journal: No space left on device; training is paused and resumes automatically"
        " once the journal's volume has free space"
    )
    hear(life, report(41))
    life.settle(2)
    assert life.condition("Degraded").status == "False"


def test_a_journal_on_an_empty_dir_degrades_the_job_if_it_has_a_data_set() -> None:
    life = fault_tolerant()
    life.world.change(life.key, "a-master-0", journal="emptyDir")
    life.settle(2)
    assert life.condition("Degraded").status == "False", "without a data set the journal holds nothing"
    life.edit(has_dataset=True)
    life.settle(2)
    assert life.condition("Degraded").reason == "LedgerNotDurable"
    life.world.change(life.key, "a-master-0", journal="claim")
    life.settle(2)
    assert life.condition("Degraded").status == "False"


def test_checkpoints_that_nothing_keeps_degrade_the_job() -> None:
    life = fault_tolerant()
    life.edit(unkept="no volume is mounted there")
    life.settle(2)
    found = life.condition("Degraded")
    assert (found.status, found.reason) == ("True", "CheckpointsNotDurable")
    assert found.message == "no volume is mounted there"
    life.edit(unkept="")
    life.settle(2)
    assert life.condition("Degraded").status == "False"


def test_records_that_are_left_out_degrade_the_job() -> None:
    life = trained(40)
    hear(life, report(40, left_out=1))
    life.settle(2)
    assert life.condition("Degraded").reason == "RecordsQuarantined"
