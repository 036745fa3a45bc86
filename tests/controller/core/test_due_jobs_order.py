"""In which order jobs are looked at, compared with an order that looks at all of them each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.controller.due_jobs import JOBS_AT_ONCE, LEAST_SWEPT, DueJobs
from edl.model.actions import CreatePod, Outcome, Result
from edl.model.names import JobKey, Role
from tests.worlds.effort import examples

FIRST_S, LONGEST_S = 1.0, 8.0
NAMES = tuple(f"{namespace}/{number}" for namespace in "abcdefgh" for number in range(3))
FAILED = Outcome(CreatePod(JobKey("default", "a"), "uid", Role.TRAINER, 0), Result.FAILED)


@dataclass
class Plain:
    """The jobs to look at, sorted anew at each question."""

    jobs: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    backoffs: dict[str, tuple[int, float]] = field(default_factory=dict)

    def fail(self, uid: str, now_s: float) -> None:
        """As `DueJobs.back_off` says it."""
        failures, until_s = self.backoffs.get(uid, (0, now_s))
        if now_s >= until_s:
            self.backoffs[uid] = (failures + 1, now_s + min(LONGEST_S, FIRST_S * 2**failures))

    def first(self, closed: Collection[str], now_s: float) -> list[str]:
        """As `DueJobs.first` says it."""
        before: Counter[tuple[str, bool, bool]] = Counter()
        ranked = []
        for number, (uid, rank) in enumerate(self.jobs.items()):
            if uid in closed or self.backoffs.get(uid, (0, 0.0))[1] > now_s:
                continue
            namespace = uid[0]
            ranked.append((rank, before[namespace, *rank], number, uid))
            before[namespace, *rank] += 1
        return [uid for *_, uid in sorted(ranked)[:JOBS_AT_ONCE]]


class Pair:
    """The same happens to both."""

    def __init__(self) -> None:
        self.due, self.plain, self.now_s, self.closed = DueJobs(FIRST_S, LONGEST_S), Plain(), 100.0, set[str]()

    def add(self, uid: str, *, is_news: bool, is_after: bool) -> None:
        """A job is to be looked at."""
        self.due.add(uid, uid[0], is_news=is_news, is_after=is_after)
        unchanged, after = self.plain.jobs.get(uid, (True, is_after))
        self.plain.jobs[uid] = (unchanged and not is_news, after)

    def look(self, most: int) -> None:
        """The next jobs are looked at, which is fewer than all that come next if an error ends it."""
        expected = self.plain.first(self.closed, self.now_s)
        assert self.due.first(self.closed, self.now_s) == expected
        assert self.due.has_more(lambda: self.closed, self.now_s) is bool(expected)
        for uid in expected[:most]:
            self.due.remove(uid)
            del self.plain.jobs[uid]

    def fail(self, uid: str) -> None:
        """A write of the job has failed."""
        self.due.back_off(uid, [FAILED], self.now_s)
        self.plain.fail(uid, self.now_s)

    def end(self, uid: str) -> None:
        """Its backoff ends before its time."""
        self.due.end_backoffs((uid,))
        self.plain.backoffs.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self.due.forget(uid)
        self.plain.jobs.pop(uid, None)
        self.plain.backoffs.pop(uid, None)

    def play(self, name: str, *what: Any) -> None:
        """Play one event."""
        match name:
            case "add":
                self.add(what[0], is_news=what[1], is_after=what[2])
            case "look":
                self.look(*what)
            case "close":
                self.closed.add(*what)
            case "open":
                self.closed.discard(*what)
            case "wait":
                self.now_s += what[0]
            case _:
                getattr(self, name)(*what)


uids = st.sampled_from(NAMES)
ADD = st.tuples(st.just("add"), uids, st.booleans(), st.booleans())
OF_ONE = st.tuples(st.sampled_from(("close", "open", "fail", "end", "forget")), uids)
LOOK = st.tuples(st.just("look"), st.integers(0, JOBS_AT_ONCE))
WAIT = st.tuples(st.just("wait"), st.sampled_from((0.5, 1.0, 4.0)))


@examples(600)
@given(st.lists(st.one_of(ADD, ADD, ADD, LOOK, OF_ONE, WAIT), min_size=5, max_size=80))
def test_the_order_is_that_of_all_jobs_sorted_anew(events: list[tuple[Any, ...]]) -> None:
    pair = Pair()
    for event in events:
        pair.play(*event)
    pair.closed.clear()
    pair.now_s += LONGEST_S
    while pair.plain.jobs:
        pair.look(JOBS_AT_ONCE)
    assert not pair.due.first((), pair.now_s)


@pytest.mark.parametrize("namespaces", [1, 30, 3000])
def test_what_a_look_costs_does_not_depend_on_how_many_jobs_there_are(namespaces: int) -> None:
    due, asked = DueJobs(FIRST_S, LONGEST_S), 0

    class Closed(frozenset[str]):
        def __contains__(self, _: object) -> bool:
            nonlocal asked
            asked += 1
            return False

    for number in range(3000):
        due.add(f"{number}", f"{number % namespaces}", is_news=False, is_after=False)
    looks = 0
    while found := due.first(Closed(), 0.0):
        looks += 1
        for uid in found:
            due.remove(uid)
    assert looks == 3000 / JOBS_AT_ONCE
    assert asked == 3000


def test_jobs_that_back_off_are_judged_once_until_they_come_back() -> None:
    due, now_s = DueJobs(FIRST_S, LONGEST_S), 100.0
    for number in range(1000):
        due.add(f"{number}", "a", is_news=False, is_after=False)
        due.back_off(f"{number}", [FAILED], now_s)
    due.add("works", "a", is_news=False, is_after=False)
    assert due.first((), now_s) == ["works"]
    with patch.object(DueJobs, "_judge", return_value=True) as judged:
        due.first((), now_s)
    assert judged.call_count == 1
    assert due.first((), now_s + FIRST_S) == ["0", "1", "2", "3", "4"]


def test_a_job_that_was_closed_takes_its_turn_alone() -> None:
    due = DueJobs(FIRST_S, LONGEST_S)
    for namespace in "abcdefgh":
        due.add(f"{namespace}1", namespace, is_news=False, is_after=False)
        if namespace == "e":
            due.add("a2", "a", is_news=False, is_after=False)
    assert due.first({"a1"}, 0.0) == ["b1", "c1", "d1", "e1", "a2"]
    assert due.first({"a1"}, 0.0, 4) == ["b1", "c1", "d1", "e1"]
    for uid in ("b1", "c1", "d1"):
        due.remove(uid)
    assert due.first((), 0.0) == ["a1", "e1", "f1", "g1", "h1"], "a2 comes in the second turn of a"


def test_jobs_that_go_leave_nothing_behind_in_a_replica_that_looks_at_none() -> None:
    due = DueJobs(1.0, 30.0)
    due.add("stays", "n", is_news=True, is_after=False)
    for number in range(4 * LEAST_SWEPT):
        due.add(f"u{number}", f"n{number}", is_news=True, is_after=False)
        due.forget(f"u{number}")
    assert sum(len(queue._heads) for queue in due._in_turn.values()) <= 2 * LEAST_SWEPT
    assert due.first((), 0.0) == ["stays"]
