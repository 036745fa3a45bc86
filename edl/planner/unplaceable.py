"""Serving pods that leave room unused: what keeps them from it is not in the model, and nobody dies for them in vain.

A plan sees requests, nodes, taints and node affinity. Pod anti-affinity, spread constraints, volumes and resource
claims it does not see, so it may free a node that kube-scheduler then does not use. A pod that kube-scheduler has
tried, and that left room on a node open to it unused for half a minute, is marked: it counts as short, and its room
goes to others. The mark ends after a pause, which doubles each time, because what keeps the pod out may end too.
Whoever calls this remembers the offers from one round to the next; losing them costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits
from edl.model.pods import Pod
from edl.model.resources import PodShape
from edl.planner.problem import count_slots
from edl.planner.problem_reader import read_problem

PATIENCE_S = 30.0  # kube-scheduler tries a pod again at most 10 s after room came free (podMaxBackoffSeconds)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 480.0


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """What is remembered of one waiting serving pod; times are those of the caller's clock.

    Attributes:
        since_s: since when room that it could use has stood free without a break; None where none does.
        until_s: it is marked until then.
        pause_s: how long the last mark lasts; 0 before the first.
    """

    since_s: float | None = None
    until_s: float = float("-inf")
    pause_s: float = 0.0


WaitRecords = Mapping[str, WaitRecord]
"""By the UID of the pod."""


def watch(records: WaitRecords, snapshot: ClusterSnapshot, now_s: float) -> dict[str, WaitRecord]:
    """What is to be remembered after a snapshot.

    Args:
        records: what was remembered after the one before; empty at first.
        snapshot: the cluster, no pod marked.
        now_s: a clock that never runs backwards.

    Returns:
        An offer for each pod that kube-scheduler has tried and not bound; pods that are bound or gone are forgotten.
    """
    tried = [pod for pod in snapshot.pods if pod.is_waiting_serving and pod.tried]
    kept = {pod.uid: records[pod.uid] for pod in snapshot.pods if pod.uid in records and not pod.node and pod.is_live}
    if not tried:
        return {uid: replace(record, since_s=None) for uid, record in kept.items()}
    progress = {pod.shape for pod in snapshot.pods if pod.uid in records and pod.node}
    offered = _shapes_with_room(snapshot) - progress
    after = {uid: replace(record, since_s=None) for uid, record in kept.items()}
    for pod in tried:
        after[pod.uid] = _after(kept.get(pod.uid, WaitRecord()), now_s, is_offered=pod.shape in offered)
    return after


def mark(snapshot: ClusterSnapshot, records: WaitRecords, now_s: float) -> ClusterSnapshot:
    """The snapshot with each pod marked that is to count as short now."""
    marked = {uid for uid, record in records.items() if now_s < record.until_s}
    if not marked:
        return snapshot
    return replace(snapshot, pods=tuple(_marked(pod) if pod.uid in marked else pod for pod in snapshot.pods))


def _marked(pod: Pod) -> Pod:
    return replace(pod, unplaceable=pod.is_waiting_serving)


def _after(record: WaitRecord, now_s: float, *, is_offered: bool) -> WaitRecord:
    if now_s < record.until_s:
        return record
    if not is_offered:
        return replace(record, since_s=None)
    since_s = now_s if record.since_s is None else record.since_s
    if now_s - since_s < PATIENCE_S:
        return replace(record, since_s=since_s)
    pause_s = min(LONGEST_PAUSE_S, record.pause_s * 2 or FIRST_PAUSE_S)
    return WaitRecord(None, now_s + pause_s, pause_s)


def _shapes_with_room(snapshot: ClusterSnapshot) -> set[PodShape]:
    """The shapes of waiting serving pods of which one more fits now on a node that takes it."""
    problem = read_problem(snapshot, Limits())
    return {
        problem.shapes[group.shape]
        for group in problem.waiting
        if (count_slots(problem.now, problem.request[group.shape]) * problem.opened[group.shape]).any()
    }
