"""Pinned counts that do not fit: as with a Deployment, what runs stays, and the rest waits.

`kubectl scale` pins the number of trainers of a job. If so many fit, beside the minimums of the other jobs, the job
has exactly that many. If they do not, it has as many as fit, and at least its own minimum. That number is found by
further plans, from what the job has now upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.planner.admission.admit import seniority
from edl.planner.scores import admitted


class _Made(Protocol):
    """The series of plans to which a plan belongs."""

    @property
    def plan(self) -> ScalePlan:
        """The plan."""


T = TypeVar("T", bound=_Made)
_Floors = Mapping[JobKey, int]


def with_pins_that_fit(
    snapshot: ClusterSnapshot, make: Callable[[ClusterSnapshot], T], has_time: Callable[[], bool]
) -> T:
    """Make plans until each pinned job has as many of its trainers as fit.

    Args:
        snapshot: the cluster.
        make: makes a plan.
        has_time: False once no further plan is to be made; the next decision goes on from what runs then.

    Raises:
        PlanError: the first plan cannot be made.
    """
    made = first = make(snapshot)
    pinned = [job for job in snapshot.jobs if may_have_fewer(job)]
    if not (unmet := [job for job in pinned if not _admits(made, job)]):
        return made

    def make_with(floors: _Floors) -> T:
        jobs = tuple(replace(job, pin_floor=floors.get(job.key, job.pin_floor)) for job in snapshot.jobs)
        return make(replace(snapshot, jobs=jobs))

    floors: dict[JobKey, int] = {}
    try:
        while more := [job for job in unmet if job.key not in floors]:
            floors |= {job.key: _as_it_runs(job) for job in more}
            made = make_with(floors)
            unmet += [job for job in pinned if job not in unmet and not _admits(made, job)]
        if lost := [job for job in unmet if floors[job.key] > job.min_trainers and not _admits(made, job)]:
            floors |= {job.key: job.min_trainers for job in lost}
            made = make_with(floors)
        if _is_better(snapshot, made, first):
            for job in sorted(unmet, key=lambda job: job.turn):
                made = _with_most(job, made, floors, make_with, has_time)
    except PlanError:  # out of time: what was found so far is good
        pass
    return made if _is_better(snapshot, made, first) else first  # more jobs are tried with them, so others may lack


def _with_most(
    job: Job, made: T, floors: dict[JobKey, int], make_with: Callable[[_Floors], T], has_time: Callable[[], bool]
) -> T:
    """Find the plan with the most trainers for a job in which every job that ran in the plan before still runs.

    Args:
        job: pinned to a count that does not fit.
        made: the plan to improve.
        floors: the least counts of all such jobs; that of this one is set.
        make_with: makes a plan with such counts.
        has_time: see `with_pins_that_fit`.
    """
    if not _admits(made, job):
        return made
    floors[job.key], step, is_growing = _target(made, job), 1, True
    while step and has_time():
        wanted = floors[job.key] + step
        found = make_with({**floors, job.key: wanted}) if wanted < job.pinned else None
        if found is not None and admitted(found.plan) >= admitted(made.plan):
            made, floors[job.key] = found, max(wanted, _target(found, job))
            step = step * 2 if is_growing else step // 2
        else:
            step, is_growing = step // 2, False
    return made


def _is_better(snapshot: ClusterSnapshot, found: _Made, than: _Made) -> bool:
    """Return True if `found` admits the first job, in the order of admission, on which the two plans differ."""
    ranked = sorted(
        snapshot.jobs, key=lambda job: (*(-part for part in job.rank), not job.was_admitted, *seniority(job))
    )
    here, there = admitted(found.plan), admitted(than.plan)
    return [job.key in here for job in ranked] > [job.key in there for job in ranked]


def may_have_fewer(job: Job) -> bool:
    """True if a job is pinned to a count, and runs with fewer trainers if so many do not fit."""
    return job.is_schedulable and job.pinned > job.min_trainers


def _as_it_runs(job: Job) -> int:
    return min(job.pinned, max(job.min_trainers, len(job.live_trainers)))


def _admits(made: _Made, job: Job) -> bool:
    return job.key in admitted(made.plan)


def _target(made: _Made, job: Job) -> int:
    return next(decision.target for decision in made.plan.decisions if decision.job == job.key)
