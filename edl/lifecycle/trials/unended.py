"""Pods that do not end: their job gets no more trainers, and no serving pod waits for their capacity.

A finalizer, or a grace period of hours, lets a pod keep its node after somebody has deleted it. Who does that must
not get other capacity in exchange, and a serving pod that kube-scheduler has nominated to such a node must not stay
without one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from edl.lifecycle.container_end import DEFAULT_NAMESPACE
from edl.lifecycle.pod_events import names_of
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.names import JobKey, Role
from edl.model.pods import OVERDUE_S, Pod
from edl.model.resources import Resources
from edl.model.status import Reason


def as_ending(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster for the planner: jobs with pods that do not end grow no more, and nobody waits for these pods.

    Args:
        snapshot: with the bounds that jobs would have otherwise. Most have no such pod and are returned as they are.
    """
    now_s = snapshot.observed_at_s
    lingering = [pod for pod in _all_pods(snapshot) if _holds(pod) and pod.lingers(now_s)]
    if not lingering:
        return snapshot
    ready = {node.name for node in snapshot.nodes if node.ready}  # the capacity of another node is nobody's
    names: dict[JobKey, list[str]] = defaultdict(list)
    for pod in lingering:
        if pod.job is not None and pod.node in ready:
            names[pod.job].append(pod.name)
    jobs = tuple(_held(job, names[job.key]) if job.key in names else job for job in snapshot.jobs)
    vain = {pod.uid for pod in nominated_in_vain(snapshot)}
    pods = tuple(replace(pod, nominated="") if pod.uid in vain else pod for pod in snapshot.pods)
    return replace(snapshot, jobs=jobs, pods=pods if vain else snapshot.pods)


def unended_problem(job: Job, unreachable: frozenset[str], now_s: float) -> tuple[str, str] | None:
    """(reason, message) of the overdue pods for whose end the job waits; None if there is none.

    A gang starts only once no pod of its last run exists. Any job waits for a master and for pservers, because their
    successors have their names; other trainers take other names.

    Args:
        job: with its pods.
        unreachable: UIDs of pods whose deletion edl forces.
        now_s: seconds since the epoch.
    """
    late = [
        pod
        for pod in job.pods
        if pod.terminating
        and pod.ends_by_s is not None
        and now_s >= pod.ends_by_s + OVERDUE_S
        and pod.uid not in unreachable
        and not (job.fault_tolerant and pod.role is Role.TRAINER)
    ]
    if not late:
        return None
    verb, first = ("has" if len(late) == 1 else "have"), late[0]
    place = f" ({first.name} is on node {first.node})" if first.node else ""
    namespace = f" -n {first.namespace}" if first.namespace != DEFAULT_NAMESPACE else ""
    return Reason.PODS_DO_NOT_END.value, (
        f"{names_of(late)} {verb} been deleted, but not ended{place}, and the job waits for that: remove the"
        f" finalizer, or, once the node is off for certain, `kubectl delete pod {first.name} --force{namespace}`"
    )


def _all_pods(snapshot: ClusterSnapshot) -> Iterator[Pod]:
    return chain(snapshot.pods, chain.from_iterable(job.pods for job in snapshot.jobs))


def _holds(pod: Pod) -> bool:
    """True if the pod terminates and still has its capacity: one that has finished has only its name."""
    return pod.terminating and not pod.is_finished


def _held(job: Job, names: list[str]) -> Job:
    """The job without growth; it gets its minimum, because its other trainers may be deleted meanwhile."""
    allowed = max(job.bounds.min_trainers, len(job.live_trainers))
    if allowed >= job.bounds.max_trainers or job.refusal is not None or not job.is_schedulable:
        return job
    count = len(names) - 1
    others = f" and {count} more {'pod' if count == 1 else 'pods'} of it have" if count else " has"
    message = f"{names[0]}{others} been deleted, but not ended, so it does not grow until then"
    reason = Reason.PODS_DO_NOT_END
    return replace(job, refusal=Refusal(allowed, is_tried=False, reason=reason, message=message, details=""))


def nominated_in_vain(snapshot: ClusterSnapshot) -> list[Pod]:
    """The serving pods that do not fit on the node of their nomination before a pod has ended that does not end.

    Pods that end in time count as gone, and the nominated ones take the rest in their order of priority.
    """
    wanted = {pod.nominated for pod in snapshot.nominated_serving}
    if not wanted:  # so it is nearly always
        return []
    ending = (pod for pod in _all_pods(snapshot) if _holds(pod) and pod.node in wanted)
    nodes = {pod.node for pod in ending if pod.lingers(snapshot.observed_at_s)}
    nominated = [pod for pod in snapshot.nominated_serving if pod.nominated in nodes]
    if not nominated:
        return []
    held: dict[str, Resources] = defaultdict(Resources)
    for pod in _all_pods(snapshot):
        if pod.node in nodes and not pod.is_finished and (not pod.terminating or pod.lingers(snapshot.observed_at_s)):
            held[pod.node] += pod.requested
    free = {n.name: n.allocatable - n.reserved - held[n.name] for n in snapshot.nodes if n.name in nodes}
    vain = []
    for pod in sorted(nominated, key=lambda pod: (-pod.priority, pod.created_s, pod.uid)):
        capacity = free.get(pod.nominated, Resources())
        if pod.requested.fits(capacity):
            free[pod.nominated] = capacity - pod.requested
        else:
            vain.append(pod)
    return vain
