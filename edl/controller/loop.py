"""The loop of the controller: observe, plan, act, record, forever.

Written against ports only, so that the simulator, the tests and a cluster run the same rounds. A round takes one
snapshot, makes one plan in a thread under a deadline, has it checked without the solver, and carries it out: what
shrinks first, then growth into room that is really free. It keeps no truth of its own: whatever it remembers between
rounds (the last plan, how long a pod has been stranded, who leaves room unused, what the API server refused) may be
lost at any moment.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import Protocol

from edl.clock import Clock
from edl.controller.backoff import Backoff
from edl.controller.master_monitor import MasterMonitor
from edl.controller.planner_thread import PlannerThread
from edl.controller.ports import Cluster, LeaderLease, Recorder, RoundResult
from edl.errors import EdlError, TemporaryError
from edl.lifecycle.action_order import creations, degraded_update, status_updates
from edl.lifecycle.data_progress import MasterView
from edl.lifecycle.desired_state import JobContext, as_planned, desired_state
from edl.lifecycle.node_pinning import pin, update_unpinned
from edl.lifecycle.unreachable_pods import unreachable_pods
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.planner.fallback import failure_of, without_growth
from edl.planner.guard import RefusedPlanError, serving_grace_left_s
from edl.planner.unplaceable import WaitRecord, mark, watch

_JITTER = SystemRandom()
_DEADLINE_SLACK_S = 1.0
"""The planner keeps its deadline itself; only one that hangs is given up from outside."""


class Start(Protocol):
    """A pod that has room now, as `packing.startable` says it."""

    @property
    def job(self) -> JobKey:
        """Whose pod."""

    @property
    def role(self) -> Role:
        """Of which role."""

    @property
    def node(self) -> str:
        """Where the room is."""


@dataclass(frozen=True, slots=True)
class Planner:
    """The three pure functions that a round thinks with."""

    decide: Callable[[ClusterSnapshot, Limits], ScalePlan]
    check: Callable[[ClusterSnapshot, ScalePlan], Sequence[str]]
    startable: Callable[[ClusterSnapshot, ScalePlan], Sequence[Start]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often, how fast and how much at once.

    Attributes:
        interval_s: the longest time between two rounds.
        debounce_s: from the first change to the round that answers it.
        stranded_s: how long a pod must have been stranded before it is deleted by force.
        retry_s, retry_at_most_s: pause after a round whose writes failed; doubled each time, jittered.
        writes: how many requests may be under way at once.
    """

    interval_s: float = 5.0
    debounce_s: float = 0.5
    unreachable_s: float = 30.0
    retry_s: float = 1.0
    retry_at_most_s: float = 30.0
    writes: int = 16


@dataclass(slots=True)
class _Memory:
    """What one round leaves for the next; losing it costs time, never correctness."""

    plan: ScalePlan | None = None
    unreachable: dict[str, float] = field(default_factory=dict)
    wait_records: dict[str, WaitRecord] = field(default_factory=dict)
    loose: dict[tuple[str, str], float] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=Backoff)
    failed_rounds: int = 0
    wake_in_s: float | None = None


