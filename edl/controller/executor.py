"""Writes what a round decided: first everything that shrinks, then what grows, then status and events.

Refused writes are repeated after growing pauses (`backoff`). A failed write of one job never stops another job.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from edl.clock import Clock
from edl.controller.backoff import Backoff
from edl.controller.plan_maker import StartablePod
from edl.controller.ports import Cluster, LeaderLease, Recorder, RoundResult
from edl.lifecycle.action_order import creations, degraded_update, status_updates
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.desired_state import JobContext, desired_state
from edl.lifecycle.node_pinning import pin, update_unpinned
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision

JobActions = tuple[Job, tuple[Action, ...]]


class Executor:
    """Turns decisions into actions and writes them while the lease is held.

    Args:
        cluster: carries out each action.
        clock: for pauses and durations.
        lease: checked before each write.
        recorder: gets each outcome.
        master_view: what the master monitor knows about a job's master.
        writes: how many requests may be under way at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        lease: LeaderLease,
        recorder: Recorder,
        *,
        master_view: Callable[[Job], MasterView | None],
        writes: int,
    ) -> None:
        self._cluster, self._clock, self._lease, self._recorder = cluster, clock, lease, recorder
        self._master_view, self._writes = master_view, writes
        self._loose: dict[tuple[str, str], float] = {}
        self._backoff = Backoff()

    async def act(
        self,
        snapshot: ClusterSnapshot,
        decisions: Mapping[JobKey, ScaleDecision],
        starts: Iterable[StartablePod],
        lost: frozenset[str],
    ) -> RoundResult:
        """Bring every job closer to its decision; ACTED, or FAILED if some write did not succeed.

        Args:
            snapshot: the cluster as observed.
            decisions: by job; a job without one keeps its pods, and its status is still updated.
            starts: the pods that fit on their nodes now; no others are created.
            lost: UIDs of pods that no kubelet will end.
        """
        places: dict[JobKey, list[tuple[Role, str]]] = defaultdict(list)
        for start in starts:
            places[start.job].append((start.role, start.node))
        self._backoff.keep_only({job.uid for job in snapshot.jobs})
        self._loose = update_unpinned(self._loose, snapshot, self._clock.monotonic_s())
        wanted: list[JobActions] = []
        for job in snapshot.jobs:
            context = JobContext(lost, self._trouble(snapshot, job), self._master_view(job))
            actions = self._desired(job, decisions.get(job.key), places[job.key], context)
            wanted.append((job, pin(actions, len(snapshot.nodes), self._loose)))
        return await self._write(wanted)

    def _desired(
        self,
        job: Job,
        decision: ScaleDecision | None,
        places: Sequence[tuple[Role, str]],
        context: JobContext,
    ) -> tuple[Action, ...]:
        try:
            _, actions = desired_state(job, decision, places, self._clock.now_s(), context)
        except Exception as error:  # a job that breaks this code must not stop the other jobs
            self._recorder.failed(f"job {job.key}", error)
            return ()
        if not any(isinstance(a, CreatePod) for a in actions):
            grows = decision is not None and decision.admitted and decision.target > len(job.live_trainers)
            if not grows:
                self._backoff.forget(job.uid, CreatePod)
        now_s = self._clock.monotonic_s()
        return tuple(a for a in actions if isinstance(a, MarkPod) or self._backoff.allows(job.uid, type(a), now_s))

    def _trouble(self, snapshot: ClusterSnapshot, job: Job) -> tuple[str, str] | None:
        """(reason, message) for the condition Degraded; None if there is nothing to report."""
        refused = self._backoff.refusal(job.uid)
        if refused is not None:
            return refused
        if snapshot.missing_priority_classes:
            names = ", ".join(snapshot.missing_priority_classes)
            return (
                "PriorityClassMissing",
                f"the cluster has no PriorityClass {names}; pods start without it until you run"
                " kubectl apply -f deploy/base/priorityclasses.yaml",
            )
        return None

    async def _write(self, wanted: Sequence[JobActions]) -> RoundResult:
        """Write the deletions of every job, then creations and status; one failure does not stop the rest."""
        gate = asyncio.Semaphore(self._writes)
        first = [a for _, actions in wanted for a in actions if isinstance(a, MarkPod | DeletePod)]
        outcomes = list(await asyncio.gather(*(self._apply(a, gate) for a in first)))
        unmarked = {o.action.job_uid for o in outcomes if isinstance(o.action, MarkPod) and not o.is_ok}
        chains = [
            chain
            for job, actions in wanted
            for chain in (
                creations(actions),
                degraded_update(job, actions) if job.uid in unmarked else status_updates(actions),
            )
            if chain
        ]
        for done in await asyncio.gather(*(self._apply_chain(chain, gate) for chain in chains)):
            outcomes += done
        broken = any(o.result in {Result.FAILED, Result.NOT_LEADER} for o in outcomes)
        return RoundResult.FAILED if broken else RoundResult.ACTED

    async def _apply_chain(self, chain: Sequence[Action], gate: asyncio.Semaphore) -> list[Outcome]:
        """Apply one action after the other until one fails, because each needs the one before it.

        Pods come last and are created together.
        """
        outcomes: list[Outcome] = []
        for action in chain:
            if outcomes and not outcomes[-1].is_ok and not isinstance(outcomes[-1].action, EmitEvent):
                break
            if isinstance(action, CreatePod):
                return [*outcomes, *await self._create([a for a in chain if isinstance(a, CreatePod)], gate)]
            outcomes.append(await self._apply(action, gate))
        return outcomes

    async def _create(self, pods: Sequence[CreatePod], gate: asyncio.Semaphore) -> list[Outcome]:
        """Create masters and pservers, then the trainers, which cannot work without them."""
        base = [pod for pod in pods if pod.role is not Role.TRAINER]
        outcomes = list(await asyncio.gather(*(self._apply(pod, gate) for pod in base)))
        if all(outcome.is_ok for outcome in outcomes):
            trainers = [pod for pod in pods if pod.role is Role.TRAINER]
            outcomes += await asyncio.gather(*(self._apply(pod, gate) for pod in trainers))
        return outcomes

    async def _apply(self, action: Action, gate: asyncio.Semaphore) -> Outcome:
        async with gate:
            if not self._lease.is_held():
                outcome = Outcome(action, Result.NOT_LEADER, "NotLeader", "the lease was lost before this write")
            elif not self._backoff.allows(action.job_uid, type(action), self._clock.monotonic_s()):
                return Outcome(action, Result.REFUSED, *(self._backoff.refusal(action.job_uid) or ()))
            else:
                outcome = await self._try(action)
        self._backoff.record(outcome, self._clock.monotonic_s())
        self._recorder.acted(outcome)
        return outcome

    async def _try(self, action: Action) -> Outcome:
        started_s = self._clock.monotonic_s()
        try:
            outcome = await self._cluster.apply(action)
        except Exception as error:  # a bug in the adapter must not stop the other writes
            self._recorder.failed(f"{type(action).__name__} for job {action.job}", error)
            outcome = Outcome(action, Result.FAILED, type(error).__name__, str(error))
        return replace(outcome, seconds=self._clock.monotonic_s() - started_s)
