"""A program that deletes pods as soon as they run: edl does not feed it, and says what happens."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.trials.retries import Retries
from edl.model.actions import CreatePod
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import PodPhase
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

A = JobKey("default", "a")
SLOT = (Role.TRAINER, 1)
ELASTIC = make_job("a", min_trainers=2, max_trainers=8)
GANG = replace(make_job("a", min_trainers=4, max_trainers=4), fault_tolerant=False, backoff_limit=0)


def end_all(world: World, how: str) -> None:
    """Somebody deletes each pod that has a node."""
    for (_, name), owned in list(world.pods.items()):
        if owned.pod.is_live and owned.pod.node:
            if how == "at once":
                world.vanish(name)
            else:
                world.take_away(name, how)


@pytest.mark.parametrize("how", ["", "EvictionByEvictionAPI", "at once"])
@pytest.mark.parametrize(("job", "most"), [(ELASTIC, 60), (GANG, 40)], ids=["elastic", "gang"])
def test_pods_that_somebody_deletes_again_and_again_are_made_after_growing_pauses(
    job: Job, most: int, how: str
) -> None:
    with closing(Living(make_nodes(3, cpu=4), runs=True)) as living:
        living.do(lambda world: world.add(job))
        for _ in range(60):
            living.step(1.0)
            living.do(lambda world: end_all(world, how))
        assert sum(isinstance(write, CreatePod) for write in living.world.writes) <= most
        status = living.status_of(A)
        found = status.condition("Degraded")
        assert found is not None
        assert found.reason == status.reason == "PodDeleted", "not *at its maximum*, and *no problem*"
        assert found.message.startswith("somebody else deleted pod a-trainer-")
        for _ in range(50):
            living.step(10.0)
        assert living.trainers(A) == job.max_trainers, "once nobody deletes them"
        found = living.status_of(A).condition("Degraded")
        assert found is not None
        assert found.status == "False"


def note(retries: Retries, job: Job, now_s: float, **fields: Any) -> None:
    """Trainer 1 becomes such a pod, and the controller looks at the job."""
    fields = {"started_s": None, **fields}
    pods = tuple(replace(p, **fields) if p.index == 1 else p for p in job.pods)
    retries.note(replace(job, pods=pods), now_s, now_s)


def gone(retries: Retries, job: Job, now_s: float) -> None:
    """Trainer 1 is gone, and the controller looks at the job."""
    retries.note(replace(job, pods=tuple(p for p in job.pods if p.index != 1)), now_s, now_s)


def twice_deleted(now_s: float) -> tuple[Retries, Job]:
    """A job of whose trainer 1 somebody deleted two pods in a row, just now."""
    retries, job = Retries(), make_job("a", trainers=3, on=("n0", "n1", "n2"))
    for number in range(2):
        note(retries, job, now_s, uid=f"new-{number}", created_s=now_s)
        gone(retries, job, now_s)
    assert SLOT in retries.paused(job.uid, now_s)
    return retries, job


def test_the_first_deletion_costs_no_pause_and_the_next_ones_cost_growing_pauses() -> None:
    retries, job, now_s = Retries(), make_job("a", trainers=3, on=("n0", "n1", "n2")), 1000.0
    found = []
    for number in range(5):
        note(retries, job, now_s, uid=f"new-{number}", created_s=now_s)
        began_s = now_s = now_s + 1.0
        gone(retries, job, now_s)
        while SLOT in retries.paused(job.uid, now_s):
            now_s = retries.next_end_s(job.uid, now_s)
        found.append(now_s - began_s)
        assert (retries.problem(job) is None) is (number == 0)
    assert found == [0, 10, 20, 40, 80]


def test_a_pod_that_runs_for_a_minute_ends_the_row() -> None:
    now_s = 1000.0
    retries, job = twice_deleted(now_s)
    now_s += 10.0
    note(retries, job, now_s, uid="last", created_s=now_s - 100.0, started_s=now_s)
    assert retries.next_end_s(job.uid, now_s) == now_s + 60.0, "the controller looks again then"
    note(retries, job, now_s + 60.0, uid="last", created_s=now_s - 100.0, started_s=now_s)
    assert retries.problem(job) is None
    gone(retries, job, now_s + 61.0)
    assert SLOT not in retries.paused(job.uid, now_s + 61.0)


def test_a_pod_that_waited_for_long_and_is_deleted_once_it_runs_counts() -> None:
    now_s = 1000.0
    retries, job = twice_deleted(now_s)
    note(retries, job, now_s + 200.0, uid="late", created_s=now_s + 10.0, started_s=now_s + 200.0)
    gone(retries, job, now_s + 201.0)
    assert SLOT in retries.paused(job.uid, now_s + 201.0)


def test_a_new_spec_ends_the_pause_and_one_that_was_not_looked_at_for_long_begins_none() -> None:
    now_s = 1000.0
    retries, job = twice_deleted(now_s)
    gone(retries, replace(job, generation=job.generation + 1), now_s)
    assert SLOT not in retries.paused(job.uid, now_s)
    retries, job = twice_deleted(now_s)
    now_s += 10.0
    note(retries, job, now_s, uid="old", created_s=now_s)
    gone(retries, job, now_s + 300.0)
    assert SLOT not in retries.paused(job.uid, now_s + 300.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"terminating": True, "disruption": "PreemptionByScheduler"},
        {"terminating": True, "disruption": "DeletionByTaintManager"},
        {"phase": PodPhase.FAILED, "disruption": "TerminationByKubelet"},
        {"terminating": True, "phase": PodPhase.FAILED, "exit_code": 1},  # it failed, and somebody tidies up
        {},
    ],
)
def test_what_edl_kube_scheduler_or_a_node_ends_is_no_deletion_by_others(fields: dict[str, Any]) -> None:
    retries, job, now_s = Retries(), make_job("a", trainers=3, on=("n0", "n1", "n2")), 1000.0
    for number in range(3):
        uid = f"new-{number}"
        note(retries, job, now_s, uid=uid, created_s=now_s)
        if fields:
            note(retries, job, now_s, uid=uid, created_s=now_s, **fields)
        else:
            retries.expect_end(job.uid, [uid])
        gone(retries, job, now_s)
    assert retries.problem(job) is None
