"""Which Workloads of Kueue exist for a TrainingJob: one for its base, and one for each trainer above that.

The base is the master, the pservers and the minimum, at the priority of the job. It is there from the moment when the
job is, because Kueue decides who runs. The others follow the plan, at a low priority: made before a trainer is
created, and deleted once the pod is gone. So Kueue can take trainers back one by one. What it has taken back is
deleted, for the base released, as soon as no pod uses it any more; a job that stops leaves the queue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from edl.lifecycle.kueue.gate import (
    awaited_trainers,
    flavors_of,
    owned,
    surplus_of,
    used_trainers,
)
from edl.lifecycle.step import Stage, Step
from edl.model.actions import (
    ChangeWorkloads,
    NewWorkload,
    Report,
    ReportWorkloads,
    WorkloadAction,
    WorkloadReport,
)
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.quota_trees import KueueState, OwnedWorkload

MOST_SURPLUS = 200
"""The most Workloads above the base; a job that may grow further has several trainers in each."""
AT_ONCE = 32
"""The most Workloads that one write changes."""

Gone = tuple[tuple[str, str], ...]


def workload_actions(job: Job, step: Step, *, grows: bool = False) -> Iterator[WorkloadAction]:
    """Return the changes that a job's Workloads need now; none for a job without a queue of Kueue.

    Args:
        job: the job with its pods and its Workloads.
        step: what edl decided for the job.
        grows: by more trainers than the plan saw. A plan that is older than an eviction does not ask for them again.
    """
    state = owned(job)
    has_pods = bool(awaited_trainers(job)) or any(not pod.is_finished for pod in job.pods)
    if state is None and job.kueue is not None and job.kueue.is_owned and not (job.problem and has_pods):
        yield from _change(job, job.kueue, gone=_named(job.kueue.workloads))  # it has left Kueue, or is not valid
    if state is None or state.is_unknown or job.deleting:
        return
    base, surplus = state.base, surplus_of(state)
    if step.stage in {Stage.SUCCEEDED, Stage.FAILED}:
        if not has_pods:
            yield from _change(job, state, gone=_named(surplus))
            yield from _finished(job, step, base)
    elif step.stage is Stage.SUSPENDED:
        yield from _change(job, state, gone=() if has_pods else _named((*surplus, *([base] if base else ()))))
    elif base is None:
        ended = [one for one in state.workloads if one.is_finished]
        yield from _change(job, state, new=() if ended else _first(job, state), gone=_named(ended))
    elif base.evicted:
        if not has_pods:
            yield from _change(job, state, gone=_named(surplus))
            yield from _released(job, base)
    elif not base.is_reserved:
        stale = (base,) if base.digest != digest_of(job, state) and not has_pods else ()
        yield from _change(job, state, gone=_named((*stale, *(() if has_pods else surplus))))
    elif base.is_admitted:
        target = None if step.unplanned else step.target
        yield from _shrink(job, state, base, surplus, target)
        if target is not None and grows and not any(one.evicted for one in surplus):
            yield from _grow(job, state, base, surplus, target)
        yield from _ready(job, base, surplus)


def digest_of(job: Job, state: KueueState) -> str:
    """Hash what the base of a job asks for; a waiting base with another digest is replaced."""
    shape = (job.declared or job.trainer.request).amounts
    fixed = [(fixed.role.value, fixed.count) for fixed in job.fixed]
    whole = repr((state.local_queue, state.priority_class, job.min_trainers, sorted(shape), fixed))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _first(job: Job, state: KueueState) -> Iterator[NewWorkload]:
    """Make the base Workload of a job, and Workloads for trainers above it that run already."""
    digest = digest_of(job, state)
    yield NewWorkload(0, job.min_trainers, digest)
    lacking = len(job.live_trainers) - job.min_trainers - sum(one.trainers for one in surplus_of(state))
    yield from _new(state, lacking, _each(job), digest)


def _shrink(
    job: Job, state: KueueState, base: OwnedWorkload, surplus: Sequence[OwnedWorkload], target: int | None
) -> Iterator[WorkloadAction]:
    """Delete the Workloads that neither the plan nor a pod needs; those that Kueue evicted, as their pods end.

    A Workload that somebody has stopped stays, and the job asks for no other one in its place.
    """
    used = used_trainers(job)
    kept = [one for one in surplus if not one.evicted]
    covered = base.trainers + sum(one.trainers for one in kept if one.is_admitted)
    gone: list[OwnedWorkload] = []
    for one in surplus:
        if one.evicted:
            if used <= covered and one.is_active:
                gone.append(one)
            elif used <= covered:
                yield from _released(job, one)
            covered += one.trainers
    total = base.trainers + sum(one.trainers for one in kept)
    if target is not None:
        for one in sorted(kept, key=lambda one: (one.is_admitted, -one.index)):
            if total - one.trainers >= max(used, target):
                total -= one.trainers
                gone.append(one)
    yield from _change(job, state, gone=_named(gone))


def _grow(
    job: Job, state: KueueState, base: OwnedWorkload, surplus: Iterable[OwnedWorkload], target: int
) -> Iterator[WorkloadAction]:
    """Ask for as many trainers as the plan wants."""
    lacking = target - base.trainers - sum(one.trainers for one in surplus)
    yield from _change(job, state, new=_new(state, lacking, _each(job), digest_of(job, state)))


def _new(state: KueueState, lacking: int, each: int, digest: str) -> Iterator[NewWorkload]:
    """Make Workloads for a number of trainers, under the lowest free indexes."""
    used = {one.index for one in state.workloads}
    index = 0
    while lacking > 0:
        index += 1
        if index not in used:
            yield NewWorkload(index, each, digest)
            lacking -= each


def _each(job: Job) -> int:
    """How many trainers each Workload above the base covers: more than one for jobs with very many trainers."""
    return max(1, -(-(job.max_trainers - job.min_trainers) // MOST_SURPLUS))


def _change(
    job: Job, state: KueueState, *, new: Iterable[NewWorkload] = (), gone: Gone = ()
) -> Iterator[ChangeWorkloads]:
    some, fewer = tuple(new)[:AT_ONCE], gone[:AT_ONCE]
    if some or fewer:
        flavors = flavors_of(job, Role.TRAINER)
        yield ChangeWorkloads(job.key, job.uid, state.local_queue, state.priority_class, flavors, some, fewer)


def _ready(job: Job, base: OwnedWorkload, surplus: Sequence[OwnedWorkload]) -> Iterator[ReportWorkloads]:
    """Tell Kueue which admitted Workloads have all their pods ready; those that it knows to be ready come first."""
    ready = sum(pod.ready for pod in job.live_trainers)
    fixed = all(sum(p.role is f.role and p.ready and p.is_live for p in job.pods) >= f.count for f in job.fixed)
    if not fixed:
        return
    found = []
    for one in (base, *sorted(surplus, key=lambda one: (not one.is_ready, one.index))):
        if not one.is_admitted or one.evicted:
            continue
        ready -= one.trainers
        if ready < 0:
            break
        if not one.is_ready:
            found.append(WorkloadReport(one.name, one.uid, Report.READY))
    if found:
        yield ReportWorkloads(job.key, job.uid, tuple(found[:AT_ONCE]))


def _released(job: Job, one: OwnedWorkload) -> Iterator[ReportWorkloads]:
    """Tell Kueue that an evicted Workload has no pods any more, so that it may admit others, and this one again."""
    if one.is_reserved:
        report = WorkloadReport(one.name, one.uid, Report.RELEASED, one.evicted, one.message)
        yield ReportWorkloads(job.key, job.uid, (report,))


def _finished(job: Job, step: Step, base: OwnedWorkload | None) -> Iterator[ReportWorkloads]:
    if base is not None:
        reason = "Succeeded" if step.stage is Stage.SUCCEEDED else "Failed"
        report = WorkloadReport(base.name, base.uid, Report.FINISHED, reason, step.message)
        yield ReportWorkloads(job.key, job.uid, (report,))


def _named(workloads: Iterable[OwnedWorkload]) -> Gone:
    return tuple((one.name, one.uid) for one in workloads)
