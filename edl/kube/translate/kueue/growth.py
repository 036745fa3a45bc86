"""Limits the growth of jobs of Kueue although quota is free: pending Workloads, and sizes not admitted in time.

A larger size is a Workload of its own, the newest of all. If somebody of the same or a higher priority waits for the
same quota, Kueue may evict the job as a whole for it. If the size is not admitted, the further pods stay gated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import inf

from edl.kube.translate.kueue.loads import Load
from edl.kube.translate.kueue.sized import SizedJob
from edl.kube.translate.kueue.trees import Quotas
from edl.model.jobs import Refusal
from edl.model.quota_trees import Pool
from edl.model.status import Reason
from edl.model.units import amount, count
from edl.printable import one_line

ADMITTED_WITHIN_S, ADMITTED_AT_LAST_S = 5.0, 60.0
"""A size that Kueue has not admitted by then is taken back; one that it has not even tried by the second.

If Kueue admits it after all, it is only slow: the next size of that job has twice as long, up to the second. Of
trainers that it admits one by one, each has as long.
"""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 1800.0
"""How long edl asks for no larger size after one was not admitted: the first time, and at most (it doubles)."""
_MOST_QUOTED = 300


@dataclass(frozen=True, slots=True)
class _Late:
    """A size of a job that Kueue did not admit in time, and until when it is not asked for again.

    Attributes:
        workload: the key of the last one.
        asked: how many trainers it asked for.
        reserved: for how many the job had a reservation then.
        times: how many in a row.
        until_s: edl asks for no larger size before this time.
        within_s: for how long Kueue had time.
    """

    workload: str
    asked: int
    reserved: int
    times: int
    until_s: float
    within_s: float


class LateSizes:
    """Keeps the sizes that Kueue did not admit in time.

    Attributes:
        valid_until_s: until when the answers since `begin` hold if no object changes, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.valid_until_s = inf
        self._late: dict[str, _Late] = {}
        self._slow: dict[str, int] = {}  # by UID: how many sizes Kueue has admitted after they were taken back
        self._admitted: dict[str, tuple[int, float]] = {}  # by UID: for how many trainers, and since when

    def begin(self, uids: Collection[str]) -> None:
        """Forget all jobs but these."""
        self.valid_until_s = inf
        self._late = {uid: late for uid, late in self._late.items() if uid in uids}
        self._slow = {uid: times for uid, times in self._slow.items() if uid in uids}
        self._admitted = {uid: since for uid, since in self._admitted.items() if uid in uids}

    def refusal(self, one: SizedJob, now_s: float) -> Refusal | None:
        """Limit a job to its admitted size (at least its minimum) if Kueue has not admitted a larger one in time."""
        uid, reserved = one.job.uid, one.trainers.held if one.trainers is not None else 0
        kept = max(one.job.min_trainers, reserved)
        self._note_admitted(uid, reserved, now_s)
        late = self._late.get(uid)
        if late is not None and reserved > late.reserved:
            if one.state.is_owned or (one.holding is not None and one.holding.key == late.workload):
                self._slow[uid] = self._slow.get(uid, 0) + 1
            del self._late[uid]
            late = None
        if one.waiting is not None and one.wished is not None and one.wished.count > kept:
            within_s = self._within_s(uid, one.waiting)
            due_s = max(_asked_s(one, one.waiting), self._admitted[uid][1]) + within_s
            is_known = late is not None and late.workload == one.waiting.key and late.asked == one.wished.count
            if now_s < due_s:
                self._holds_until(due_s)
            elif late is None or not is_known or now_s >= late.until_s:
                times = 1 if late is None else late.times + 1
                until_s = now_s + _pause_s(times)
                late = _Late(one.waiting.key, one.wished.count, reserved, times, until_s, within_s)
                self._late[uid] = late
        if late is None or now_s >= late.until_s:
            return None
        self._holds_until(late.until_s)
        return _refusal(
            kept,
            f"Kueue did not admit {count(late.asked, 'trainer')} within {late.within_s:g} s; edl asks for no more"
            f" than {kept} for {_pause_s(late.times):g} s",
        )

    def is_pending(self, one: SizedJob, now_s: float) -> bool:
        """Return True if Kueue may still admit another size of a job, and has not yet had its time for that."""
        if one.state.is_owned:
            return False
        if one.trainers is None or one.trainers.count != one.job.owner_count:
            return True
        if one.waiting is None or one.wished is None:
            return False
        due_s = _asked_s(one, one.waiting) + self._within_s(one.job.uid, one.waiting)
        if now_s < due_s:
            self._holds_until(due_s)
        return now_s < due_s

    def _note_admitted(self, uid: str, reserved: int, now_s: float) -> None:
        """Note for how many trainers a job holds quota, and since when; a start before this run is not known."""
        before = self._admitted.get(uid)
        if before is None or reserved != before[0]:
            since_s = before[1] if before is not None and reserved < before[0] else now_s
            self._admitted[uid] = reserved, -inf if before is None else since_s

    def _within_s(self, uid: str, waiting: Load) -> float:
        """How long Kueue has to admit a size of a job, in seconds."""
        if not waiting.is_tried:
            return ADMITTED_AT_LAST_S
        return float(min(ADMITTED_AT_LAST_S, ADMITTED_WITHIN_S * 2 ** min(self._slow.get(uid, 0), 10)))

    def _holds_until(self, time_s: float) -> None:
        self.valid_until_s = min(self.valid_until_s, time_s)


