"""When a pod that failed, or that its node rejected, is replaced: after pauses that double, as those of a Job do.

A name has its own pauses while other trainers of the job do well. While none does, all trainers of the job share
them, and one trainer at a time is tried. In a gang all pods share them. A new spec is tried at once.

A job keeps away from a node that rejected pods of it, for a pause that doubles, too. Then it tries one pod there
(`tried`); the others follow once that has begun. What must start whole is tried whole.

If this memory is lost, that costs some attempts and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from edl.lifecycle.pod_events import FAILED, STEADY_AFTER_S
from edl.lifecycle.trials.deleted_by_others import DeletedByOthers
from edl.lifecycle.trials.pauses import Slot, pause_s
from edl.lifecycle.trials.unstarted import is_overdue, runs_well
from edl.model.cluster import AvoidedNode
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import POD_REJECTED
from edl.model.units import count

FORGOTTEN_AFTER_S = 600.0
"""A pod that ran for this time before it failed begins with the first pause again, as for a kubelet."""
NODE_FIRST_S, NODE_LONGEST_S = 60.0, 3600.0
"""How long a job avoids a node that rejected a pod of it: the first time, and at most."""
LATER_S = 30.0
"""A pod created this long after a rejection was not sent together with the rejected pod."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Pause:
    """The last end of a pod of a name, and until when no other one is created; monotonic seconds."""

    pod_uid: str = ""
    count: int = 0
    until_s: float = -inf


@dataclass(frozen=True, slots=True)
class _Rejection:
    """The last rejection of a pod by a node, and how many in a row there were."""

    pod: str
    node: str
    why: str
    times: int

    def __str__(self) -> str:
        times = f", {self.times} times in a row" if self.times > 1 else ""
        return f"node {self.node} rejected {self.pod} ({self.why}){times}"


@dataclass(frozen=True, slots=True)
class _RejectingNode:
    """A node that rejected pods of a job.

    Attributes:
        times: how often; pods that were rejected together count once.
        rejected_s: when it last did, in seconds since the epoch.
        until_s: how long the job avoids it, in monotonic seconds; then it tries one pod there.
        has_begun: one that was sent later has begun there.
    """

    times: int
    rejected_s: float
    until_s: float
    has_begun: bool = False

    @property
    def pause_s(self) -> float:
        """How long the job avoids it from the last rejection on."""
        return min(NODE_LONGEST_S, NODE_FIRST_S * 2.0 ** min(self.times - 1, 10))

    def shown(self, name: str, job: Job, *, probe: JobKey | None = None) -> AvoidedNode:
        """The node as others know it."""
        return AvoidedNode(name, self.rejected_s + self.pause_s, (job.key,), self.times - 1, probe=probe)


@dataclass(slots=True)
class _OfJob:
    """The failed attempts of one job with one spec."""

    generation: int
    pauses: dict[Slot, _Pause] = field(default_factory=dict)
    shared: _Pause = _Pause()
    well_s: float = -inf  # when a trainer will have run for long enough
    rejections: dict[Slot, _Rejection] = field(default_factory=dict)
    nodes: dict[str, _RejectingNode] = field(default_factory=dict)

    @property
    def ends_s(self) -> Iterator[float]:
        yield self.shared.until_s
        yield self.well_s
        yield from (pause.until_s for pause in self.pauses.values())
        yield from (node.until_s for node in self.nodes.values())


