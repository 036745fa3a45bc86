"""How long a round writes before a newer plan is due, by what was thought and written before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from edl.clock import Clock
from edl.controller.hand_back import HandBack
from edl.controller.ports import Cluster


@dataclass
class Moments:
    """A clock and a cluster whose rounds take exactly the times that a test says."""

    now_s: float = 100.0
    changes: int = 0
    in_need: int = 0

    def monotonic_s(self) -> float:
        return self.now_s

    def urgent_changes(self) -> int:
        return self.changes

    def serving_in_need(self) -> int:
        return self.in_need

    def writing_after_a_change(self, hand_back: HandBack, *, think_s: float, in_need: bool = False) -> float:
        """How long a round writes during whose thinking a change came; `in_need`: of a serving pod."""
        hand_back.begin(may=True)
        hand_back.observe()
        self.now_s += think_s
        self.changes += 1
        self.in_need += in_need
        hand_back.write()
        began_s = self.now_s
        while not hand_back.is_due():
            self.now_s += 0.01
        return round(self.now_s - began_s, 2)


def moments(*, relieves: bool = False) -> tuple[Moments, HandBack]:
    """They begin after three seconds of writing."""
    time = Moments()
    hand_back = HandBack(
        cast("Cluster", time),
        cast("Clock", time),
        debounce_s=0.5,
        quiet_s=0.2,
        interval_s=5.0,
        relieves=lambda: relieves,
    )
    time.now_s += 3.0
    return time, hand_back


def test_a_lone_change_during_a_long_growth_does_not_wait_until_writing_took_as_long_as_thinking() -> None:
    time, hand_back = moments()
    assert time.writing_after_a_change(hand_back, think_s=1.0) == pytest.approx(0.2, abs=0.02)


def test_while_changes_never_end_a_third_as_much_time_is_for_writing_as_for_thinking() -> None:
    time, hand_back = moments()
    writing = [time.writing_after_a_change(hand_back, think_s=3.0) for _ in range(8)]
    assert writing[:2] == pytest.approx([0.2, 0.2], abs=0.02)
    assert writing[3:] == pytest.approx([1.0] * 5, abs=0.02)


def test_a_round_that_ends_before_it_writes_has_only_thought() -> None:
    time, hand_back = moments()
    for _ in range(3):  # what was written before lets these rounds end at once
        hand_back.begin(may=True)
        hand_back.observe()
        time.changes += 1
        assert not hand_back.is_due()
        time.now_s += 3.0
        hand_back.is_due()
        hand_back.end()
    hand_back.begin(may=True)
    hand_back.observe()
    time.changes += 1
    hand_back.is_due()
    time.now_s += 0.3
    assert not hand_back.is_due(), "writing is owed by now"
    assert time.writing_after_a_change(hand_back, think_s=0.0) == pytest.approx(1.43, abs=0.02)


def test_a_serving_pod_that_gets_room_ahead_of_the_plan_hardly_waits_unless_rounds_owe_much() -> None:
    time, hand_back = moments(relieves=True)
    for _ in range(8):
        time.writing_after_a_change(hand_back, think_s=3.0)
    hurried = [time.writing_after_a_change(hand_back, think_s=3.0, in_need=True) for _ in range(6)]
    assert hurried[:2] == pytest.approx([0.05, 0.05], abs=0.02)
    assert hurried[3:] == pytest.approx([1.0, 1.0, 1.0], abs=0.02), "rounds write as much as without these pods"


def test_a_serving_pod_that_waits_for_the_plan_is_a_change_like_others() -> None:
    time, hand_back = moments()
    for _ in range(8):
        time.writing_after_a_change(hand_back, think_s=3.0)
    assert time.writing_after_a_change(hand_back, think_s=3.0, in_need=True) == pytest.approx(1.0, abs=0.02)


def test_what_was_written_long_ago_counts_for_an_interval_of_thinking_at_most() -> None:
    time, hand_back = moments()
    time.now_s += 1000.0
    writing = [time.writing_after_a_change(hand_back, think_s=3.0) for _ in range(5)]
    assert writing[:2] == pytest.approx([0.2, 0.2], abs=0.02)
    assert writing[3:] == pytest.approx([1.0, 1.0], abs=0.02)


def test_a_thought_that_took_very_long_does_not_keep_writing_for_longer_than_an_interval() -> None:
    time, hand_back = moments()
    assert time.writing_after_a_change(hand_back, think_s=60.0) == pytest.approx(5.0, abs=0.02)


def test_a_pause_does_not_count_as_writing() -> None:
    time, hand_back = moments()
    hand_back.begin(may=True)
    time.now_s += 11.0
    hand_back.write()
    owed_s = 2.0  # a third of what was thought, less what an interval at most counts
    time.now_s += 1.0
    assert hand_back.owes()
    time.now_s += 5.0
    assert not hand_back.owes()
    hand_back.pause(5.0)
    assert hand_back.owes()
    time.now_s += owed_s - 1.0
    assert not hand_back.owes()


def test_what_is_computed_between_writes_is_thinking() -> None:
    time, hand_back = moments()
    time.writing_after_a_change(hand_back, think_s=11.0)
    hand_back.think()
    time.now_s += 1.5
    assert hand_back.owes()
    hand_back.write()
    time.now_s += 0.5
    assert not hand_back.owes()


def test_a_round_that_must_write_everything_has_no_pauses() -> None:
    time, hand_back = moments()
    hand_back.begin(may=False)
    time.now_s += 60.0
    assert not hand_back.owes()
