"""Serving pods that kube-scheduler leaves pending although they fit; edl stops preempting for them for a while.

A plan sees requests, nodes, and the rules that `edl.kube.translate.rules` reads. It does not see resource claims, nor
what plugins of another scheduler demand, so it may free a node that kube-scheduler then does not use. A pod is marked
if kube-scheduler has tried it or has met an error, and if an eligible node has had enough free capacity for it for
half a minute. A marked pod counts as short, and other pods get the capacity. The mark ends after a pause, which
doubles each time, because the obstacle may go away. A pod that replaces a marked one, with the same owner and
request, continues its pauses. The caller keeps the records from one plan to the next; losing them costs time, never
correctness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.model.resources import PodShape, Resources, without_rules
from edl.planner.problem import count_slots
from edl.planner.problem_reader import read_problem

PATIENCE_S = 30.0  # kube-scheduler tries a pod again within 10 s of new capacity (podMaxBackoffSeconds)
YOUNG_S = 5.0
"""How long a pod must have waited before free capacity is searched for it: kube-scheduler may still try it."""
LOOK_EVERY_S = 5.0
"""Free capacity is looked for no more often than this: it delays a plan as much as a part of the plan does."""
LOOK_AFTER_S = 30.0
"""Free capacity is looked for after this time even if the plan answers something that cannot wait."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 14_400.0
"""Doubled each time; after nine marks a pod that can never use the capacity costs trainers once in four hours."""


Kind = tuple[str, str, Resources]


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """The history of one pending serving pod; times are those of the caller's clock.

    Attributes:
        since_s: since when, without a break, an eligible node has had enough free capacity for it; None if none has.
        until_s: when its mark ends.
        pause_s: how long its last mark lasts; 0 before the first one.
        kind: its namespace, its owner and what it requests, by which a replacement is known; None without an owner. A
            pod may name an owner that is not of its namespace.
    """

    since_s: float | None = None
    until_s: float = float("-inf")
    pause_s: float = 0.0
    kind: Kind | None = None


WaitRecords = Mapping[str, WaitRecord]
"""By the UID of the pod."""


def watch(
    records: WaitRecords, snapshot: ClusterSnapshot, now_s: float, *, looks: bool = True
) -> dict[str, WaitRecord]:
    """Update the records for a new snapshot.

    Args:
        records: what the previous call returned; empty at first.
        snapshot: the cluster, with no pod marked.
        now_s: a clock that never runs backwards.
        looks: look for free capacity; else what was found last still holds, as long as no pod of the shape was bound.

    Returns:
        A record for each pod that kube-scheduler has tried and not bound; bound or deleted pods are forgotten.
    """
    tried = [pod for pod in snapshot.waiting_serving if pod.has_answer]
    kept = {}
    if records:
        left = (pod for pod in _of(records, snapshot) if not pod.node and pod.is_live)
        kept = {pod.uid: records[pod.uid] for pod in left}
    kept |= _of_replaced(records, snapshot, now_s)
    if not tried:
        return {uid: replace(record, since_s=None) for uid, record in kept.items()}
    heirs = {r.kind: r for r in sorted(kept.values(), key=lambda r: r.until_s) if r.kind is not None and r.pause_s}
    fresh = (pod for pod in tried if pod.uid not in kept)
    kept |= {pod.uid: _begun(pod, heirs) for pod in fresh}
    bound_shapes = {without_rules(pod.shape) for pod in _of(records, snapshot) if pod.node}
    is_due = any(snapshot.observed_at_s - pod.created_s >= YOUNG_S for pod in tried)
    after = {uid: replace(record, since_s=None) for uid, record in kept.items()}
    if not looks:
        before = {pod.uid: kept[pod.uid] for pod in tried}
        unused = {pod.uid for pod in tried if without_rules(pod.shape) not in bound_shapes}
        return after | {uid: r if uid in unused else _after(r, now_s, fits=False) for uid, r in before.items()}
    fitting = _shapes_that_fit(snapshot) if is_due else set()
    for pod in tried:
        fits = pod.shape in fitting and without_rules(pod.shape) not in bound_shapes
        after[pod.uid] = _after(kept[pod.uid], now_s, fits=fits)
    return after


def _of(uids: Collection[str], snapshot: ClusterSnapshot) -> list[Pod]:
    """Return the foreign pods with some UIDs; searches all pods only if one of these no longer waits."""
    waiting = [pod for pod in (*snapshot.waiting_serving, *snapshot.nominated_serving) if pod.uid in uids]
    return waiting if len(waiting) == len(uids) else [pod for pod in snapshot.pods if pod.uid in uids]