class Retries:
    """The pauses of all jobs, by UID."""

    def __init__(self) -> None:
        self._of_job: dict[str, _OfJob] = {}
        self._deleted: dict[str, DeletedByOthers] = {}  # of jobs that have young pods, or had some deleted

    def note(self, job: Job, now_s: float, time_s: float) -> None:
        """Note which pods of a job have come to an end since the last call.

        Args:
            job: with its pods, as the cache shows it.
            now_s: monotonic seconds.
            time_s: seconds since the epoch.
        """
        deleted = self._deleted.pop(job.uid, None)
        if deleted is None or deleted.generation != job.generation:
            deleted = DeletedByOthers(job.generation)
        deleted.note(_slots(job), now_s, time_s)
        if deleted:
            self._deleted[job.uid] = deleted
        known = self._of_job.get(job.uid)
        if known is not None and known.generation != job.generation:
            seen = {slot: _Pause(pause.pod_uid) for slot, pause in known.pauses.items()}
            self._of_job[job.uid] = known = _OfJob(job.generation, seen)
        ended = [(slot, pod) for slot, pod in _slots(job) if _has_ended(pod)]
        if known is None:
            if not ended:
                return
            known = self._of_job[job.uid] = _OfJob(job.generation)
            if job.status is not None and (stored := job.status.condition("Degraded")) and stored.reason == FAILED:
                known.shared = _Pause(count=1)
        is_well = runs_well(job, time_s)
        for slot, pod in ended:
            if known.pauses.get(slot, _Pause()).pod_uid != pod.uid:
                is_shared = not job.fault_tolerant or (pod.role is Role.TRAINER and not is_well)
                _note_end(known, slot, pod, (now_s, time_s), is_shared=is_shared)
        if is_well and job.fault_tolerant:
            known.shared = _Pause()
        began = (pod.started_s for pod in job.live_trainers if pod.started_s is not None and pod.has_begun)
        known.well_s = min(began, default=-inf) + STEADY_AFTER_S - time_s + now_s
        begun = {slot for slot, pod in _slots(job) if pod.has_begun}
        known.rejections = {
            slot: one
            for slot, one in known.rejections.items()
            if slot not in begun and now_s < known.pauses[slot].until_s + FORGOTTEN_AFTER_S
        }
        if any(not node.has_begun for node in known.nodes.values()):
            _note_begun(known, job)

    def expect_end(self, job_uid: str, pod_uids: Iterable[str]) -> None:
        """Note that edl itself is about to delete pods of a job."""
        if (deleted := self._deleted.get(job_uid)) is not None:
            deleted.expect_end(pod_uids)

    def paused(self, job_uid: str, now_s: float) -> frozenset[Slot]:
        """The roles and indexes of a job for which no pod is created now."""
        deleted, known = self._deleted.get(job_uid), self._of_job.get(job_uid)
        by_others = frozenset(deleted.paused(now_s)) if deleted is not None else frozenset()
        if known is None:
            return by_others
        return by_others | {slot for slot, pause in known.pauses.items() if now_s < pause.until_s}

    def most_new(self, job: Job, now_s: float, time_s: float) -> int | None:
        """How many trainers of a job may be created now; None if as many as it lacks.

        None of a gang while it pauses. One of a job none of whose trainers does well, once its pause is over; not
        beside one that may yet do well: that has begun, or was created lately.
        """
        if not job.fault_tolerant and (deleted := self._deleted.get(job.uid)) and any(deleted.paused(now_s)):
            return 0
        known = self._of_job.get(job.uid)
        if known is None or not known.shared.count:
            return None
        if now_s < known.shared.until_s:
            return 0
        if not job.fault_tolerant:
            return None
        return 0 if any(pod.has_begun or not is_overdue(pod, time_s) for pod in job.live_trainers) else 1

    def holds_back(self, job: Job, now_s: float, time_s: float) -> bool:
        """True if some trainers of a job that it lacks are not created now."""
        if job.uid not in self._of_job and job.uid not in self._deleted:  # nearly every job
            return False
        paused = any(role is Role.TRAINER for role, _ in self.paused(job.uid, now_s))
        return paused or self.most_new(job, now_s, time_s) is not None

    def rejecting(self, job: Job, now_s: float) -> tuple[AvoidedNode, ...]:
        """The nodes that a job avoids because they rejected pods of it, sorted by name."""
        known = self._of_job.get(job.uid)
        if known is None:
            return ()
        return tuple(node.shown(name, job) for name, node in sorted(known.nodes.items()) if now_s < node.until_s)

    def tried(self, job: Job, now_s: float) -> tuple[AvoidedNode, ...]:
        """The nodes on which a job may try one pod, because they rejected pods of it and none has begun there since.

        None for a job whose pods start together, or whose number of trainers is not free: one of them alone is none.
        """
        known = self._of_job.get(job.uid)
        if known is None or job.gang or not job.fault_tolerant or job.sizes:
            return ()
        return tuple(
            node.shown(name, job, probe=job.key)
            for name, node in sorted(known.nodes.items())
            if node.until_s <= now_s and not node.has_begun
        )

    def problem(self, job: Job) -> tuple[str, str] | None:
        """(reason, message) for condition Degraded while pods are rejected, or deleted by others, again and again.

        Pods that nodes rejected count until a successor has begun.
        """
        known = self._of_job.get(job.uid)
        if known is None or not known.rejections:
            deleted = self._deleted.get(job.uid)
            return None if deleted is None else deleted.problem()
        found = [one for _, one in sorted(known.rejections.items(), key=lambda item: (item[1].why, item[1].pod))]
        texts = [str(one) for one in found[:_MOST_NAMED]]
        more = f"; and {count(len(found) - _MOST_NAMED, 'more pod')}" if len(found) > _MOST_NAMED else ""
        return POD_REJECTED, (
            f"{'; '.join(texts)}{more}; no container ran, so this is no failure of the job: edl tries again after"
            " growing pauses, on other nodes if there are any"
        )

    def next_end_s(self, job_uid: str, now_s: float) -> float:
        """When the next pause of a job ends, in monotonic seconds; infinity if there is none."""
        deleted, known = self._deleted.get(job_uid), self._of_job.get(job_uid)
        end_s = inf if deleted is None else deleted.next_end_s(now_s)
        return end_s if known is None else min([end_s, *(one_s for one_s in known.ends_s if one_s > now_s)])

    def forget(self, job_uid: str) -> None:
        """Forget a job that no longer exists."""
        self._of_job.pop(job_uid, None)
        self._deleted.pop(job_uid, None)


