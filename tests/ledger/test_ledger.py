"""What the master's ledger answers in single situations; the faults that break other masters are named here."""

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
from edl.ledger.state import ERROR_CAP
from tests.worlds.ledger_simulation import Item, Request

DATA = DatasetSet("index:100", "", 100, 2, 0, 10, 0.05, 0)
A, B, C = (SessionKey(f"pod-{x}", 1, f"trainer-{x}") for x in "abc")


def named(lease: list[int]) -> Item:
    epoch, start, end, fence = lease
    return Item(epoch, start, end, fence)


class Desk:
    """A ledger with a clock and sessions that count their seq."""

    def __init__(self, data: DatasetSet = DATA, settings: LedgerSettings | None = None) -> None:
        self.now_s = 0.0
        self.ledger = Ledger(settings=settings)
        self.ledger.set_dataset(data)
        self.seqs: dict[SessionKey, int] = {}

    def sync(
        self,
        who: SessionKey,
        want: int = 0,
        done: list[Item] | None = None,
        failed: list[Item] | None = None,
        progress: list[Item] | None = None,
    ) -> Replied:
        self.seqs[who] = self.seqs.get(who, 0) + 1
        request = Request(self.seqs[who], tuple(done or ()), tuple(failed or ()), tuple(progress or ()), want)
        return self.ledger.sync(who, request, self.now_s)

    def lease(self, who: SessionKey, want: int = 1) -> list[Item]:
        return [named(lease) for lease in self.sync(who, want).leases]

    def restart(self) -> None:
        """What is durable survives; the rest does not."""
        self.ledger = Ledger(state_from_json(state_to_json(self.ledger.state)), self.ledger.settings)
        self.ledger.resume(self.now_s)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.ledger.tick(self.now_s)

    def finish_epoch(self, who: SessionKey) -> Replied:
        for _ in range(300):
            reply = self.sync(who, 4)
            if reply.status in {"epoch_end", "job_end"}:
                return reply
            reply = self.sync(who, done=[named(lease) for lease in reply.leases])
            if reply.status in {"epoch_end", "job_end"}:
                return reply
        raise AssertionError("the epoch does not end")


# --- the faults of the strongest peer


def test_a_restart_after_40_of_100_shards_goes_on_with_the_other_60() -> None:
    desk = Desk(replace_data(shard_size=1, epochs=1))
    for _ in range(40):
        desk.sync(A, done=desk.lease(A))
    desk.restart()
    assert desk.ledger.state.done_ranges().size == 40
    done = 0
    while (reply := desk.sync(A, 1)).status != "job_end":
        assert reply.status in {"run", "wait"}
        desk.sync(A, done=[named(lease) for lease in reply.leases])
        done += len(reply.leases)
    assert done == 60


def test_a_zombies_late_report_is_stale_and_not_credited_to_the_new_owner() -> None:
    desk = Desk(replace_data(total=10, shard_size=10))
    (old,) = desk.lease(A)
    desk.advance(31)
    (new,) = desk.lease(B)
    assert (old.start, old.end) == (new.start, new.end)
    reply = desk.sync(A, done=[old])
    assert reply.results == ["stale"]
    assert reply.revoked == [old.fence]
    assert desk.ledger.state.leases[new.fence].end == new.end
    assert desk.sync(B, done=[new]).results == ["accepted"]


def test_the_shard_of_a_silent_trainer_is_given_to_others_after_one_ttl() -> None:
    desk = Desk(replace_data(total=10, shard_size=10))
    desk.lease(A)
    assert desk.sync(B, 1).status == "wait"
    desk.advance(29.9)
    assert desk.sync(B, 1).leases == []
    desk.advance(0.2)
    assert [lease[1:3] for lease in desk.sync(B, 1).leases] == [[0, 10]]


def test_a_trainer_that_heartbeats_and_does_not_train_loses_its_shard_when_others_have_none() -> None:
    desk = Desk(replace_data(total=1))
    (held,) = desk.lease(A)
    for _ in range(80):
        desk.advance(10)
        desk.sync(A, progress=[held])
        reply = desk.sync(B, 1)
        if reply.leases:
            break
    assert reply.leases, "a hung trainer keeps its shard for ever"


def test_a_shard_that_keeps_failing_is_not_dropped_but_bisected_to_its_record() -> None:
    desk, fed, bad = Desk(replace_data(epochs=1)), set[int](), 37
    for _ in range(500):
        reply = desk.sync(A, 1)
        if reply.status == "job_end":
            break
        for lease in (named(lease) for lease in reply.leases):
            if lease.start <= bad < lease.end:
                desk.sync(A, failed=[replace(lease, error="cannot be read")])
            else:
                fed |= set(range(lease.start, lease.end))
                desk.sync(A, done=[lease])
    assert fed == set(range(100)) - {bad}
    assert desk.ledger.state.closed[0].quarantined == [(bad, bad + 1)]


