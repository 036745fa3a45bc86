"""Pauses for trainers that kube-scheduler cannot place although the plan has a node for them.

A plan does not know every rule, such as those of another scheduler. A trainer that waits for a minute for another
reason than pods that terminate holds a share that others could use. Its job is planned without that slot, says what
kube-scheduler says, and tries one trainer more, or its next size, after a pause, and twice as long a pause each time;
once one more has a node, it grows as before. Of a TrainingJob that cannot have its minimum, all pods go until it is
tried again; a workload keeps its minimum, because nobody knows what its own controller makes of a stop.

Losing this memory costs time and never correctness.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from math import inf

from edl.controller.pauses.undone_starts import kept_with, version_of
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.pods import Pod
from edl.model.sizes import above
from edl.model.status import Reason
from edl.model.units import seconds

WAITS_S = 60.0
"""How long kube-scheduler may find no node for a trainer; it tries again within 10 s of a change."""
FIRST_S, LONGEST_S = 60.0, 1920.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The trainers of one job that wait for a node; times are monotonic seconds.

    Attributes:
        generation: the generation of its spec, see `version_of`.
        bound: how many of its trainers had a node when the others began to wait.
        since_s: since when some wait; inf while none does.
        pause_s: the last pause; 0 if no slot had to be withdrawn.
        until_s: when that pause ends.
        why: what kube-scheduler said.
    """

    generation: int
    bound: int = 0
    since_s: float = inf
    pause_s: float = 0.0
    until_s: float = -inf
    why: str = ""


class UnscheduledTrainers:
    """Limits jobs that have trainers for which kube-scheduler finds no node."""

    def __init__(self) -> None:
        self._of_job: dict[str, _Waiting] = {}

    def apply(self, view: ClusterSnapshot, now_s: float, calm: Container[str] = ()) -> ClusterSnapshot:
        """Return the planner's view in which a job may have only the slots that kube-scheduler accepts.

        Args:
            view: the cluster; what has changed in it since the last call is noted.
            now_s: monotonic seconds.
            calm: UIDs of jobs all of whose pods have a node; see `calm`.
        """
        before, self._of_job = self._of_job, {}
        ending: frozenset[str] | None = None
        for job in view.jobs:
            known, waiting = before.get(job.uid), [] if job.uid in calm else _waiting(job)
            if known is None and not waiting:
                continue
            if known is None or known.generation != version_of(job):
                known = _Waiting(version_of(job))
            if waiting and ending is None:
                ending = _ending(view)
            # Nobody planned a node for the pod of a workload: any may be the one that it waits for.
            stuck = [pod for pod in waiting if not ending or (pod.planned and pod.planned not in ending)]
            if (after := _after(known, job, stuck, now_s)) != _Waiting(version_of(job)):
                self._of_job[job.uid] = after
        if not any(known.pause_s for known in self._of_job.values()):
            return view
        return replace(view, jobs=tuple(self._held(job, now_s) for job in view.jobs))

    def next_end_s(self, now_s: float) -> float:
        """When a slot is withdrawn or a pause ends next, in monotonic seconds; infinity if neither will."""
        ends: Iterable[float] = (
            end_s for known in self._of_job.values() for end_s in (known.until_s, known.since_s + WAITS_S)
        )
        return min((end_s for end_s in ends if end_s > now_s), default=inf)

    def _held(self, job: Job, now_s: float) -> Job:
        known = self._of_job.get(job.uid)
        if known is None or not known.pause_s or job.refusal is not None or not job.is_schedulable:
            return job
        low, high = job.bounds
        bound, is_tried = _bound(job), now_s >= known.until_s
        keeps_minimum = is_tried or job.owner_count is not None
        most = (above(job.sizes, bound) or high) if is_tried else bound
        allowed = max(low if keeps_minimum else 0, kept_with(job, _with_node(job)), most)
        if allowed >= high:
            return job
        message = (
            f"its scheduler finds no node for further trainers of it ({known.why}); edl tries more again"
            f" {seconds(known.pause_s)} after the last time"
        )
        refusal = Refusal(allowed, is_tried, Reason.UNSCHEDULABLE, message, "", bars=allowed == 0)
        if 0 < allowed < low:
            return replace(job, min_trainers=allowed, pinned=0, refusal=refusal)
        return replace(job, refusal=refusal)


def _after(known: _Waiting, job: Job, stuck: list[Pod], now_s: float) -> _Waiting:
    """Return the state of a job's pauses, given the pods that the job has now."""
    bound, fresh = _bound(job), _Waiting(version_of(job))
    if job.completed_trainers or not (job.is_schedulable or known.pause_s):
        return fresh
    if known.pause_s and bound > known.bound and now_s >= known.until_s:
        known = fresh  # one more has a node
    if not stuck or now_s < known.until_s or job.refusal is not None:
        return replace(known, since_s=inf)
    if known.since_s == inf or (bound > known.bound and not known.pause_s):
        return replace(known, bound=bound, since_s=now_s)
    if now_s - known.since_s < WAITS_S:
        return known
    pause_s = min(LONGEST_S, known.pause_s * 2 or FIRST_S)
    return replace(fresh, bound=bound, pause_s=pause_s, until_s=now_s + pause_s, why=stuck[0].unscheduled)


def _bound(job: Job) -> int:
    return len(_with_node(job))


def _with_node(job: Job) -> list[Pod]:
    return [pod for pod in job.live_trainers if pod.node]


def _waiting(job: Job) -> list[Pod]:
    """The trainers that their scheduler has not placed; Kueue says itself what its workloads may have."""
    if job.owner_count is not None and job.kueue is not None:
        return []
    return [pod for pod in job.live_trainers if pod.has_answer and not (pod.node or pod.nominated or pod.gated)]


def _ending(view: ClusterSnapshot) -> frozenset[str]:
    """Return the nodes with terminating pods: trainers may wait until these have ended."""
    now_s = view.observed_at_s
    return frozenset(pod.node for pod in view.terminating if pod.node and not pod.lingers(now_s))