def _slots(job: Job) -> Iterator[tuple[Slot, Pod]]:
    return (((pod.role, pod.index), pod) for pod in job.pods if pod.role is not None and pod.index is not None)


def _has_ended(pod: Pod) -> bool:
    """True if a pod failed by itself, or was rejected; what edl or others did to it is no reason for a pause."""
    is_own = not pod.intent or pod.intent.startswith(FAILED)
    return pod.phase is PodPhase.FAILED and not pod.disruption and is_own


def _note_begun(known: _OfJob, job: Job) -> None:
    """Note on which nodes a pod has begun that its job sent there after a rejection."""
    last_s: dict[str, float] = {}
    for pod in job.pods:
        if pod.node in known.nodes and pod.has_begun:
            last_s[pod.node] = max(last_s.get(pod.node, -inf), pod.created_s)
    for name, created_s in last_s.items():
        node = known.nodes[name]
        if not node.has_begun and created_s >= node.rejected_s + LATER_S:
            known.nodes[name] = replace(node, has_begun=True)


def _note_end(known: _OfJob, slot: Slot, pod: Pod, now: tuple[float, float], *, is_shared: bool) -> None:
    """Note the end of one pod.

    Args:
        known: the known state of its job.
        slot: its role and index.
        pod: it.
        now: monotonic seconds, and seconds since the epoch.
        is_shared: the other trainers of the job pause with it.
    """
    now_s, time_s = now
    ran_s = time_s - (pod.created_s if pod.started_s is None else pod.started_s)
    is_new = ran_s > FORGOTTEN_AFTER_S and not pod.rejection
    known.pauses[slot] = _longer(_Pause() if is_new else known.pauses.get(slot, _Pause()), now_s, pod.uid)
    if is_shared and now_s >= known.shared.until_s:  # else it failed together with another one
        known.shared = _longer(_Pause() if is_new else known.shared, now_s, pod.uid)
    if pod.rejection and pod.node:
        times = known.rejections[slot].times + 1 if slot in known.rejections else 1
        known.rejections[slot] = _Rejection(pod.name, pod.node, pod.rejection, times)
        node = known.nodes.get(pod.node)
        if node is None or now_s >= node.until_s:  # else it was rejected together with another one
            again = _RejectingNode(node.times + 1 if node is not None else 1, time_s, now_s)
            known.nodes[pod.node] = replace(again, until_s=now_s + again.pause_s)


def _longer(before: _Pause, now_s: float, pod_uid: str) -> _Pause:
    return _Pause(pod_uid, before.count + 1, now_s + pause_s(before.count))