def test_a_single_record_is_given_up_after_so_many_failures_and_no_earlier() -> None:
    desk = Desk(replace_data(total=1, max_quarantined_fraction=1.0, epochs=1))
    for turn in range(ERROR_CAP):
        (item,) = desk.lease(A)
        reply = desk.sync(A, failed=[replace(item, error="bad")])
        assert (reply.status == "job_end") == (turn == ERROR_CAP - 1)
    assert desk.ledger.state.closed[0].quarantined == [(0, 1)]


def test_too_many_bad_records_fail_the_job() -> None:
    desk = Desk(replace_data(total=1))
    for _ in range(ERROR_CAP):
        desk.sync(A, failed=[replace(desk.lease(A)[0], error="bad")])
    assert desk.ledger.state.is_failed
    assert desk.sync(A, 1).status == "job_end"


def test_preemption_never_counts_as_a_failure() -> None:
    desk = Desk(replace_data(total=1))
    for _ in range(5 * ERROR_CAP):
        desk.lease(A)
        desk.advance(31)
    desk.sync(B, failed=[replace(desk.lease(B)[0], error="")])
    assert not desk.ledger.state.suspects
    assert not desk.ledger.state.quarantined
    assert desk.sync(B, done=desk.lease(B)).results == ["accepted"]


# --- reports


@pytest.mark.parametrize(
    "change", [{"epoch": 1}, {"start": 1}, {"end": 9}, {"end": 11}, {"fence": 99}], ids=lambda c: next(iter(c))
)
def test_a_report_that_names_no_present_lease_in_every_part_is_stale(change: dict[str, int]) -> None:
    desk = Desk()
    (item,) = desk.lease(A)
    before = state_to_json(desk.ledger.state)
    assert desk.sync(A, done=[changed(item, **change)]).results == ["stale"]
    assert state_to_json(desk.ledger.state) == before
    assert desk.sync(B, done=[item]).results == ["stale"]


def test_one_stale_lease_voids_nothing_else_and_a_repeat_is_duplicate() -> None:
    desk = Desk()
    first, second = desk.lease(A, 2)
    wrong = replace(first, fence=999)
    reply = desk.sync(A, done=[wrong, first, second, first])
    assert reply.results == ["stale", "accepted", "accepted", "duplicate"]
    assert desk.sync(A, done=[second]).results == ["duplicate"]


def test_a_repeated_seq_gets_the_first_reply_also_after_a_restart() -> None:
    desk = Desk()
    request = Request(1, want=2)
    first = desk.ledger.sync(A, request, 0.0)
    assert desk.ledger.sync(A, request, 1.0) == first
    desk.restart()
    assert desk.ledger.sync(A, request, 2.0) == first
    assert len(desk.ledger.state.leases) == 2


def test_an_old_seq_is_refused_and_changes_nothing() -> None:
    desk = Desk()
    desk.sync(A), desk.sync(A)
    before = state_to_json(desk.ledger.state)
    with pytest.raises(ConflictError, match="older"):
        desk.ledger.sync(A, Request(1, want=1), desk.now_s)
    assert state_to_json(desk.ledger.state) == before


def test_a_newer_process_of_the_pod_ends_the_older_one() -> None:
    desk = Desk()
    (old,) = desk.lease(A)
    newer = A._replace(incarnation=2)
    assert [lease[1:3] for lease in desk.sync(newer, 1).leases] == [[old.start, old.end]]
    with pytest.raises(ConflictError, match="replaced"):
        desk.sync(A, done=[old])
    with pytest.raises(ConflictError, match="replaced"):
        desk.sync(A._replace(incarnation=0))


def test_what_a_dead_trainer_told_it_had_consumed_counts() -> None:
    desk = Desk()
    (item,) = desk.lease(A)
    desk.sync(A, progress=[replace(item, cursor=7)])
    desk.advance(31)
    assert list(desk.ledger.state.reported) == [(0, 7)]
    assert desk.lease(B)[0].start == 7


def test_after_a_restart_nothing_expires_for_one_ttl() -> None:
    desk = Desk()
    (item,) = desk.lease(A)
    desk.now_s += 29
    desk.restart()
    desk.advance(29)
    assert desk.sync(A, done=[item]).results == ["accepted"]


# --- epochs


