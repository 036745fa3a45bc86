"""The audit of the ledger's events: who did the records that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from edl.ledger.audit import Audit
from edl.ledger.events import Event, decode_events, encode_events
from edl.ledger.state import LedgerState
from tests.ledger.test_group import Clocked
from tests.ledger.test_ledger import A, B, C, LedgerDriver


def counted(events: Sequence[Event]) -> list[tuple[int, int, dict[str, int]]]:
    """(epoch, records that count, records of each trainer) for each epoch of a journal; no rule is broken."""
    state, audit = LedgerState(), Audit(LedgerState())
    for event in decode_events(encode_events(events)):
        audit.follow(event)
        state.apply(event)
    found = [(epoch.epoch, epoch.done, dict(epoch.done_by)) for epoch in audit.finish(state)]
    assert audit.problems == []
    return found


@pytest.mark.parametrize("reached", [60, 100, 140])
def test_steps_of_a_lost_model_are_nobodys_however_far_the_master_knew_it(reached: int) -> None:
    """The last report of a lost trainer came before the end of the epoch, at its end, or after it."""
    world = Clocked()
    assert world.enter(A) is not None
    world.group.watch(A, 1, reached, world.now_s)
    world.group.unwatch(A, world.now_s, dropped=True)
    world.now_s += 1
    world.group.tick(world.now_s)
    assert world.enter(C) is not None
    world.group.watch(C, 2, 200, world.now_s)
    assert counted(world.ledger.take_events()) == [(0, 100, {C.name: 100}), (1, 100, {C.name: 100})]


@pytest.mark.parametrize("reached", [60, 140])
def test_steps_before_a_checkpoint_stay_those_of_the_trainer_that_made_them(reached: int) -> None:
    world = Clocked()
    assert world.enter(A) is not None
    world.group.watch(A, 1, 30, world.now_s)
    number = world.ledger.begin_checkpoint(A, 30)
    world.ledger.commit_checkpoint(number)
    world.group.watch(A, 1, reached, world.now_s)
    world.group.unwatch(A, world.now_s, dropped=True)
    world.now_s += 1
    world.group.tick(world.now_s)
    assert world.enter(C) is not None
    world.group.watch(C, 2, 200, world.now_s)
    assert counted(world.ledger.take_events()) == [(0, 100, {A.name: 30, C.name: 70}), (1, 100, {C.name: 100})]


@pytest.mark.parametrize("is_later_epoch", [False, True])
def test_leased_records_before_a_checkpoint_stay_those_of_their_trainers(*, is_later_epoch: bool) -> None:
    """A has done ten, and four of the next ten at the checkpoint; B did others after it, which are done again."""
    driver = LedgerDriver()
    first, second = driver.lease(A, 2)
    driver.sync(A, done=[first], progress=[replace(second, cursor=14)])
    number = driver.ledger.begin_checkpoint(A, 7)
    driver.ledger.commit_checkpoint(number)
    driver.sync(A, done=[second])
    driver.sync(B, done=driver.lease(B))
    if is_later_epoch:
        driver.finish_epoch(B)
    driver.ledger.restore(None)
    driver.finish_epoch(C)
    found = counted(driver.ledger.take_events())
    assert found[0] == (0, 100, {A.name: 14, C.name: 86})


def test_nothing_is_anybodys_after_an_epoch_begins_again() -> None:
    driver = LedgerDriver()
    driver.sync(A, done=driver.lease(A))
    driver.ledger.restore(None)
    assert counted(driver.ledger.take_events()) == [(0, 0, {})]
