"""A node that rejects pods: they are no failures, others are tried after pauses, the node is avoided and named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from edl.model.actions import CreatePod
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import JobPhase
from tests.worlds.builders import make_job, make_node, make_nodes, make_shape
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

A = JobKey("default", "a")
WHY = "UnexpectedAdmissionError: Allocate failed due to devices unavailable"


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(3, cpu=4), runs=True)) as made:
        yield made


def rejecting(*nodes: str) -> Any:
    def fate(pod: Pod) -> dict[str, Any] | None:
        return {"phase": PodPhase.FAILED, "rejection": WHY} if pod.node in nodes else None

    return fate


def enter(living: Living, job: Job, *nodes: str) -> None:
    living.world.fate = rejecting(*nodes)
    living.do(lambda world: world.add(job))


def spend(living: Living, seconds: int) -> None:
    for _ in range(seconds // 3):
        living.step(1.0)


def created(world: World) -> int:
    return sum(isinstance(write, CreatePod) for write in world.writes)


def degraded(living: Living) -> tuple[str, str]:
    found = living.status_of(A).condition("Degraded")
    assert found is not None
    return found.reason, found.message


def gang(size: int) -> Job:
    return replace(make_job("a", min_trainers=size, max_trainers=size), fault_tolerant=False, backoff_limit=0)


def test_an_elastic_job_goes_to_other_nodes_and_names_the_one_that_rejects(living: Living) -> None:
    enter(living, replace(make_job("a", min_trainers=2, max_trainers=8), backoff_limit=0), "n000")
    spend(living, 120)
    assert living.status_of(A).failures == 0
    assert {pod.node for pod in living.world.job(A).live_trainers} == {"n001", "n002"}
    assert living.trainers(A) == 8
    assert created(living.world) <= 20


def test_the_node_that_a_job_avoids_is_named_beside_those_that_are_full(living: Living) -> None:
    enter(living, replace(make_job("a", min_trainers=2, max_trainers=12), backoff_limit=0), "n000")
    spend(living, 30)
    living.world.fate = rejecting()
    assert living.trainers(A) == 8
    assert living.status_of(A).explanation == (
        "8 of 12: cpu is full on all 2 nodes that accept its trainers; it avoids node n000, which rejected its pods"
    )
    spend(living, 200)
    assert living.status_of(A).explanation == "12 of 12: at its maximum"


def counting(sent: list[str], node: str, role: Role = Role.TRAINER) -> Any:
    """The fate of pods where a node rejects them, with a list of those of a role that were sent there."""

    def fate(pod: Pod) -> Any:
        if pod.node == node and pod.role is role and pod.uid not in sent:
            sent.append(pod.uid)
        return rejecting(node)(pod)

    return fate


def in_turn(living: Living, sent: list[str], times: int) -> list[int]:
    """How many pods are sent to the node each time that some are."""
    found = []
    for _ in range(times):
        before = len(sent)
        for _ in range(300):
            living.step(1.0)
            if len(sent) > before:
                break
        spend(living, 30)
        found.append(len(sent) - before)
    return found


def test_after_each_pause_one_trainer_is_tried_and_the_others_follow_once_it_runs(living: Living) -> None:
    sent: list[str] = []
    living.world.fate = counting(sent, "n000")
    living.do(lambda world: world.add(replace(make_job("a", min_trainers=2, max_trainers=12), backoff_limit=0)))
    assert in_turn(living, sent, 3) == [4, 1, 1]
    assert living.trainers(A) == 8
    living.world.fate = rejecting()
    for _ in range(200):
        if living.trainers(A) == 9:
            break
        living.step(1.0)
    assert living.trainers(A) == 9
    spend(living, 12)
    assert living.trainers(A) == 12


def test_pservers_are_tried_one_at_a_time_as_well(living: Living) -> None:
    sent: list[str] = []
    living.world.fate = counting(sent, "n000", Role.PSERVER)
    fixed = (FixedPods(Role.PSERVER, make_shape(1.9), 6),)
    job = make_job("a", min_trainers=1, max_trainers=1, cpu=0.1, fixed=fixed)
    living.do(lambda world: world.add(replace(job, backoff_limit=0)))
    assert in_turn(living, sent, 3) == [2, 1, 1]
    living.world.fate = rejecting()
    spend(living, 600)
    assert living.status_of(A).phase is JobPhase.RUNNING


def test_a_gang_that_needs_the_node_is_tried_whole(living: Living) -> None:
    enter(living, gang(12), "n000")
    spend(living, 60)
    assert living.status_of(A).phase is not JobPhase.RUNNING
    living.world.fate = rejecting()
    spend(living, 120)
    assert living.status_of(A).phase is JobPhase.RUNNING
    assert living.trainers(A) == 12


def test_a_gang_starts_on_the_other_nodes(living: Living) -> None:
    enter(living, gang(5), "n000")
    spend(living, 60)
    assert living.status_of(A).phase is JobPhase.RUNNING
    assert living.status_of(A).failures == 0
    assert created(living.world) <= 10


def test_where_every_node_rejects_the_attempts_become_rare_and_the_cause_is_shown(living: Living) -> None:
    enter(living, replace(make_job("a", min_trainers=1, max_trainers=2), backoff_limit=0), "n000", "n001", "n002")
    spend(living, 60)
    reason, message = degraded(living)
    assert reason == "PodRejected"
    assert WHY in message
    assert living.status_of(A).reason == "PodRejected", "not *2 of 2: at its maximum*"
    assert created(living.world) <= 6
    spend(living, 1800)
    assert living.status_of(A).phase is not JobPhase.FAILED
    assert living.status_of(A).failures == 0
    assert created(living.world) <= 14
    living.world.fate = rejecting()
    spend(living, 480)
    assert living.trainers(A) == 2
    assert degraded(living)[0] == "AsExpected"


def test_the_only_node_with_what_it_needs_is_tried_again_and_not_called_too_small() -> None:
    nodes = (*make_nodes(3, cpu=4), make_node("gpus", 4, gpu=4))
    with closing(Living(nodes, runs=True)) as living:
        job = replace(make_job("a", max_trainers=2), trainer=make_shape(1, 1, None, gpu=1))
        enter(living, job, "gpus")
        said = set()
        for _ in range(40):
            living.step(1.0)
            said.add(living.status_of(A).explanation)
        assert not [line for line in said if "largest node" in line]
        assert 3 <= created(living.world) <= 8
        assert degraded(living)[0] == "PodRejected"
        living.world.fate = rejecting()
        spend(living, 240)
        assert living.trainers(A) == 2


def test_a_master_that_is_rejected_is_tried_again(living: Living) -> None:
    job = make_job("a", min_trainers=1, max_trainers=2, fixed=(FixedPods(Role.MASTER, make_shape(0.25), 1),))
    rejected: list[str] = []

    def twice(pod: Pod) -> dict[str, Any] | None:
        if pod.role is not Role.MASTER or (pod.uid not in rejected and len(rejected) == 2):
            return None
        rejected.append(pod.uid)
        return {"phase": PodPhase.FAILED, "rejection": "OutOfcpu"}

    living.world.fate = twice
    living.do(lambda world: world.add(replace(job, backoff_limit=0)))
    spend(living, 60)
    assert len(rejected) == 2
    assert living.status_of(A).phase is JobPhase.RUNNING
    assert living.status_of(A).failures == 0


@pytest.mark.parametrize("role", [Role.MASTER, Role.PSERVER])
def test_a_master_or_pserver_leaves_a_node_that_always_rejects_it(living: Living, role: Role) -> None:
    job = make_job("a", min_trainers=1, max_trainers=2, fixed=(FixedPods(role, make_shape(0.25), 1),))
    enter(living, job, "n000")
    spend(living, 120)
    assert living.status_of(A).phase is JobPhase.RUNNING
    assert {pod.node for pod in living.world.job(A).pods if pod.role is role} <= {"n001", "n002"}
    assert created(living.world) <= 8
