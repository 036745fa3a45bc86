"""A job that waits for pods that do not end says so: a dead node or a finalizer holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from edl.lifecycle.trials.unended import unended_problem
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import OVERDUE_S
from edl.model.status import JobPhase
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living
from tests.worlds.simulated_objects import now_s

A = JobKey("default", "a")
MASTER = (FixedPods(Role.MASTER, make_shape(0.05, 0.1), 1),)


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(3, cpu=4), runs=True)) as made:
        yield made


def spend(living: Living, seconds: int) -> None:
    for _ in range(seconds // 3):
        living.step(1.0)


def told(living: Living) -> tuple[JobPhase, str, str]:
    """Phase, reason and explanation of the job, or what Degraded says if it is true."""
    status = living.status_of(A)
    degraded = status.condition("Degraded")
    is_degraded = degraded is not None and degraded.status == "True"
    return status.phase, status.reason, degraded.message if degraded and is_degraded else status.explanation


def loses_its_node(world: World, node: str) -> None:
    """The node answers no more, and the taint manager deletes its pods."""
    world.nodes[node] = replace(world.nodes[node], ready=False)
    for owned in list(world.pods.values()):
        if owned.pod.node == node:
            gone = replace(owned.pod, terminating=True, ready=False, ends_by_s=now_s() + 30.0)
            world._put_pod(replace(owned, pod=replace(gone, disruption="DeletionByTaintManager")))


def are_deleted_by_force(world: World) -> None:
    for key, owned in list(world.pods.items()):
        if owned.pod.terminating:
            world._drop_pod(*key)


def test_a_gang_whose_node_is_lost_names_the_pods_that_it_waits_for(living: Living) -> None:
    living.do(lambda world: world.add(replace(make_job("a", min_trainers=6, max_trainers=6), fault_tolerant=False)))
    spend(living, 30)
    assert told(living) == (JobPhase.RUNNING, "AtMax", "6 of 6: at its maximum")
    living.do(lambda world: loses_its_node(world, "n000"))
    spend(living, 120)
    phase, reason, message = told(living)
    assert (phase, reason, living.trainers(A)) == (JobPhase.CREATING, "PodsDoNotEnd", 0)
    assert message == (
        "a-trainer-0, a-trainer-1, a-trainer-2 and 1 more pod have been deleted, but not ended (a-trainer-0 is on"
        " node n000), and the job waits for that: remove the finalizer, or, once the node is off for certain,"
        " `kubectl delete pod a-trainer-0 --force`"
    )
    assert living.status_of(A).explanation == "it starts once the pods of its last run have ended"
    writes = len(living.world.writes)
    spend(living, 120)
    assert len(living.world.writes) == writes, "it says so once"
    living.do(are_deleted_by_force)
    spend(living, 30)
    assert told(living) == (JobPhase.RUNNING, "AtMax", "6 of 6: at its maximum")


@pytest.mark.parametrize(
    ("fault_tolerant", "role", "is_told"),
    [(True, Role.MASTER, True), (True, Role.TRAINER, False), (False, Role.TRAINER, True)],
)
@pytest.mark.parametrize(("late_s", "unreachable"), [(OVERDUE_S - 1.0, False), (OVERDUE_S, False), (OVERDUE_S, True)])
def test_a_job_waits_for_what_has_the_names_of_its_new_pods(
    fault_tolerant: bool, role: Role, is_told: bool, late_s: float, unreachable: bool
) -> None:
    job = replace(make_job("a", trainers=2, on=("n000",), fixed=MASTER), fault_tolerant=fault_tolerant)
    job = with_master(job)
    pods = tuple(replace(pod, terminating=True, ends_by_s=1000.0) if pod.role is role else pod for pod in job.pods)
    held = frozenset(pod.uid for pod in pods if pod.terminating) if unreachable else frozenset()
    found = unended_problem(replace(job, pods=pods), held, 1000.0 + late_s)
    assert (found is not None) is (is_told and late_s >= OVERDUE_S and not unreachable)


def with_master(job: Job) -> Job:
    master = replace(job.pods[0], name="a-master-0", uid="uid-a-master-0", role=Role.MASTER, index=0)
    return replace(job, pods=(master, *job.pods))