def closed(one: SizedJob, quotas: Quotas) -> Refusal | None:
    """Limit a job whose ClusterQueue admits nothing: a running one keeps its size, a waiting one gets no trainers."""
    message = quotas.closed(one.node, one.job.key.namespace, one.state.local_queue)
    latest = one.holding or one.waiting
    if not message and latest is not None and latest.active:
        message = quotas.rules_of(latest).refusal(latest, of_any_size=True)
    if not message:
        return None
    if one.trainers is None and not one.job.live_trainers:
        return replace(_refusal(0, message), bars=True)
    return _refusal(max(one.job.min_trainers, one.trainers.held if one.trainers is not None else 0), message)


def ungranted(one: SizedJob) -> Refusal | None:
    """Limit a job whose Workload asks for more trainers than Kueue admitted, although Kueue lets all of them run.

    Kueue writes what it admits without a look at the count, which may have been raised meanwhile.
    """
    pods = one.trainers
    if pods is None or pods.count <= pods.granted:
        return None
    return _refusal(
        max(one.job.min_trainers, pods.held),
        f"Kueue admitted {count(pods.granted, 'trainer')}, but its Workload asks for {pods.count}, and that many may"
        " run; edl takes the others back and asks again",
    )


def blocked(one: SizedJob, quotas: Quotas, waiting: Iterable[Load]) -> Refusal | None:
    """Limit a running job while pending Workloads could make Kueue evict it if it grew.

    Args:
        one: the job.
        quotas: what the objects of Kueue say.
        waiting: every Workload that waits and may be admitted.
    """
    if one.holding is None or one.trainers is None:
        return None
    pools = {pool for pool, _ in one.holding.held()}
    for load in waiting:
        if (
            load.owner == (one.job.key.namespace, one.job.uid)
            or load.replaces
            or load.priority < one.holding.priority
        ):
            continue
        if _may_ever_fit(load, one, quotas, quotas.pools_of(load) & pools):
            every = (amount(name, n) for name, n in sorted(load.asked().items()) if n and name != "pods")
            asked = one_line(", ".join(every), _MOST_QUOTED)
            return _refusal(
                max(one.job.min_trainers, one.trainers.held),
                f"Workload {load.key} waits for {asked} in {quotas.node_of(load)} with the same or a higher priority,"
                " and Kueue may evict a job that grows beside it",
            )
    return None


def behind(one: SizedJob, quotas: Quotas, stuck: Iterable[Load]) -> Refusal | None:
    """Limit a running job behind a Workload that Kueue never admits, and that blocks all others of its ClusterQueue.

    Args:
        one: the job.
        quotas: what the objects of Kueue say.
        stuck: every such Workload.
    """
    if one.holding is None or one.trainers is None:
        return None
    own, least = (one.job.key.namespace, one.job.uid), one.holding.priority
    ahead = (load for load in stuck if quotas.node_of(load) == one.node and load.priority >= least)
    first = next((load for load in ahead if load.owner != own), None)
    if first is None:
        return None
    why = quotas.rules_of(first).refusal(first)
    return _refusal(
        max(one.job.min_trainers, one.trainers.held),
        f"Kueue admits nobody to {one.node} (queueingStrategy StrictFIFO) before Workload {first.key}: {why}",
    )


def _may_ever_fit(load: Load, one: SizedJob, quotas: Quotas, pools: Iterable[Pool]) -> bool:
    """True if a Workload could be admitted to one of these pools, in the tree of the job, if nobody else ran."""
    asked, node = load.asked(), quotas.node_of(load)
    trees = ((pool, quotas.tree(pool)) for pool in pools)
    return any(
        tree.top(node) == tree.top(one.node) and asked[pool.resource] <= tree.most(node) for pool, tree in trees
    )


def _asked_s(one: SizedJob, waiting: Load) -> float:
    """When the pending size was asked for, in seconds since the epoch."""
    last = one.job.status.last_resize if one.job.status is not None else None
    return max(waiting.created_s, last.time_s if last is not None else 0.0)


def _pause_s(times: int) -> float:
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(times - 1, 10)))


def _refusal(allowed: int, message: str) -> Refusal:
    return Refusal(allowed, is_tried=False, reason=Reason.QUOTA_REACHED, message=message, details="")
