"""The rendezvous of trainers that train in step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from edl.errors import ConflictError
from edl.ledger.audit import Audit
from edl.ledger.events import DatasetSet, decode_events, encode_events
from edl.ledger.group import Group
from edl.ledger.group_values import EnterRequest, FormedWorld, Goodput, GroupSettings, Speed
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey
from edl.ledger.state import LedgerState
from tests.worlds.step_simulation import StepWorld, is_partition

A, B, C = (SessionKey(f"pod-{name}", 1, name) for name in "abc")


class Clocked:
    """A group with 100 records in two epochs, and its time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ledger = Ledger()
        self.ledger.set_dataset(DatasetSet("index:100", "", 100, 2, 0, None, 1.0, 0))
        self.group = Group(self.ledger, GroupSettings(), self.now_s)

    def enter(
        self, key: SessionKey, generation: int = 0, position: int | None = None, size: int = 1
    ) -> FormedWorld | None:
        self.group.watch(key, generation, position, self.now_s)
        return self.group.enter(key, EnterRequest(generation, position, f"at-{key.name}", size), self.now_s)

    def status(self) -> dict[str, Any]:
        found = self.group.status(self.now_s)
        assert found is not None
        return found

    def hung(self) -> list[tuple[str, str, str]]:
        return [(one["pod_uid"], one["name"], one["reason"]) for one in self.status()["hung"]]

    def two(self) -> None:
        """A world of A and B, both at position 10."""
        assert self.enter(A, size=2) is None
        assert self.enter(B, size=2) is not None
        for key in (A, B):
            self.group.watch(key, 1, 10, self.now_s)


@pytest.mark.parametrize("seeds", [range(12), range(12, 24), range(24, 36)], ids=str)
def test_every_record_is_in_exactly_one_step_of_the_model_whatever_happens(seeds: range) -> None:
    faults = Counter[str]()
    for seed in seeds:
        world = StepWorld(seed)
        model = world.run()
        assert world.audit() == [], f"seed {seed}"
        assert not model or is_partition(model, world.end), f"seed {seed}"
        faults += world.faults
    assert all(faults[name] for name in ("kill", "leave", "drop", "restart", "broken step", "broken copy"))


def test_the_first_world_waits_for_its_trainers() -> None:
    world = Clocked()
    assert world.enter(A, size=2) is None
    second = world.enter(B, size=2)
    assert second is not None
    assert (second.generation, second.rank, second.position, second.checkpoint) == (1, 1, 0, 0)
    assert [member.endpoint for member in second.members] == ["at-a", "at-b"]
    assert world.enter(A, size=2) == second._replace(rank=0)


def test_steps_count_once_every_trainer_has_applied_them() -> None:
    world = Clocked()
    world.two()
    world.group.watch(A, 1, 30, world.now_s)
    assert world.ledger.position == 10
    world.group.watch(B, 1, 20, world.now_s)
    assert world.ledger.position == 20


def test_steps_cross_epochs_and_the_job_ends() -> None:
    world = Clocked()
    world.two()
    for position in (150, 200):
        for key in (A, B):
            world.group.watch(key, 1, position, world.now_s)
    assert [closed.epoch for closed in world.ledger.state.closed] == [0, 1]
    assert world.ledger.state.is_finished


def test_a_new_trainer_enters_between_two_steps() -> None:
    world = Clocked()
    world.two()
    assert not world.group.must_change(A, 1)
    assert world.enter(C) is None
    assert world.group.must_change(A, 1)
    assert world.enter(A, 1, 20) is None, "B still trains"
    last = world.enter(B, 1, 20)
    assert last is not None
    assert [(m.name, m.position) for m in last.members] == [("a", 20), ("b", 20), ("c", None)]
    assert (last.generation, last.position, last.checkpoint) == (2, 20, None)


def test_the_world_goes_on_from_the_trainer_that_is_farthest() -> None:
    world = Clocked()
    world.two()
    world.enter(C)
    world.enter(A, 1, 10)
    last = world.enter(B, 1, 20)
    assert last is not None
    assert (last.position, world.ledger.position) == (20, 10)


