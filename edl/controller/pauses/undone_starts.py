"""Pauses for jobs that are started and stopped again at once.

Whatever the cause, a start that is undone within a minute has cost others their capacity and trained nothing. The
next start waits, and twice as long each time. A start that lasts ends this, and so does a change of a
TrainingJob's spec.

Losing this memory costs time and never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.status import Reason
from edl.model.units import seconds

SOON_S = 60.0
"""A job stopped by a plan within this time of its start counts as started in vain."""
FIRST_S, LONGEST_S = 10.0, 1280.0


@dataclass(frozen=True, slots=True)
class _Starts:
    """The starts of one job; times are monotonic seconds.

    Attributes:
        generation: the generation of its spec, see `version_of`.
        started_s: when a plan admitted it; -inf if it ran before; None while none does.
        has_pods: it has had pods since.
        pause_s: the last pause; 0 if its last start was not undone.
        until_s: when that pause ends.
        lasted_s: for how long its last start lasted that was undone.
    """

    generation: int
    started_s: float | None = None
    has_pods: bool = False
    pause_s: float = 0.0
    until_s: float = -inf
    lasted_s: float = 0.0


class UndoneStarts:
    """Pauses jobs that plans have started and stopped again at once."""

    def __init__(self) -> None:
        self._of_job: dict[str, _Starts] = {}

    def note(self, view: ClusterSnapshot, plan: ScalePlan, now_s: float) -> None:
        """Note which jobs a plan starts and which ones it stops.

        Args:
            view: what the plan was made from.
            plan: it is published now.
            now_s: monotonic seconds.
        """
        before, self._of_job = self._of_job, {}
        admitted = {decision.job: decision.admitted for decision in plan.decisions}
        for job in view.jobs:
            known = before.get(job.uid)
            if known is None or known.generation != version_of(job):
                known = _Starts(version_of(job), -inf if _has_pods(job) else None, has_pods=_has_pods(job))
            if job.is_schedulable and job.key in admitted:
                known = _after(known, job, is_admitted=admitted[job.key], now_s=now_s)
            elif not (job.is_schedulable or job.is_barred):
                known = replace(known, started_s=None, has_pods=False)
            self._of_job[job.uid] = known

    def apply(self, view: ClusterSnapshot, now_s: float) -> ClusterSnapshot:
        """Return the planner's view in which a job whose start was undone gets nothing before its pause is over."""
        waiting = {uid for uid, known in self._of_job.items() if now_s < known.until_s}
        if not waiting:
            return view
        return replace(view, jobs=tuple(self._held(job) if job.uid in waiting else job for job in view.jobs))

    def next_end_s(self, now_s: float) -> float:
        """When the first pause ends, in monotonic seconds; infinity if none lasts."""
        ends: Iterable[float] = (known.until_s for known in self._of_job.values())
        return min((end_s for end_s in ends if end_s > now_s), default=inf)

    def _held(self, job: Job) -> Job:
        known = self._of_job[job.uid]
        if not job.is_schedulable or known.generation != version_of(job):
            return job
        if job.kueue is not None or job.keeps_minimum:
            return job  # Kueue starts and stops its jobs, and nobody stops the other ones
        message = (
            f"waits {seconds(known.pause_s)} before it starts again: its last start was undone after"
            f" {seconds(max(1.0, known.lasted_s))}"
        )
        return replace(job, refusal=Refusal(0, False, Reason.MIN_UNSATISFIED, message, "", bars=True))


def _after(known: _Starts, job: Job, *, is_admitted: bool, now_s: float) -> _Starts:
    """Return the state of a job's pauses after a plan that admits the job or rejects it."""
    if is_admitted and known.started_s is not None and known.has_pods and not known.pause_s:
        return known  # so it is with nearly all
    if is_admitted:
        started_s = now_s if known.started_s is None else known.started_s
        is_over = now_s - started_s >= SOON_S
        return replace(
            known,
            started_s=started_s,
            has_pods=known.has_pods or _has_pods(job),
            pause_s=0.0 if is_over else known.pause_s,
        )
    if known.started_s is None:
        return known
    lasted_s = now_s - known.started_s
    stopped = replace(known, started_s=None, has_pods=False)
    if lasted_s >= SOON_S or not (known.has_pods or _has_pods(job)):
        return stopped
    pause_s = min(LONGEST_S, known.pause_s * 2 or FIRST_S)
    return replace(stopped, pause_s=pause_s, until_s=now_s + pause_s, lasted_s=lasted_s)


def version_of(job: Job) -> int:
    """The version of a job's spec as its owner has set it, without changes that edl makes to a workload."""
    return job.generation if job.owner_count is None else 0


def _has_pods(job: Job) -> bool:
    """True if the job has pods, or its own controller is to make some."""
    return bool(job.owner_count) or any(pod.is_live for pod in job.pods)


def kept_with(job: Job, pods: Iterable[Pod]) -> int:
    """How many trainers a job keeps at least if it keeps these.

    The controller of a workload ends the trainers with the highest indexes, whether they run or not.
    """
    if job.owner_count is None:
        return sum(1 for _ in pods)
    return max((1 + (pod.index or 0) for pod in pods), default=0)
