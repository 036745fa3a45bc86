"""Every world has a plan, before its deadline, that keeps every rule: `make worlds` tries 10,000 of them.

`EDL_WORLDS=N` says how many, from number `EDL_FIRST_WORLD` on. No world may be called infeasible: each has a plan, if
only that in which nothing changes, so a decision without a plan is a failure, whatever the solver said.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from benchmarks.random_worlds import random_world
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named

COUNT, FIRST = int(os.environ.get("EDL_WORLDS", "14")), int(os.environ.get("EDL_FIRST_WORLD", "0"))
DEADLINE_S = 10.0
SOON_S = 1.1 * DEADLINE_S


@pytest.mark.parametrize("number", range(FIRST, FIRST + COUNT))
def test_a_random_world_has_a_plan_in_time(number: int) -> None:
    world = random_world(number)
    limits = replace(world.limits, deadline_s=DEADLINE_S)
    clock = Clock(DEADLINE_S, time.process_time)  # other tests may hold the machine

    plan = study(world.snapshot, policy_named("utility" if number % 3 == 2 else "maxmin"), limits, clock=clock).plan

    assert not check(world.snapshot, plan, limits.quotas)
    assert plan.certificate.bound >= plan.certificate.achieved
    assert clock.spent_s <= SOON_S