def test_the_next_epoch_opens_when_nothing_is_to_do_or_leased_and_each_trainer_is_told() -> None:
    desk = Desk(replace_data(total=20))
    (mine,), (theirs,) = desk.lease(A), desk.lease(B)
    desk.sync(A, done=[mine])
    assert desk.sync(A, 1).status == "wait"
    reply = desk.sync(B, done=[theirs])
    assert (reply.status, reply.epoch) == ("epoch_end", 0)
    reply = desk.sync(A, 1)
    assert (reply.status, reply.epoch, reply.leases) == ("epoch_end", 0, [])
    assert desk.sync(A, 1).leases[0][0] == 1


def test_only_job_end_ends_and_it_comes_to_everybody() -> None:
    desk = Desk(replace_data(epochs=2))
    desk.sync(B)
    assert desk.finish_epoch(A).status == "epoch_end"
    assert desk.finish_epoch(A).status == "job_end"
    assert desk.sync(B, 1).status == "job_end"
    assert desk.sync(C, 1).status == "job_end"


def test_no_more_than_shard_size_is_leased_and_ranges_follow_one_another() -> None:
    desk = Desk()
    items = desk.lease(A, 5)
    assert [(i.start, i.end) for i in items] == [(n, n + 10) for n in range(0, 50, 10)]


# --- sizes


def test_leases_last_30_to_60_seconds_taper_and_never_exceed_their_bounds() -> None:
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


def test_a_fast_trainer_is_given_more_than_a_slow_one() -> None:
    desk = Desk(replace_data(total=10**6, shard_size=None))
    for _ in range(6):
        (fast,), (slow,) = desk.lease(A), desk.lease(B)
        desk.now_s += 10
        desk.sync(A, done=[fast])
        desk.sync(B, progress=[replace(slow, cursor=slow.start + 5)])
        desk.sync(B, failed=[replace(slow, error="")])
    (fast,), (slow,) = desk.lease(A), desk.lease(B)
    assert fast.end - fast.start > 5 * (slow.end - slow.start)


# --- stragglers


def straggler() -> tuple[Desk, Item, Replied]:
    """A has consumed 4 of 64 in 40 s; B has none and asks."""
    desk = Desk(replace_data(total=64, shard_size=64))
    (item,) = desk.lease(A)
    desk.now_s = 20.0
    desk.sync(A, progress=[replace(item, cursor=2)])
    assert desk.sync(B, 1).status == "wait"
    desk.now_s = 40.0
    return desk, item, desk.sync(A, progress=[replace(item, cursor=4)])


def test_a_stragglers_lease_is_split_when_it_has_acknowledged_the_cut() -> None:
    desk, item, reply = straggler()
    assert reply.truncate == [[item.fence, 34]]
    assert desk.sync(B, 1).leases == []
    short = replace(item, end=34)
    desk.sync(A, progress=[replace(short, cursor=5)])
    (rest,) = desk.sync(B, 1).leases
    assert rest[1] == 34
    assert desk.sync(A, done=[short]).results == ["accepted"]


def test_a_cut_is_acknowledged_by_the_next_seq_even_where_the_old_end_is_named() -> None:
    desk, item, _ = straggler()
    desk.sync(A, progress=[replace(item, cursor=5)])
    assert desk.sync(B, 1).leases[0][1] == 34
    assert desk.ledger.state.leases[item.fence].end == 34


@pytest.mark.parametrize(("stops", "first"), [(50, 50), (34, 34)])
def test_a_straggler_that_was_faster_than_the_cut_keeps_what_it_has_in_hand(stops: int, first: int) -> None:
    desk, item, _ = straggler()
    assert desk.sync(A, done=[replace(item, end=stops)]).results == ["accepted"]
    assert desk.sync(B, 1).leases[0][1] == first
    assert desk.ledger.state.done_ranges().covers(0, stops)


def test_a_straggler_that_has_finished_keeps_everything() -> None:
    desk, item, _ = straggler()
    reply = desk.sync(A, done=[item])
    assert (reply.results, reply.status) == (["accepted"], "epoch_end")


def test_a_cut_survives_a_restart() -> None:
    desk, item, _ = straggler()
    desk.restart()
    assert desk.sync(A, done=[replace(item, end=34)]).results == ["accepted"]


def test_work_that_is_nearly_done_is_not_split() -> None:
    desk = Desk(replace_data(total=64, shard_size=64))
    (item,) = desk.lease(A)
    desk.now_s = 1.0
    desk.sync(A, progress=[replace(item, cursor=32)])
    desk.sync(B, 1)
    desk.now_s = 1.5
    assert desk.sync(A, progress=[replace(item, cursor=48)]).truncate == []


# --- checkpoints, elections, rosters


