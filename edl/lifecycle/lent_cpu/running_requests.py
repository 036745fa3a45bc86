"""Which trainers that run request less CPU from now on, and which request again what they declare.

A new trainer that lends requests little from its start. A trainer that runs already comes to the same request by an
in-place resize, which does not restart it. What it requests follows from the rules alone, so a controller that starts
anew goes on where another one stopped. A request is raised only into CPU that nobody requests on the node, and not
while serving waits anywhere. If a kubelet does not carry a change out, the trainer keeps what it was granted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from edl.lifecycle.lending import as_allowed_to_lend, nodes_without_lending
from edl.model.actions import ResizePod
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import Lending, requested_milli
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import CPU

REFUSED_FOR_S = 300.0
"""How long a trainer keeps its request after its kubelet did not carry out a change."""


def keep_refusals(held: Mapping[str, float], snapshot: ClusterSnapshot, now_s: float) -> dict[str, float]:
    """Return until when each trainer keeps its CPU request because its kubelet rejected a change, by UID.

    Args:
        held: as returned before.
        snapshot: the cluster as observed.
        now_s: monotonic seconds.
    """
    kept = {}
    for pod in (pod for job in snapshot.jobs for pod in job.live_trainers):
        until_s = held.get(pod.uid, now_s)
        if pod.running_request is not None and pod.running_request.refusal:
            until_s = now_s + REFUSED_FOR_S
        if until_s > now_s:
            kept[pod.uid] = until_s
    return kept


def changed_requests(
    snapshot: ClusterSnapshot, limits: Limits, busy_nodes: Collection[str], held: Collection[str]
) -> dict[JobKey, tuple[ResizePod, ...]]:
    """The changes of the CPU requests of running trainers, by job; jobs without any are left out.

    Args:
        snapshot: the cluster as observed.
        limits: what the operator allows.
        busy_nodes: names of the nodes on which pods are about to start: no request is raised there.
        held: UIDs of the trainers that keep what they were granted.
    """
    if not (limits.lending.running and snapshot.resizes_pods):
        return {}
    closed = nodes_without_lending(snapshot.nodes)
    changes: dict[JobKey, list[ResizePod]] = defaultdict(list)
    raises: list[tuple[Job, Pod, ResizePod]] = []
    for job in snapshot.jobs:
        lenders = _lenders(as_allowed_to_lend(job, limits), limits, closed, held)
        for pod in job.live_trainers:
            change = _change(job, pod, lenders, limits, held)
            if change is None or pod.running_request is None:
                continue
            if change.cpu_milli <= pod.running_request.charged_milli:
                changes[job.key].append(change)
            else:
                raises.append((job, pod, change))
    for job, change in _that_fit(raises, snapshot, busy_nodes):
        changes[job.key].append(change)
    return {key: tuple(found) for key, found in changes.items()}


def _lenders(job: Job, limits: Limits, closed: Collection[str], held: Collection[str]) -> frozenset[str]:
    """The UIDs of the trainers that may lend; those of a synchronous job all may, or none."""
    if limits.lending.surplus_cpu_request >= 1.0 or job.lending is Lending.NEVER or job.owner_count is not None:
        return frozenset()
    able = frozenset(
        pod.uid
        for pod in job.live_trainers
        if pod.index is not None and job.may_lend(pod.index) and pod.node not in closed and _can_lend(pod, held)
    )
    return able if job.fault_tolerant or len(able) == len(job.live_trainers) else frozenset()


def _can_lend(pod: Pod, held: Collection[str]) -> bool:
    """True if a trainer lends CPU or could; a trainer whose resize the kubelet rejected keeps its request."""
    running = pod.running_request
    return pod.lent_cpu_milli > 0 if running is None else not running.refusal and pod.uid not in held


def _change(job: Job, pod: Pod, lenders: Collection[str], limits: Limits, held: Collection[str]) -> ResizePod | None:
    """The new request of a trainer; None if it stays the same, or a change is already in progress."""
    running = pod.running_request
    if running is None:
        return None
    is_under_way = running.requested_milli != running.granted_milli and not running.refusal
    if is_under_way:
        return None
    if running.refusal or pod.uid in held:
        wanted = running.granted_milli
    elif pod.uid in lenders:
        wanted = requested_milli(running.declared_milli, limits.lending.surplus_cpu_request)
    else:
        wanted = running.declared_milli
    if wanted == running.requested_milli:
        return None
    return ResizePod(job.key, job.uid, pod.name, pod.uid, wanted, running.declared_milli)


def _that_fit(
    raises: Iterable[tuple[Job, Pod, ResizePod]], snapshot: ClusterSnapshot, busy_nodes: Collection[str]
) -> Iterable[tuple[Job, ResizePod]]:
    """The raised requests for which CPU is free on their nodes; none while serving waits."""
    wanted = sorted(raises, key=lambda one: -one[0].lending_price)  # those that lose most by lending come first
    if not wanted or any(pod.needs_capacity for pod in snapshot.waiting_serving):
        return
    free = _free_milli(snapshot)
    for job, pod, change in wanted:
        more = change.cpu_milli - (pod.running_request.charged_milli if pod.running_request else 0)
        if pod.node not in busy_nodes and free[pod.node] >= more:
            free[pod.node] -= more
            yield job, change


def _free_milli(snapshot: ClusterSnapshot) -> Counter[str]:
    """By node, the CPU in millicores that no pod requests there; pods nominated to the node count."""
    free = Counter({node.name: node.allocatable[CPU] for node in snapshot.nodes})
    for pod in (*snapshot.pods, *(pod for job in snapshot.jobs for pod in job.pods)):
        where = pod.node or pod.nominated
        if where and not pod.is_finished:
            free[where] -= pod.requested[CPU]
    return free
