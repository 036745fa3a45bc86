"""The rest of a slow trainer's lease goes to others; no position counts twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.ledger.events import Replied
from tests.ledger.test_ledger import A, B, LedgerDriver, replace_data
from tests.worlds.ledger.simulation import Item


def slow_trainer() -> tuple[LedgerDriver, Item, Replied]:
    """A has consumed 4 of 64 positions in 40 s; B has no lease and asks for one."""
    driver = LedgerDriver(replace_data(total=64, shard_size=64))
    (item,) = driver.lease(A)
    driver.now_s = 20.0
    driver.sync(A, progress=[replace(item, cursor=2)])
    assert driver.sync(B, 1).status == "wait"
    driver.now_s = 40.0
    return driver, item, driver.sync(A, progress=[replace(item, cursor=4)])


def test_the_rest_of_a_slow_trainers_lease_is_leased_once_it_has_acknowledged_the_truncate() -> None:
    driver, item, reply = slow_trainer()
    assert reply.truncate == [[item.fence, 34]]
    assert driver.sync(B, 1).leases == []
    short = replace(item, end=34)
    driver.sync(A, progress=[replace(short, cursor=5)])
    (rest,) = driver.sync(B, 1).leases
    assert rest[1] == 34
    assert driver.sync(A, done=[short]).results == ["accepted"]


def test_the_next_seq_acknowledges_a_truncate_even_if_it_names_the_old_end() -> None:
    driver, item, _ = slow_trainer()
    driver.sync(A, progress=[replace(item, cursor=5)])
    assert driver.sync(B, 1).leases[0][1] == 34
    assert driver.ledger.state.leases[item.fence].end == 34


@pytest.mark.parametrize(("stops", "first"), [(50, 50), (34, 34)])
def test_a_slow_trainer_that_is_past_the_truncate_keeps_what_it_has_consumed(stops: int, first: int) -> None:
    driver, item, _ = slow_trainer()
    assert driver.sync(A, done=[replace(item, end=stops)]).results == ["accepted"]
    assert driver.sync(B, 1).leases[0][1] == first
    assert driver.ledger.state.done_ranges().covers(0, stops)


def test_a_slow_trainer_that_has_finished_keeps_its_whole_lease() -> None:
    driver, item, _ = slow_trainer()
    reply = driver.sync(A, done=[item])
    assert (reply.results, reply.status) == (["accepted"], "epoch_end")


def test_a_truncate_survives_a_restart() -> None:
    driver, item, _ = slow_trainer()
    driver.restart()
    assert driver.sync(A, done=[replace(item, end=34)]).results == ["accepted"]


def test_a_lease_that_is_nearly_done_is_not_truncated() -> None:
    driver = LedgerDriver(replace_data(total=64, shard_size=64))
    (item,) = driver.lease(A)
    driver.now_s = 1.0
    driver.sync(A, progress=[replace(item, cursor=32)])
    driver.sync(B, 1)
    driver.now_s = 1.5
    assert driver.sync(A, progress=[replace(item, cursor=48)]).truncate == []
