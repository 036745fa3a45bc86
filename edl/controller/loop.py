"""The loop of the controller: observe, plan, act, record, repeat.

A round takes one snapshot (`observer`), makes one checked plan in a thread (`plan_maker`) and writes the changes
(`executor`): first what shrinks, then growth into capacity that is free now. If something changes meanwhile that
cannot wait, the round drops the writes that it has not sent, and the next one decides again (`hand_back`).

Everything here is written against `ports`, so the tests run the same rounds as a cluster. The controller may lose
what it remembers between rounds at any moment: a restart costs time and never correctness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from edl.clock import Clock
from edl.controller.early_answers import EarlyAnswers
from edl.controller.executor import Executor
from edl.controller.hand_back import HandBack
from edl.controller.master_monitor import MasterMonitor
from edl.controller.observer import Observer
from edl.controller.plan_maker import PlanMaker, Planner
from edl.controller.ports import (
    Cluster,
    HeadroomAdvisor,
    LeaderLease,
    NodeReporter,
    QueueReporter,
    Recorder,
    RoundResult,
)
from edl.controller.relief import Relief
from edl.errors import AbandonedError, EdlError, NotSyncedError, TemporaryError
from edl.lifecycle.data_progress import MasterView
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.planner.waits import serving_grace_left_s
from edl.waiting import retry_pause_s, wait_for_first


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the controller runs rounds, and how many requests it sends at once.

    Attributes:
        interval_s: the longest time between two rounds, and the longest time that a round writes.
        debounce_s: from the first change to the round that reacts to it, and the shortest time that a round writes
            before it hands writes back.
        quiet_s: from the last change that cannot wait to the round that reacts to it, if that is sooner.
        unreachable_s: how long a pod must have been unreachable before it is deleted by force.
        retry_s, retry_at_most_s: pause after a round whose writes failed; doubled each time, with jitter.
        writes: the most requests that may be under way at once; fewer if the API server is slow or too busy.
        settle_s: from a round that handed writes back to the next one, and between two looks whether the cache shows
            what was written.
    """

    interval_s: float = 5.0
    debounce_s: float = 0.5
    quiet_s: float = 0.2
    unreachable_s: float = 30.0
    retry_s: float = 1.0
    retry_at_most_s: float = 30.0
    writes: int = 64
    settle_s: float = 0.02


