"""Which trainers are deleted in one request, whose grace period says why, and which are marked first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.pod_actions import delete
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job, RolePolicy
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import Reason
from tests.worlds.builders import make_job

SERVING = Reason.SERVING_NEEDS_ROOM.value
NOBODY: frozenset[str] = frozenset()


def on_evictions(action: JobAction) -> dict[str, Any]:
    """Fields of a job that does this if a trainer is evicted."""
    return {"policies": (RolePolicy(Role.TRAINER, JobEvent.POD_EVICTED, action),)}


def job_with(grace_s: int = 30, **fields: Any) -> Job:
    """A job of two trainers, whose pods have so long to end."""
    job = make_job("a", trainers=2, on=("n1", "n2"))
    return replace(job, pods=tuple(replace(pod, grace_s=grace_s) for pod in job.pods), **fields)


def grace_of(job: Job, intent: str = SERVING, unreachable: frozenset[str] = NOBODY, **pod: Any) -> int | None:
    """The grace period of the deletion of the first trainer, if that says why; else None: the pod is marked first."""
    (action,) = delete([replace(job.pods[0], **pod)], job, intent, unreachable)
    return action.grace_s


def test_a_trainer_is_deleted_for_serving_in_one_request() -> None:
    assert grace_of(job_with()) == 29
    assert grace_of(job_with(120)) == 119
    assert grace_of(job_with(**on_evictions(JobAction.RESTART_POD))) == 29


@pytest.mark.parametrize("intent", [Reason.INSUFFICIENT_CAPACITY.value, Reason.SUSPENDED.value, "Moved"])
def test_a_trainer_is_marked_for_any_other_reason(intent: str) -> None:
    assert grace_of(job_with(), intent) is None


def test_a_trainer_is_marked_if_its_job_does_not_treat_an_eviction_like_a_deletion_by_edl() -> None:
    assert grace_of(job_with(**on_evictions(JobAction.RESTART_JOB))) is None
    assert grace_of(job_with(**on_evictions(JobAction.ABORT_JOB))) is None
    assert grace_of(job_with(fault_tolerant=False)) is None


def test_a_pod_without_a_grace_period_of_its_own_is_marked() -> None:
    assert grace_of(job_with(0)) is None
    assert grace_of(job_with(1)) is None
    assert grace_of(job_with(), node="", phase=PodPhase.PENDING) is None
    assert grace_of(job_with(), phase=PodPhase.PENDING) is None
    assert grace_of(job_with(), role=Role.PSERVER) is None


def test_a_pod_with_an_intent_keeps_it() -> None:
    job = job_with()
    (action,) = delete([replace(job.pods[0], intent="Moved")], job, SERVING, NOBODY)
    assert (action.intent, action.marked, action.grace_s) == ("Moved", True, None)


def test_an_unreachable_pod_is_deleted_by_force() -> None:
    job = job_with()
    (action,) = delete([replace(job.pods[0], terminating=True)], job, SERVING, frozenset({job.pods[0].uid}))
    assert (action.force, action.grace_s) == (True, None)