def _of_replaced(records: WaitRecords, snapshot: ClusterSnapshot, now_s: float) -> dict[str, WaitRecord]:
    """The records of marked pods that are gone, while a replacement may still come: as long again as their pause."""
    marked = {uid for uid, r in records.items() if r.kind is not None and r.pause_s and now_s < r.until_s + r.pause_s}
    if marked:
        marked -= {pod.uid for pod in _of(marked, snapshot)}
    return {uid: records[uid] for uid in marked}


def _begun(pod: Pod, heirs: Mapping[Kind, WaitRecord]) -> WaitRecord:
    """Return a record for a pod that has none: that of the pod that it replaces, if that one was marked."""
    if not pod.owner:
        return WaitRecord()
    kind = (pod.namespace, pod.owner, without_rules(pod.shape).request)
    return replace(heirs.get(kind, WaitRecord(kind=kind)), since_s=None)


def mark(snapshot: ClusterSnapshot, records: WaitRecords, now_s: float) -> ClusterSnapshot:
    """The snapshot with each pod marked that counts as short now."""
    marked = {uid for uid, record in records.items() if now_s < record.until_s}
    if not marked:
        return snapshot
    return replace(snapshot, pods=tuple(_marked(pod) if pod.uid in marked else pod for pod in snapshot.pods))


def mark_untried(snapshot: ClusterSnapshot, limits: Limits) -> ClusterSnapshot:
    """The snapshot with each waiting serving pod marked that no scheduler serves, as far as can be seen.

    A `schedulerName` that is mistyped or has no scheduler would otherwise keep capacity for pods that never come. The
    mark ends when some scheduler tries the pod.
    """
    if not (limits.serving.untried_s or limits.serving.schedulers):
        return snapshot
    if not any(_may_be_unserved(pod, snapshot, limits) for pod in snapshot.waiting_serving):
        return snapshot  # sorting all pods is for these alone
    answered_s: dict[str, float] = {}
    marked: set[str] = set()
    for pod in sorted(snapshot.pods, key=lambda p: (-p.priority, p.created_s)):
        name = pod.scheduler or "default-scheduler"
        if pod.answered_s is not None:
            answered_s[name] = max(answered_s.get(name, 0.0), pod.answered_s)
        if not pod.is_waiting_serving:
            continue
        since_s = max(pod.created_s, answered_s.get(name, 0.0))
        is_late = (
            limits.serving.untried_s
            and not pod.has_answer
            and snapshot.observed_at_s - since_s >= limits.serving.untried_s
        )
        if is_late or (limits.serving.schedulers and name not in limits.serving.schedulers):
            marked.add(pod.uid)
    if not marked:
        return snapshot
    return replace(snapshot, pods=tuple(_marked(pod) if pod.uid in marked else pod for pod in snapshot.pods))


def _may_be_unserved(pod: Pod, snapshot: ClusterSnapshot, limits: Limits) -> bool:
    """False if it is certain that a scheduler serves a waiting pod, or that it is too early to say."""
    waits_long = limits.serving.untried_s and snapshot.observed_at_s - pod.created_s >= limits.serving.untried_s
    return bool(limits.serving.schedulers) or (not pod.has_answer and bool(waits_long))


def _marked(pod: Pod) -> Pod:
    """The pod, marked if it is still a waiting serving pod."""
    return replace(pod, unplaceable=pod.is_waiting_serving)


def _after(record: WaitRecord, now_s: float, *, fits: bool) -> WaitRecord:
    """The record of one tried pod at this time; `fits` is whether an eligible node has enough free capacity."""
    if now_s < record.until_s:
        return record
    if not fits:
        return replace(record, since_s=None)
    since_s = now_s if record.since_s is None else record.since_s
    if now_s - since_s < PATIENCE_S:
        return replace(record, since_s=since_s)
    pause_s = min(LONGEST_PAUSE_S, record.pause_s * 2 or FIRST_PAUSE_S)
    return WaitRecord(None, now_s + pause_s, pause_s, record.kind)


def _shapes_that_fit(snapshot: ClusterSnapshot) -> set[PodShape]:
    """The shapes of waiting serving pods of which one more fits now on an eligible node."""
    problem = read_problem(snapshot, Limits())
    return {
        problem.shapes[group.shape]
        for group in problem.waiting
        if (count_slots(problem.now, problem.request[group.shape]) * problem.opened[group.shape]).any()
    }
