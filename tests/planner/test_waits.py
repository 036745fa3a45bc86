"""How long cooldowns, holds and grace times last, and which times are not believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits, SharingLimits
from edl.model.pods import Pod
from edl.model.status import JobStatus, Reason, Resize
from edl.planner.waits import cooldown_left_s, growth_hold_left_s, refused, serving_grace_left_s
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot

NOW_S = 5000.0
LIMITS = Limits(sharing=SharingLimits(growth_hold_s=30.0))


def resized_at(at_s: float) -> Job:
    """A job that gave trainers to another job and to serving then, and has a cooldown of 60 s."""
    resize = Resize(at_s, 4, 2, Reason.SERVING_NEEDS_ROOM, at_s)
    return replace(make_job("a"), cooldown_s=60.0, status=JobStatus(last_resize=resize))


@pytest.mark.parametrize(
    ("at_s", "cooldown_s", "hold_s"),
    [
        (NOW_S - 100.0, 0.0, 0.0),
        (NOW_S - 20.0, 40.0, 10.0),
        (NOW_S, 60.0, 30.0),
        (NOW_S + 20.0, 80.0, 50.0),  # the clock of another controller was ahead
        (NOW_S + 61.0, 0.0, 0.0),
        (253370764800.0, 0.0, 0.0),  # the owner of a workload wrote the year 9999 into its annotation
    ],
)
def test_a_time_that_has_yet_to_begin_keeps_no_job_from_sharing(
    at_s: float, cooldown_s: float, hold_s: float
) -> None:
    job = resized_at(at_s)
    assert cooldown_left_s(job, NOW_S) == cooldown_s
    assert growth_hold_left_s(job, LIMITS, NOW_S) == hold_s


def waiting(name: str, **changes: Any) -> Pod:
    """A serving pod that came a tenth of a second ago, and must not preempt."""
    return replace(make_serving(name), created_s=999.9, may_preempt=False, **changes)


REFUSED = waiting("first", tried=True, answered_s=999.95)
EQUAL: dict[str, tuple[Pod, bool]] = {
    "an equal pod": (waiting("s"), True),
    "of a higher priority": (waiting("s", priority=5), False),
    "of another scheduler": (waiting("s", scheduler="other"), False),
    "of another shape": (replace(make_serving("s", cpu=2), created_s=999.9, may_preempt=False), False),
    "that may preempt": (replace(make_serving("s"), created_s=999.9), False),
}


@pytest.mark.parametrize("case", EQUAL)
def test_a_pod_is_refused_with_an_equal_one(case: str) -> None:
    pod, is_refused = EQUAL[case]
    snapshot = make_snapshot(make_nodes(1), pods=(REFUSED, pod))
    left = serving_grace_left_s(snapshot, Limits(serving=ServingLimits(grace_s=2.0)))
    assert (("serving", "s") not in left) is is_refused
    assert (pod.uid in refused(snapshot)) is is_refused


def test_a_pod_that_may_preempt_refuses_only_itself() -> None:
    snapshot = make_snapshot(make_nodes(1), pods=(replace(REFUSED, may_preempt=True), waiting("s")))
    assert ("serving", "s") in serving_grace_left_s(snapshot, Limits(serving=ServingLimits(grace_s=2.0)))
    assert refused(snapshot) == {REFUSED.uid}


def test_an_equal_pod_that_ignores_free_capacity_refuses_nobody() -> None:
    snapshot = make_snapshot(make_nodes(1), pods=(replace(REFUSED, unplaceable=True), waiting("s")))
    assert ("serving", "s") in serving_grace_left_s(snapshot, Limits(serving=ServingLimits(grace_s=2.0)))
    assert not refused(snapshot)
