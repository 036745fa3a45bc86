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
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.status import Reason
from edl.planner.clock import Clock
from edl.planner.decide import Study, study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from tests.worlds.admissible import can_run

COUNT, FIRST = int(os.environ.get("EDL_WORLDS", "7")), int(os.environ.get("EDL_FIRST_WORLD", "0"))
DEADLINE_S = 10.0
SOON_S = 1.1 * DEADLINE_S
NO_ROOM = {Reason.MIN_UNSATISFIED, Reason.SERVING_NEEDS_ROOM}


FOUND = (76, 1373, 1426, 1737, 4523, 8184, 9185)  # worlds in which jobs once waited that could run
RUNS = {8184: "j00000", 9185: "j00003"}  # of these, jobs for which the judge takes a minute or gives up


@pytest.mark.parametrize("number", [*range(FIRST, FIRST + COUNT), *(n for n in FOUND if n >= FIRST + COUNT)])
def test_a_random_world_has_a_plan_in_time(number: int) -> None:
    assert faults(number) == []


def faults(number: int) -> list[str]:
    """What is wrong with the plan of a random world, one line for each rule that it breaks."""
    world = random_world(number)
    limits = replace(world.limits, deadline_s=DEADLINE_S)
    clock = Clock(DEADLINE_S, time.process_time)  # other tests may hold the machine
    made = study(world.snapshot, policy_named("utility" if number % 3 == 2 else "maxmin"), limits, clock=clock)
    spent_s, certificate = clock.spent_s, made.plan.certificate

    found = [f"breaks a rule: {problem}" for problem in check(world.snapshot, made.plan, limits.quotas)]
    if certificate.bound < certificate.achieved:
        found.append(f"bound {certificate.bound} is below what it achieves, {certificate.achieved}")
    if spent_s > SOON_S:
        found.append(f"late: {spent_s:.1f} of {SOON_S:.1f} CPU seconds")
    decisions = zip(world.snapshot.jobs, made.plan.decisions, strict=True)
    if any(job.key.name == RUNS.get(number) and not decision.admitted for job, decision in decisions):
        found.append(f"does not run: {RUNS[number]}")
    return [*found, *(f"waits wrongly: {job}" for job in wrongly_left_out(world.snapshot, made, limits))]


def wrongly_left_out(snapshot: ClusterSnapshot, made: Study, limits: Limits) -> list[str]:
    """The jobs that wait for room, or are called unschedulable, although an integer program places them."""
    plan, pairs = made.plan, list(zip(snapshot.jobs, made.plan.decisions, strict=True))
    if plan.cut:
        return []
    shapes, due = made.context.problem.shapes, made.context.served.due
    serving = {shapes[s]: count for s, count in due.items()}
    runs = [job for job, decision in pairs if decision.admitted]
    waits = [job for job, decision in pairs if decision.reason in NO_ROOM]
    may_pass = all(snapshot.observed_at_s - job.created_s < limits.sharing.head_wait_s for job in waits)
    infeasible = [job for job, decision in pairs if decision.reason is Reason.UNSCHEDULABLE]
    return [
        *(str(job.key) for job in waits if may_pass and can_run(snapshot, (*runs, job), serving)),
        *(f"{job.key} alone" for job in infeasible if can_run(snapshot, (job,), serving)),
    ]
