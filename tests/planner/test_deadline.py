"""The deadline of a decision holds inside the stages, not only between them."""

from __future__ import annotations

import pytest

from edl.errors import PlanFailure
from edl.planner.clock import Clock, OutOfTimeError
from edl.planner.packing import grow
from edl.planner.problem_reader import read_problem
from edl.planner.trial_packing import TrialPacking
from edl.model.plan import Limits
from tests.worlds.builders import make_job, make_nodes, make_snapshot


class Ticking:
    """A time that passes by a fixed step each time that it is asked for."""

    def __init__(self, step_s: float) -> None:
        self.time_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.time_s += self.step_s
        return self.time_s


def test_a_clock_knows_what_is_left() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    now.time_s = 4.0

    assert (clock.spent_s, clock.left_s(2.0), clock.left_s(60.0)) == (4.0, 2.0, 6.0)


def test_a_stage_may_be_allowed_a_part_of_the_time() -> None:
    now = Ticking(0.0)
    clock = Clock(10.0, now)
    clock.allow(0.5)
    now.time_s = 5.5

    assert clock.is_over
    clock.allow(1.0)
    assert not clock.is_over


def test_growth_ends_at_the_deadline() -> None:
    snapshot = make_snapshot(make_nodes(4, cpu=100), (make_job("a", max_trainers=200),))
    now = Ticking(1.0)
    packing = TrialPacking(read_problem(snapshot, Limits(), clock=Clock(20.0, now)), (0,))

    with pytest.raises(OutOfTimeError) as late:
        grow(packing, {0: 200}, {0: 200})

    assert late.value.failure is PlanFailure.LATE_SOLVER
    assert now.time_s <= 22.0
