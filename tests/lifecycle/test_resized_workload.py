"""The count and the event of a workload whose own controller makes its pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.lifecycle.resized_workload import wanted_count, workload_actions
from edl.model.actions import EmitEvent, EventKind, ResizeWorkload
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision
from edl.model.quota_trees import KueueState
from edl.model.status import JobStatus, Reason, Resize
from tests.worlds.builders import make_job


def workload(count: int, live: int, **fields: Any) -> Job:
    job = make_job("train", trainers=live, min_trainers=2, max_trainers=8, on=("n000",))
    return replace(job, owner_count=count, **fields)


def decision(job: Job, target: int, *, reason: Reason = Reason.AT_MAX, shrink_reason: str = "") -> ScaleDecision:
    live = len(job.live_trainers)
    victims = tuple(pod.name for pod in job.live_trainers[target:])
    return ScaleDecision(
        job=job.key, generation=1, current=live, target=target, min_trainers=2, max_trainers=8, admitted=target > 0,
        reason=reason, message="why", victims=victims, shrink_reason=shrink_reason,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("count", "live", "target", "free", "wanted"),
    [
        (4, 4, 4, 0, 4),  # as it should be
        (4, 4, 6, 2, 6),  # grows into free room
        (4, 4, 6, 1, 5),  # only as far as room is free now
        (4, 4, 6, 0, 4),  # none is free yet
        (4, 4, 2, 0, 2),  # shrinks
        (6, 4, 6, 2, 6),  # the controller is still making two
        (6, 4, 6, 0, 6),  # their room is taken for now, and stays asked for
        (6, 4, 4, 0, 4),  # a growth is taken back
        (0, 0, 4, 4, 4),  # starts
        (0, 0, 4, 1, 0),  # waits until its minimum fits
        (3, 3, 0, 0, 0),  # stops
    ],
)
def test_the_count(count: int, live: int, target: int, free: int, wanted: int) -> None:
    job = workload(count, live)
    assert wanted_count(job, decision(job, target), free) == wanted


@pytest.mark.parametrize(("free", "wanted"), [(0, 4), (3, 4), (4, 8), (9, 8)])
def test_a_workload_grows_by_whole_sizes(free: int, wanted: int) -> None:
    job = workload(4, 4, sizes=(2, 4, 8))
    assert wanted_count(job, decision(job, 8), free) == wanted


@pytest.mark.parametrize(("count", "target", "wanted"), [(4, 8, 4), (4, 3, 3), (1, 8, 2)])
def test_one_of_kueue_does_not_grow_beyond_its_minimum_while_another_size_may_be_admitted(
    count: int, target: int, wanted: int
) -> None:
    job = workload(count, count, kueue=KueueState("blue", "main", reserved=count, is_pending=True))
    assert wanted_count(job, decision(job, target), 9) == wanted


@pytest.mark.parametrize(("count", "wanted"), [(4, 2), (2, 2), (1, 1), (0, 0)])
def test_one_that_must_not_be_stopped_keeps_its_minimum_and_does_not_grow_to_it(count: int, wanted: int) -> None:
    job = workload(count, count, keeps_minimum=True)
    assert wanted_count(job, decision(job, 0), 9) == wanted


def test_a_resize_comes_with_its_event_and_its_record() -> None:
    job = workload(4, 4)
    resize, event = workload_actions(job, decision(job, 2, shrink_reason="ServingNeedsRoom"), 0, 1000.7)
    victims = tuple(pod.name for pod in job.live_trainers[2:])
    assert resize == ResizeWorkload(job.key, job.uid, 4, 2, Resize(1000.0, 4, 2, "ServingNeedsRoom", None), victims)
    assert isinstance(event, EmitEvent)
    assert event.message == "edl changes the number of pods from 4 to 2: why"


def test_a_workload_that_gives_to_another_job_has_a_cooldown() -> None:
    job = workload(4, 4)
    given = decision(job, 3, reason=Reason.INSUFFICIENT_CAPACITY, shrink_reason="InsufficientCapacity")
    (resize, _) = workload_actions(job, given, 0, 1000.0)
    assert isinstance(resize, ResizeWorkload)
    assert resize.resize.voluntary_s == 1000.0
    later = replace(job, owner_count=3, status=JobStatus(last_resize=resize.resize))
    (grown, _) = workload_actions(later, decision(job, 4), 1, 1010.0)
    assert isinstance(grown, ResizeWorkload)
    assert grown.resize.voluntary_s == 1000.0, "a growth does not end the cooldown"
    forged = replace(later, status=JobStatus(last_resize=replace(resize.resize, voluntary_s=253370764800.0)))
    (grown, _) = workload_actions(forged, decision(job, 4), 1, 1010.0)
    assert isinstance(grown, ResizeWorkload)
    assert grown.resize.voluntary_s is None, "a time that its owner wrote does not last"


@pytest.mark.parametrize("state", ["suspended", "finished", "deleting"])
def test_a_workload_that_gets_nothing_is_left_alone(state: str) -> None:
    job = workload(4, 4, **{state: True})
    assert workload_actions(job, decision(job, 0), 0, 1000.0) == ()


def test_without_a_decision_the_count_stays() -> None:
    assert workload_actions(workload(4, 4), None, 5, 1000.0) == ()


def test_what_edl_does_not_resize_has_an_event_that_says_why() -> None:
    (event,) = workload_actions(workload(4, 0, problem="max-instance is missing"), None, 0, 1000.0)
    assert isinstance(event, EmitEvent)
    assert (event.reason, event.message) == (
        "NotResized",
        "edl does not resize this workload: max-instance is missing",
    )


def test_that_a_workload_finishes_is_no_warning() -> None:
    (event,) = workload_actions(workload(4, 3, problem="a pod has succeeded", finishing=True), None, 0, 1000.0)
    assert isinstance(event, EmitEvent)
    assert (event.kind, event.reason) == (EventKind.NORMAL, "Finishing")
    assert event.message == "edl resizes this workload no more: a pod has succeeded"


def test_a_workload_that_only_the_planner_cannot_count_keeps_its_pods() -> None:
    job = workload(4, 4)
    refused = replace(decision(job, 0, reason=Reason.NOT_RESIZED), message="trainer: too many tolerations")
    (event,) = workload_actions(job, refused, 0, 1000.0)
    assert isinstance(event, EmitEvent)
    assert event.message == "edl does not resize this workload: trainer: too many tolerations"
