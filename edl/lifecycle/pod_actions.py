"""The pod actions of a job: which pods are deleted and why, and which pods are created under which names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from edl.lifecycle.data_progress import expected_progress, has_master, restarts_lost_epoch
from edl.lifecycle.domains import places_of_slices
from edl.lifecycle.kueue.gate import flavors_of
from edl.model.actions import (
    SHORTER_FOR_SERVING_S,
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
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import Reason
from edl.model.topology import Labels

NO_LABELS: Mapping[str, Labels] = {}


def delete(pods: Iterable[Pod], job: Job, intent: str, unreachable: frozenset[str]) -> list[DeletePod]:
    """Make the deletions of pods that are not terminating yet, and forced deletions of unreachable pods.

    A pod that was deleted by force is not deleted again: only its finalizers hold it.

    Args:
        pods: the pods to delete.
        job: their job.
        intent: why; a pod that already has an intent keeps it.
        unreachable: UIDs of pods whose end no kubelet will confirm.
    """
    return [
        DeletePod(
            job.key,
            job.uid,
            pod.name,
            pod.uid,
            pod.intent or (Intent.NODE_LOST.value if pod.uid in unreachable else intent),
            force=pod.uid in unreachable,
            marked=bool(pod.intent),
            grace_s=None if pod.uid in unreachable else _telling_grace_s(pod, job, intent),
        )
        for pod in pods
        if not pod.terminating or (pod.uid in unreachable and not pod.held)
    ]


def _telling_grace_s(pod: Pod, job: Job, intent: str) -> int | None:
    """The grace period by which the deletion of a pod tells that it is for serving.

    None if an annotation must tell it.

    Somebody else may shorten the grace period further, and then the pod says nothing more. So only trainers are
    deleted in this way whose job treats an eviction like a deletion by edl. A pod that does not run is marked, too.
    """
    comes_to_the_same = (
        job.fault_tolerant
        and pod.role is Role.TRAINER
        and job.action_for(Role.TRAINER, JobEvent.POD_EVICTED) in {None, JobAction.RESTART_POD}
    )
    is_told = comes_to_the_same and intent == Reason.SERVING_NEEDS_ROOM and not pod.intent
    runs = bool(pod.node) and pod.phase is PodPhase.RUNNING
    return pod.grace_s - SHORTER_FOR_SERVING_S if is_told and runs and pod.grace_s > SHORTER_FOR_SERVING_S else None


def create(
    job: Job,
    starts: Sequence[tuple[Role, str]],
    trainers: int,
    paused: frozenset[tuple[Role, int]] = frozenset(),
    labels: Mapping[str, Labels] = NO_LABELS,
) -> tuple[Action, ...]:
    """Create missing masters and pservers under their own names, and trainers under the lowest free indexes.

    Trainers of slices get the indexes of their slice; see `domains`.

    Args:
        job: the job.
        starts: (role, node) for each pod that fits in the cluster now.
        trainers: the number of trainers to add to the live ones. In a gang the indexes are ranks below its size, and
            a rank is free once the pod that had it no longer exists.
        paused: the pods that failed lately and are not created yet; no other one takes the place of theirs.
        labels: those of each node, which a job with slices needs.

    Returns:
        The objects that the pods need, then the pods. Nothing if the minimum must start whole and does not fit.
    """
    missing = _missing_fixed(job)
    nodes = {role: [node for r, node in starts if r is role] for role in Role}
    is_whole, lacking = job.gang or not job.fault_tolerant, max(0, job.min_trainers - len(job.live_trainers))
    if job.topology is not None and job.topology.slices is not None:
        places = places_of_slices(job, job.topology.slices, nodes[Role.TRAINER], labels, trainers)
        if is_whole and len(places) < min(lacking, trainers):
            return ()
        nodes[Role.TRAINER] = [node for index, node in places if (Role.TRAINER, index) not in paused]
        new_trainers = [(Role.TRAINER, index) for index, _ in places]
    else:
        new_trainers = [(Role.TRAINER, index) for index in _free_indexes(job, trainers, paused)]
    created = []
    for role, index in (*missing, *new_trainers):
        if nodes[role] and (role, index) not in paused:
            created.append(_new_pod(job, role, index, nodes[role].pop(0) or None))
    minimum = {*missing, *new_trainers[:lacking]}
    if is_whole and not minimum <= {(pod.role, pod.index) for pod in created}:
        return ()
    return (*needs(job), *_protected(job, created)) if created else ()


def _protected(job: Job, created: Sequence[CreatePod]) -> Iterator[CreatePod]:
    """Give the PriorityClass of the minimum to as many new trainers as the minimum lacks, also of higher indexes.

    A pod keeps its class. So trainers of lower indexes may be without that protection, or they are terminating.
    """
    protected = sum(pod.is_protected for pod in job.live_trainers)
    lacking = job.min_trainers - protected
    lacking -= sum(pod.role is Role.TRAINER and pod.index < job.min_trainers for pod in created)
    for pod in created:
        is_base = lacking > 0 and pod.role is Role.TRAINER and pod.index >= job.min_trainers
        lacking -= is_base
        yield replace(pod, is_base=True) if is_base else pod


def once_per_pod(actions: Sequence[Action]) -> Iterator[Action]:
    """Keep one action for each pod.

    A marked pod is not deleted at the same time, unless by force: its number must be stored in the status first.
    """
    marked = {a.pod_uid for a in actions if isinstance(a, MarkPod)}
    deleted: set[str] = set()
    for action in actions:
        if isinstance(action, DeletePod):
            if action.pod_uid in deleted or (action.pod_uid in marked and not action.force):
                continue
            deleted.add(action.pod_uid)
        yield action


def superfluous(job: Job) -> list[Pod]:
    """Pods that the current spec no longer asks for: their role has no pods, or their index exceeds the count."""
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
    flavors = flavors_of(job, role)
    if role is not Role.MASTER:
        is_best_effort = role is Role.TRAINER and job.is_best_effort
        return CreatePod(job.key, job.uid, role, index, node, is_best_effort=is_best_effort, flavors=flavors)
    expected, restarts = expected_progress(job), restarts_lost_epoch(job)
    return CreatePod(job.key, job.uid, role, index, node, expected=expected, restarts_epoch=restarts, flavors=flavors)


def _missing_fixed(job: Job) -> list[tuple[Role, int]]:
    used = {(p.role, p.index) for p in job.pods}
    return [(f.role, i) for f in job.fixed for i in range(f.count) if (f.role, i) not in used]


def _free_indexes(job: Job, count: int, paused: frozenset[tuple[Role, int]]) -> list[int]:
    used = {p.index for p in job.pods if p.role is Role.TRAINER}
    if job.fault_tolerant:
        live = {p.index for p in job.live_trainers}
        resting = {index for role, index in paused if role is Role.TRAINER and index not in live}
        used |= resting
        count = max(0, count - len(resting))
    if not job.fault_tolerant:
        used |= job.completed_indexes
    most = len(used) + count if job.fault_tolerant else job.min_trainers
    return [i for i in range(most) if i not in used][:count]


def needs(job: Job) -> tuple[Action, ...]:
    """The objects that the pods of a job need: Service, tokens and journal of the master, and group."""
    service = EnsureService(job.key, job.uid)
    group = (EnsurePodGroup(job.key, job.uid),) if job.gang else ()
    if not has_master(job):
        return (service, *group)
    return service, EnsureSecret(job.key, job.uid), EnsureClaim(job.key, job.uid), *group
