"""Which trainers are the minimum of a job: those whose priority protects them best, whatever their numbers are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.jobs import Job
from tests.worlds.builders import make_job

BASE, SURPLUS = -5, -100


def job_of(minimum: int, priorities: dict[int, int]) -> Job:
    """A job of so large a minimum, whose trainers have these numbers and priorities."""
    job = make_job("a", trainers=10, min_trainers=minimum)
    pods = tuple(replace(job.pods[index], priority=priority) for index, priority in priorities.items())
    return replace(job, pods=pods)


@pytest.mark.parametrize(
    ("minimum", "priorities", "expected"),
    [
        (2, {0: BASE, 1: BASE, 2: SURPLUS, 3: SURPLUS}, {0, 1}),
        (3, {0: BASE, 1: BASE, 2: SURPLUS, 3: SURPLUS}, {0, 1, 2}),
        (4, {0: BASE, 1: BASE, 2: SURPLUS, 3: SURPLUS, 4: BASE, 5: BASE}, {0, 1, 4, 5}),
        (2, {2: SURPLUS, 3: SURPLUS, 4: SURPLUS}, {2, 3}),
        (2, {0: BASE, 2: SURPLUS, 3: SURPLUS, 4: BASE}, {0, 4}),
        (3, {5: BASE, 7: SURPLUS}, {5, 7}),
        (1, {0: BASE, 1: BASE, 2: BASE}, {0}),
        (2, {0: -10, 1: -1000, 2: -10}, {0, 2}),
        (2, {0: 0, 1: 0, 2: 0}, {0, 1}),
        (0, {0: BASE, 1: SURPLUS}, set()),
    ],
)
def test_the_best_protected_trainers_are_the_minimum(
    minimum: int, priorities: dict[int, int], expected: set[int]
) -> None:
    assert job_of(minimum, priorities).minimum_trainers == {f"a-trainer-{index}" for index in expected}


def test_a_trainer_on_its_way_out_is_none_of_them() -> None:
    job = job_of(2, {0: BASE, 1: BASE, 2: SURPLUS})
    leaving = replace(job, pods=(replace(job.pods[0], terminating=True), *job.pods[1:]))
    assert leaving.minimum_trainers == {"a-trainer-1", "a-trainer-2"}
