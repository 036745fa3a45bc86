"""Pauses for growth that does not start: trainers above a minimum that do not run, or that no controller creates.

A job some of whose trainers run may still have others that cannot start: their image is gone, their configuration is
wrong, or nobody makes them for a while because those before them failed. Their capacity goes to others. The job tries
one trainer more, or its next size, after a pause, and twice as long a pause each time; once one more has begun, it
grows as before.
Trainers that edl is still to create, because a growth is long or pods on their node still end, are no such trainers.

Losing this memory costs time and never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from math import inf

from edl.controller.pauses.undone_starts import kept_with, version_of
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.sizes import above
from edl.model.status import Reason
from edl.model.units import seconds

SAID_S, SILENT_S = 60.0, 120.0
"""How long trainers may take to begin: if they report that they cannot (or nobody makes them), and if silent."""
FIRST_S, LONGEST_S = 120.0, 1920.0


@dataclass(frozen=True, slots=True)
class _Growth:
    """The growth of one job; times are monotonic seconds.

    Attributes:
        generation: the generation of its spec, see `version_of`.
        begun: how many of its trainers had begun when it last had more than these.
        made: the most trainers that it has had since.
        since_s: since when it has had more than these; inf while it has not.
        pause_s: the last pause; 0 if no growth had to be withdrawn.
        until_s: when that pause ends.
        last_s: the pause before one more began; 0 if none was needed. The next one is longer until `forgotten_s`.
    """

    generation: int
    begun: int = 0
    made: int = 0
    since_s: float = inf
    pause_s: float = 0.0
    until_s: float = -inf
    last_s: float = 0.0
    forgotten_s: float = -inf


class UnstartedGrowth:
    """Limits jobs that have trainers above their minimum that do not start."""

    def __init__(self) -> None:
        self._of_job: dict[str, _Growth] = {}

    def apply(
        self, view: ClusterSnapshot, now_s: float, pauses: Callable[[Job], bool], calm: Container[str] = ()
    ) -> ClusterSnapshot:
        """Return the planner's view in which a job whose growth does not start keeps what has started.

        Args:
            view: the cluster; what has changed in it since the last call is noted.
            now_s: monotonic seconds.
            pauses: whether edl creates no trainers of a TrainingJob for a while, because those before them failed.
            calm: UIDs of jobs all of whose pods have begun; see `calm`.
        """
        before, self._of_job = self._of_job, {}
        for job in view.jobs:
            known = before.get(job.uid)
            missing = _missing(job) if _is_waited_for(job) or pauses(job) else 0
            if known is None and not missing and (job.uid in calm or _has_begun(job)):
                continue  # so it is with nearly all
            if known is None or known.generation != version_of(job):
                known = _Growth(version_of(job))
            if (after := _after(known, job, missing, now_s)) != _Growth(version_of(job)):
                self._of_job[job.uid] = after
        if not any(known.pause_s for known in self._of_job.values()):
            return view
        return replace(view, jobs=tuple(self._held(job, now_s) for job in view.jobs))

    def next_end_s(self, now_s: float) -> float:
        """When growth is withdrawn or a pause ends next, in monotonic seconds; infinity if neither will."""
        ends: Iterable[float] = (
            end_s
            for known in self._of_job.values()
            for end_s in (known.until_s, known.since_s + SAID_S, known.since_s + SILENT_S)
        )
        return min((end_s for end_s in ends if end_s > now_s), default=inf)

    def _held(self, job: Job, now_s: float) -> Job:
        known = self._of_job.get(job.uid)
        if known is None or not known.pause_s or job.refusal is not None or not job.is_schedulable:
            return job
        low, high = job.bounds
        is_tried = now_s >= known.until_s and _begun(job) > 0
        begun = max(low, kept_with(job, (pod for pod in job.live_trainers if pod.has_begun)))
        allowed = (above(job.sizes, begun) or high) if is_tried else begun
        if allowed >= high:
            return job
        message = (
            f"further trainers of it do not start; edl tries more again {seconds(known.pause_s)} after the last time"
        )
        return replace(job, refusal=Refusal(allowed, is_tried, Reason.PODS_NOT_STARTED, message, ""))


def _has_begun(job: Job) -> bool:
    """Return True if every pod that has a node has begun to start."""
    return all(pod.has_begun or not pod.node for pod in job.pods)


def _after(known: _Growth, job: Job, missing: int, now_s: float) -> _Growth:
    """Return the state of a job's pauses, given its pods and the number of pods that no controller creates."""
    begun, made = _begun(job), len(job.live_trainers)
    stuck = sum(bool(pod.node) and not pod.has_begun for pod in job.live_trainers) + missing
    low, high = job.bounds
    if low == high or not job.is_schedulable or job.completed_trainers:
        return _Growth(version_of(job))
    if known.pause_s and begun > max(low, known.begun):
        again_s = 2 * known.pause_s  # one more has begun; it may end soon, as those did that began before it
        known = _Growth(version_of(job), last_s=known.pause_s, forgotten_s=now_s + again_s)
    if known.last_s and now_s >= known.forgotten_s:
        known = replace(known, last_s=0.0, forgotten_s=-inf)
    # Where others took the capacity of the one that is tried, there is no reason to try anew at once.
    gave_way = bool(known.pause_s) and known.since_s < inf and not stuck and job.refusal is None
    if not gave_way and (not stuck or begun + stuck <= low or now_s < known.until_s or job.refusal is not None):
        return replace(known, since_s=inf) if known.pause_s or known.last_s else _Growth(version_of(job))
    if not gave_way and (begun > known.begun or known.since_s == inf):
        return replace(known, begun=begun if not known.pause_s else known.begun, made=made, since_s=now_s)
    if missing and made > known.made:
        return replace(known, made=made, since_s=now_s)
    is_said = gave_way or missing > 0 or any(pod.cannot_start for pod in job.live_trainers)
    if now_s - known.since_s < (SAID_S if is_said else SILENT_S):
        return known
    return _withdrawn(known, job, now_s)


def _withdrawn(known: _Growth, job: Job, now_s: float) -> _Growth:
    """The state of a job's pauses after its growth was withdrawn because it had not started."""
    pause_s = min(LONGEST_S, max(known.pause_s, known.last_s) * 2 or FIRST_S)
    return _Growth(version_of(job), _begun(job), len(job.live_trainers), inf, pause_s, now_s + pause_s)


def _is_waited_for(job: Job) -> bool:
    """True if the job's own controller is to make its trainers; for one of Kueue only once that has admitted it."""
    return job.owner_count is not None and (job.kueue is None or job.has_quota)


def _begun(job: Job) -> int:
    return sum(pod.has_begun for pod in job.live_trainers)


def _missing(job: Job) -> int:
    """How many trainers edl, or the job's own controller, is to make."""
    planned = job.status.trainer.desired if job.status is not None else 0
    return max(0, (planned if job.owner_count is None else job.owner_count) - len(job.live_trainers))
