"""Statuses that are written while a plan is being made, if the plan takes long.

On a large cluster a plan takes a second. A job that came, ended or lost pods need not wait for it: its status follows
from its pods alone, and so does the end of pods that it does not need any more. Both are written beside the plan.
What needs a plan, such as new pods, is written after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from edl.controller.ports import Cluster
from edl.controller.relief import Relief
from edl.errors import TemporaryError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision

BRIEF_S = 0.1
"""A plan that is made within this time is waited for: it says more."""
LOOK_EVERY_S = 0.05
"""How often it is asked, while a plan is made, whether something changed that cannot wait."""
MOST_ANSWERS = 16
"""So many jobs are answered at once at most. If more change together, they wait for the plan."""

T = TypeVar("T")


class Writer(Protocol):
    """Writes what some jobs need without a plan; see `Executor.answer`."""

    async def answer(self, jobs: list[Job], snapshot: ClusterSnapshot, lost: frozenset[str]) -> dict[str, Job | None]:
        """By UID, each job of which something was written: as it is stored now, or None if its pods change, too."""


@dataclass(slots=True)
class Answered:
    """What was written beside a plan.

    Attributes:
        jobs: by UID, jobs of the plan's snapshot as they are stored now; None if the next round has to look at them.
        before: by UID, the same jobs as they were.
        is_outdated: the cluster was observed again meanwhile, so the next round must not wait for a change.
    """

    jobs: dict[str, Job | None] = field(default_factory=dict)
    before: dict[str, Job] = field(default_factory=dict)
    is_outdated: bool = False

    def applied_to(
        self, snapshot: ClusterSnapshot, decisions: dict[JobKey, ScaleDecision]
    ) -> tuple[ClusterSnapshot, dict[JobKey, ScaleDecision], frozenset[str]]:
        """The snapshot as it is stored now, the decisions that still hold, and the UIDs of jobs to leave alone."""
        if not self.jobs:
            return snapshot, decisions, frozenset()
        jobs = tuple(self._as_stored(job) or job for job in snapshot.jobs)
        left = {job.uid: job.key for job in snapshot.jobs if self._as_stored(job) is None}
        kept = {key: decision for key, decision in decisions.items() if key not in left.values()}
        return replace(snapshot, jobs=jobs), kept, frozenset(left)

    def _as_stored(self, job: Job) -> Job | None:
        """The job with the status that is stored now; None if the snapshot shows it from another moment."""
        stored = self.jobs.get(job.uid, job)
        if stored is None or stored is job or self.before.get(job.uid) is job:
            return stored
        return job if job.status == stored.status else None


class EarlyAnswers:
    """Answers jobs while a plan is being made.

    Args:
        cluster: is observed again if something changes that cannot wait.
        writer: writes the answers.
        relief: gives up the plan if serving pods come that need room.
    """

    def __init__(self, cluster: Cluster, writer: Writer, relief: Relief) -> None:
        self._cluster, self._writer, self._relief = cluster, writer, relief
        self._seen: dict[str, Job] = {}

    async def beside(
        self, planning: Awaitable[T], snapshot: ClusterSnapshot, lost: frozenset[str], known_changes: int
    ) -> tuple[T, Answered]:
        """Wait for a plan, and answer jobs until it is made.

        Args:
            planning: makes the plan.
            snapshot: what it is made from.
            lost: UIDs of pods that no kubelet will end.
            known_changes: how many urgent changes there had been before the snapshot.

        Returns:
            What `planning` returns, and what was written meanwhile.

        Raises:
            AbandonedError: the plan was given up, because serving pods came that need room.
        """
        changed, answered = self._changed(snapshot), Answered()
        plan = asyncio.ensure_future(planning)
        try:
            await asyncio.wait((plan,), timeout=BRIEF_S)
            if changed and not plan.done():
                answered.before = {job.uid: job for job in changed}
                answered.jobs = await self._writer.answer(changed[:MOST_ANSWERS], snapshot, lost)
            while not plan.done():
                if (now := self._cluster.urgent_changes()) != known_changes:
                    known_changes = now
                    await self._look_again(lost, answered)
                await asyncio.wait((plan,), timeout=LOOK_EVERY_S)
            return await plan, answered
        finally:
            plan.cancel()

    async def _look_again(self, lost: frozenset[str], answered: Answered) -> None:
        """Answer jobs that have changed since the snapshot; what was planned for them is not carried out."""
        answered.is_outdated = True  # observing takes what has changed: the next round must not wait for more
        try:
            now = await self._cluster.observe()
        except TemporaryError:
            return
        if self._relief.interrupts(now):
            return
        if changed := self._changed(now)[:MOST_ANSWERS]:
            answered.jobs |= dict.fromkeys(await self._writer.answer(changed, now, lost))

    def _changed(self, snapshot: ClusterSnapshot) -> list[Job]:
        """The jobs that came, ended or lost pods since the last call."""
        before, self._seen = self._seen, {job.uid: job for job in snapshot.jobs}
        return [job for job in snapshot.jobs if _wants_answer(before.get(job.uid), job)]


def _wants_answer(before: Job | None, now: Job) -> bool:
    """True if the job has no status yet, or if fewer of its pods live that nobody decided to end."""
    if now.status is None:
        return not now.deleting
    if before is None or before is now:
        return False
    left = {pod.uid for pod in now.pods if pod.is_live or pod.intent}
    return any(pod.is_live and not pod.intent and pod.uid not in left for pod in before.pods)
