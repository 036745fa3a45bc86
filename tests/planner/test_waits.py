"""How long cooldowns and holds last, and which times are not believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.jobs import Job
from edl.model.plan import Limits
from edl.model.status import JobStatus, Reason, Resize
from edl.planner.waits import cooldown_left_s, growth_hold_left_s
from tests.worlds.builders import make_job

NOW_S = 5000.0
LIMITS = Limits(growth_hold_s=30.0)


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
