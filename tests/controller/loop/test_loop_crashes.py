"""A controller is killed before each write of a scenario: the final state is the same.

A crash after one write is a crash before the next one. The next controller starts at once, or only when every pod
that was being deleted is gone and only the stored status is left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from edl.lifecycle.pod_events import STEADY_AFTER_S
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import FixedPods, Job, RolePolicy
from edl.model.names import JobKey, Role
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.effort import some
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

A = JobKey("default", "a")
FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 2))
NODES = make_nodes(2, cpu=6)
PodEvent = Callable[[World], None]


def elastic(**fields: Any) -> Job:
    return replace(make_job("a", min_trainers=2, max_trainers=5), fixed=FIXED, uid="job-1", **fields)


def gang(**fields: Any) -> Job:
    job = make_job("a", min_trainers=3, max_trainers=3)
    return replace(job, fixed=FIXED[1:], fault_tolerant=False, uid="job-1", **fields)


def finish_trainers(world: World) -> None:
    for owned in list(world.pods.values()):
        if owned.pod.role is Role.TRAINER and owned.pod.is_live:
            world.finish(owned.pod.name)


def make_again(world: World) -> None:
    world.delete_job(A)
    world.add(elastic(created_s=1100.0))
    world.jobs[A] = replace(world.jobs[A], job=replace(world.jobs[A].job, uid="job-2"))
    world.list_again()


@dataclass(frozen=True)
class Scenario:
    """A job, whether it runs at the start, and what happens to it."""

    job: Job
    event: PodEvent
    running: bool = True


ON_EVICTION = JobEvent.POD_EVICTED
SCENARIOS: dict[str, Scenario] = {
    "create": Scenario(elastic(), lambda _: None, running=False),
    "create a gang": Scenario(gang(), lambda _: None, running=False),
    "grow": Scenario(elastic(pinned=2), lambda w: w.edit(A, pinned=0)),
    "shrink": Scenario(elastic(), lambda w: w.edit(A, max_trainers=3)),
    "shrink for serving": Scenario(elastic(), lambda w: w.serve("web", 5)),
    "pin": Scenario(elastic(), lambda w: w.edit(A, pinned=2)),
    "a failed trainer": Scenario(elastic(), lambda w: w.finish("a-trainer-1", 1)),
    "a failed pserver": Scenario(elastic(), lambda w: w.finish("a-pserver-0", 1)),
    "too many failures": Scenario(elastic(backoff_limit=0), lambda w: w.finish("a-trainer-1", 1)),
    "complete": Scenario(elastic(), finish_trainers),
    "complete a gang": Scenario(gang(), finish_trainers),
    "delete": Scenario(elastic(), lambda w: w.delete_job(A)),
    "delete in mid-scale-up": Scenario(elastic(), lambda w: w.delete_job(A), running=False),
    "delete and make again": Scenario(elastic(), make_again),
    "restart a gang": Scenario(gang(), lambda w: w.finish("a-trainer-1", 1)),
    "restart an evicted gang": Scenario(gang(), lambda w: w.take_away("a-pserver-0")),
    "resize a gang": Scenario(gang(), lambda w: w.edit(A, min_trainers=4, max_trainers=4)),
    "restart by policy": Scenario(
        elastic(policies=(RolePolicy(Role.PSERVER, ON_EVICTION, JobAction.RESTART_JOB),)),
        lambda w: w.take_away("a-pserver-0"),
    ),
    "abort by policy": Scenario(
        elastic(policies=(RolePolicy(Role.PSERVER, ON_EVICTION, JobAction.ABORT_JOB),)),
        lambda w: w.take_away("a-pserver-0"),
    ),
    "complete by policy": Scenario(
        elastic(policies=(RolePolicy(Role.PSERVER, JobEvent.POD_FAILED, JobAction.COMPLETE_JOB),)),
        lambda w: w.finish("a-pserver-1", 1),
    ),
    "run again by policy": Scenario(
        gang(policies=(RolePolicy(Role.TRAINER, JobEvent.TASK_COMPLETED, JobAction.RESTART_POD),)), finish_trainers
    ),
    "suspend": Scenario(elastic(), lambda w: w.edit(A, suspended=True)),
    "suspend a gang": Scenario(gang(), lambda w: w.edit(A, suspended=True)),
    "expire": Scenario(elastic(ttl_s=10), finish_trainers),
    "an invalid edit": Scenario(elastic(), lambda w: w.edit(A, problem="min-instance 9 exceeds max-instance 5")),
}


def essence(living: Living) -> object:
    """What must be the same in the end; times, sentences and the indices of trainers may differ."""
    assert living.world.violations == []
    pods = sorted(o.pod.name for o in living.world.pods.values())
    jobs = []
    for key in sorted(living.world.jobs):
        job = living.world.job(key)
        assert job.status is not None
        status = job.status
        conditions = [(c.type, c.status, c.reason, c.observed_generation) for c in status.conditions]
        ready = sorted((p.role or "", p.phase, p.is_live) for p in job.pods)
        state = (status.phase, status.reason, status.failures, status.observed_generation)
        jobs.append((job.uid, state, conditions, ready, status.trainer, status.pserver, status.master))
        assert len(ready) == len(pods), "only pods of this job are left"
    return jobs, len(pods), living.world.born


def begin(scenario: Scenario) -> Living:
    living = Living(NODES)
    living.do(lambda w: w.add(scenario.job))
    if scenario.running:
        living.settle()
    return living


def play(
    start: Living, scenario: Scenario, crash_at: int | None = None, absent_s: float = 0.0
) -> tuple[object, list[bool]]:
    """Play the scenario until the cluster is quiet; returns the final state and the first controller's writes."""
    with closing(start.copy()) as living:
        first = living.access
        living.do(scenario.event)
        if crash_at is not None:
            first.kill_at = (crash_at, False)
            while first.alive:
                living.step(2.0)
            for _ in range(int(absent_s / 5)):
                living.wait(5)
                living.do(World.live)
            living.do(World.list_again)
        living.settle(quiet_s=8.0)
        living.wait(STEADY_AFTER_S)
        living.settle(quiet_s=8.0)
        return essence(living), first.effects


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_write_does_not_change_the_final_state(name: str) -> None:
    scenario = SCENARIOS[name]
    with closing(begin(scenario)) as start:
        expected, effects = play(start, scenario)
        for crash_at, absent_s in some(list(product(crash_points(effects), (0.0, 40.0)))):
            found, _ = play(start, scenario, crash_at, absent_s)
            assert found == expected, f"killed before write {crash_at} of {len(effects)}, absent for {absent_s} s"


def crash_points(effects: list[bool]) -> list[int]:
    """Before the first write, and after each write that changed the cluster."""
    return [i for i in range(len(effects)) if i == 0 or effects[i - 1]]
