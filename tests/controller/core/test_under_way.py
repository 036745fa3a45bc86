"""Creations whose answer was lost: sent again while the job has a place for them, and forgotten else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.under_way import UnderWay
from edl.model.actions import CreatePod, Outcome, Result
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import PodPhase
from tests.worlds.builders import make_job

ELASTIC = make_job("a", trainers=2, min_trainers=1, max_trainers=4, on=("n000",))
GANG = make_job("a", trainers=2, min_trainers=3, max_trainers=3, on=("n000",))


def again(job: Job) -> list[str]:
    """The pods whose creation is sent again, after the answers of those of trainers 2 and 3 were lost."""
    lost = UnderWay()
    for index in (2, 3)[: job.max_trainers - 2]:
        action = CreatePod(job.key, job.uid, Role.TRAINER, index, "n000")
        lost.answered(action, Outcome(action, Result.FAILED))
    return [action.pod_name for action in lost.repeats(job, ())]


def with_last(job: Job, phase: PodPhase = PodPhase.RUNNING, *, terminating: bool = False) -> Job:
    first, last = job.pods
    return replace(job, pods=(first, replace(last, phase=phase, terminating=terminating)))


def test_they_are_sent_again() -> None:
    assert again(ELASTIC) == ["a-trainer-2", "a-trainer-3"]
    assert again(GANG) == ["a-trainer-2"]


@pytest.mark.parametrize(("phase", "terminating"), [(PodPhase.FAILED, False), (PodPhase.RUNNING, True)])
def test_those_of_a_gang_whose_run_ends_are_forgotten(phase: PodPhase, *, terminating: bool) -> None:
    assert again(with_last(replace(GANG, fault_tolerant=False), phase, terminating=terminating)) == []
    assert again(with_last(ELASTIC, phase, terminating=terminating)) == ["a-trainer-2", "a-trainer-3"]


def test_those_of_a_job_that_is_suspended_are_forgotten() -> None:
    assert again(replace(ELASTIC, suspended=True)) == []
