"""Checks every change of a trainer's CPU request once more before it is written, by rules that none may break.

`running_requests` decides the changes. This module recomputes the rules from the snapshot and the changes alone, so
that an error there neither starves a trainer nor takes capacity from serving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from edl.lifecycle.lending import as_allowed_to_lend, nodes_without_lending
from edl.model.actions import ResizePod
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import LEAST_CPU_MILLI
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import CPU

Changes = Mapping[JobKey, tuple[ResizePod, ...]]


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of checking changes of CPU requests against the rules of this module.

    Attributes:
        allowed: by job, the changes that may be written.
        problems: one sentence for each change that is refused, and for each that is missing.
    """

    allowed: Changes
    problems: tuple[str, ...] = ()


def judge_requests(
    snapshot: ClusterSnapshot, limits: Limits, changes: Changes, busy_nodes: Collection[str], held: Collection[str]
) -> Judged:
    """Keep the changes that break no rule.

    No request goes below the part that the operator allows, or below what a trainer may lend at all. The requests
    that are raised on a node fit together beside all that is requested there, and none is raised while serving waits.
    A trainer that may lend no more is given its request back where there is capacity.

    Args:
        snapshot: the cluster as observed.
        limits: what the operator allows.
        changes: by job, as decided.
        busy_nodes: names of the nodes on which pods are about to start; as for `running_requests.changed_requests`.
        held: UIDs of the trainers that keep what they were granted.
    """
    free, serving_waits = _free_milli(snapshot), any(pod.needs_capacity for pod in snapshot.waiting_serving)
    jobs = {job.key: job for job in snapshot.jobs}
    closed = nodes_without_lending(snapshot.nodes)
    allowed: dict[JobKey, tuple[ResizePod, ...]] = {}
    problems: list[str] = []
    for key in sorted(changes):
        kept = []
        for change in changes[key]:
            pod = _pod_of(jobs.get(key), change)
            if pod is None or pod.running_request is None:
                problem = "its kubelet cannot change it"
            elif change.cpu_milli < pod.running_request.charged_milli:
                problem = _lends_too_much(as_allowed_to_lend(jobs[key], limits), pod, change, limits, closed)
            else:
                more = change.cpu_milli - pod.running_request.charged_milli
                problem = _exceeds_free_capacity(more, free[pod.node], serving_waits=serving_waits)
                free[pod.node] -= 0 if problem else more
            if problem:
                problems.append(f"trainer {change.pod}: a CPU request of {change.cpu_milli}m is refused: {problem}")
            else:
                kept.append(change)
        if kept:
            allowed[key] = tuple(kept)
    if not serving_waits and limits.lending.running and snapshot.resizes_pods:
        settled = {change.pod_uid for some in changes.values() for change in some} | {*held}
        capacity = {node: milli for node, milli in free.items() if node not in busy_nodes}
        problems += _forgotten(snapshot, limits, settled, capacity)
    return Judged(allowed, tuple(problems))


def _forgotten(
    snapshot: ClusterSnapshot, limits: Limits, settled: Collection[str], free: Mapping[str, int]
) -> Iterable[str]:
    """Find the trainers that must request all their CPU again and have capacity for it, but are not changed.

    `settled` has the UIDs of those that need nothing; `free` the capacity of the nodes where requests may be raised.
    """
    closed = nodes_without_lending(snapshot.nodes)
    for job in snapshot.jobs:
        rules = as_allowed_to_lend(job, limits)
        for pod in job.live_trainers:
            running = pod.running_request
            if pod.uid in settled or running is None or running.refusal:
                continue
            may_lend = pod.index is not None and rules.may_lend(pod.index) and pod.node not in closed
            is_under_way = running.requested_milli != running.granted_milli
            if is_under_way or (may_lend and limits.lending.surplus_cpu_request < 1.0):
                continue
            if 0 < pod.lent_cpu_milli <= free.get(pod.node, -1):
                yield f"trainer {pod.name}: it may lend no more, and is not given back {pod.lent_cpu_milli}m"


def _pod_of(job: Job | None, change: ResizePod) -> Pod | None:
    trainers = job.live_trainers if job is not None else ()
    return next((pod for pod in trainers if pod.uid == change.pod_uid), None)


def _lends_too_much(job: Job, pod: Pod, change: ResizePod, limits: Limits, closed: Collection[str]) -> str:
    """Why a request may not be lowered so far; empty if it may."""
    running = pod.running_request
    if running is not None and running.refusal:  # back to what the kubelet granted
        return "" if change.cpu_milli >= running.granted_milli else f"the kubelet granted {running.granted_milli}m"
    if pod.index is None or not job.may_lend(pod.index) or pod.node in closed:
        return "it may not lend"
    least = max(
        min(LEAST_CPU_MILLI, change.declared_milli), change.declared_milli * limits.lending.surplus_cpu_request - 1e-6
    )
    return f"at least {least:.0f}m of {change.declared_milli}m must stay" if change.cpu_milli < least else ""


def _exceeds_free_capacity(more_milli: int, free_milli: int, *, serving_waits: bool) -> str:
    """Why a request may not be raised by so much; empty if it may."""
    if not more_milli:
        return ""
    if serving_waits:
        return "serving pods wait"
    return "" if more_milli <= free_milli else f"{free_milli}m are free on its node"


def _free_milli(snapshot: ClusterSnapshot) -> Counter[str]:
    """By node, the CPU in millicores that no unfinished pod requests there."""
    free: Counter[str] = Counter()
    for node in snapshot.nodes:
        free[node.name] = node.allocatable[CPU]
    for pods in (snapshot.pods, *(job.pods for job in snapshot.jobs)):
        for pod in pods:
            if not pod.is_finished:
                free[pod.node or pod.nominated] -= pod.requested[CPU]
    return free
