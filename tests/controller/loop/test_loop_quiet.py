"""Without changes nothing is written: ten quiet minutes of the controller loop in virtual time.

The elector renews the lease beside this loop; no other write happens in a quiet cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from operator import methodcaller
from typing import Any

import pytest

from edl.model.actions import Action, CreatePod, Outcome, Result
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.status import JobPhase
from tests.controller.loop_stage import at_work
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 2))


def job(name: str, min_trainers: int = 2, max_trainers: int = 4, **fields: Any) -> Job:
    return replace(make_job(name, min_trainers=min_trainers, max_trainers=max_trainers), **{"fixed": FIXED, **fields})


@pytest.fixture(scope="module")
def crowd() -> Iterator[Living]:
    """One job of every kind and in every lasting phase."""
    with closing(Living(make_nodes(4, cpu=8))) as made:
        enter(made, job("done"), job("failed", backoff_limit=0))
        made.do(end)
        enter(
            made,
            job("elastic"),
            job("gang", 3, 3, fixed=FIXED[1:], fault_tolerant=False),
            job("pinned", pinned=2),
            job("suspended", suspended=True),
            job("too-large", 90, 90),
            job("heavy", 2, 2, trainer=make_shape(6)),
            job("invalid", problem="min-instance 4 exceeds max-instance 2; lower min-instance"),
        )
        yield made


@pytest.fixture
def living(crowd: Living) -> Iterator[Living]:
    with closing(crowd.copy()) as made:
        made.settle()
        yield made


def enter(living: Living, *jobs: Job) -> None:
    for one in jobs:
        living.do(methodcaller("add", one))
        living.settle()


def end(world: World) -> None:
    for owned in list(world.pods.values()):
        if owned.pod.role is Role.TRAINER and owned.pod.job == ("default", "done"):
            world.finish(owned.pod.name)
    world.finish("failed-trainer-0", 1)


def test_nothing_is_written_in_ten_quiet_minutes(living: Living) -> None:
    phases = {key.name: stored.job.status.phase for key, stored in living.world.jobs.items() if stored.job.status}
    assert set(phases.values()) == {
        JobPhase.RUNNING,
        JobPhase.SUSPENDED,
        JobPhase.PENDING,
        JobPhase.SUCCEEDED,
        JobPhase.FAILED,
    }
    living.access.effects.clear()
    rounds = len(living.recorder.results)
    living.run(run_for(living, 600))
    assert len(living.recorder.results) - rounds >= 100
    assert living.recorder.failures == []
    assert living.access.effects == [], "no write was tried"


def test_a_quiet_cluster_is_decided_about_once_a_minute_and_a_change_at_once(living: Living) -> None:
    living.run(run_for(living, 600))
    plans, rounds = len(living.recorder.plans), len(living.recorder.results)
    living.run(run_for(living, 600))
    assert len(living.recorder.results) - rounds >= 100
    assert 9 <= len(living.recorder.plans) - plans <= 11
    plans = len(living.recorder.plans)
    living.do(lambda w: w.edit(JobKey("default", "elastic"), max_trainers=3))
    living.step(2.0)
    assert len(living.recorder.plans) > plans


def test_a_status_that_a_user_changed_is_corrected_once(living: Living) -> None:
    key = JobKey("default", "elastic")
    before = living.world.job(key).status
    assert before is not None
    living.do(
        lambda w: w.forge(
            key,
            phase=JobPhase.SUCCEEDED,
            reason="Forged",
            explanation="forged",
            selector="forged=true",
            observed_generation=99,
            trainer=replace(before.trainer, ready=7, desired=9),
            conditions=tuple(replace(c, message="forged", observed_generation=99) for c in before.conditions),
        )
    )
    pods = {o.pod.uid for o in living.world.pods.values()}
    writes = len(living.world.writes)
    living.settle()
    after = living.world.job(key).status
    assert after is not None
    assert replace(after, last_resize=None) == replace(before, last_resize=None)
    assert {o.pod.uid for o in living.world.pods.values()} == pods
    assert len([w for w in living.world.writes[writes:] if type(w).__name__ == "PatchStatus"]) == 1


@pytest.mark.parametrize("name", ["done", "failed", "invalid"])
def test_the_status_of_a_finished_job_is_corrected_too(living: Living, name: str) -> None:
    key = JobKey("default", name)
    before = living.world.job(key).status
    for fields in ({"phase": JobPhase.RUNNING}, {"completion_s": None}, {"reason": "Forged", "conditions": ()}):
        living.do(methodcaller("forge", key, **fields))
        living.settle()
        after = living.world.job(key).status
        assert after is not None
        assert before is not None
        assert (after.phase, after.failures, after.completion_s is None) == (before.phase, before.failures, False)
        assert [c.status for c in after.conditions] == [c.status for c in before.conditions]


def test_a_quiet_cluster_stays_quiet_after_every_response_was_lost(living: Living) -> None:
    living.world.fault = lambda action: (True, Outcome(action, Result.FAILED, "Timeout", "no answer"))
    living.do(lambda w: w.edit(JobKey("default", "elastic"), max_trainers=3))
    living.step()
    living.world.fault = lambda _: None
    living.settle()
    living.access.effects.clear()
    living.run(run_for(living, 120))
    assert living.access.effects == []
    assert len(living.world.job(JobKey("default", "elastic")).live_trainers) == 3


def test_a_pod_whose_creation_was_not_answered_is_created_once(living: Living) -> None:
    def lost(action: Action) -> tuple[bool, Outcome] | None:
        is_creation = isinstance(action, CreatePod)
        return (True, Outcome(action, Result.FAILED, "Timeout", "no answer")) if is_creation else None

    living.world.fault = lost
    living.do(methodcaller("add", job("new")))
    for _ in range(3):
        living.step()
    created = [write for write in living.world.writes if isinstance(write, CreatePod) and write.job.name == "new"]
    assert sorted((write.role, write.index) for write in created) == [
        (Role.MASTER, 0),
        (Role.PSERVER, 0),
        (Role.PSERVER, 1),
        *((Role.TRAINER, index) for index in range(4)),
    ]


async def run_for(living: Living, duration_s: float) -> None:
    async with at_work(living.controller):
        await asyncio.sleep(duration_s)
