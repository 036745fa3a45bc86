"""Kube-scheduler takes waiting pods one after the other; nobody is killed for those whose turn has not come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.limits import Limits, ServingLimits
from edl.model.pods import Pod
from edl.planner.waits import serving_grace_left_s
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.small_clusters import plan_for, victims

LIMITS = Limits(serving=ServingLimits(grace_s=2.0))
FULL = make_job("a", min_trainers=2, max_trainers=20, trainers=16, on=("n000", "n001"))


def serving(name: str, *, created_s: float, answered_s: float | None = None, priority: int = 0) -> Pod:
    nominated = "n000" if answered_s is not None else ""
    pod = make_serving(name, nominated=nominated, priority=priority)
    return replace(pod, created_s=created_s, answered_s=answered_s)


def grace(*pods: Pod) -> dict[str, float]:
    left = serving_grace_left_s(make_snapshot(make_nodes(2), (FULL,), pods, now_s=1000.0), LIMITS)
    return {name: still_s for (_, name), still_s in left.items()}


def test_a_pod_waits_for_its_turn_as_long_as_those_before_it_are_being_answered() -> None:
    assert grace(serving("old", created_s=990.0, answered_s=999.0), serving("next", created_s=990.0)) == {"next": 1.0}
    assert grace(serving("first", created_s=990.0), serving("next", created_s=999.5)) == {"next": 1.5}


def test_answers_about_pods_that_come_after_it_do_not_put_it_off() -> None:
    younger = serving("younger", created_s=991.0, answered_s=999.0)
    lesser = serving("lesser", created_s=980.0, answered_s=999.0)
    assert grace(serving("passed-over", created_s=990.0), younger) == {}
    assert grace(serving("passed-over", created_s=990.0, priority=5), lesser) == {}
    assert grace(serving("behind", created_s=990.0), replace(lesser, priority=5)) == {"behind": 1.0}


def test_a_pod_that_was_tried_and_found_no_room_has_no_grace() -> None:
    assert grace(replace(serving("tried", created_s=999.0), tried=True)) == {}


@pytest.mark.parametrize(("answered_s", "deaths"), [(999.0, 0), (997.0, 3)])
def test_nobody_dies_for_a_pod_whose_turn_has_not_come(answered_s: float, deaths: int) -> None:
    placed = replace(make_serving("placed", cpu=8, node="n002"), answered_s=answered_s)
    cluster = make_snapshot(make_nodes(3), (FULL,), (placed, serving("next", created_s=990.0)))
    plan = plan_for(cluster, LIMITS)
    assert len(victims(plan)) == deaths
    assert plan.serving.placed == (1 if deaths else 0)