def test_a_killed_trainer_is_lost_as_soon_as_its_connection_stays_broken() -> None:
    world = Clocked()
    world.two()
    world.group.unwatch(B, world.now_s, dropped=True)
    world.now_s += 0.29
    assert not world.group.tick(world.now_s)
    world.now_s += 0.02
    assert world.group.tick(world.now_s)
    assert world.group.is_broken(1)


def test_a_killed_trainer_is_lost_at_once_if_its_peers_lost_it_too() -> None:
    world = Clocked()
    world.two()
    world.group.unwatch(B, world.now_s, dropped=True)
    alone = world.enter(A, 1, 20)
    assert alone is not None
    assert (alone.generation, alone.position, len(alone.members)) == (2, 20, 1)


def test_it_makes_no_difference_whether_the_master_or_a_peer_loses_it_first() -> None:
    world = Clocked()
    world.two()
    assert world.enter(A, 1, 20) is None
    world.group.unwatch(B, world.now_s, dropped=True)
    world.group.tick(world.now_s)
    alone = world.group.formed(A)
    assert alone is not None
    assert (alone.generation, alone.position, len(alone.members)) == (2, 20, 1)
    assert [(loss.name, loss.reason) for loss in world.group.losses] == [("b", "connection lost")]


def test_a_broken_connection_is_waited_for_if_the_others_were_asked_to_end_their_world() -> None:
    world = Clocked()
    world.two()
    world.enter(C)
    world.group.unwatch(B, world.now_s, dropped=True)
    assert world.enter(A, 1, 20) is None
    assert not world.group.tick(world.now_s), "A wants the next world because of C"
    both = world.enter(B, 1, 20)
    assert both is not None
    assert [member.name for member in both.members] == ["a", "b", "c"]


def test_trainers_work_once_their_world_has_made_a_step() -> None:
    world = Clocked()
    assert world.enter(A, size=2) is None
    assert world.enter(B, size=2) is not None
    assert world.status()["working"] == []
    world.group.watch(A, 1, 10, world.now_s)
    assert world.status()["working"] == ["pod-a"]
    world.group.watch(B, 1, 10, world.now_s)
    assert world.status()["working"] == ["pod-a", "pod-b"]
    world.enter(C)
    assert world.status()["working"] == ["pod-a", "pod-b"], "they go on until the step is done"
    for key in (A, B):
        world.enter(key, 1, 20)
    assert world.status()["generation"] == 2
    assert world.status()["working"] == []
    for key in (A, B, C):
        world.group.watch(key, 2, 30, world.now_s)
    assert world.status()["working"] == ["pod-a", "pod-b", "pod-c"]
    world.group.unwatch(B, world.now_s, dropped=True)
    world.now_s += 0.31
    world.group.tick(world.now_s)
    assert world.status()["working"] == [], "a world that has lost a trainer makes no step"


def test_a_trainer_that_comes_back_in_time_is_not_lost() -> None:
    world = Clocked()
    world.two()
    world.group.unwatch(B, world.now_s, dropped=True)
    world.now_s += 0.2
    world.group.watch(B, 1, 10, world.now_s)
    world.now_s += 0.2
    assert not world.group.tick(world.now_s)


def test_a_trainer_that_hangs_is_given_up_and_named() -> None:
    world = Clocked()
    world.two()
    world.enter(A, 1, 20)  # its collective failed; B watches, but does not come
    for _ in range(46):
        world.now_s += 1
        world.group.watch(A, 1, 20, world.now_s)
        world.group.watch(B, 1, 10, world.now_s)
        world.group.tick(world.now_s)
    assert [(loss.name, loss.reason) for loss in world.group.losses] == [("b", "stuck")]
    assert world.group.formed(A) is not None
    world.group.watch(B, 1, 10, world.now_s)
    assert world.hung() == [("pod-b", "b", "stuck")], "its process watches, but its loop still hangs"
    world.enter(B, 1, 10)
    assert world.hung() == []


