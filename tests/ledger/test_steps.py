"""Trainers in step end the training before its last epoch, or fail the job."""

from __future__ import annotations

import pytest

from edl.ledger.events import DatasetSet, JournalError, SessionOpened, StepsDone, TrainingStopped, WorldFormed
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState


def trained(position: int) -> LedgerState:
    """A job of two epochs of ten records, trained up to a position of the first one."""
    state = LedgerState()
    state.apply(DatasetSet("index:10", "", 10, 2, 0, None, 0.01, 0))
    state.apply(SessionOpened("uid-a", 1, "a"))
    state.apply(WorldFormed(1, 0, [2], [None], 0))
    state.apply(StepsDone(1, 0, position))
    return state


@pytest.mark.parametrize(("error", "is_failed"), [("", False), ("the models differ", True)])
def test_a_stop_survives_a_snapshot(error: str, is_failed: bool) -> None:
    state = trained(5)
    state.apply(TrainingStopped(5, error))
    for one in (state, state_from_json(state_to_json(state))):
        assert (one.is_failed, one.is_finished, one.is_open) == (is_failed, not is_failed, False)
        assert (one.done_position, one.stop_error) == (5, error)


def test_a_snapshot_of_an_older_version_is_of_a_training_that_goes_on() -> None:
    value = state_to_json(trained(5))
    del value["stopped"]
    assert state_from_json(value).is_open


def test_a_stop_at_another_position_contradicts_the_journal() -> None:
    with pytest.raises(JournalError, match="the steps up to 5 are counted, not up to 7"):
        trained(5).apply(TrainingStopped(7, ""))
