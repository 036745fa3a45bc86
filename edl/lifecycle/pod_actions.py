"""The pod actions of a job: who is deleted and why, who is created under which name, and what goes before whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from edl.lifecycle.data_progress import begins_epoch_again, expected_of
from edl.model.actions import (
    Action,
    CreatePod,
    DeletePod,
    EnsureClaim,
    EnsurePodGroup,
    EnsureSecret,
    EnsureService,
    Intent,
    MarkPod,
)
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod


def delete(pods: Iterable[Pod], job: Job, intent: str, lost: frozenset[str]) -> list[DeletePod]:
    """Deletions of those pods that are not on their way out, or that nobody will end but us."""
    return [
        DeletePod(
            job.key,
            job.uid,
            pod.name,
            pod.uid,
            pod.intent or (Intent.NODE_LOST.value if pod.uid in lost else intent),
            force=pod.uid in lost,
            marked=bool(pod.intent),
        )
        for pod in pods
        if not pod.terminating or pod.uid in lost
    ]


def create(job: Job, starts: Sequence[tuple[Role, str]], trainers: int) -> tuple[Action, ...]:
    """Missing masters and pservers under their own names, and that many trainers at the lowest free numbers.

    Args:
        job: the job.
        starts: (role, node) of the pods that have room now.
        trainers: how many trainers are wanted beside those that live. A gang's have ranks below its size, and a rank
            is free once the pod that had it is gone.

    Returns:
        What the pods need, then the pods; nothing where the minimum has to start whole and has no room for all.
    """
    wanted = [*_missing_fixed(job), *((Role.TRAINER, i) for i in _free_numbers(job, trainers))]
    room = {role: [node for r, node in starts if r is role] for role in Role}
    created = []
    for role, index in wanted:
        if room[role]:
            created.append(_new_pod(job, role, index, room[role].pop(0) or None))
    base = _missing_fixed(job)
    base += [(Role.TRAINER, i) for r, i in wanted if r is Role.TRAINER][: _trainers_of_base(job)]
    if (job.gang or not job.fault_tolerant) and not set(base) <= {(pod.role, pod.index) for pod in created}:
        return ()
    return (*_needs(job), *created) if created else ()


def once_per_pod(actions: Sequence[Action]) -> Iterator[Action]:
    """One word to each pod: a mark waits until its number is stored, so it puts a deletion off, unless forced."""
    marked = {a.pod_uid for a in actions if isinstance(a, MarkPod)}
    deleted: set[str] = set()
    for action in actions:
        if isinstance(action, DeletePod):
            if action.pod_uid in deleted or (action.pod_uid in marked and not action.force):
                continue
            deleted.add(action.pod_uid)
        yield action


def superfluous(job: Job) -> list[Pod]:
    """Pods that the spec, as it is now, has no place for: a role it lacks, a number beyond the role's count."""
    count = {fixed.role: fixed.count for fixed in job.fixed}
    if not job.fault_tolerant:
        count[Role.TRAINER] = job.min_trainers
    return [
        p
        for p in job.pods
        if p.role is not None
        and (p.role in count or p.role is not Role.TRAINER)
        and (p.index is None or p.index >= count.get(p.role, 0))
    ]


def _new_pod(job: Job, role: Role, index: int, node: str | None) -> CreatePod:
    pod = CreatePod(job.key, job.uid, role, index, node)
    if role is not Role.MASTER:
        return pod
    return replace(pod, expected=expected_of(job), restarts_epoch=begins_epoch_again(job))


def _missing_fixed(job: Job) -> list[tuple[Role, int]]:
    used = {(p.role, p.index) for p in job.pods}
    return [(f.role, i) for f in job.fixed for i in range(f.count) if (f.role, i) not in used]


def _free_numbers(job: Job, count: int) -> list[int]:
    used = {p.index for p in job.pods if p.role is Role.TRAINER}
    most = len(used) + count if job.fault_tolerant else job.min_trainers
    return [i for i in range(most) if i not in used][:count]


def _trainers_of_base(job: Job) -> int:
    return max(0, job.min_trainers - len(job.live_trainers))


def _needs(job: Job) -> tuple[Action, ...]:
    service = EnsureService(job.key, job.uid)
    group = (EnsurePodGroup(job.key, job.uid),) if job.gang else ()
    if not any(f.role is Role.MASTER for f in job.fixed):
        return (service, *group)
    return service, EnsureSecret(job.key, job.uid), EnsureClaim(job.key, job.uid), *group
