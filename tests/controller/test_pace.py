"""When the next plan is due."""

from __future__ import annotations

import pytest

from edl.controller.pace import Pace, PlanTimer

PACE = Pace(interval_s=5.0, debounce_s=0.5, urgent_debounce_s=0.2)


def timer() -> PlanTimer:
    found = PlanTimer(PACE)
    found.began(100.0)
    return found


@pytest.mark.parametrize(
    ("changes", "due_s"),
    [
        ([], 105.0),
        ([(101.0, False)], 101.5),
        ([(101.0, False), (101.3, False)], 101.5),
        ([(101.0, True)], 101.2),
        ([(101.0, True), (101.15, True)], 101.35),
        ([(101.0, True), (101.15, True), (101.3, True), (101.45, True)], 101.5),
        ([(101.0, False), (101.4, True)], 101.5),
        ([(104.9, False)], 105.0),
    ],
)
def test_a_plan_follows_changes_soon_and_the_last_urgent_one_sooner(
    changes: list[tuple[float, bool]], due_s: float
) -> None:
    found = timer()
    for at_s, is_urgent in changes:
        found.changed(at_s, urgent={"ads"} if is_urgent else ())
    assert found.due_s(is_growing=False) == pytest.approx(due_s)


def test_while_jobs_grow_only_what_is_urgent_brings_a_plan_before_the_interval() -> None:
    found = timer()
    found.changed(101.0)
    assert found.due_s(is_growing=True) == 105.0
    assert found.due_s(is_growing=False) == 101.5
    found.changed(102.0, urgent={"ads"})
    assert found.due_s(is_growing=True) == 102.2


def test_what_changed_before_a_plan_began_brings_no_other_one() -> None:
    found = timer()
    found.changed(101.0, urgent={"ads"})
    assert found.began(101.2)
    assert found.due_s(is_growing=False) == pytest.approx(106.2)
    assert not found.began(106.2)


def test_the_end_of_a_wait_brings_a_plan_once() -> None:
    found = timer()
    found.wake(103.0)
    assert found.due_s(is_growing=True) == 103.0
    found.began(103.0)
    assert found.due_s(is_growing=True) == 108.0


def test_the_first_plan_is_due_at_once() -> None:
    assert PlanTimer(PACE).due_s(is_growing=False) < 0.0


def test_changes_of_another_namespace_without_end_postpone_no_plan() -> None:
    found = timer()
    for at_s in (101.0, 101.1, 101.2, 101.3):
        found.changed(at_s, urgent={"mallory"})
    found.changed(101.15, urgent={"ads"})
    assert found.due_s(is_growing=False) == pytest.approx(101.35)


def test_pods_that_come_one_after_the_other_postpone_no_plan_for_an_owner_who_waits_for_quota() -> None:
    """The groups are those of `edl.kube.mirror.urgency.group_of`."""
    found = timer()
    found.changed(101.0, urgent={"ads/workloads"})
    for at_s in (101.05, 101.15, 101.19):
        found.changed(at_s, urgent={"ads"})
    assert found.due_s(is_growing=False, asked_s={"ads": 101.1}) == pytest.approx(101.2)


def test_a_plan_waits_for_answers_about_jobs_of_the_namespace_that_it_is_for_alone() -> None:
    found = timer()
    found.changed(101.0, urgent={"ads"})
    assert found.due_s(is_growing=True, asked_s={"mallory": 101.0}) == pytest.approx(101.2)
    assert found.due_s(is_growing=True, asked_s={"mallory": 101.0, "ads": 101.1}) == pytest.approx(102.2)
    found.ended(101.7)
    assert found.due_s(is_growing=True, asked_s={"ads": 101.1}) == pytest.approx(102.7)


def test_a_plan_that_is_for_no_namespace_waits_for_what_was_asked_by_then() -> None:
    found = timer()
    found.changed(101.0)
    assert found.due_s(is_growing=False, asked_s={"ads": 101.5}) == pytest.approx(102.5)
    assert found.due_s(is_growing=False, asked_s={"ads": 101.6}) == pytest.approx(101.5)
    found.ended(103.0)
    assert found.due_s(is_growing=False, asked_s={"ads": 103.0}) == pytest.approx(104.0)