def test_a_silent_trainer_hangs_until_its_pod_is_off_the_roster() -> None:
    world = Clocked()
    world.two()
    world.group.unwatch(B, world.now_s, dropped=False)
    world.enter(A, 1, 20)
    world.now_s += 5
    world.group.watch(A, 1, 20, world.now_s)
    world.group.tick(world.now_s)
    assert world.hung() == [("pod-b", "b", "silent")]
    world.now_s += 7
    (found,) = world.status()["hung"]
    assert found["seconds"] == 7.0
    world.ledger.set_roster(1, ["pod-a"])
    assert world.hung() == []


def test_trainers_that_left_or_were_killed_do_not_hang() -> None:
    world = Clocked()
    world.two()
    world.group.unwatch(B, world.now_s, dropped=True)
    world.enter(A, 1, 20)
    world.now_s += 1
    world.group.watch(A, 1, 20, world.now_s)
    world.group.tick(world.now_s)
    assert [loss.name for loss in world.group.losses] == ["b"]
    assert world.hung() == []


def test_trainers_that_end_with_the_job_are_no_losses() -> None:
    world = Clocked()
    world.two()
    for key in (A, B):
        world.group.watch(key, 1, 200, world.now_s)
        world.group.unwatch(key, world.now_s, dropped=False)
    world.now_s += 60
    assert not world.group.tick(world.now_s)
    assert not world.group.losses


def test_a_trainer_that_lacks_a_counted_step_comes_back_without_a_state() -> None:
    world = Clocked()
    world.two()
    world.group.unwatch(B, world.now_s, dropped=True)
    world.now_s += 1
    world.group.tick(world.now_s)
    world.group.watch(A, 1, 20, world.now_s)
    assert world.ledger.position == 20
    world.enter(B, 1, 10)
    last = world.enter(A, 1, 20)
    assert last is not None
    assert sorted((m.name, m.position) for m in last.members) == [("a", 20), ("b", None)]


def test_without_any_state_training_goes_back_to_the_last_checkpoint() -> None:
    world = Clocked()
    world.two()
    number = world.ledger.begin_checkpoint(A, 10)
    world.ledger.commit_checkpoint(number)
    for key in (A, B):
        world.group.watch(key, 1, 40, world.now_s)
        world.group.unwatch(key, world.now_s, dropped=True)
    world.now_s += 1
    world.group.tick(world.now_s)
    new = world.enter(C)
    assert new is not None
    assert (new.position, new.checkpoint, world.ledger.position) == (10, number, 10)


def lost_in_the_second_epoch() -> Clocked:
    """A group whose trainers were all killed at position 140, without a checkpoint."""
    world = Clocked()
    world.two()
    for key in (A, B):
        world.group.watch(key, 1, 140, world.now_s)
        world.group.unwatch(key, world.now_s, dropped=True)
    assert world.ledger.state.unsaved == 140
    world.now_s += 1
    world.group.tick(world.now_s)
    return world


def test_without_any_state_and_without_a_checkpoint_training_begins_at_the_first_record() -> None:
    world = lost_in_the_second_epoch()
    new = world.enter(C)
    assert new is not None
    assert (new.position, new.checkpoint, world.ledger.position) == (0, 0, 0)
    assert (world.ledger.state.epoch, world.ledger.state.closed) == (0, [])
    world.group.watch(C, 2, 200, world.now_s)
    events, state, check = world.ledger.take_events(), LedgerState(), Audit(LedgerState())
    for event in decode_events(encode_events(events)):
        check.follow(event)
        state.apply(event)
    assert [(epoch.epoch, epoch.done, epoch.done_by) for epoch in check.finish(state)] == [
        (0, 100, {"c": 100}),
        (1, 100, {"c": 100}),
    ], "records of the lost run are not counted"
    assert check.problems == []


def test_trainers_in_step_without_a_model_do_not_go_on_after_a_restore_in_a_later_epoch() -> None:
    world = lost_in_the_second_epoch()
    assert world.ledger.restore(None) == 0
    assert world.ledger.position == 0


