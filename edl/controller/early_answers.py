"""Statuses that are written while a plan is being made, or between the writes of a round, if these take long.

On a large cluster a plan takes a second. A job that came, ended or lost pods need not wait for it: its status follows
from its pods alone, and so does the end of pods that it does not need any more. Both are written beside the plan.
What needs a plan, such as new pods, is written after it. The same is done while the round computes what jobs lack,
and while it writes what it owes (`hand_back`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from edl.clock import Clock
from edl.controller.hand_back import HandBack
from edl.controller.ports import Cluster
from edl.controller.relief import Relief
from edl.errors import TemporaryError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import VOLUNTARY_SHRINKS, ScaleDecision
from edl.model.status import Reason
from edl.planner.waits import refused

BRIEF_S = 0.1
"""A plan that is made within this time is waited for, as it says more; unless the last ones took long."""
LOOK_EVERY_S = 0.05
"""How often it is asked, while a plan is made, whether something changed that cannot wait."""
MOST_ANSWERS = 16
"""So many jobs are answered at once at most. If more change together, they wait for the plan."""
SYNC_EVERY_S, MOST_SYNC_S = 0.02, 0.3
"""How often, and how long at most, a pause asks whether the cluster shows what the round has written."""
VERDICT_S = 0.7
"""How long a round waits at most for kube-scheduler to try serving pods for which it knows what trainers must go."""
PAUSES_APART = 2
"""The next pause comes after so many times the last one at the earliest, so that the round still writes."""

FOR_JOBS = VOLUNTARY_SHRINKS | {Reason.ADMITTED}
"""Why trainers end so that other jobs get their room."""

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
        latest: the cluster as it was observed last since the round began; None if it was not.
    """

    jobs: dict[str, Job | None] = field(default_factory=dict)
    before: dict[str, Job] = field(default_factory=dict)
    is_outdated: bool = False
    latest: ClusterSnapshot | None = None

    def applied_to(
        self, snapshot: ClusterSnapshot, decisions: dict[JobKey, ScaleDecision]
    ) -> tuple[ClusterSnapshot, dict[JobKey, ScaleDecision], frozenset[str]]:
        """The snapshot as it is stored now, the decisions that still hold, and the UIDs of jobs to leave alone."""
        changed = self._changed_since(snapshot)
        if not self.jobs and not changed:
            return snapshot, decisions, frozenset()
        jobs = tuple(self._as_stored(job) or job for job in snapshot.jobs)
        left = {job.uid: job.key for job in snapshot.jobs if self._as_stored(job) is None or job.uid in changed}
        kept = {key: decision for key, decision in decisions.items() if key not in left.values()}
        return replace(snapshot, jobs=jobs), kept, frozenset(left)

    def spared(self, snapshot: ClusterSnapshot, decisions: Collection[ScaleDecision]) -> frozenset[JobKey]:
        """The jobs that would give trainers to other jobs in vain, as one that gets more has changed since."""
        changed = frozenset(self._changed_since(snapshot).values())
        if not any(decision.job in changed and decision.target > decision.current for decision in decisions):
            return frozenset()
        return frozenset(decision.job for decision in decisions if _gives_to_jobs(decision))

    def _changed_since(self, snapshot: ClusterSnapshot) -> dict[str, JobKey]:
        """By UID, the jobs whose spec is another one by now, or that are gone: the next round decides about them."""
        if self.latest is None or self.latest is snapshot:
            return {}
        now = {job.uid: job for job in self.latest.jobs}
        return {job.uid: job.key for job in snapshot.jobs if not _is_same_spec(job, now.get(job.uid))}

    def _as_stored(self, job: Job) -> Job | None:
        """The job with the status that is stored now; None if the snapshot shows it from another moment."""
        stored = self.jobs.get(job.uid, job)
        if stored is None or stored is job or self.before.get(job.uid) is job:
            return stored
        return job if job.status == stored.status else None


