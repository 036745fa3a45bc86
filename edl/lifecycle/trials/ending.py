"""Pods that do not end: their job gets no more trainers, and no serving pod waits for their capacity.

A finalizer, or a grace period of hours, lets a pod keep its node after somebody has deleted it. Who does that must
not get other capacity in exchange, and a serving pod that kube-scheduler has nominated to such a node must not stay
without one. Nor must one whose node takes it no more: a scheduler may leave the nomination as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import Resources, without_rules
from edl.model.status import Reason
from edl.planner.eligibility import takes

PREEMPTS_WITHIN_S = 30.0
"""kube-scheduler tries a pod again within 10 s, and then ends pods on its node, or nominates it to another one."""


def as_ending(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster for the planner: jobs with pods that do not end grow no more, and nobody waits for these pods.

    Args:
        snapshot: with the bounds that jobs would have otherwise. Most have no such pod and are returned as they are.
    """
    now_s = snapshot.observed_at_s
    lingering = [pod for pod in snapshot.terminating if _holds(pod) and pod.lingers(now_s)]
    vain = {pod.uid for pod in nominated_in_vain(snapshot)}
    if not (lingering or vain):
        return snapshot
    ready = {node.name for node in snapshot.nodes if node.ready}  # the capacity of another node is nobody's
    names: dict[JobKey, list[str]] = defaultdict(list)
    for pod in lingering:
        if pod.job is not None and pod.node in ready:
            names[pod.job].append(pod.name)
    jobs = tuple(_held(job, names[job.key]) if job.key in names else job for job in snapshot.jobs)
    pods = tuple(replace(pod, nominated="") if pod.uid in vain else pod for pod in snapshot.pods)
    return replace(snapshot, jobs=jobs, pods=pods if vain else snapshot.pods)


def _all_pods(snapshot: ClusterSnapshot) -> Iterator[Pod]:
    return chain(snapshot.pods, chain.from_iterable(job.pods for job in snapshot.jobs))


def _holds(pod: Pod) -> bool:
    """Return True if a terminating pod still holds capacity: it has not finished yet."""
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
    """The serving pods that do not get the node of their nomination, as far as can be seen.

    Either a pod that does not end holds their capacity; or the node takes them no more or others have the capacity,
    and their scheduler has had the time to see that. Pods that end in time count as gone, and the nominated ones take
    the rest in their order of priority.

    Source: https://github.com/kubernetes/kubernetes/issues/106780
    """
    nominated = snapshot.nominated_serving
    if not nominated:  # so it is nearly always
        return []
    now_s, wanted = snapshot.observed_at_s, {pod.nominated for pod in nominated}
    stuck = {pod.node for pod in snapshot.terminating if _holds(pod) and pod.lingers(now_s)}
    if not any(pod.nominated in stuck or _has_waited(pod, now_s) for pod in nominated):
        return []
    held: dict[str, Resources] = defaultdict(Resources)
    for pod in _all_pods(snapshot):
        if pod.node in wanted and not pod.is_finished and (not pod.terminating or pod.lingers(now_s)):
            held[pod.node] += pod.requested
    nodes = {node.name: node for node in snapshot.nodes if node.name in wanted}
    free = {name: node.allocatable - node.reserved - held[name] for name, node in nodes.items()}
    vain = []
    for pod in sorted(nominated, key=lambda pod: (-pod.priority, pod.created_s, pod.uid)):
        node = nodes.get(pod.nominated)
        if node is None or not (pod.nominated in stuck or _has_waited(pod, now_s)):
            continue
        shape = without_rules(pod.shape)  # pods that are about to end may be among those that the rules count
        asked = Resources.of({name: n for name, n in pod.requested.amounts if node.allocatable[name]})
        if takes(node, shape.placement) and asked.fits(free[pod.nominated]):
            free[pod.nominated] -= pod.requested
        else:
            vain.append(pod)
    return vain


def _has_waited(pod: Pod, now_s: float) -> bool:
    """True if the scheduler has looked for a node for so long that it does not preempt pods at present."""
    return pod.tried and pod.answered_s is not None and now_s - pod.answered_s >= PREEMPTS_WITHIN_S