def test_a_new_model_begins_at_the_first_record_after_the_ledger_was_lost() -> None:
    world = Clocked()
    world.ledger = Ledger()
    world.ledger.set_dataset(DatasetSet("index:100", "", 100, 2, 0, None, 1.0, first_epoch=1))
    world.group = Group(world.ledger, GroupSettings(), world.now_s)
    new = world.enter(A)
    assert new is not None
    assert (new.position, new.checkpoint, world.ledger.state.epoch) == (0, 0, 0)


def test_a_checkpoint_is_of_the_model_that_is_counted() -> None:
    world = Clocked()
    world.two()
    with pytest.raises(ConflictError, match="its model is at position 20, but the steps up to 10 are counted"):
        world.ledger.begin_checkpoint(A, 20)


def test_a_trainer_that_leaves_is_free_once_the_others_have_ended_their_step() -> None:
    world = Clocked()
    world.two()
    assert not world.group.leave(B, 1, 20, world.now_s)
    world.enter(A, 1, 20)
    assert world.group.is_free(1)
    assert world.ledger.state.world is not None
    assert world.ledger.state.world.generation == 2


def test_a_trainer_whose_pod_is_not_on_the_roster_is_not_waited_for() -> None:
    world = Clocked()
    world.two()
    world.enter(A, 1, 20)
    world.ledger.set_roster(1, [A.pod_uid])
    world.group.tick(world.now_s)
    alone = world.group.formed(A)
    assert alone is not None
    assert len(alone.members) == 1
    world.enter(B, 1, 20)
    assert not world.group.must_change(A, 2), "a pod that may not train must not end the world of the others"


def test_a_job_cannot_mix_leases_and_steps() -> None:
    world = Clocked()
    request = type("Request", (), {"seq": 1, "done": (), "failed": (), "progress": (), "want": 1})()
    world.ledger.sync(C, request, world.now_s)
    with pytest.raises(ConflictError, match="a job cannot mix both"):
        world.enter(A)
    other = Clocked()
    other.two()
    with pytest.raises(ConflictError, match="train in step, so it has no leases"):
        other.ledger.sync(C, request, other.now_s)


def test_trainers_that_divide_epochs_differently_are_refused() -> None:
    world = Clocked()
    world.group.enter(A, EnterRequest(0, None, "at-a", 1, "global_batch=60"), world.now_s)
    with pytest.raises(ConflictError, match="by 'global_batch=30', but a by 'global_batch=60'"):
        world.group.enter(B, EnterRequest(0, None, "at-b", 1, "global_batch=30"), world.now_s)


def test_a_trainer_that_missed_its_world_and_was_given_up_still_has_its_state() -> None:
    world = Clocked()
    world.enter(A)
    world.group.watch(A, 1, 10, world.now_s)
    world.enter(A, 1, 10)  # the second world forms, and the answer is lost
    world.group.unwatch(A, world.now_s, dropped=True)
    world.now_s += 1
    world.group.tick(world.now_s)
    assert world.group.losses
    back = world.enter(A, 1, 10)
    assert back is not None
    assert (back.generation, back.position, back.checkpoint) == (3, 10, None)


def test_the_status_has_what_a_trainer_of_the_last_world_has_said_of_its_goodput() -> None:
    world = Clocked()
    world.two()
    assert world.status()["goodput"] is None
    told = Goodput(128, 300.5, (Speed(2, 40.0, True, 128, 0.8),))
    world.group.watch(A, 1, 10, world.now_s, told)
    world.group.watch(B, 1, 10, world.now_s)
    world.group.watch(B, 0, 10, world.now_s, told._replace(batch=1))
    speed = {"trainers": 2, "per_s": 40.0, "is_measured": True, "batch": 128, "efficiency": 0.8}
    shown = {"batch": 128, "noise_scale": 300.5, "speeds": [speed]}
    assert world.status()["goodput"] == shown
