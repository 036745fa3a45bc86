"""The replies of the ledger in single situations, and the failures that break other masters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.errors import ConflictError
from edl.ledger.dispatch import LedgerSettings, lease_size
from edl.ledger.errors import UnknownCheckpointError
from edl.ledger.events import DatasetSet, Replied
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import MAX_FAILURES
from tests.worlds.ledger.simulation import Item, Request

DATA = DatasetSet("index:100", "", 100, 2, 0, 10, 0.05, 0)
A, B, C = (SessionKey(f"pod-{x}", 1, f"trainer-{x}") for x in "abc")


def item_of(lease: list[int]) -> Item:
    epoch, start, end, fence = lease
    return Item(epoch, start, end, fence)


class LedgerDriver:
    """A ledger with a clock, and a seq for each session."""

    def __init__(self, data: DatasetSet = DATA, settings: LedgerSettings | None = None) -> None:
        self.now_s = 0.0
        self.ledger = Ledger(settings=settings)
        self.ledger.set_dataset(data)
        self.seqs: dict[SessionKey, int] = {}

    def sync(
        self,
        key: SessionKey,
        want: int = 0,
        done: list[Item] | None = None,
        failed: list[Item] | None = None,
        progress: list[Item] | None = None,
    ) -> Replied:
        self.seqs[key] = self.seqs.get(key, 0) + 1
        request = Request(self.seqs[key], tuple(done or ()), tuple(failed or ()), tuple(progress or ()), want)
        return self.ledger.sync(key, request, self.now_s)

    def lease(self, key: SessionKey, want: int = 1) -> list[Item]:
        return [item_of(lease) for lease in self.sync(key, want).leases]

    def restart(self) -> None:
        """Rebuild the ledger from its durable state."""
        self.ledger = Ledger(state_from_json(state_to_json(self.ledger.state)), self.ledger.settings)
        self.ledger.resume(self.now_s)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.ledger.tick(self.now_s)

    def finish_epoch(self, key: SessionKey) -> Replied:
        for _ in range(300):
            reply = self.sync(key, 4)
            if reply.status in {"epoch_end", "job_end"}:
                return reply
            reply = self.sync(key, done=[item_of(lease) for lease in reply.leases])
            if reply.status in {"epoch_end", "job_end"}:
                return reply
        raise AssertionError("the epoch does not end")


# --- failures of other masters


def test_a_restart_after_40_of_100_shards_continues_with_the_other_60() -> None:
    driver = LedgerDriver(replace_data(shard_size=1, epochs=1))
    for _ in range(40):
        driver.sync(A, done=driver.lease(A))
    driver.restart()
    assert driver.ledger.state.done_ranges().size == 40
    done = 0
    while (reply := driver.sync(A, 1)).status != "job_end":
        assert reply.status in {"run", "wait"}
        driver.sync(A, done=[item_of(lease) for lease in reply.leases])
        done += len(reply.leases)
    assert done == 60


def test_a_late_report_is_stale_and_does_not_count_for_the_new_holder() -> None:
    driver = LedgerDriver(replace_data(total=10, shard_size=10))
    (old,) = driver.lease(A)
    driver.advance(31)
    (new,) = driver.lease(B)
    assert (old.start, old.end) == (new.start, new.end)
    reply = driver.sync(A, done=[old])
    assert reply.results == ["stale"]
    assert reply.revoked == [old.fence]
    assert driver.ledger.state.leases[new.fence].end == new.end
    assert driver.sync(B, done=[new]).results == ["accepted"]


def test_other_trainers_get_the_shard_of_a_silent_trainer_after_one_ttl() -> None:
    driver = LedgerDriver(replace_data(total=10, shard_size=10))
    driver.lease(A)
    assert driver.sync(B, 1).status == "wait"
    driver.advance(29.9)
    assert driver.sync(B, 1).leases == []
    driver.advance(0.2)
    assert [lease[1:3] for lease in driver.sync(B, 1).leases] == [[0, 10]]


def test_a_trainer_without_progress_loses_its_shard_if_others_have_no_work() -> None:
    driver = LedgerDriver(replace_data(total=1))
    (held,) = driver.lease(A)
    for _ in range(80):
        driver.advance(10)
        driver.sync(A, progress=[held])
        reply = driver.sync(B, 1)
        if reply.leases:
            break
    assert reply.leases, "a hung trainer keeps its shard forever"


def test_a_shard_that_keeps_failing_is_bisected_to_its_bad_record() -> None:
    driver, fed, bad = LedgerDriver(replace_data(epochs=1)), set[int](), 37
    for _ in range(500):
        reply = driver.sync(A, 1)
        if reply.status == "job_end":
            break
        for lease in (item_of(lease) for lease in reply.leases):
            if lease.start <= bad < lease.end:
                driver.sync(A, failed=[replace(lease, error="cannot be read")])
            else:
                fed |= set(range(lease.start, lease.end))
                driver.sync(A, done=[lease])
    assert fed == set(range(100)) - {bad}
    assert driver.ledger.state.closed[0].quarantined == [(bad, bad + 1)]


def test_a_record_is_quarantined_after_the_maximum_of_failures_and_no_earlier() -> None:
    driver = LedgerDriver(replace_data(total=1, max_quarantined_fraction=1.0, epochs=1))
    for turn in range(MAX_FAILURES):
        (item,) = driver.lease(A)
        reply = driver.sync(A, failed=[replace(item, error="bad")])
        assert (reply.status == "job_end") == (turn == MAX_FAILURES - 1)
    assert driver.ledger.state.closed[0].quarantined == [(0, 1)]


def test_too_many_bad_records_fail_the_job() -> None:
    driver = LedgerDriver(replace_data(total=1))
    for _ in range(MAX_FAILURES):
        driver.sync(A, failed=[replace(driver.lease(A)[0], error="bad")])
    assert driver.ledger.state.is_failed
    assert driver.sync(A, 1).status == "job_end"


def test_preemption_never_counts_as_a_failure() -> None:
    driver = LedgerDriver(replace_data(total=1))
    for _ in range(5 * MAX_FAILURES):
        driver.lease(A)
        driver.advance(31)
    driver.sync(B, failed=[replace(driver.lease(B)[0], error="")])
    assert not driver.ledger.state.suspects
    assert not driver.ledger.state.quarantined
    assert driver.sync(B, done=driver.lease(B)).results == ["accepted"]


# --- reports


@pytest.mark.parametrize(
    "change", [{"epoch": 1}, {"start": 1}, {"end": 9}, {"end": 11}, {"fence": 99}], ids=lambda c: next(iter(c))
)
def test_a_report_that_differs_from_the_current_lease_in_any_field_is_stale(change: dict[str, int]) -> None:
    driver = LedgerDriver()
    (item,) = driver.lease(A)
    before = state_to_json(driver.ledger.state)
    assert driver.sync(A, done=[changed(item, **change)]).results == ["stale"]
    assert state_to_json(driver.ledger.state) == before
    assert driver.sync(B, done=[item]).results == ["stale"]


def test_a_stale_item_does_not_affect_the_others_and_a_repeat_is_a_duplicate() -> None:
    driver = LedgerDriver()
    first, second = driver.lease(A, 2)
    wrong = replace(first, fence=999)
    reply = driver.sync(A, done=[wrong, first, second, first])
    assert reply.results == ["stale", "accepted", "accepted", "duplicate"]
    assert driver.sync(A, done=[second]).results == ["duplicate"]


def test_a_repeated_seq_gets_the_first_reply_after_a_restart_too() -> None:
    driver = LedgerDriver()
    request = Request(1, want=2)
    first = driver.ledger.sync(A, request, 0.0)
    assert driver.ledger.sync(A, request, 1.0) == first
    driver.restart()
    assert driver.ledger.sync(A, request, 2.0) == first
    assert len(driver.ledger.state.leases) == 2


def test_an_old_seq_is_refused_and_changes_nothing() -> None:
    driver = LedgerDriver()
    driver.sync(A), driver.sync(A)
    before = state_to_json(driver.ledger.state)
    with pytest.raises(ConflictError, match="older"):
        driver.ledger.sync(A, Request(1, want=1), driver.now_s)
    assert state_to_json(driver.ledger.state) == before


def test_a_newer_process_of_a_pod_replaces_the_older_one() -> None:
    driver = LedgerDriver()
    (old,) = driver.lease(A)
    newer = A._replace(incarnation=2)
    assert [lease[1:3] for lease in driver.sync(newer, 1).leases] == [[old.start, old.end]]
    with pytest.raises(ConflictError, match="replaced"):
        driver.sync(A, done=[old])
    with pytest.raises(ConflictError, match="replaced"):
        driver.sync(A._replace(incarnation=0))


def test_positions_that_a_lost_trainer_had_reported_as_consumed_count() -> None:
    driver = LedgerDriver()
    (item,) = driver.lease(A)
    driver.sync(A, progress=[replace(item, cursor=7)])
    driver.advance(31)
    assert list(driver.ledger.state.reported) == [(0, 7)]
    assert driver.lease(B)[0].start == 7


def test_after_a_restart_nothing_expires_for_one_ttl() -> None:
    driver = LedgerDriver()
    (item,) = driver.lease(A)
    driver.now_s += 29
    driver.restart()
    driver.advance(29)
    assert driver.sync(A, done=[item]).results == ["accepted"]


# --- epochs


def test_the_next_epoch_opens_when_no_position_is_to_do_or_leased_and_each_trainer_learns_it() -> None:
    driver = LedgerDriver(replace_data(total=20))
    (mine,), (theirs,) = driver.lease(A), driver.lease(B)
    driver.sync(A, done=[mine])
    assert driver.sync(A, 1).status == "wait"
    reply = driver.sync(B, done=[theirs])
    assert (reply.status, reply.epoch) == ("epoch_end", 0)
    reply = driver.sync(A, 1)
    assert (reply.status, reply.epoch, reply.leases) == ("epoch_end", 0, [])
    assert driver.sync(A, 1).leases[0][0] == 1


def test_every_trainer_gets_job_end_after_the_last_epoch() -> None:
    driver = LedgerDriver(replace_data(epochs=2))
    driver.sync(B)
    assert driver.finish_epoch(A).status == "epoch_end"
    assert driver.finish_epoch(A).status == "job_end"
    assert driver.sync(B, 1).status == "job_end"
    assert driver.sync(C, 1).status == "job_end"


def test_leases_hold_at_most_shard_size_positions_and_are_consecutive() -> None:
    driver = LedgerDriver()
    items = driver.lease(A, 5)
    assert [(i.start, i.end) for i in items] == [(n, n + 10) for n in range(0, 50, 10)]


# --- sizes


def test_leases_last_30_to_60_seconds_become_shorter_and_stay_within_their_bounds() -> None:
    assert 30 <= lease_size(10**6, 8, 100.0, None, 45.0) / 100 <= 60
    sizes, left = [], 10_000
    while left:
        sizes.append(lease_size(left, 4, 100.0, None, 45.0))
        left -= sizes[-1]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 10 * sizes[-1]
    for waiting in (1, 7, 1000):
        for rate in (None, 0.001, 5.0, 1e9):
            assert 1 <= lease_size(waiting, 3, rate, 4, 45.0) <= min(4, waiting)


def test_a_fast_trainer_gets_larger_leases_than_a_slow_one() -> None:
    driver = LedgerDriver(replace_data(total=10**6, shard_size=None))
    for _ in range(6):
        (fast,), (slow,) = driver.lease(A), driver.lease(B)
        driver.now_s += 10
        driver.sync(A, done=[fast])
        driver.sync(B, progress=[replace(slow, cursor=slow.start + 5)])
        driver.sync(B, failed=[replace(slow, error="")])
    (fast,), (slow,) = driver.lease(A), driver.lease(B)
    assert fast.end - fast.start > 5 * (slow.end - slow.start)


# --- stragglers


# --- checkpoints, elections, rosters


def test_a_restore_returns_exactly_to_the_checkpoint() -> None:
    driver = LedgerDriver()
    first, second = driver.lease(A, 2)
    driver.sync(A, done=[first], progress=[replace(second, cursor=14)])
    number = driver.ledger.begin_checkpoint(A, 7)
    driver.sync(A, done=[second])
    driver.ledger.commit_checkpoint(number)
    assert list(driver.ledger.state.committed) == [(0, 14)]
    (later,) = driver.lease(A)
    assert driver.ledger.restore(None) == number
    assert list(driver.ledger.state.committed) == [(0, 14)]
    assert not driver.ledger.state.leases
    assert not driver.ledger.state.reported
    reply = driver.sync(A, 1, done=[later])
    assert reply.results == ["stale"]
    assert later.fence in reply.revoked
    assert reply.leases[0][1] == 14


def test_a_restore_can_return_to_an_earlier_epoch() -> None:
    driver = LedgerDriver()
    driver.sync(A, done=driver.lease(A))
    number = driver.ledger.begin_checkpoint(A, 1)
    driver.ledger.commit_checkpoint(number)
    driver.finish_epoch(A)
    undone = driver.ledger.begin_checkpoint(A, 2)
    driver.ledger.restore(number)
    assert (driver.ledger.state.epoch, driver.ledger.state.closed) == (0, [])
    assert list(driver.ledger.state.committed) == [(0, 10)]
    with pytest.raises(UnknownCheckpointError):
        driver.ledger.commit_checkpoint(undone)


def test_without_a_checkpoint_the_epoch_begins_again() -> None:
    driver = LedgerDriver()
    driver.finish_epoch(A)
    driver.sync(A, done=driver.lease(A))
    assert driver.ledger.restore(None) == 0
    assert (driver.ledger.state.epoch, list(driver.ledger.state.todo)) == (1, [(0, 100)])


def test_what_would_be_repeated_is_counted_from_the_last_checkpoint_else_from_the_start_of_the_epoch() -> None:
    driver = LedgerDriver()
    driver.sync(A, done=driver.lease(A))
    assert driver.ledger.state.unsaved == 10
    number = driver.ledger.begin_checkpoint(A, 1)
    driver.sync(A, done=driver.lease(A))
    assert driver.ledger.state.unsaved == 20, "the model is not saved yet"
    driver.ledger.commit_checkpoint(number)
    assert driver.ledger.state.unsaved == 10
    driver.finish_epoch(A)
    assert driver.ledger.state.unsaved == 90, "the rest of the epoch"
    driver.sync(A, done=driver.lease(A))
    assert driver.ledger.state.unsaved == 100


def test_a_checkpoint_that_was_never_committed_is_not_restored() -> None:
    driver = LedgerDriver()
    number = driver.ledger.begin_checkpoint(A, 1)
    assert driver.ledger.begin_checkpoint(A, 1) == number
    with pytest.raises(UnknownCheckpointError, match="never committed"):
        driver.ledger.restore(number)
    with pytest.raises(UnknownCheckpointError):
        driver.ledger.restore(12345)


def test_one_trainer_saves_and_another_takes_over_when_it_is_lost() -> None:
    driver = LedgerDriver()
    driver.sync(A), driver.sync(B)
    assert driver.ledger.elect(A, 5, 60.0, driver.now_s)
    assert not driver.ledger.elect(B, 5, 60.0, driver.now_s)
    assert driver.ledger.elect(A, 5, 60.0, driver.now_s)
    driver.restart()
    assert not driver.ledger.elect(B, 5, 60.0, driver.now_s)
    driver.advance(31)  # A is silent
    assert driver.ledger.elect(B, 5, 60.0, driver.now_s)
    assert not driver.ledger.elect(B, 4, 60.0, driver.now_s)


def test_a_step_with_a_committed_checkpoint_is_not_saved_again() -> None:
    driver = LedgerDriver()
    driver.ledger.commit_checkpoint(driver.ledger.begin_checkpoint(A, 5))
    assert not driver.ledger.elect(B, 5, 60.0, driver.now_s)
    assert driver.ledger.elect(B, 6, 60.0, driver.now_s)


def test_a_pod_that_is_not_on_the_roster_loses_its_leases_at_once_and_gets_none() -> None:
    driver = LedgerDriver()
    (item,) = driver.lease(A)
    driver.ledger.set_roster(1, [B.pod_uid])
    assert driver.lease(B)[0].start == 0
    reply = driver.sync(A, 1, done=[item])
    assert (reply.status, reply.results, reply.revoked) == ("wait", ["stale"], [item.fence])
    assert not driver.ledger.elect(A, 1, 60.0, driver.now_s)
    with pytest.raises(ConflictError, match="not on the roster"):
        driver.ledger.begin_checkpoint(A, 1)
    with pytest.raises(ConflictError, match="older"):
        driver.ledger.set_roster(0, [A.pod_uid])
    driver.ledger.set_roster(2, [A.pod_uid, B.pod_uid])
    assert driver.lease(A)


def test_another_data_set_is_refused_and_the_same_one_is_accepted() -> None:
    driver = LedgerDriver()
    assert not driver.ledger.set_dataset(DATA)
    with pytest.raises(ConflictError, match="total is 100, not 7"):
        driver.ledger.set_dataset(DATA._replace(total=7))


def changed(item: Item, epoch: int = -1, start: int = -1, end: int = -1, fence: int = -1) -> Item:
    given: dict[str, Any] = {"epoch": epoch, "start": start, "end": end, "fence": fence}
    return replace(item, **{name: value for name, value in given.items() if value >= 0})


def replace_data(**changes: Any) -> DatasetSet:
    return DATA._replace(**changes)
