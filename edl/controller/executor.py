"""Writes what a round decided: first everything that shrinks, then what grows, then status and events.

`write_queue` holds their order, and `write_pool` sends them until they are done or a newer plan is due. Refused
writes are repeated after growing pauses (`backoff`). A failed write of one job never stops another job.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

from edl.clock import Clock
from edl.controller.backoff import Backoff
from edl.controller.concurrency import Concurrency
from edl.controller.plan_maker import StartablePod
from edl.controller.ports import Cluster, LeaderLease, Recorder, RoundResult
from edl.controller.settled_jobs import Given, SettledJobs
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
from edl.errors import PlanError
from edl.explain.refusals import who_refuses
from edl.lifecycle.action_order import degraded_update, status_updates
from edl.lifecycle.allowance import as_allowed, missing_roles, next_index, wants_pods
from edl.lifecycle.broken_nodes import keep_away, one_probe, watch_nodes
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.desired_state import JobContext, desired_state
from edl.lifecycle.domains import require_domains
from edl.lifecycle.lending import lend, nodes_without_lending
from edl.lifecycle.lent_cpu.guard import judge_requests
from edl.lifecycle.node_pinning import pin, update_unpinned
from edl.lifecycle.node_requests import allow_eviction, node_request_actions
from edl.lifecycle.pod_actions import needs
from edl.lifecycle.resized_workload import workload_actions
from edl.lifecycle.running_requests import changed_requests, keep_refusals
from edl.lifecycle.tenancy import limited_priority
from edl.model.actions import (
    Action,
    CreatePod,
    DeletePod,
    EmitEvent,
    EnsurePodGroup,
    Intent,
    MarkPod,
    Need,
    Outcome,
    PatchStatus,
    ProbePod,
    ResizePod,
    Result,
)
from edl.model.cluster import ClusterSnapshot, NodeRequest
from edl.model.jobs import Job, Refusal
from edl.model.names import PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS, JobKey, Role, WorkloadKind
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.planner.quota import QuotaNow

JobActions = tuple[Job, tuple[Action, ...]]
REPAIR_S = 1800.0
"""How often edl makes sure that what a running job needs still exists."""
JOBS_AT_ONCE = 5
"""After so many jobs the event loop may do something else: what a job lacks takes some milliseconds at worst."""
MOST_PROBES = 64
"""So many jobs are probed at once at most: a probe is a request, and a round must not last long."""


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

    Attributes:
        last_write_s: monotonic time at which the last write ended.
        left: how many writes the last `act` dropped because a newer plan was due.
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
    ) -> None:
        self._cluster, self._clock, self._lease, self._recorder = cluster, clock, lease, recorder
        self._limits, self._master_view, self._is_due = limits, master_view, is_due
        self._pool = WritePool(self._apply, clock, Concurrency(writes))
        self.left, self.made_progress = 0, False
        self._loose: dict[tuple[str, str], float] = {}
        self._held: dict[str, float] = {}  # until when trainers keep their request, by UID
        self.last_write_s = float("-inf")
        self._backoff = Backoff()
        self._settled = SettledJobs()
        self._repaired: dict[str, tuple[int, float]] = {}  # (generation, when the next repair is due) by UID
        self._noticed: dict[str, str] = {}  # the last event of each workload that is no TrainingJob, by UID
        self._tried: dict[str, int] = {}  # the generation with which each job was probed, by UID

    def use(self, limits: Limits) -> None:
        """From now on, use these limits; every job is looked at anew."""
        self._limits, self._settled = limits, SettledJobs()

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
        nodes = watch_nodes(snapshot, self._limits)
        for start in (begun := one_probe(starts, nodes.avoided)):
            places[start.job].append((start.role, start.node))
        uids = {job.uid for job in snapshot.jobs}
        self._backoff.keep_only(uids)
        self._settled.keep_only(uids)
        self._pool.turns.keep_only(uids)
        self._repaired = {uid: due for uid, due in self._repaired.items() if uid in uids}
        self._loose = update_unpinned(self._loose, snapshot, self._clock.monotonic_s())
        self._noticed = {uid: message for uid, message in self._noticed.items() if uid in uids}
        requests = self._changed_requests(snapshot, {start.node for start in begun})
        closed = nodes_without_lending(snapshot.nodes) if self._limits.surplus_cpu_request < 1.0 else frozenset()
        asked: dict[JobKey, list[NodeRequest]] = defaultdict(list)
        for request in snapshot.node_requests:
            asked[request.job].append(request)
        wanted: list[JobActions] = []
        resized: list[JobActions] = []
        for number, job in enumerate(snapshot.jobs, start=1):
            if job.owner_count is not None:
                resized.append((job, self._resized(job, decisions.get(job.key), _trainers(places[job.key]))))
                continue
            context = JobContext(lost, self._trouble(snapshot, job), self._master_view(job), nodes)
            given = Given(job, decisions.get(job.key), places[job.key], context)
            actions = self._desired(given, requests.get(job.key, ()))
            if actions:  # most jobs lack nothing
                actions = require_domains(actions, job, snapshot.nodes)
                actions = keep_away(actions, job, nodes.avoided, snapshot.nodes)
                actions = pin(actions, len(snapshot.nodes), self._loose)
                actions = lend(actions, job, self._limits, self._loose, closed)
                actions = allow_eviction(actions, job, self._limits)
            actions = (*self._repairs(job), *actions, *self._node_requests(given, asked.get(job.key, ())))
            if actions:
                wanted.append((job, actions))
            if number % JOBS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return await self._write(wanted, resized)

    def _resized(self, job: Job, decision: ScaleDecision | None, free: int) -> tuple[Action, ...]:
        """What a workload lacks whose own controller makes its pods."""
        actions = workload_actions(job, decision, free, self._clock.now_s())
        if not job.problem:
            self._noticed.pop(job.uid, None)
        now_s = self._clock.monotonic_s()
        self._backoff.forget_unwanted(job.uid, actions, now_s)
        if not all(self._backoff.allows(job.uid, type(action), now_s) for action in actions):
            return ()
        return tuple(a for a in actions if not isinstance(a, EmitEvent) or self._noticed.get(job.uid) != a.message)

    def _node_requests(self, given: Given, requests: Sequence[NodeRequest]) -> tuple[Action, ...]:
        """The request pods of a job that come and go."""
        now_s, groups = self._clock.monotonic_s(), self._limits.expected_nodes
        actions = node_request_actions(given.job, requests, given.decision, groups, self._clock.now_s())
        return tuple(a for a in actions if self._backoff.allows(given.job.uid, type(a), now_s))

    def _repairs(self, job: Job) -> tuple[Action, ...]:
        """What a job with pods needs is created again if somebody deleted it; each job has its own turn."""
        if not (job.is_schedulable and job.live_trainers):
            return ()
        now_s = self._clock.monotonic_s()
        turn = crc32(job.uid.encode()) / 2**32  # by the UID, so that two simulations with one seed do the same
        due_s = self._repaired.setdefault(job.uid, (job.generation, now_s + REPAIR_S * (0.5 + 0.5 * turn)))
        if due_s[0] == job.generation and now_s < due_s[1]:
            return ()
        self._repaired[job.uid] = (job.generation, now_s + REPAIR_S)
        return needs(job)

    def _changed_requests(
        self, snapshot: ClusterSnapshot, busy_nodes: set[str]
    ) -> Mapping[JobKey, tuple[ResizePod, ...]]:
        """The CPU requests of running trainers that change, by job."""
        if not self._limits.lend_running:
            return {}
        self._held = keep_refusals(self._held, snapshot, self._clock.monotonic_s())
        changes = changed_requests(snapshot, self._limits, busy_nodes, self._held)
        judged = judge_requests(snapshot, self._limits, changes, busy_nodes, self._held)
        for problem in judged.problems:
            self._recorder.failed("CPU requests", PlanError(f"{problem}; this is a bug in edl"))
        return judged.allowed

    def _desired(self, given: Given, requests: tuple[ResizePod, ...]) -> tuple[Action, ...]:
        """What a job lacks, with the changed requests of its trainers."""
        job, time_s = given.job, self._clock.now_s()
        if self._settled.has(given, time_s):
            now_s = self._clock.monotonic_s()
            self._backoff.forget_unwanted(job.uid, requests, now_s)
            return requests if self._backoff.allows(job.uid, ResizePod, now_s) else ()
        try:
            _, actions = desired_state(job, given.decision, given.places, time_s, given.context)
        except Exception as error:  # a job that breaks this code must not stop the other jobs
            self._recorder.failed(f"job {job.key}", error)
            return ()
        self._settled.note(given, time_s, lacks=bool(actions))
        actions = (*actions, *requests)
        now_s = self._clock.monotonic_s()
        self._backoff.forget_unwanted(job.uid, actions, now_s)
        if not self._backoff.allows(job.uid, PatchStatus, now_s):  # no event before the status that it explains
            actions = tuple(a for a in actions if not isinstance(a, EmitEvent))
        if not self._backoff.allows(job.uid, DeletePod, now_s):  # nobody is moved
            actions = tuple(a for a in actions if not (isinstance(a, EmitEvent) and a.reason == Intent.MOVED))
        return tuple(a for a in actions if isinstance(a, MarkPod) or self._backoff.allows(job.uid, type(a), now_s))

    def _trouble(self, snapshot: ClusterSnapshot, job: Job) -> tuple[str, str] | None:
        """(reason, message) for the condition Degraded; None if there is nothing to report."""
        refused = self._backoff.refusal(job.uid, self._clock.monotonic_s())
        if refused is not None:
            return refused
        if limited := limited_priority(job, self._limits):
            return limited
        optional = () if job.is_best_effort else (PRIORITY_BEST_EFFORT, PRIORITY_BEST_EFFORT_SURPLUS)
        if missing := [name for name in snapshot.missing_priority_classes if name not in optional]:
            return (
                "PriorityClassMissing",
                f"the cluster has no PriorityClass {', '.join(missing)}; pods start without it until you run"
                " kubectl apply -f deploy/base/priorityclasses.yaml",
            )
        return None

    async def _write(self, wanted: Sequence[JobActions], resized: Sequence[JobActions]) -> RoundResult:
        """Write the deletions of every job, then creations and status; one failure does not stop the rest.

        A new job's status does not wait for the deletions of other jobs.

        Args:
            wanted: what TrainingJobs lack.
            resized: the resizes of other workloads, and their events.
        """
        fewer = [resize_lane(job, actions) for job, actions in resized if is_shrink(actions)]
        ends = {job.uid: deletion_lane(actions) for job, actions in wanted}
        news = {
            job.uid: lane
            for job, actions in wanted
            if not any(ends[job.uid]) and _is_news(lane := status_lane(job, status_updates(actions)))
        }
        if not (fewer or any(map(any, ends.values()))):
            news = {}
        outcomes, self.left = await self._pool.run([*ends.values(), *fewer, *news.values()], self._is_due)
        if not (self.left or _is_lost(outcomes)):
            unmarked = {o.action.job_uid for o in outcomes if isinstance(o.action, MarkPod) and not o.is_ok}
            lanes = [creation_lane(job, actions) for job, actions in wanted]
            lanes += [request_lane(actions) for _, actions in wanted]
            lanes += [node_lane(actions) for _, actions in wanted]
            lanes += [resize_lane(job, actions) for job, actions in resized if not is_shrink(actions)]
            for job, actions in wanted:
                if job.uid not in news:
                    updates = degraded_update(job, actions) if job.uid in unmarked else status_updates(actions)
                    lanes.append(status_lane(job, updates))
            more, self.left = await self._pool.run(lanes, self._is_due)
            outcomes += more
        self.made_progress = any(outcome.is_ok for outcome in outcomes)
        broken = _is_lost(outcomes) or any(o.result is Result.FAILED for o in outcomes)
        return RoundResult.FAILED if broken else RoundResult.ACTED

    async def _apply(self, action: Action) -> Outcome:
        now_s = self._clock.monotonic_s()
        if not self._lease.is_held():
            outcome = Outcome(action, Result.NOT_LEADER, "NotLeader", "the lease was lost before this write")
        elif not self._backoff.allows(action.job_uid, type(action), now_s):
            return Outcome(action, Result.REFUSED, *(self._backoff.refusal(action.job_uid, now_s) or ()))
        else:
            outcome = await self._try(action)
        if isinstance(action, EmitEvent) and outcome.is_ok and action.job.kind is not WorkloadKind.TRAINING_JOB:
            self._noticed[action.job_uid] = action.message
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


def _is_news(lane: Lane) -> bool:
    return bool(lane) and lane[0][0].worth is Worth.NEWS


def _is_lost(outcomes: Iterable[Outcome]) -> bool:
    return any(outcome.result is Result.NOT_LEADER for outcome in outcomes)


def _trainers(places: Iterable[tuple[Role, str]]) -> int:
    """How many of the pods that fit now are trainers."""
    return sum(role is Role.TRAINER for role, _ in places)


def _probes(job: Job) -> tuple[Action, ...]:
    """A question for each kind of pod that the job lacks; Volcano's admission accepts pods of a group that exists."""
    group = (EnsurePodGroup(job.key, job.uid),) if job.gang else ()
    return *group, *(ProbePod(job.key, job.uid, role, next_index(job, role)) for role in missing_roles(job))
