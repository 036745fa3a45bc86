"""Which pods require their planned node, and what happens if kube-scheduler does not bind them to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.node_pinning import (
    MAX_NODES_WITHOUT_PINNING,
    REFUSED_AFTER_S,
    UNPINNED_S,
    note_unpinned,
    pin,
    refused_pods,
)
from edl.model.actions import CreatePod, DeletePod, EnsureService
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.simulated_controller import Living

KEY = JobKey("default", "job")
NEW = CreatePod(KEY, "uid", Role.TRAINER, 0, node="n007")
MANY = MAX_NODES_WITHOUT_PINNING + 1


def waiting(**fields: Any) -> Pod:
    pod = Pod("default", "job-trainer-0", "p", make_shape(), planned="n007", pinned=True, job=KEY, role=Role.TRAINER)
    return replace(pod, **{"tried": True, "answered_s": 100.0, **fields})


def job_of(*pods: Pod) -> Job:
    return replace(make_job("job"), pods=pods)


def test_pods_are_pinned_only_in_clusters_that_kube_scheduler_searches_in_part() -> None:
    service = EnsureService(KEY, "uid")
    assert pin((service, NEW), MAX_NODES_WITHOUT_PINNING, {}) == (service, NEW)
    assert pin((service, NEW), MANY, {}) == (service, replace(NEW, pinned=True))


def test_a_pod_without_a_planned_node_is_not_pinned() -> None:
    nowhere = replace(NEW, node=None)
    assert pin((nowhere,), MANY, {}) == (nowhere,)


@pytest.mark.parametrize(
    ("pod", "now_s", "is_refused"),
    [
        (waiting(), 100.0 + REFUSED_AFTER_S, True),
        (waiting(), 99.9 + REFUSED_AFTER_S, False),
        (waiting(pinned=False), 500.0, False),
        (waiting(tried=False, answered_s=None), 500.0, False),
        (waiting(node="n007"), 500.0, False),
        (waiting(terminating=True), 500.0, False),
    ],
)
def test_a_pod_counts_as_refused_after_some_seconds_without_a_node(pod: Pod, now_s: float, is_refused: bool) -> None:
    assert refused_pods(job_of(pod), now_s) == ([pod] if is_refused else [])


def test_only_the_successor_of_a_refused_pod_is_unpinned_for_a_while() -> None:
    job = job_of(waiting())
    unpinned = note_unpinned({}, job, time_s=200.0, now_s=10.0)
    successor, other = (CreatePod(KEY, job.uid, Role.TRAINER, i, node="n007") for i in (0, 1))
    assert pin((successor, other), MANY, unpinned) == (successor, replace(other, pinned=True))

    def later(now_s: float) -> dict[tuple[str, str], float]:
        return note_unpinned(unpinned, job_of(), time_s=200.0, now_s=now_s)

    assert pin((successor,), MANY, later(9.0 + UNPINNED_S)) == (successor,)
    assert pin((successor,), MANY, later(10.0 + UNPINNED_S)) == (replace(successor, pinned=True),)


@pytest.fixture
def large() -> Iterator[Living]:
    with closing(Living(make_nodes(MANY, cpu=2))) as made:
        yield made


def test_pods_run_on_their_planned_nodes_in_a_large_cluster(large: Living) -> None:
    large.do(lambda w: w.add(make_job("job", min_trainers=2, max_trainers=20)))
    large.settle()
    trainers = large.world.job(KEY).live_trainers
    assert len(trainers) == 20
    assert all(pod.pinned and pod.node == pod.planned for pod in trainers)


@pytest.mark.parametrize("fault_tolerant", [True, False])
def test_a_node_that_takes_no_pod_keeps_no_job_waiting(large: Living, *, fault_tolerant: bool) -> None:
    """Half of the nodes take no pod, as if a volume were in another zone; all trainers run on the others."""
    job = make_job("job", min_trainers=8, max_trainers=8, cpu=2)
    job = replace(job, fault_tolerant=fault_tolerant, fixed=(FixedPods(Role.PSERVER, make_shape(1), 1),))
    large.world.shut = {f"n{i:03}" for i in range(1, MANY // 2)}
    large.do(lambda w: w.add(job))
    large.settle()
    pods = large.world.job(KEY).pods
    assert len(pods) == 9
    assert all(pod.node and pod.node not in large.world.shut for pod in pods)
    status = large.world.job(KEY).status
    assert status is not None
    assert (status.failures, str(status.phase)) == (0, "Running")
    again = [a for a in large.world.writes if isinstance(a, DeletePod)]
    assert {a.intent for a in again} == {"Replaced"}