class EarlyAnswers:
    """Answers jobs while a plan is being made, and in the pauses of the writes that follow it.

    Args:
        cluster: is observed again if something changes that cannot wait.
        clock: for pauses.
        writer: writes the answers.
        relief: gives up the plan if serving pods come that need room.
        hand_back: knows how long the round has yet to write.

    Attributes:
        answered: what was written in this round.
        left_alone: see `Pauses`.
    """

    def __init__(self, cluster: Cluster, clock: Clock, writer: Writer, relief: Relief, hand_back: HandBack) -> None:
        self._cluster, self._clock, self._writer, self._relief = cluster, clock, writer, relief
        self._hand_back = hand_back
        self._seen: dict[str, Job] = {}
        self.answered, self.left_alone = Answered(), frozenset[str]()
        self._lost = frozenset[str]()
        self._known_changes, self._next_s = 0, -float("inf")

    def begin(self, known_changes: int, lost: frozenset[str]) -> None:
        """A round begins.

        Args:
            known_changes: how many urgent changes there had been before its snapshot.
            lost: UIDs of pods that no kubelet will end.
        """
        self.answered, self.left_alone = Answered(), frozenset[str]()
        self._known_changes, self._lost, self._next_s = known_changes, lost, -float("inf")

    async def beside_plan(self, planning: Awaitable[T], snapshot: ClusterSnapshot) -> T:
        """Wait for a plan, and answer jobs until it is made.

        Args:
            planning: makes the plan.
            snapshot: what it is made from.

        Returns:
            What `planning` returns.

        Raises:
            AbandonedError: the plan was given up, because serving pods came that need room.
        """
        changed, answered = self._changed(snapshot), self.answered
        plan = asyncio.ensure_future(planning)
        try:
            await asyncio.wait((plan,), timeout=SYNC_EVERY_S if self._relief.is_on() else BRIEF_S)
            if changed and not plan.done():
                answered.before = {job.uid: job for job in changed}
                answered.jobs |= await self._writer.answer(changed[:MOST_ANSWERS], snapshot, self._lost)
            while not plan.done():
                if self._cluster.urgent_changes() != self._known_changes:
                    await self._look_again(self._relief.interrupts)
                await asyncio.wait((plan,), timeout=LOOK_EVERY_S)
            return await plan
        finally:
            plan.cancel()

    async def beside(self, work: Awaitable[T]) -> T:
        """Wait for work that writes nothing, and answer jobs until it is done."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=LOOK_EVERY_S))[0]:
                if self._has_news():
                    await self.answer()
            return await task
        finally:
            task.cancel()

    async def find_no_room(self, pods: frozenset[str]) -> bool:
        """Wait a little for kube-scheduler to try serving pods, and answer jobs until then.

        Args:
            pods: their UIDs.

        Returns:
            True if all of them still wait, and kube-scheduler found no room for any.
        """
        end_s = self._clock.monotonic_s() + VERDICT_S
        while True:
            if self._cluster.urgent_changes() != self._known_changes:
                await self._look_again()
            if (latest := self.answered.latest) is not None:
                if not pods <= {pod.uid for pod in latest.waiting_serving}:  # one has room, or is gone
                    return False
                if pods <= refused(latest):
                    return True
            if self._clock.monotonic_s() >= end_s:
                return False
            await self._clock.sleep(LOOK_EVERY_S)

    def is_due(self) -> bool:
        """True if something has changed that cannot wait, and the next round does not answer it as soon.

        The next round first waits for further changes, and if plans take long, so does all that it does before.
        """
        is_worthwhile = self._hand_back.owes() or (self._hand_back.may_pause() and self._relief.is_on())
        return self._has_news() and is_worthwhile

    def _has_news(self) -> bool:
        """True if something has changed that cannot wait, and the last pause was long ago."""
        has_changed = self._cluster.urgent_changes() != self._known_changes
        return has_changed and self._clock.monotonic_s() >= self._next_s

    async def answer(self, since_s: float | None = None) -> None:
        """Answer what has changed, as soon as the cluster shows what the round has written; see `Pauses`."""
        began_s = self._clock.monotonic_s()
        while not await self._look_again() and self._clock.monotonic_s() < began_s + MOST_SYNC_S:
            await self._clock.sleep(SYNC_EVERY_S)
        now_s = self._clock.monotonic_s()
        took_s = now_s - (began_s if since_s is None else since_s)
        self._next_s = now_s + PAUSES_APART * took_s
        self._hand_back.pause(took_s)

    async def _look_again(self, interrupts: Callable[[ClusterSnapshot], bool] = lambda _now: False) -> bool:
        """Answer jobs that have changed since the snapshot; what was planned for them is not carried out.

        Args:
            interrupts: True if nothing is to be answered, because the round ends.

        Returns:
            False if the cluster cannot be observed now.
        """
        answered, known_changes = self.answered, self._cluster.urgent_changes()
        answered.is_outdated = True  # observing takes what has changed: the next round must not wait for more
        try:
            now = await self._cluster.observe()
        except TemporaryError:
            return False
        self._known_changes, answered.latest = known_changes, now
        if not interrupts(now) and (changed := self._changed(now)[:MOST_ANSWERS]):
            written = await self._writer.answer(changed, now, self._lost)
            answered.jobs |= dict.fromkeys(written)
            self.left_alone |= written.keys()
        return True

    def _changed(self, snapshot: ClusterSnapshot) -> list[Job]:
        """The jobs that came, ended or lost pods since the last call."""
        before, self._seen = self._seen, {job.uid: job for job in snapshot.jobs}
        return [job for job in snapshot.jobs if _wants_answer(before.get(job.uid), job)]


def _is_same_spec(before: Job, now: Job | None) -> bool:
    return now is not None and (now.generation, now.deleting) == (before.generation, before.deleting)


def _gives_to_jobs(decision: ScaleDecision) -> bool:
    """True if trainers end so that other jobs get their room."""
    return bool(decision.victims) and decision.admitted and decision.shrink_reason in FOR_JOBS


def _wants_answer(before: Job | None, now: Job) -> bool:
    """True if the job has no status yet, or if fewer of its pods live that nobody decided to end."""
    if now.status is None:
        return not now.deleting
    if before is None or before is now:
        return False
    left = {pod.uid for pod in now.pods if pod.is_live or pod.intent}
    return any(pod.is_live and not pod.intent and pod.uid not in left for pod in before.pods)
