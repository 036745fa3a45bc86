"""What the status says of a data set that is over: what is committed is computed, as before the end."""

from __future__ import annotations

from typing import Any

import pytest

from edl.ledger.events import DatasetSet
from edl.ledger.ledger import Ledger
from edl.ledger.status import ledger_status
from tests.ledger.test_ledger import A, LedgerDriver

TWELVE = DatasetSet("index:12", "", 12, 2, 5, 4, 0.05, 0)


def counts(ledger: Ledger) -> dict[str, Any]:
    status = ledger_status(ledger)
    return {name: status[name] for name in ("epoch", "todo", "leased", "reported", "committed", "done", "unsaved")}


def checkpoint(driver: LedgerDriver, step: int) -> None:
    driver.ledger.commit_checkpoint(driver.ledger.begin_checkpoint(A, step))


@pytest.fixture
def at_eight() -> LedgerDriver:
    """The second of two epochs of twelve positions, of which eight are done and committed."""
    driver = LedgerDriver(TWELVE)
    driver.finish_epoch(A)
    for _ in range(2):
        driver.sync(A, done=driver.lease(A))
    checkpoint(driver, 1)
    return driver


def test_the_end_says_what_is_committed_and_what_is_not(at_eight: LedgerDriver) -> None:
    assert counts(at_eight.ledger) | {"unsaved": 0} == {
        "epoch": 1, "todo": 4, "leased": 0, "reported": 0, "committed": 8, "done": 8, "unsaved": 0,
    }  # fmt: skip
    at_eight.finish_epoch(A)
    over = {"epoch": 1, "todo": 0, "leased": 0, "done": 12}
    assert counts(at_eight.ledger) == over | {"reported": 4, "committed": 8, "unsaved": 4}
    checkpoint(at_eight, 2)
    assert counts(at_eight.ledger) == over | {"reported": 0, "committed": 12, "unsaved": 0}


def test_it_says_the_same_after_a_restart(at_eight: LedgerDriver) -> None:
    at_eight.finish_epoch(A)
    before = counts(at_eight.ledger)
    at_eight.restart()
    assert counts(at_eight.ledger) == before


def test_without_a_checkpoint_nothing_is_committed() -> None:
    driver = LedgerDriver(TWELVE)
    driver.finish_epoch(A)
    driver.finish_epoch(A)
    assert counts(driver.ledger)["committed"] == 0
    assert counts(driver.ledger)["reported"] == 12


def test_a_checkpoint_of_an_earlier_epoch_commits_nothing_of_the_last() -> None:
    driver = LedgerDriver(TWELVE)
    driver.sync(A, done=driver.lease(A))
    checkpoint(driver, 1)
    driver.finish_epoch(A)
    driver.finish_epoch(A)
    found = counts(driver.ledger)
    assert (found["reported"], found["committed"], found["unsaved"]) == (12, 0, 20)
