"""Jobs with the real planner and the real controller in virtual time: pins, tiers, deletions, order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, Outcome, Result
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, SharingLimits
from edl.model.names import JobKey, Role
from edl.model.status import JobPhase, JobStatus
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 2))
A, B = JobKey("default", "a"), JobKey("default", "b")


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(2, cpu=6))) as made:
        yield made


def elastic(name: str = "a", min_trainers: int = 2, max_trainers: int = 6, **fields: Any) -> Job:
    return replace(make_job(name, min_trainers=min_trainers, max_trainers=max_trainers), **{"fixed": FIXED, **fields})


def gang(name: str, size: int, **fields: Any) -> Job:
    return replace(make_job(name, min_trainers=size, max_trainers=size), fault_tolerant=False, **fields)


def enter(living: Living, *jobs: Job) -> None:
    for job in jobs:
        living.do(partial(World.add, job=job))
        living.settle()


def status_of(living: Living, key: JobKey) -> JobStatus:
    status = living.world.job(key).status
    assert status is not None
    return status


def test_a_pinned_count_is_kept_until_the_pin_is_removed(living: Living) -> None:
    enter(living, elastic())
    assert len(living.world.job(A).live_trainers) == 6
    living.do(lambda w: w.edit(A, pinned=3))
    living.settle()
    assert len(living.world.job(A).live_trainers) == 3
    assert (status_of(living, A).reason, status_of(living, A).failures) == ("Pinned", 0)
    living.world.vanish("a-trainer-0")
    living.settle()
    assert len(living.world.job(A).live_trainers) == 3
    living.do(lambda w: w.edit(A, pinned=0))
    living.wait(120)
    living.settle()
    assert len(living.world.job(A).live_trainers) == 6


def test_a_gang_of_a_higher_tier_replaces_a_whole_gang_until_it_is_deleted(living: Living) -> None:
    enter(living, gang("a", 8))
    assert status_of(living, A).phase is JobPhase.RUNNING
    before = {p.uid for p in living.world.job(A).pods}
    living.do(lambda w: w.add(gang("b", 6, tier=5, gang=True)))
    living.settle()
    assert status_of(living, B).phase is JobPhase.RUNNING
    assert len(living.world.job(B).live_trainers) == 6
    assert living.world.job(A).pods == (), "all of it went: half a gang is of no use"
    assert status_of(living, A).phase is JobPhase.PENDING
    living.do(lambda w: w.delete_job(B))
    living.settle()
    assert status_of(living, A).phase is JobPhase.RUNNING
    assert status_of(living, A).failures == 0
    assert not before & {p.uid for p in living.world.job(A).pods}


def test_a_gang_never_runs_in_part_while_capacity_is_freed_for_it(living: Living) -> None:
    enter(living, elastic(max_trainers=10))
    living.do(lambda w: w.add(gang("b", 6, tier=5)))
    sizes = set()
    for _ in range(20):
        living.step(1.0)
        sizes.add(len(living.world.job(B).pods))
    assert sizes == {0, 6}


def test_a_pserver_that_blocks_trainers_moves_once_the_cluster_is_quiet() -> None:
    with closing(Living(make_nodes(1), Limits(sharing=SharingLimits(consolidate_after_s=60)))) as living:
        fixed = (FixedPods(Role.PSERVER, make_shape(3), 1),)
        enter(living, replace(make_job("a", min_trainers=1, max_trainers=4, cpu=4), fixed=fixed))
        living.do(lambda w: w.nodes.update({"n001": make_node("n001")}))
        living.do(lambda w: w.serving.update({"web": make_serving("web", cpu=5, node="n001")}))
        living.settle()
        (before,) = (p for p in living.world.job(A).pods if p.role is Role.PSERVER)
        assert (before.node, len(living.world.job(A).live_trainers)) == ("n000", 1)
        living.wait(60)
        living.settle()
        (after,) = (p for p in living.world.job(A).pods if p.role is Role.PSERVER)
        assert (after.node, len(living.world.job(A).live_trainers)) == ("n001", 2)
        assert after.uid != before.uid
        assert (status_of(living, A).phase, status_of(living, A).failures) == (JobPhase.RUNNING, 0)
        assert not living.world.violations
        writes = len(living.world.writes)
        for _ in range(3):
            living.wait(60)
            living.settle()
        assert len(living.world.writes) == writes, "there is nothing more to gain"


def test_a_job_deleted_during_a_scale_up_leaves_no_pods(living: Living) -> None:
    living.do(lambda w: w.add(elastic()))
    living.round()
    assert living.world.pods
    living.world.holds_back = True
    living.do(lambda w: w.delete_job(A))
    living.round()
    living.world.holds_back = False
    living.do(World.deliver)
    for _ in range(30):
        living.step(2.0)
    assert not living.world.pods
    assert not living.world.violations


def test_a_job_created_again_with_the_same_name_gets_its_own_pods(living: Living) -> None:
    enter(living, elastic())
    old = {o.pod.uid for o in living.world.pods.values()}
    living.do(lambda w: w.delete_job(A))
    living.do(lambda w: w.add(elastic(uid="uid-second", max_trainers=3)))
    for _ in range(40):
        living.step(2.0)
    job = living.world.job(A)
    assert {o.owner for o in living.world.pods.values()} == {"uid-second"}
    assert not old & {p.uid for p in job.pods}
    assert len(job.live_trainers) == 3
    assert status_of(living, A).phase is JobPhase.RUNNING
    assert not living.world.violations, "no pod of the former job was touched"


@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED])
def test_no_trainer_starts_if_a_pserver_could_not_be_created(living: Living, result: Result) -> None:
    living.world.fault = lambda a: (
        (False, Outcome(a, result, "Forbidden", "no"))
        if isinstance(a, CreatePod) and a.role is Role.PSERVER
        else None
    )
    living.do(lambda w: w.add(elastic()))
    for _ in range(5):
        living.step(1.0)
    assert {p.role for p in living.world.job(A).pods} <= {Role.MASTER}, (
        "the master of a refused job gives its capacity back"
    )
    order: list[Role] = []

    def watch(action: Action) -> None:
        if isinstance(action, CreatePod):
            order.append(action.role)

    living.world.fault = watch
    for _ in range(20):
        living.step(2.0)
    assert status_of(living, A).phase is JobPhase.RUNNING
    assert [role for role in order if role is not Role.MASTER] == [Role.PSERVER] * 2 + [Role.TRAINER] * 6


def test_deletions_are_conditional_on_the_pod_that_was_seen(living: Living) -> None:
    """Another pod takes the name between the decision and the deletion: it stays."""
    enter(living, elastic(max_trainers=4))
    seen = living.world.pods["default", "a-trainer-3"]

    def swap(action: Action) -> None:
        if isinstance(action, DeletePod) and action.pod == "a-trainer-3":
            living.world.pods["default", "a-trainer-3"] = replace(seen, pod=replace(seen.pod, uid="somebody-else"))

    living.world.fault = swap
    living.do(lambda w: w.edit(A, max_trainers=3))
    living.round()
    assert living.world.pods["default", "a-trainer-3"].pod.terminating is False
    assert {w.pod_uid for w in living.world.writes if isinstance(w, DeletePod)} <= {seen.pod.uid}


def test_a_failure_whose_mark_is_refused_is_reported_and_counted_once_it_can_be_marked(living: Living) -> None:
    enter(living, elastic(max_trainers=3))
    living.world.finish("a-trainer-1", 1)
    living.world.fault = lambda a: (
        (False, Outcome(a, Result.REFUSED, "Forbidden", "pods is forbidden")) if isinstance(a, MarkPod) else None
    )
    for _ in range(20):
        living.step(2.0)
    assert status_of(living, A).failures == 0
    degraded = status_of(living, A).condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.message) == ("True", "pods is forbidden")
    assert [e.reason for e in living.world.events].count("Forbidden") == 1
    living.world.fault = lambda _: None
    living.wait(300)
    living.settle()
    assert status_of(living, A).failures == 1
    assert status_of(living, A).phase is JobPhase.RUNNING
