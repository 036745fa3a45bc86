"""A job as it will be once its writes have succeeded, and what is foreseen of a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edl.controller.assumed import UID_OF_ASSUMED, as_if_done, is_foreseen
from edl.model.actions import CreatePod, DeletePod
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU
from edl.model.status import JobPhase, JobStatus
from tests.worlds.builders import make_job

JOB = replace(make_job("a", trainers=3, on=("n000",)), status=JobStatus(JobPhase.RUNNING))
PENDING = replace(JOB.pods[2], phase=PodPhase.PENDING, node="", ready=False, started_s=None)
STARTING = replace(JOB, pods=(*JOB.pods[:2], PENDING))
CREATED = CreatePod(JOB.key, JOB.uid, Role.TRAINER, 3, "n001", cpu_request=0.25)
DELETED = DeletePod(JOB.key, JOB.uid, JOB.pods[0].name, JOB.pods[0].uid, "Cooldown")


def with_pod(job: Job, index: int, **fields: Any) -> Job:
    pods = list(job.pods)
    pods[index] = replace(pods[index], **fields)
    return replace(job, pods=tuple(pods))


def test_a_pod_that_is_being_created_holds_what_it_requests_on_the_node_of_the_plan() -> None:
    pod = as_if_done(JOB, [CREATED]).pods[-1]
    assert (pod.name, pod.planned, pod.is_live, pod.index) == ("a-trainer-3", "n001", True, 3)
    assert pod.uid.startswith(UID_OF_ASSUMED)
    assert pod.lent_cpu_milli == 0.75 * JOB.trainer.request[CPU]


def test_a_pod_that_is_being_deleted_terminates_and_keeps_its_capacity() -> None:
    job = as_if_done(JOB, [DELETED])
    assert [pod.terminating for pod in job.pods] == [True, False, False]
    assert job.pods[0].intent == "Cooldown"
    assert job.pods[0].node == "n000"


def test_what_the_cache_shows_already_is_not_assumed_twice() -> None:
    shown = as_if_done(JOB, [replace(CREATED, index=2)])
    assert shown.pods == JOB.pods
    assert as_if_done(JOB, []) is JOB
    gone = replace(JOB, pods=JOB.pods[1:])
    assert as_if_done(gone, [DELETED]).pods == gone.pods


def new_pod(name: str = "a-trainer-3") -> Pod:
    return replace(PENDING, name=name, uid=f"uid-{name}", index=3)


FORESEEN: dict[str, Callable[[], tuple[Job, Job]]] = {
    "nothing": lambda: (JOB, JOB),
    "a pod was bound": lambda: (STARTING, with_pod(STARTING, 2, node="n000")),
    "a pod runs": lambda: (STARTING, with_pod(STARTING, 2, node="n000", phase=PodPhase.RUNNING, started_s=5.0)),
    "a container began": lambda: (STARTING, with_pod(STARTING, 2, node="n000", started_s=5.0, begun=True)),
    "a pod is not ready": lambda: (JOB, with_pod(JOB, 0, ready=False)),
    "a pod that was created is there": lambda: (JOB, replace(JOB, pods=(*JOB.pods, new_pod()))),
    "a pod that was deleted terminates": lambda: (JOB, with_pod(JOB, 0, terminating=True, intent="Cooldown")),
    "a pod that was deleted is gone": lambda: (JOB, replace(JOB, pods=JOB.pods[1:])),
}
UNFORESEEN: dict[str, Callable[[], tuple[Job, Job]]] = {
    "its spec": lambda: (JOB, replace(JOB, max_trainers=4)),
    "its generation": lambda: (JOB, replace(JOB, generation=2)),
    "its status": lambda: (JOB, replace(JOB, status=JobStatus(JobPhase.SCALING))),
    "it is being deleted": lambda: (JOB, replace(JOB, deleting=True)),
    "a pod failed": lambda: (JOB, with_pod(JOB, 1, phase=PodPhase.FAILED, exit_code=1)),
    "a pod succeeded": lambda: (JOB, with_pod(JOB, 1, phase=PodPhase.SUCCEEDED, exit_code=0)),
    "a pod was evicted": lambda: (JOB, with_pod(JOB, 1, terminating=True, disruption="PreemptionByScheduler")),
    "another pod is gone": lambda: (JOB, replace(JOB, pods=JOB.pods[:2])),
    "another pod came": lambda: (JOB, replace(JOB, pods=(*JOB.pods, new_pod("a-trainer-7")))),
    "kube-scheduler has no capacity": lambda: (STARTING, with_pod(STARTING, 2, tried=True, answered_s=5.0)),
    "a pod has the name of another": lambda: (JOB, with_pod(JOB, 1, uid="another")),
}


@pytest.mark.parametrize("what", FORESEEN)
def test_what_writes_under_way_and_starting_pods_change_is_foreseen(what: str) -> None:
    before, now = FORESEEN[what]()
    assert is_foreseen(before, now, [CREATED, DELETED])


@pytest.mark.parametrize("what", UNFORESEEN)
def test_anything_else_is_a_reason_to_look_at_the_job(what: str) -> None:
    before, now = UNFORESEEN[what]()
    assert not is_foreseen(before, now, [CREATED, DELETED])
