"""Workloads in the shape of published charts: their rules are known, and as many pods as they allow are placed."""

from __future__ import annotations

import pytest

from edl.explain.decision import decide
from edl.model.limits import Limits
from edl.planner.policies.registry import policy_named
from tests.worlds.rules.scenes import blocked, snapshot
from tests.worlds.rules.workloads import EXPECTED, NAMES, scene

UNKNOWN = ("edl does not", "edl counts", "edl evaluates", "edl reads", "cannot be counted")


def test_there_are_thirty() -> None:
    assert EXPECTED.keys() == set(NAMES)
    assert len(NAMES) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_of_a_chart_is_read_as_kube_scheduler_reads_it(name: str) -> None:
    found = snapshot(scene(name))
    placed, why = EXPECTED[name]
    plan = decide(found, policy_named("maxmin"), Limits())
    assert plan.serving.placed == placed
    marks = blocked(found)
    assert not [mark for mark in marks.values() for words in UNKNOWN if words in mark]
    assert len(marks) == (plan.serving.waiting - placed if why else 0)
    assert all(why in mark for mark in marks.values())