def test_a_restore_gives_exactly_what_the_checkpoint_saw() -> None:
    desk = Desk()
    first, second = desk.lease(A, 2)
    desk.sync(A, done=[first], progress=[replace(second, cursor=14)])
    number = desk.ledger.begin_checkpoint(A, 7)
    desk.sync(A, done=[second])
    desk.ledger.commit_checkpoint(number)
    assert list(desk.ledger.state.committed) == [(0, 14)]
    (later,) = desk.lease(A)
    assert desk.ledger.restore(None) == number
    assert list(desk.ledger.state.committed) == [(0, 14)]
    assert not desk.ledger.state.leases
    assert not desk.ledger.state.reported
    reply = desk.sync(A, 1, done=[later])
    assert reply.results == ["stale"]
    assert later.fence in reply.revoked
    assert reply.leases[0][1] == 14


def test_a_restore_goes_back_to_an_earlier_epoch() -> None:
    desk = Desk()
    desk.sync(A, done=desk.lease(A))
    number = desk.ledger.begin_checkpoint(A, 1)
    desk.ledger.commit_checkpoint(number)
    desk.finish_epoch(A)
    undone = desk.ledger.begin_checkpoint(A, 2)
    desk.ledger.restore(number)
    assert (desk.ledger.state.epoch, desk.ledger.state.closed) == (0, [])
    assert list(desk.ledger.state.committed) == [(0, 10)]
    with pytest.raises(UnknownCheckpointError):
        desk.ledger.commit_checkpoint(undone)


def test_without_a_checkpoint_the_epoch_begins_again() -> None:
    desk = Desk()
    desk.finish_epoch(A)
    desk.sync(A, done=desk.lease(A))
    assert desk.ledger.restore(None) == 0
    assert (desk.ledger.state.epoch, list(desk.ledger.state.todo)) == (1, [(0, 100)])


def test_a_checkpoint_that_was_never_committed_is_not_restored() -> None:
    desk = Desk()
    number = desk.ledger.begin_checkpoint(A, 1)
    assert desk.ledger.begin_checkpoint(A, 1) == number
    with pytest.raises(UnknownCheckpointError, match="never committed"):
        desk.ledger.restore(number)
    with pytest.raises(UnknownCheckpointError):
        desk.ledger.restore(12345)


def test_one_trainer_saves_and_another_takes_over_when_it_is_lost() -> None:
    desk = Desk()
    desk.sync(A), desk.sync(B)
    assert desk.ledger.elect(A, 5, 60.0, desk.now_s)
    assert not desk.ledger.elect(B, 5, 60.0, desk.now_s)
    assert desk.ledger.elect(A, 5, 60.0, desk.now_s)
    desk.restart()
    assert not desk.ledger.elect(B, 5, 60.0, desk.now_s)
    desk.advance(31)  # A is silent
    assert desk.ledger.elect(B, 5, 60.0, desk.now_s)
    assert not desk.ledger.elect(B, 4, 60.0, desk.now_s)


def test_a_step_that_is_saved_is_not_saved_again() -> None:
    desk = Desk()
    desk.ledger.commit_checkpoint(desk.ledger.begin_checkpoint(A, 5))
    assert not desk.ledger.elect(B, 5, 60.0, desk.now_s)
    assert desk.ledger.elect(B, 6, 60.0, desk.now_s)


def test_whoever_is_not_on_the_roster_loses_its_leases_at_once_and_gets_none() -> None:
    desk = Desk()
    (item,) = desk.lease(A)
    desk.ledger.set_roster(1, [B.pod_uid])
    assert desk.lease(B)[0].start == 0
    reply = desk.sync(A, 1, done=[item])
    assert (reply.status, reply.results, reply.revoked) == ("wait", ["stale"], [item.fence])
    assert not desk.ledger.elect(A, 1, 60.0, desk.now_s)
    with pytest.raises(ConflictError, match="not on the roster"):
        desk.ledger.begin_checkpoint(A, 1)
    with pytest.raises(ConflictError, match="older"):
        desk.ledger.set_roster(0, [A.pod_uid])
    desk.ledger.set_roster(2, [A.pod_uid, B.pod_uid])
    assert desk.lease(A)


def test_another_data_set_is_refused_and_the_same_is_not() -> None:
    desk = Desk()
    assert not desk.ledger.set_dataset(DATA)
    with pytest.raises(ConflictError, match="total is 100, not 7"):
        desk.ledger.set_dataset(DATA._replace(total=7))


def changed(item: Item, epoch: int = -1, start: int = -1, end: int = -1, fence: int = -1) -> Item:
    given: dict[str, Any] = {"epoch": epoch, "start": start, "end": end, "fence": fence}
    return replace(item, **{name: value for name, value in given.items() if value >= 0})


def replace_data(**changes: Any) -> DatasetSet:
    return DATA._replace(**changes)
