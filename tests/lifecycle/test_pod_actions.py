"""Which trainers are deleted in one request, and which are marked first; which new ones are of the minimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.pod_actions import create, delete
from edl.model.actions import CreatePod
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job, RolePolicy
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import Reason
from tests.worlds.builders import make_job

SERVING = Reason.SERVING_NEEDS_ROOM.value
NOBODY: frozenset[str] = frozenset()
BASE, SURPLUS = -5, -100
NO_PAUSE: frozenset[tuple[Role, int]] = frozenset()


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


def classed(minimum: int, priorities: dict[int, int]) -> Job:
    """A job of so large a minimum, whose trainers have these numbers and priorities."""
    job = make_job("a", trainers=10, min_trainers=minimum)
    pods = tuple(replace(job.pods[index], priority=priority) for index, priority in priorities.items())
    return replace(job, pods=pods)


def new_trainers(job: Job, count: int, paused: frozenset[tuple[Role, int]] = NO_PAUSE) -> dict[int, bool]:
    """The new trainers by number: True if the class of the minimum was asked for beyond what the number says."""
    actions = create(job, [(Role.TRAINER, "n1")] * count, count, paused)
    return {action.index: action.is_base for action in actions if isinstance(action, CreatePod)}


@pytest.mark.parametrize(
    ("minimum", "priorities", "expected"),
    [
        (2, {}, {0: False, 1: False, 2: False}),
        (2, {0: BASE, 1: BASE}, {2: False, 3: False, 4: False}),
        (4, {0: BASE, 1: BASE, 2: SURPLUS, 3: SURPLUS}, {4: True, 5: True, 6: False}),
        (3, {0: BASE, 1: BASE, 2: SURPLUS}, {3: True, 4: False, 5: False}),
        (2, {2: SURPLUS, 3: SURPLUS}, {0: False, 1: False, 4: False}),
        (3, {1: BASE, 2: SURPLUS, 3: SURPLUS}, {0: False, 4: True, 5: False}),
        (2, {0: -10, 1: -1000}, {2: True, 3: False, 4: False}),
        (2, {0: -10, 1: -10}, {2: False, 3: False, 4: False}),
        (2, {0: 0, 1: 0, 2: 0}, {3: False, 4: False, 5: False}),
    ],
)
def test_as_many_get_it_as_the_minimum_lacks(
    minimum: int, priorities: dict[int, int], expected: dict[int, bool]
) -> None:
    assert new_trainers(classed(minimum, priorities), 3) == expected


def leaving(job: Job, index: int) -> Job:
    """The job while one of its trainers is on its way out, as one that moves to another node is."""

    def of(pod: Pod) -> Pod:
        return replace(pod, terminating=pod.terminating or pod.index == index)

    return replace(job, pods=tuple(of(pod) for pod in job.pods))


def test_what_comes_in_place_of_a_trainer_that_moves_is_as_protected_as_it_was() -> None:
    job = leaving(classed(2, {0: BASE, 1: BASE, 2: SURPLUS}), 0)
    assert new_trainers(job, 1) == {3: True}
    assert new_trainers(leaving(job, 1), 2) == {3: True, 4: True}
    assert new_trainers(leaving(classed(2, {0: BASE, 1: BASE, 2: SURPLUS}), 2), 1) == {3: False}


def test_a_trainer_that_waits_after_a_failure_keeps_its_place_in_the_minimum() -> None:
    job = classed(2, {1: BASE, 2: SURPLUS})
    assert new_trainers(job, 2, frozenset({(Role.TRAINER, 0)})) == {3: True}


def test_masters_and_gangs_are_as_they_were() -> None:
    gang = replace(make_job("a", min_trainers=2, max_trainers=2), fault_tolerant=False, gang=True)
    assert new_trainers(gang, 2) == {0: False, 1: False}
