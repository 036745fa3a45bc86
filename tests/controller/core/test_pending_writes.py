"""The writes that wait: lanes, turns of jobs, and lists that are replaced as a whole."""

from __future__ import annotations

from edl.controller.pending_writes import Lane, PendingWrites, Write
from edl.model.actions import CreatePod
from edl.model.names import JobKey, Role


def writes(job: str, lane: Lane, *indexes: int, namespace: str = "default") -> list[Write]:
    return [Write((CreatePod(JobKey(namespace, job), job, Role.TRAINER, index),), lane) for index in indexes]


def taken(pending: PendingWrites, count: int = 100) -> list[str]:
    found: list[str] = []
    while len(found) < count and (write := pending.take(Lane)) is not None:
        action = write.actions[0]
        assert isinstance(action, CreatePod)
        found.append(f"{write.job_uid}{action.index}")
    return found


def test_the_lowest_lane_comes_first() -> None:
    pending = PendingWrites()
    for lane in reversed(Lane):
        pending.replace(lane.name, writes(lane.name, lane, 0))
    assert taken(pending) == [f"{lane.name}0" for lane in Lane]


def test_only_the_lanes_that_are_asked_for_count() -> None:
    pending = PendingWrites()
    pending.replace("a", writes("a", Lane.SURPLUS, 0))
    assert pending.take((Lane.END, Lane.STATUS)) is None
    assert pending.has((Lane.SURPLUS,))
    assert not pending.has((Lane.END,))
    assert pending.has_of("a")
    assert not pending.has_of("b")


def test_jobs_take_turns_in_a_lane() -> None:
    pending = PendingWrites()
    pending.replace("a", writes("a", Lane.SURPLUS, 0, 1, 2))
    pending.replace("b", writes("b", Lane.SURPLUS, 0, 1))
    assert taken(pending) == ["a0", "b0", "a1", "b1", "a2"]


def test_namespaces_take_turns_in_a_lane_and_then_their_jobs() -> None:
    pending = PendingWrites()
    for name in ("a", "b", "c"):
        pending.replace(name, writes(name, Lane.REPORT, 0, 1))
    pending.replace("x", writes("x", Lane.REPORT, 0, 1, namespace="other"))
    assert taken(pending, 4) == ["a0", "x0", "b0", "x1"]
    pending.replace("y", writes("y", Lane.REPORT, 0, namespace="third"))
    pending.empty("c")
    assert taken(pending, 2) == ["a1", "y0"]
    pending.replace("c", ())
    assert taken(pending) == ["b1"]
    assert not pending.has(Lane)


def test_new_writes_of_a_job_replace_all_that_it_had() -> None:
    pending = PendingWrites()
    pending.replace("a", writes("a", Lane.SURPLUS, 0, 1) + writes("a", Lane.END, 2))
    pending.replace("a", writes("a", Lane.SURPLUS, 3))
    assert taken(pending) == ["a3"]
    pending.replace("a", ())
    assert taken(pending) == []


def test_a_job_whose_writes_are_computed_anew_keeps_its_turn() -> None:
    pending = PendingWrites()
    pending.replace("a", writes("a", Lane.SURPLUS, 0, 1, 2))
    pending.replace("b", writes("b", Lane.SURPLUS, 0, 1))
    assert taken(pending, 1) == ["a0"]
    pending.empty("b")
    assert taken(pending, 1) == ["a1"]
    pending.replace("b", writes("b", Lane.SURPLUS, 5))
    assert taken(pending) == ["b5", "a2"]


def test_nothing_is_left_once_everything_is_dropped() -> None:
    pending = PendingWrites()
    pending.replace("a", writes("a", Lane.END, 0))
    pending.clear()
    assert taken(pending) == []
    assert not pending.has(Lane)