class Controller:
    """Runs rounds against a cluster while the lease is held.

    Attributes:
        last_round_s: monotonic time at which the last round started.
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
        queues: QueueReporter | None = None,
        nodes: NodeReporter | None = None,
        advisor: HeadroomAdvisor | None = None,
        changed_limits: Callable[[], Awaitable[Limits | None]] | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            cluster: is observed and changed.
            clock: for pauses and ages.
            lease: without it the round only observes.
            recorder: gets every event.
            planner: the functions that decide.
            limits: what the operator allows a plan to do.
            pace: how often rounds run.
            show: gets each plan, and nothing is written: a dry run.
            masters: calls the masters of the jobs; None calls none.
            queues: shows what the queues use; None shows nothing.
            nodes: reports nodes that trainers avoid; None reports nothing.
            advisor: says what room to keep for serving; None keeps only what the limits say.
            changed_limits: is asked before each round for new limits; None if they have not changed.
        """
        self._changed_limits = changed_limits
        self._cluster, self._clock, self._lease, self._recorder = cluster, clock, lease, recorder
        self._limits, self._pace, self._show, self._masters = limits, pace or Pace(), show, masters
        self._queues, self._nodes = queues, nodes
        self._plans = PlanMaker(planner, limits, recorder)
        self._advisor = advisor
        self._observer = Observer(clock, recorder, self._plans, self._pace.unreachable_s, limits, advisor=advisor)
        self._relief = Relief(self._plans, clock)
        self._hand_back = HandBack(
            cluster,
            clock,
            debounce_s=self._pace.debounce_s,
            quiet_s=self._pace.quiet_s,
            interval_s=self._pace.interval_s,
            relieves=self._relief.is_on,
        )
        self._executor = Executor(
            cluster,
            clock,
            lease,
            recorder,
            limits=limits,
            master_view=self._master_view,
            writes=self._pace.writes,
            is_due=self._hand_back.is_due,
            on_write=self._hand_back.write,
            on_think=self._hand_back.think,
        )
        self._early = EarlyAnswers(cluster, clock, self._executor, self._relief, self._hand_back)
        self._failed_rounds = 0
        self._recorded_s = float("-inf")
        self._wake_in_s: float | None = None
        self._is_outdated = self._goes_to_the_end = False
        self._cut_pause_s: float | None = None
        self._spared = frozenset[JobKey]()
        self.last_round_s = clock.monotonic_s()

    @property
    def last_sign_of_life_s(self) -> float:
        """Monotonic time at which a round started or a write of it ended; `/healthz` checks it.

        A round of thousands of slow writes takes long, and each write has a time limit.
        """
        return max(self.last_round_s, self._executor.last_write_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Run rounds until `stop` is set; no error in a round ends the loop."""
        self._hand_back.is_stopping = stop.is_set
        while not stop.is_set():
            result = await self.round()
            await wait_for_first(self._rest(result), stop.wait())

    async def once(self, timeout_s: float) -> RoundResult:
        """Run one whole round on a synced cluster with the lease held; SKIPPED or FOLLOWED if that takes too long."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            result = await self.round(to_the_end=True)
            if result not in {RoundResult.SKIPPED, RoundResult.FOLLOWED} or self._clock.monotonic_s() >= deadline_s:
                return result
            await self._clock.sleep(self._pace.debounce_s)

    async def round(self, *, to_the_end: bool = False) -> RoundResult:
        """Observe, plan, act and record once.

        Args:
            to_the_end: carry out every write of the plan, even if a newer plan is due.
        """
        self.last_round_s = self._clock.monotonic_s()
        self._wake_in_s, self._executor.left = None, 0
        self._is_outdated, self._goes_to_the_end, self._cut_pause_s = False, to_the_end, None
        self._hand_back.begin(may=not to_the_end)
        try:
            result = await self._round()
        except EdlError as error:
            self._recorder.skipped(str(error))
            result = RoundResult.SKIPPED
        except Exception as error:  # a bug in one round must not stop the next rounds
            self._recorder.failed("round", error)
            result = RoundResult.FAILED
        self._hand_back.end()
        if self._executor.left:
            self._recorder.postponed(f"at least {self._executor.left} writes: a newer plan is due first")
        if result is RoundResult.FAILED:
            self._failed_rounds += not self._goes_on_at_once
        elif result is not RoundResult.SKIPPED:  # a skipped round wrote nothing, so it proves no recovery
            self._failed_rounds = 0
        self._recorder.ended(result, self._clock.monotonic_s() - self.last_round_s)
        return result

    async def _take_changed_limits(self) -> None:
        limits = await self._changed_limits() if self._changed_limits is not None else None
        if limits is None:
            return
        self._limits = limits
        for part in (self._observer, self._plans, self._executor):
            part.use(limits)

    async def _round(self) -> RoundResult:
        await self._take_changed_limits()
        snapshot = await self._observe()
        # The parts of a round take long on a large cluster, and the lease is renewed in between.
        await asyncio.sleep(0)
        leads = self._lease.is_held()
        try:
            result = await self._react(snapshot, leads=leads)
        except Exception:
            await self._recorder.observed(snapshot, leader=leads)
            raise
        # Metrics of a large cluster take long: no write waits for them, nor does a round that is due already.
        is_next_due = self._executor.left or self._cut_pause_s is not None or self._hand_back.has_news()
        if not is_next_due or self.last_round_s - self._recorded_s >= self._pace.interval_s:
            self._recorded_s = self.last_round_s
            await self._recorder.observed(snapshot, leader=leads)
        return result

    async def _observe(self) -> ClusterSnapshot:
        """The cluster, as soon as it shows what edl has written.

        Raises:
            NotSyncedError: that takes too long, or something else keeps the cluster from being known.
        """
        end_s = self._clock.monotonic_s() + self._pace.debounce_s
        while True:
            self._hand_back.observe()
            try:
                return await self._cluster.observe()
            except NotSyncedError:
                if self._clock.monotonic_s() >= end_s:
                    raise
            await self._clock.sleep(self._pace.settle_s)

    async def _react(self, snapshot: ClusterSnapshot, *, leads: bool) -> RoundResult:
        """Plan and act on a snapshot."""
        lost = self._observer.lost_pods(snapshot)
        if self._masters is not None:
            self._masters.update(snapshot.jobs if leads and self._show is None else (), lost)
        if not leads:
            return RoundResult.FOLLOWED
        view = await self._observer.planner_view(snapshot, self._is_finishing, is_urgent=self._hand_back.is_urgent)
        await asyncio.sleep(0)
        # The first waiting serving pod whose grace ends: from then on trainers may be deleted for it.
        grace_left_s = serving_grace_left_s(view, self._limits)
        self._wake_in_s = min(grace_left_s.values(), default=None)
        self._hand_back.wake(self._wake_in_s)
        await asyncio.sleep(0)
        if self._show is not None:
            plan = await self._plans.plan(view)
            if plan is not None:
                self._show(view, plan)
            return RoundResult.SHOWN if plan is not None else RoundResult.FAILED
        self._early.begin(self._hand_back.known_changes, lost)
        try:
            if not self._goes_to_the_end:
                gifts = await self._early.beside(self._relief.gifts(view, grace_left_s))
                if gifts.decisions and (not gifts.awaited or await self._early.find_no_room(gifts.awaited)):
                    self._relief.accepted(gifts)
                    return await self._relieve(snapshot, view, gifts.decisions, lost)
            return await self._plan_and_act(snapshot, view, lost)
        except AbandonedError:
            self._cut_pause_s = 0.0  # next to nothing was written
            return RoundResult.ACTED
        finally:
            self._is_outdated |= self._early.answered.is_outdated

    async def _plan_and_act(
        self, snapshot: ClusterSnapshot, view: ClusterSnapshot, lost: frozenset[str]
    ) -> RoundResult:
        """Plan, and bring every job closer to its decision; jobs that change meanwhile are answered beside it.

        Raises:
            AbandonedError: the plan was given up for serving pods that need room.
        """
        planning = self._plan_what_is_allowed(snapshot, view)
        snapshot, view, plan = await self._early.beside_plan(planning, snapshot)
        result = await self._carry_out(snapshot, view, plan, lost)
        self._relief.planned()
        if plan is not None:
            await self._report(view, plan)
        return result

    async def _carry_out(
        self, snapshot: ClusterSnapshot, view: ClusterSnapshot, plan: ScalePlan | None, lost: frozenset[str]
    ) -> RoundResult:
        """Bring every job closer to its decision, but for jobs that have changed since the snapshot."""
        answered = self._early.answered
        if plan is None:
            return await self._executor.act(*answered.applied_to(snapshot, {}), self._nothing, lost)
        postponed = await self._postponed(view, plan.decisions)
        # Never in two rounds in a row: changes without end must not keep trainers from the jobs that wait for them.
        self._spared = frozenset() if self._spared else answered.spared(snapshot, plan.decisions)
        decisions = {d.job: d for d in plan.decisions if d.job not in postponed | self._spared}
        starts = partial(self._plans.startable, view, plan)
        current = answered.applied_to(snapshot, decisions)
        return await self._executor.act(*current, starts, lost, whole=self._goes_to_the_end, pauses=self._early)

    async def _nothing(self) -> tuple[()]:
        """What may start without a plan."""
        return ()

    async def _report(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Show what the queues use and which nodes are avoided; nothing depends on it."""
        try:
            if self._queues is not None:
                await self._queues.report(view, plan)
            if self._nodes is not None:
                await self._nodes.report(view.avoided)
        except Exception as error:  # a bug in a report for people must not fail the round
            self._recorder.failed("status of queues or nodes", error)

    async def _plan_what_is_allowed(
        self, snapshot: ClusterSnapshot, view: ClusterSnapshot
    ) -> tuple[ClusterSnapshot, ClusterSnapshot, ScalePlan | None]:
        """Plan for what the API server accepts, and ask it before pods that it has not seen yet cost anybody room."""
        allowed = self._executor.allowed(view)
        plan = await self._plans.plan(allowed)
        if plan is not None and plan.fallback is None and await self._executor.probe(view, plan):
            self._is_outdated = await self._cluster.wait_for_change(0.0)
            self._hand_back.observe()
            snapshot = self._early.answered.latest = await self._cluster.observe()
            view = await self._observer.planner_view(snapshot, self._is_finishing)
            allowed = self._executor.allowed(view)
            plan = await self._plans.plan(allowed)
        if plan is not None and self._advisor is not None:
            self._advisor.planned(allowed, plan)
        return snapshot, allowed, plan

    async def _relieve(
        self,
        snapshot: ClusterSnapshot,
        view: ClusterSnapshot,
        decisions: Sequence[ScaleDecision],
        lost: frozenset[str],
    ) -> RoundResult:
        """Make room for serving pods, and leave the plan to the next round, which follows at once."""
        self._cut_pause_s = self._pace.settle_s
        if await self._postponed(view, decisions):
            return RoundResult.ACTED
        self._recorder.relieved(view, decisions)
        giving = {decision.job: decision for decision in decisions}
        jobs = [job for job in snapshot.jobs if job.key in giving and job.uid not in self._early.left_alone]
        answered = await self._executor.answer(jobs, snapshot, lost, giving)
        if not answered:
            self._cut_pause_s = None
        return RoundResult.ACTED if answered else RoundResult.FAILED

    async def _postponed(self, view: ClusterSnapshot, decisions: Iterable[ScaleDecision]) -> frozenset[JobKey]:
        """The jobs that keep their trainers for now, although the plan deletes some for serving pods.

        kube-scheduler may have placed the serving pods while the plan was computed, so the cluster is read again.
        """
        shrunk = frozenset(d.job for d in decisions if _deletes_for_serving(d))
        if not shrunk:
            return shrunk
        try:
            # Observing again takes what has changed since the plan was begun: the next round must not wait for more.
            self._is_outdated |= await self._cluster.wait_for_change(0.0)
            now = await self._cluster.observe()
        except TemporaryError as error:
            self._recorder.postponed(f"deletion of trainers for serving pods: {error}")
            return shrunk
        waited = {pod.uid for pod in view.waiting_serving if pod.needs_room}
        if not waited or waited & {pod.uid for pod in now.waiting_serving}:
            return frozenset()  # without pods that waited, the trainers make room for pods to come
        self._recorder.postponed("deletion of trainers for serving pods: the waiting pods have capacity now")
        return shrunk

    def _master_view(self, job: Job) -> MasterView | None:
        return self._masters.master_view(job) if self._masters is not None else None

    def _is_finishing(self, job: Job) -> bool:
        return self._masters is not None and self._masters.is_finished(job)

    @property
    def _goes_on_at_once(self) -> bool:
        """True after a round that handed writes back, unless the API server took none of those it was sent."""
        return self._cut_pause_s is not None or (self._executor.left > 0 and self._executor.made_progress)

    async def _rest(self, result: RoundResult) -> None:
        """Wait for a change and a little longer, because changes come in groups; at most until the interval ends."""
        due_s = self.last_round_s + self._pace.interval_s
        if result is RoundResult.FOLLOWED:
            while not self._lease.is_held() and self._clock.monotonic_s() < due_s:
                await self._clock.sleep(self._pace.debounce_s)
            return
        if result is RoundResult.SKIPPED:
            await self._clock.sleep(self._pace.debounce_s)
            return
        if self._goes_on_at_once:
            await self._clock.sleep(self._pace.settle_s if self._cut_pause_s is None else self._cut_pause_s)
            return
        if self._failed_rounds:
            await self._clock.sleep(
                retry_pause_s(self._failed_rounds, self._pace.retry_s, self._pace.retry_at_most_s)
            )
        if self._is_outdated or self._executor.left:
            await self._hand_back.settle()
            return
        left_s = max(0.0, due_s - self._clock.monotonic_s())
        if self._wake_in_s is not None:
            left_s = min(left_s, self._wake_in_s)
        change = self._cluster.wait_for_change(left_s)
        if await (change if self._masters is None else self._masters.wait_for_change_or_report(change)):
            await self._hand_back.settle()


def _deletes_for_serving(decision: ScaleDecision) -> bool:
    return bool(decision.victims) and decision.shrink_reason == Reason.SERVING_NEEDS_ROOM
