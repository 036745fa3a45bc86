"""Writes what a round decided: first everything that shrinks, then what grows, then status and events.

`write_queue` holds their order, and `write_pool` sends them until they are done or a newer plan is due. Refused
writes are repeated after growing pauses (`backoff`). A failed write of one job never stops another job.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

from edl.clock import Clock
from edl.controller.backoff import Backoff
from edl.controller.concurrency import Concurrency
from edl.controller.job_needs import Facts, JobActions, JobNeeds
from edl.controller.pauses import NO_PAUSES, Pauses
from edl.controller.plan_maker import StartablePod
from edl.controller.ports import Cluster, LeaderLease, Recorder, RoundResult
from edl.controller.write_pool import WritePool
from edl.controller.write_queue import (
    Lane,
    Worth,
    Write,
    creation_lane,
    deletion_lane,
    is_shrink,
    node_lane,
    request_lane,
    resize_lane,
    status_lane,
)
from edl.explain.refusals import who_refuses
from edl.lifecycle.action_order import degraded_update, status_updates
from edl.lifecycle.allowance import as_allowed, missing_roles, next_index, wants_pods
from edl.lifecycle.data_progress import MasterView
from edl.model.actions import (
    Action,
    CreatePod,
    EmitEvent,
    EnsurePodGroup,
    MarkPod,
    Need,
    Outcome,
    PatchStatus,
    ProbePod,
    Result,
)
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.names import JobKey, WorkloadKind
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.planner.quota import QuotaNow

JOBS_AT_ONCE = 5
"""After so many jobs the event loop may do something else: what a job lacks takes some milliseconds at worst."""
MOST_STARTS = 2000
"""So many pods are created in a round at most: what jobs lack takes as long to compute as there are pods."""
MOST_PROBES = 64
"""So many jobs are probed at once at most: a probe is a request, and a round must not last long."""

NO_DECISIONS: Mapping[JobKey, ScaleDecision] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Lacks:
    """What some jobs lack.

    Attributes:
        wanted: TrainingJobs, with their actions.
        resized: workloads whose own controller makes their pods, with their resize and its event.
    """

    wanted: list[JobActions]
    resized: list[JobActions]

    def ends(self) -> list[Lane]:
        """What shrinks."""
        ends = [deletion_lane(actions) for _, actions in self.wanted]
        return ends + [resize_lane(job, actions) for job, actions in self.resized if is_shrink(actions)]

    def without(self, job_uids: Set[str]) -> _Lacks:
        """What the other jobs lack."""
        kept = (
            [(job, actions) for job, actions in of if job.uid not in job_uids] for of in (self.wanted, self.resized)
        )
        return _Lacks(*kept)


class Executor:
    """Turns decisions into actions and writes them while the lease is held.

    Args:
        cluster: carries out each action.
        clock: for pauses and durations.
        lease: checked before each write.
        recorder: gets each outcome.
        limits: what the operator allows.
        master_view: what the master monitor knows about a job's master.
        writes: the most requests that may be under way at once.
        is_due: asked before each write of `act`; once it is True nothing more is sent.
        on_write: called before `act` writes what it knows that jobs lack.
        on_think: called before `act` computes what else they lack.

    Attributes:
        last_write_s: monotonic time at which the last write ended.
        left: how many writes, at least, the last `act` dropped because a newer plan was due.
        made_progress: some write of the last `act` succeeded.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        lease: LeaderLease,
        recorder: Recorder,
        *,
        limits: Limits,
        master_view: Callable[[Job], MasterView | None],
        writes: int,
        is_due: Callable[[], bool] = lambda: False,
        on_write: Callable[[], None] = lambda: None,
        on_think: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_write, self._on_think = on_write, on_think
        self._cluster, self._clock, self._lease, self._recorder = cluster, clock, lease, recorder
        self._is_due = is_due
        concurrency = Concurrency(writes)
        self._pool, self._answers = (WritePool(self._apply, clock, concurrency) for _ in range(2))
        self.left, self.made_progress = 0, False
        self.last_write_s = float("-inf")
        self._backoff = Backoff()
        self._needs = JobNeeds(clock, recorder, self._backoff, limits, master_view)
        self._tried: dict[str, int] = {}  # the generation with which each job was probed, by UID

    def use(self, limits: Limits) -> None:
        """From now on, use these limits; every job is looked at anew."""
        self._needs.use(limits)

    def allowed(self, view: ClusterSnapshot) -> ClusterSnapshot:
        """The planner's view with bounds that respect what the API server refuses.

        A refusal ends with the wish: once the job has all that it wants, or its spec changes.
        """
        now_s = self._clock.monotonic_s()
        self._tried = {job.uid: self._tried[job.uid] for job in view.jobs if job.uid in self._tried}
        refused = self._backoff.refused_jobs(CreatePod)
        if not refused:
            return view
        for job in (job for job in view.jobs if job.uid in refused):
            if not wants_pods(job) or self._tried.get(job.uid, job.generation) != job.generation:
                self._backoff.forget(job.uid, CreatePod)
        jobs = tuple(as_allowed(job, self._refusal(job, now_s)) for job in view.jobs)
        return view if jobs == view.jobs else replace(view, jobs=jobs)

    async def probe(self, view: ClusterSnapshot, plan: ScalePlan) -> bool:
        """Ask whether pods would be accepted: of jobs that grow for the first time, and of refused ones after a time.

        Args:
            view: the planner's view, without refusals.
            plan: what was planned for it.

        Returns:
            True if an answer changes what a job may have, or what its pods request: the plan has to be made again.
        """
        now_s = self._clock.monotonic_s()
        growing = {d.job for d in plan.decisions if d.admitted and (d.nodes or d.fixed_nodes)}
        quota = QuotaNow(view)
        chains: list[JobActions] = []
        for job in view.jobs:
            if job.owner_count is not None:  # its own controller makes its pods
                continue
            refused = self._backoff.refused_creation(job.uid, now_s)
            is_due = refused is not None and refused.accepted_s is None and now_s >= refused.until_s
            is_new = refused is None and job.key in growing and self._tried.get(job.uid) != job.generation
            # A ResourceQuota that is full now refuses what the plan is about to make room for.
            if (is_due or is_new) and wants_pods(job) and all(quota.has(job, role) for role in missing_roles(job)):
                first = (refused.action,) if refused is not None and isinstance(refused.action, Need) else ()
                chains.append((job, (*first, *_probes(job))))
        before = [self._refusal(job, now_s) for job, _ in chains[:MOST_PROBES]]
        lanes: list[Lane] = [((Write(chain, Worth.BASE),),) for _, chain in chains[:MOST_PROBES]]
        outcomes, _ = await self._pool.run(lanes, lambda: False)
        now_s = self._clock.monotonic_s()
        answers: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            answers[outcome.action.job_uid].append(outcome)
        for job, _ in chains:
            if answers[job.uid] and all(o.is_ok or o.result is Result.REFUSED for o in answers[job.uid]):
                self._tried[job.uid] = job.generation
        has_learned = any(o.result is Result.DONE for o in outcomes if isinstance(o.action, ProbePod))
        return has_learned or before != [self._refusal(job, now_s) for job, _ in chains[:MOST_PROBES]]

    def _refusal(self, job: Job, now_s: float) -> Refusal | None:
        """What the API server refuses to the job now."""
        refused = self._backoff.refused_creation(job.uid, now_s)
        if refused is None:
            return None
        is_tried, live = refused.accepted_s is not None, len(job.live_trainers)
        reason, message = who_refuses(refused.reason, refused.message)
        return Refusal(live + refused.step if is_tried else live, is_tried, reason, message, refused.message)

    async def act(
        self,
        snapshot: ClusterSnapshot,
        decisions: Mapping[JobKey, ScaleDecision],
        answered: frozenset[str],
        starts: Callable[[], Awaitable[Iterable[StartablePod]]],
        lost: frozenset[str],
        *,
        whole: bool = False,
        pauses: Pauses = NO_PAUSES,
    ) -> RoundResult:
        """Bring every job closer to its decision; ACTED, or FAILED if some write did not succeed.

        Args:
            snapshot: the cluster as observed.
            decisions: by job; a job without one keeps its pods, and its status is still updated.
            answered: UIDs of jobs that were answered while the plan was made, which are left to the next round.
            starts: finds the pods that fit on their nodes now, the first to be created first; no others are created.
            lost: UIDs of pods that no kubelet will end.
            whole: create all these pods, however many there are.
            pauses: answers what cannot wait, in between.
        """
        if self._is_due():  # nothing would be sent, so what jobs lack need not be computed
            self.left, self.made_progress = 1, False
            return RoundResult.ACTED
        uids = {job.uid for job in snapshot.jobs}
        self._backoff.keep_only(uids)
        self._needs.keep_only(uids)
        self._pool.turns.keep_only(uids)
        first, others = _apart([job for job in snapshot.jobs if job.uid not in answered], decisions)
        lacks, outcomes = _Lacks([], []), list[Outcome]()
        if first:  # trainers go, so nothing of these jobs may start
            lacks = await self._lacking(first, self._needs.read(snapshot, decisions, None, lost), pauses)
            self._on_write()
            outcomes, self.left = await self._pool.run(lacks.ends(), self._is_due, pauses)
            self._on_think()
        if not (self.left or _is_lost(outcomes)):
            startable = list(await pauses.beside(starts()))
            begun = startable if whole else startable[:MOST_STARTS]
            facts = self._needs.read(snapshot, decisions, begun, lost)
            rest = await self._lacking(others, facts, pauses, self._is_due)
            if self._is_due():
                self.left = 1
            else:
                outcomes += await self._write(lacks.without(pauses.left_alone), rest, outcomes, pauses)
                self.left += len(startable) - len(begun)
        self.made_progress = any(outcome.is_ok for outcome in outcomes)
        broken = _is_lost(outcomes) or any(o.result is Result.FAILED for o in outcomes)
        return RoundResult.FAILED if broken else RoundResult.ACTED

    async def answer(
        self,
        jobs: Sequence[Job],
        snapshot: ClusterSnapshot,
        lost: frozenset[str],
        decisions: Mapping[JobKey, ScaleDecision] = NO_DECISIONS,
    ) -> dict[str, Job | None]:
        """Write what some jobs need without a plan: their statuses above all.

        Args:
            jobs: of the snapshot.
            snapshot: the cluster as observed.
            lost: UIDs of pods that no kubelet will end.
            decisions: what jobs give up; a job without one keeps the pods that it needs. Nothing is created.

        Returns:
            By UID, each job of which something was written: as it is stored now, or None if its pods change, too.
        """
        facts = self._needs.read(snapshot, decisions, None, lost)
        lacks = await self._lacking([job for job in jobs if job.owner_count is None], facts, NO_PAUSES)
        ends, _ = await self._answers.run(lacks.ends(), lambda: False)
        failed = {outcome.action.job_uid for outcome in ends if not outcome.is_ok}
        lanes = [status_lane(job, status_updates(done)) for job, done in lacks.wanted if job.uid not in failed]
        outcomes, _ = await self._answers.run(lanes, lambda: False)
        known = {job.uid: job for job in jobs}
        written: dict[str, Job | None] = {}
        for action in (outcome.action for outcome in outcomes if outcome.is_ok):
            if isinstance(action, PatchStatus):
                written[action.job_uid] = replace(known[action.job_uid], status=action.status)
        return written | {outcome.action.job_uid: None for outcome in ends}

    async def _lacking(
        self, jobs: Sequence[Job], facts: Facts, pauses: Pauses, is_due: Callable[[], bool] = lambda: False
    ) -> _Lacks:
        """What jobs lack, until a newer plan is due; the event loop does other things in between.

        Jobs that were answered in a pause lack nothing for now.
        """
        lacks = _Lacks([], [])
        for number, job in enumerate(jobs, start=1):
            if job.owner_count is not None:
                lacks.resized.append((job, self._needs.of_workload(job, facts)))
            elif actions := self._needs.of(job, facts):
                lacks.wanted.append((job, actions))
            if number % JOBS_AT_ONCE == 0:
                await asyncio.sleep(0)
                if is_due():
                    break
                if pauses.is_due():
                    await pauses.answer()
        return lacks.without(pauses.left_alone) if pauses.left_alone else lacks

    async def _write(self, begun: _Lacks, others: _Lacks, before: Sequence[Outcome], pauses: Pauses) -> list[Outcome]:
        """Write the deletions of the other jobs, then creations and statuses; one failure does not stop the rest.

        A new job's status does not wait for the deletions of other jobs.

        Args:
            begun: what jobs lack of which the deletions are written already.
            others: what the others lack.
            before: the outcomes of these deletions.
            pauses: answers what cannot wait, in between.
        """
        self._on_write()
        ends, wanted = others.ends(), (*begun.wanted, *others.wanted)
        news = {
            job.uid: lane
            for job, actions in wanted
            if any(map(any, ends)) and not any(deletion_lane(actions))
            if _is_news(lane := status_lane(job, status_updates(actions)))
        }
        outcomes, self.left = await self._pool.run([*ends, *news.values()], self._is_due, pauses)
        if self.left or _is_lost(outcomes):
            return outcomes
        unmarked = {o.action.job_uid for o in (*before, *outcomes) if isinstance(o.action, MarkPod) and not o.is_ok}
        wanted = tuple((job, actions) for job, actions in wanted if job.uid not in pauses.left_alone)
        lanes = [creation_lane(job, actions) for job, actions in wanted]
        lanes += [request_lane(actions) for _, actions in wanted]
        lanes += [node_lane(actions) for _, actions in wanted]
        resized = (*begun.resized, *others.resized)
        lanes += [resize_lane(job, actions) for job, actions in resized if not is_shrink(actions)]
        for job, actions in wanted:
            if job.uid not in news:
                updates = degraded_update(job, actions) if job.uid in unmarked else status_updates(actions)
                lanes.append(status_lane(job, updates))
        more, self.left = await self._pool.run(lanes, self._is_due, pauses)
        return [*outcomes, *more]

    async def _apply(self, action: Action) -> Outcome:
        now_s = self._clock.monotonic_s()
        if not self._lease.is_held():
            outcome = Outcome(action, Result.NOT_LEADER, "NotLeader", "the lease was lost before this write")
        elif not self._backoff.allows(action.job_uid, type(action), now_s):
            return Outcome(action, Result.REFUSED, *(self._backoff.refusal(action.job_uid, now_s) or ()))
        else:
            outcome = await self._try(action)
        if isinstance(action, EmitEvent) and outcome.is_ok and action.job.kind is not WorkloadKind.TRAINING_JOB:
            self._needs.note_event(action)
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
        self.last_write_s = self._clock.monotonic_s()
        return replace(outcome, seconds=self.last_write_s - started_s)


def _apart(jobs: Sequence[Job], decisions: Mapping[JobKey, ScaleDecision]) -> tuple[list[Job], list[Job]]:
    """The jobs that make room for serving pods, which come first, and the others."""
    first = {key for key, d in decisions.items() if d.victims and d.shrink_reason == Reason.SERVING_NEEDS_ROOM}
    return [job for job in jobs if job.key in first], [job for job in jobs if job.key not in first]


def _is_news(lane: Lane) -> bool:
    return bool(lane) and lane[0][0].worth is Worth.NEWS


def _is_lost(outcomes: Iterable[Outcome]) -> bool:
    return any(outcome.result is Result.NOT_LEADER for outcome in outcomes)


def _probes(job: Job) -> tuple[Action, ...]:
    """A question for each kind of pod that the job lacks; Volcano's admission accepts pods of a group that exists."""
    group = (EnsurePodGroup(job.key, job.uid),) if job.gang else ()
    return *group, *(ProbePod(job.key, job.uid, role, next_index(job, role)) for role in missing_roles(job))