class Controller:
    """Runs rounds against a cluster while the lease is held.

    Attributes:
        last_round_s: monotonic time at which the last round started: the sign of life of `/healthz`.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        clock: Clock,
        lease: LeaderLease,
        recorder: Recorder,
        planner: Planner,
        limits: Limits,
        pace: Pace | None = None,
        show: Callable[[ClusterSnapshot, ScalePlan], None] | None = None,
        masters: MasterMonitor | None = None,
    ) -> None:
        """Put the parts together.

        `show` makes every round a dry run: it is given each plan instead of the cluster. Without `masters` nobody
        listens to the masters of the jobs.
        """
        self._cluster, self._clock, self._lease, self._recorder = cluster, clock, lease, recorder
        self._planner, self._limits, self._pace, self._show = planner, limits, pace or Pace(), show
        self._planner_thread, self._masters = PlannerThread(), masters
        self._memory = _Memory()
        self.last_round_s = clock.monotonic_s()

    async def run(self, stop: asyncio.Event) -> None:
        """Run rounds until `stop` is set; nothing that happens in a round ends the loop."""
        while not stop.is_set():
            result = await self.round()
            resting = asyncio.ensure_future(self._rest(result))
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait({resting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (resting, stopping):
                task.cancel()
            await asyncio.gather(resting, stopping, return_exceptions=True)

    async def once(self, timeout_s: float) -> RoundResult:
        """One round on a synced cluster with the lease held; SKIPPED or FOLLOWED where that did not come in time."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            result = await self.round()
            if result not in {RoundResult.SKIPPED, RoundResult.FOLLOWED} or self._clock.monotonic_s() >= deadline_s:
                return result
            await self._clock.sleep(self._pace.debounce_s)

    async def round(self) -> RoundResult:
        """Observe, plan, act, record, once."""
        self.last_round_s = self._clock.monotonic_s()
        self._memory.wake_in_s = None
        try:
            result = await self._round()
        except EdlError as error:
            self._recorder.skipped(str(error))
            result = RoundResult.SKIPPED
        except Exception as error:  # a bug in one round must not end the service of the others
            self._recorder.failed("round", error)
            result = RoundResult.FAILED
        if result is RoundResult.FAILED:
            self._memory.failed_rounds += 1
        elif result is not RoundResult.SKIPPED:  # one that wrote nothing does not say that writing goes well
            self._memory.failed_rounds = 0
        self._recorder.ended(result, self._clock.monotonic_s() - self.last_round_s)
        return result

    async def _round(self) -> RoundResult:
        snapshot = await self._cluster.observe()
        leads = self._lease.is_held()
        self._recorder.observed(snapshot, leader=leads)
        lost = self._lost(snapshot)
        if self._masters is not None:
            self._masters.update(snapshot.jobs if leads and self._show is None else (), lost)
        if not leads:
            return RoundResult.FOLLOWED
        planned = (as_planned(job, is_finishing=self._is_finishing(job)) for job in snapshot.jobs)
        view = self._mark_unplaceable(replace(snapshot, jobs=tuple(planned)))
        self._memory.wake_in_s = self._grace_left_s(view)
        plan = await self._plan(view)
        if self._show is not None:
            if plan is not None:
                self._show(view, plan)
            return RoundResult.SHOWN if plan is not None else RoundResult.FAILED
        starts = self._planner.startable(view, plan) if plan is not None else ()
        put_off = await self._revalidate(view, plan)
        return await self._act(snapshot, plan, starts, put_off, lost)

    async def _plan(self, view: ClusterSnapshot) -> ScalePlan | None:
        """A plan that passed its checks; None leaves the cluster as it is."""
        late_s = self._limits.deadline_s + _DEADLINE_SLACK_S
        try:
            plan = await self._planner_thread.run(lambda: self._planner.decide(view, self._limits), late_s)
            if problems := tuple(self._planner.check(view, plan)):
                raise RefusedPlanError(plan, problems)
        except Exception as error:  # whatever the solver throws, the last plan stands
            return self._fall_back(view, error)
        self._memory.plan = plan
        self._recorder.planned(view, self._limits, plan)
        return plan

    def _fall_back(self, view: ClusterSnapshot, error: Exception) -> ScalePlan | None:
        """What stands of the last plan, judged by the same rules; None where there is none, or it is no good now."""
        self._recorder.undecided(view, error)
        if self._memory.plan is None:
            return None
        plan = without_growth(self._memory.plan, view, failure_of(error))
        decided = {decision.job for decision in plan.decisions}
        judged = replace(view, jobs=tuple(job for job in view.jobs if job.key in decided))
        if problems := tuple(self._planner.check(judged, plan)):
            self._recorder.undecided(view, RefusedPlanError(plan, problems))
            return None
        self._recorder.planned(view, self._limits, plan)
        return plan

    async def _revalidate(self, view: ClusterSnapshot, plan: ScalePlan | None) -> frozenset[JobKey]:
        """Jobs whose trainers would die for serving pods that need no room any more: those deletions are put off.

        Between the snapshot and now the plan was thought out; kube-scheduler may have placed the pods meanwhile.
        """
        killed = frozenset(d.job for d in plan.decisions if _kills_for_serving(d)) if plan else frozenset[JobKey]()
        if not killed:
            return killed
        try:
            now = await self._cluster.observe()
        except TemporaryError as error:
            self._recorder.held(f"deletions for serving: {error}")
            return killed
        waited = {pod.uid for pod in view.pods if pod.needs_room}
        if waited & {pod.uid for pod in now.pods if pod.is_waiting_serving}:
            return frozenset()
        self._recorder.held("deletions for serving: the waiting pods have found room")
        return killed

    async def _act(
        self,
        snapshot: ClusterSnapshot,
        plan: ScalePlan | None,
        starts: Iterable[Start],
        put_off: frozenset[JobKey],
        lost: frozenset[str],
    ) -> RoundResult:
        places: dict[JobKey, list[tuple[Role, str]]] = defaultdict(list)
        for start in starts:
            places[start.job].append((start.role, start.node))
        decisions = {d.job: d for d in plan.decisions if d.job not in put_off} if plan is not None else {}
        self._memory.backoff.keep({job.uid for job in snapshot.jobs})
        loose = self._memory.loose = update_unpinned(self._memory.loose, snapshot, self._clock.monotonic_s())
        wanted: list[tuple[Job, tuple[Action, ...]]] = []
        for job in snapshot.jobs:
            context = JobContext(lost, self._trouble(snapshot, job), self._master_view(job))
            actions = self._desired(job, decisions.get(job.key), places[job.key], context)
            wanted.append((job, pin(actions, len(snapshot.nodes), loose)))
        return await self._carry_out(wanted)

    def _desired(
        self,
        job: Job,
        decision: ScaleDecision | None,
        places: Sequence[tuple[Role, str]],
        context: JobContext,
    ) -> tuple[Action, ...]:
        try:
            _, actions = desired_state(job, decision, places, self._clock.now_s(), context)
        except Exception as error:  # one poison job must not stop the others
            self._recorder.failed(f"job {job.key}", error)
            return ()
        if not any(isinstance(a, CreatePod) for a in actions):
            wanted = decision is not None and decision.admitted and decision.target > len(job.live_trainers)
            if not wanted:
                self._memory.backoff.forget(job.uid, CreatePod)
        now_s = self._clock.monotonic_s()
        return tuple(
            a for a in actions if isinstance(a, MarkPod) or self._memory.backoff.allows(job.uid, type(a), now_s)
        )

    def _master_view(self, job: Job) -> MasterView | None:
        return self._masters.master_view(job) if self._masters is not None else None

    def _is_finishing(self, job: Job) -> bool:
        master_view = self._master_view(job)
        return master_view is not None and master_view.is_finished

    def _trouble(self, snapshot: ClusterSnapshot, job: Job) -> tuple[str, str] | None:
        refused = self._memory.backoff.refusal(job.uid)
        if refused is not None:
            return refused
        if snapshot.missing_priority_classes:
            names = ", ".join(snapshot.missing_priority_classes)
            return "PriorityClassMissing", f"the cluster has no PriorityClass {names}; pods run without: create it"
        return None

    async def _carry_out(self, wanted: Sequence[tuple[Job, tuple[Action, ...]]]) -> RoundResult:
        """Every job's deletions, then everybody's growth and words; one failure never stops the rest."""
        gate = asyncio.Semaphore(self._pace.writes)
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
        for done in await asyncio.gather(*(self._in_turn(chain, gate) for chain in chains)):
            outcomes += done
        broken = any(o.result in {Result.FAILED, Result.NOT_LEADER} for o in outcomes)
        return RoundResult.FAILED if broken else RoundResult.ACTED

    async def _in_turn(self, chain: Sequence[Action], gate: asyncio.Semaphore) -> list[Outcome]:
        """One after the other until one fails, because each needs the one before; pods of a kind come at once."""
        outcomes: list[Outcome] = []
        for action in chain:
            if outcomes and not outcomes[-1].is_ok and not isinstance(outcomes[-1].action, EmitEvent):
                break
            if isinstance(action, CreatePod):
                return [*outcomes, *await self._start([a for a in chain if isinstance(a, CreatePod)], gate)]
            outcomes.append(await self._apply(action, gate))
        return outcomes

    async def _start(self, pods: Sequence[CreatePod], gate: asyncio.Semaphore) -> list[Outcome]:
        """Masters and pservers, then the trainers, which are of no use without them."""
        base = [pod for pod in pods if pod.role is not Role.TRAINER]
        outcomes = list(await asyncio.gather(*(self._apply(pod, gate) for pod in base)))
        if all(outcome.is_ok for outcome in outcomes):
            trainers = [pod for pod in pods if pod.role is Role.TRAINER]
            outcomes += await asyncio.gather(*(self._apply(pod, gate) for pod in trainers))
        return outcomes

    async def _apply(self, action: Action, gate: asyncio.Semaphore) -> Outcome:
        async with gate:
            if not self._lease.is_held():
                outcome = Outcome(action, Result.NOT_LEADER, "NotLeader", "the lease was lost")
            elif not self._memory.backoff.allows(action.job_uid, type(action), self._clock.monotonic_s()):
                return Outcome(action, Result.REFUSED, *(self._memory.backoff.refusal(action.job_uid) or ()))
            else:
                outcome = await self._attempt(action)
        self._memory.backoff.note(outcome, self._clock.monotonic_s())
        self._recorder.acted(outcome)
        return outcome

    async def _attempt(self, action: Action) -> Outcome:
        started_s = self._clock.monotonic_s()
        try:
            outcome = await self._cluster.apply(action)
        except Exception as error:  # an adapter's bug must not stop the other writes
            self._recorder.failed(f"{type(action).__name__} for job {action.job}", error)
            outcome = Outcome(action, Result.FAILED, type(error).__name__, str(error))
        return replace(outcome, seconds=self._clock.monotonic_s() - started_s)

    def _mark_unplaceable(self, view: ClusterSnapshot) -> ClusterSnapshot:
        """The view with the serving pods marked that leave room unused; whoever is newly marked is told of."""
        now_s, before = self._clock.monotonic_s(), self._memory.wait_records
        self._memory.wait_records = wait_records = watch(before, view, now_s)
        marked = mark(view, wait_records, now_s)
        for pod in marked.pods:
            if pod.unplaceable and wait_records[pod.uid] != before.get(pod.uid):
                self._recorder.held(
                    f"room for serving pod {pod.namespace}/{pod.name}: kube-scheduler leaves room that is open to it"
                    f" unused (pod affinity, spread, volumes or claims?); no trainer dies for it for"
                    f" {wait_records[pod.uid].pause_s:g} s"
                )
        return marked

    def _lost(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        now_s = self._clock.monotonic_s()
        before = self._memory.unreachable
        self._memory.unreachable = {uid: before.get(uid, now_s) for uid in unreachable_pods(snapshot)}
        return frozenset(
            u for u, since_s in self._memory.unreachable.items() if now_s - since_s >= self._pace.unreachable_s
        )

    def _grace_left_s(self, snapshot: ClusterSnapshot) -> float | None:
        """Seconds until the first waiting serving pod is old enough for trainers to die for it."""
        return min(serving_grace_left_s(snapshot, self._limits).values(), default=None)

    async def _rest(self, result: RoundResult) -> None:
        """Until something changes (and a little longer, because changes come in crowds), or the interval is over."""
        due_s = self.last_round_s + self._pace.interval_s
        if result is RoundResult.FOLLOWED:
            while not self._lease.is_held() and self._clock.monotonic_s() < due_s:
                await self._clock.sleep(self._pace.debounce_s)
            return
        if result is RoundResult.SKIPPED:
            await self._clock.sleep(self._pace.debounce_s)
            return
        if self._memory.failed_rounds:
            pause_s = self._pace.retry_s * 2.0 ** min(self._memory.failed_rounds - 1, 10)
            await self._clock.sleep(min(pause_s, self._pace.retry_at_most_s) * _JITTER.uniform(0.5, 1.0))
        left_s = max(0.0, due_s - self._clock.monotonic_s())
        if self._memory.wake_in_s is not None:
            left_s = min(left_s, self._memory.wake_in_s)
        change = self._cluster.wait_for_change(left_s)
        if await (change if self._masters is None else self._masters.or_news(change)):
            await self._clock.sleep(self._pace.debounce_s)


def _kills_for_serving(decision: ScaleDecision) -> bool:
    return bool(decision.victims) and decision.shrink_reason == Reason.SERVING_NEEDS_ROOM
