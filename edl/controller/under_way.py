"""Keeps the writes that were sent and have not ended, and the creations whose answer was lost.

Both count as done where capacity is counted, so nothing is made in place of a pod that may exist. A creation whose
answer was lost is sent again with the same name, before other pods of the job are created.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from edl.controller.assumed import as_if_done
from edl.controller.job_writes import is_exclusive
from edl.controller.pending_writes import Write
from edl.model.actions import CreatePod, DeletePod, Outcome, ProbePod, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import PodPhase


class UnderWay:
    """The writes that were sent and have not ended.

    Attributes:
        writes: those that were sent, in that order.
        unanswered: by UID of the job and name of the pod: the creations whose answer was lost.
    """

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self._asked_s: dict[str, float] = {}
        self.unanswered: dict[tuple[str, str], CreatePod] = {}

    def is_repeat(self, action: CreatePod) -> bool:
        """True if that creation was sent before, and its answer was lost."""
        return (action.job_uid, action.pod_name) in self.unanswered

    def answered(self, action: CreatePod, outcome: Outcome) -> None:
        """Note whether a pod was created; `Result.FAILED` means that nobody knows."""
        if outcome.result is Result.FAILED:
            self.unanswered[action.job_uid, action.pod_name] = action
        else:
            self.unanswered.pop((action.job_uid, action.pod_name), None)

    def forget(self, job_uid: str) -> None:
        """Forget the creations of a job that no longer exists."""
        self.unanswered = {key: action for key, action in self.unanswered.items() if key[0] != job_uid}

    def jobs_that_wait(self) -> set[str]:
        """UIDs of the jobs whose next writes depend on the end of a write under way."""
        return {write.job_uid for write in self.writes if is_exclusive(write) and not is_probe(write)}

    def probes(self) -> set[str]:
        """UIDs of the jobs about whose pods a dry run is under way."""
        return {write.job_uid for write in self.writes if is_probe(write)}

    def sent(self, write: Write, now_s: float) -> None:
        """Note that a write is being sent."""
        self.writes.append(write)
        if is_probe(write):
            self._asked_s[write.job_uid] = now_s

    def ended(self, write: Write) -> None:
        """Note that a write has ended."""
        self.writes.remove(write)
        if is_probe(write):
            self._asked_s.pop(write.job_uid, None)

    def asked_s(self) -> dict[str, float]:
        """By namespace, since when the API server is being asked about the pods of its jobs; monotonic seconds."""
        probes = sorted(filter(is_probe, self.writes), key=lambda write: -self._asked_s[write.job_uid])
        return {write.actions[0].job.namespace: self._asked_s[write.job_uid] for write in probes}

    def pods_of(self, job_uid: str) -> list[CreatePod | DeletePod]:
        """The creations and deletions of a job that were sent and have not ended."""
        return [
            action
            for write in self.writes
            if write.job_uid == job_uid
            for action in write.actions
            if isinstance(action, CreatePod | DeletePod)
        ]

    def repeats(self, job: Job, under_way: Collection[CreatePod | DeletePod]) -> list[CreatePod]:
        """Return the creations of a job to send again: their answers were lost, and the cache shows no such pods.

        Those that the job has no place for any more are forgotten: sent again, they would exceed its maximum. So are
        those of a gang whose run ends: a pod that exists all the same goes with the others.

        Args:
            job: as the cache shows it.
            under_way: what `pods_of` returns for it.
        """
        if not self.unanswered:
            return []
        there = {pod.name for pod in job.pods} | {a.pod_name for a in under_way if isinstance(a, CreatePod)}
        live = {pod.name for pod in job.live_trainers}
        live |= {a.pod_name for a in under_way if isinstance(a, CreatePod) and a.role is Role.TRAINER}
        ends = not job.fault_tolerant and any(p.terminating or p.phase is PodPhase.FAILED for p in job.pods)
        kept: list[CreatePod] = []
        for key, action in list(self.unanswered.items()):
            if key[0] != job.uid:
                continue
            is_beyond = action.role is Role.TRAINER and len(live) >= job.bounds.max_trainers
            if action.pod_name in there or not job.is_schedulable or is_beyond or ends:
                del self.unanswered[key]
            else:
                kept.append(action)
                live |= {action.pod_name} if action.role is Role.TRAINER else set()
        return kept

    def assumed(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the cluster as it will be once all writes under way have succeeded.

        Args:
            snapshot: what the cache shows.
        """
        touched = {uid for uid, _ in self.unanswered} | {write.job_uid for write in self.writes}
        if not touched:
            return snapshot
        jobs = (self._assumed(job) if job.uid in touched else job for job in snapshot.jobs)
        return replace(snapshot, jobs=tuple(jobs))

    def _assumed(self, job: Job) -> Job:
        mine = self.pods_of(job.uid)
        return as_if_done(job, (*mine, *self.repeats(job, mine)))


def is_probe(write: Write) -> bool:
    """True for a dry run that asks whether the API server accepts pods."""
    return isinstance(write.actions[-1], ProbePod)
