"""Pinned counts that do not fit: as with a Deployment, what runs stays, and the rest waits.

`kubectl scale` pins the number of trainers of a job. If so many fit, beside the minimums of the other jobs, the job
has exactly that many. If they do not, it has as many as fit, and at least its own minimum. Jobs are admitted once
more with what runs of it. From there upwards, packings of those who run then find the number.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.sizes import above, at_most
from edl.planner.admission.admit import Admission, seniority
from edl.planner.admission.repacking import with_repacking
from edl.planner.admission.trial import AdmissionTrial
from edl.planner.minimums.batches import Served
from edl.planner.problem import JobDemand, Problem

COUNTS_BY = 0.4
"""The part of the deadline by which counts are tried of pinned jobs whose counts do not fit."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who runs.

    Attributes:
        problem: the arrays, maximums capped; a pinned job that has fewer trainers has its `pin_floor` there.
        served: what serving pods get.
        admission: the jobs that run, with their packing.
        trial: what is known from the trials; None if there was no time for them.
        may_grow: False if free capacity is to be left to others.
    """

    problem: Problem
    served: Served
    admission: Admission
    trial: AdmissionTrial | None = None
    may_grow: bool = True

    @property
    def keys(self) -> frozenset[JobKey]:
        """The jobs that run."""
        return frozenset(self.problem.demands[j].job.key for j in self.admission.packing.members)

    def applied_to(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the snapshot in which pinned jobs that have fewer trainers have their `pin_floor`."""
        changed = {demand.job.key: demand.job for demand in self.problem.demands if demand.job.pin_floor}
        jobs = tuple(changed.get(job.key, job) for job in snapshot.jobs)
        return replace(snapshot, jobs=jobs) if changed else snapshot


def with_pins_that_fit(
    snapshot: ClusterSnapshot, pinned: Container[JobKey], admit_all: Callable[[ClusterSnapshot], Admitted]
) -> Admitted:
    """Admit each pinned job with its count or, if that does not fit, with as many trainers as fit.

    If there is no time to try further counts, the next decision goes on from what runs then.

    Args:
        snapshot: the cluster.
        pinned: the jobs that may have fewer; see `may_have_fewer`.
        admit_all: says who runs in a cluster.

    Raises:
        PlanError: there is no time to read the cluster.
    """
    found = first = admit_all(snapshot)
    floors: dict[JobKey, int] = {}
    try:
        while lower := _lowered(found, pinned, floors):
            floors |= lower
            jobs = tuple(replace(job, pin_floor=floors.get(job.key, job.pin_floor)) for job in snapshot.jobs)
            found = admit_all(replace(snapshot, jobs=jobs))
    except PlanError:  # out of time: what was found so far is good
        pass
    if not _is_better(found, first):  # more jobs are tried with them, so others may lack
        found, floors = first, {}
    found = _repacked(found)
    found.problem.clock.allow(COUNTS_BY)
    for demand in sorted(found.problem.demands, key=lambda demand: demand.job.turn):
        if demand.job.key in floors and demand.index in found.admission.packing.count:
            found = _with_most(found, demand)
    return found


def may_have_fewer(job: Job) -> bool:
    """True if a job is pinned to a count, and runs with fewer trainers if so many do not fit."""
    return job.is_schedulable and job.pinned > job.min_trainers and not job.pin_floor


def as_it_runs(job: Job) -> int:
    """The trainers that a pinned job has now, as far as it may have so many, and its minimum at least."""
    return max(job.min_trainers, at_most(job.sizes, min(job.pinned, len(job.live_trainers))))


def _lowered(found: Admitted, pinned: Container[JobKey], floors: Mapping[JobKey, int]) -> dict[JobKey, int]:
    """Lower the floors of pinned jobs that do not run: to what runs of them first, then to their minimums."""
    lower = {}
    for demand in found.problem.demands:
        job = demand.job
        if job.key in pinned and demand.index not in found.admission.packing.count:
            floor = job.min_trainers if job.key in floors else as_it_runs(job)
            if floor != floors.get(job.key) and _may_run(found, demand.index):
                lower[job.key] = floor
    return lower


def _may_run(made: Admitted, j: int) -> bool:
    """False if a bound proves that a pinned job cannot run with its minimum beside those that come before it."""
    if made.trial is None:
        return True
    problem = _floored(made.problem, j, made.problem.demands[j].job.min_trainers)
    turn = _turn(problem.demands[j].job)
    before = tuple(k for k in made.admission.packing.members if _turn(problem.demands[k].job) < turn)
    try:
        return AdmissionTrial(problem, made.served, problem.limits.deadline_s).may_fit(before, j)
    except PlanError:  # no bound proves it
        return True


def _repacked(made: Admitted) -> Admitted:
    """Look once more at the first jobs that wait, now that all who run are known."""
    if made.trial is None:
        return made
    head = dict(made.admission.head)
    packing = with_repacking(made.trial, made.admission.packing, head, made.admission.short)
    return replace(made, admission=replace(made.admission, packing=packing, head=head))


def _with_most(made: Admitted, demand: JobDemand) -> Admitted:
    """Admit a pinned job that runs with the most trainers for which a packing of all that run is found."""
    sizes, floor, most, step, is_growing = demand.job.sizes, demand.min_trainers, demand.max_trainers, 1, True
    while step and not made.problem.clock.is_over:
        wanted = max(at_most(sizes, floor + step), above(sizes, floor))
        found = _with_floor(made, demand.index, wanted) if floor < wanted <= most else None
        if found is not None:
            made, floor = found, wanted
            step = step * 2 if is_growing else step // 2
        else:
            most, step, is_growing = min(most, wanted - 1), step // 2, False
    return made


def _with_floor(made: Admitted, j: int, floor: int) -> Admitted | None:
    """Admit a job with so many trainers beside all others that run; None if no packing of them is found."""
    problem = _floored(made.problem, j, floor)
    try:
        trial = AdmissionTrial(problem, made.served, problem.limits.deadline_s)
        packing = trial.packing_of(made.admission.packing.members)
    except PlanError:  # the count found before is good
        return None
    if packing is None:
        return None
    return replace(made, problem=problem, admission=replace(made.admission, packing=packing))


def _floored(problem: Problem, j: int, floor: int) -> Problem:
    """The problem in which a pinned job has so many trainers at least."""
    demand = problem.demands[j]
    changed = replace(demand, job=replace(demand.job, pin_floor=floor), min_trainers=floor)
    jobs = tuple(changed.job if job.key == changed.job.key else job for job in problem.snapshot.jobs)
    demands = (*problem.demands[:j], changed, *problem.demands[j + 1 :])
    return replace(problem, snapshot=replace(problem.snapshot, jobs=jobs), demands=demands)


def _is_better(found: Admitted, than: Admitted) -> bool:
    """True if the first job, in the order of admission, that only one of two admissions has is one of this one."""
    ranked = sorted((demand.job for demand in than.problem.demands), key=_turn)
    here, there = found.keys, than.keys
    return [job.key in here for job in ranked] > [job.key in there for job in ranked]


def _turn(job: Job) -> tuple[object, ...]:
    """Sort key: the order of admission."""
    return (*(-part for part in job.rank), not job.was_admitted, *seniority(job))
