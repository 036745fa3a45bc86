"""The controller: reads the cache, and runs planning and writes concurrently.

Whenever something happens (a change in the cluster, a write or a plan that has ended, a time that has come) it takes
one turn, which never waits for the API server or the planner:

1. `Core.seen` takes the cluster as the cache shows it, and `Core.ended` the writes that have ended.
2. If plans are slow, `EarlyEvictions` has the planner find trainers for a serving pod as soon as it comes, and evicts
   them once kube-scheduler has found no capacity for the pod.
3. `Sender` sends what the core offers.
4. `PlanCycle` begins a plan if one is due; once made, it is published to the core.

What is written is decided in `core` alone:

- A serving pod that waits brings a plan 0.2 s later, which says which trainers end. What was evicted early stays
  evicted whatever that plan says, and nothing ends for a pod that has a node by then (`allotments`).
- A plan counts for a job with the UID and the generation that it was made from. So a job that is edited meanwhile
  gets nothing of it, and costs no other job a trainer, until the next plan (`allotment`).
- A creation whose answer was lost counts as done, and the same pod name is asked for again (`under_way`).

Everything here is written against `ports`, so the tests run the same turns as a cluster. The controller takes turns
(`run`); `edl controller --once` and tests let one plan be made and carried out (`once`). All that is remembered may
be lost at any moment: that costs time and never correctness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf

from edl.clock import Clock
from edl.controller.backoff import Backoff
from edl.controller.core import Core
from edl.controller.early_evictions import EarlyEvictions
from edl.controller.job_writes import JobWrites
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.observer import Observer
from edl.controller.pace import Pace
from edl.controller.plan_cycle import CycleCalls, PlanCycle
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
from edl.controller.sender import Sender
from edl.errors import EdlError
from edl.lifecycle.data_progress import MasterView
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.waiting import wait_for_first

SHORTEST_S = 0.001
"""The shortest wait between two turns, if a time has come that nothing follows from yet."""


@dataclass(frozen=True, slots=True)
class Partners:
    """What a controller may do besides planning and writing; each part may be missing.

    Attributes:
        show: gets each plan, and nothing is written: a dry run.
        masters: calls the masters of the jobs.
        queues: writes the status of Queue objects.
        nodes: reports nodes that trainers avoid.
        advisor: says what capacity to reserve for serving; without it only the limits do.
        changed_limits: is asked before each plan for new limits; returns None if they have not changed.
    """

    show: Callable[[ClusterSnapshot, ScalePlan], None] | None = None
    masters: MasterMonitor | None = None
    queues: QueueReporter | None = None
    nodes: NodeReporter | None = None
    advisor: HeadroomAdvisor | None = None
    changed_limits: Callable[[], Awaitable[Limits | None]] | None = None


class Controller:
    """Runs against a cluster while the lease is held.

    Attributes:
        last_turn_s: the monotonic time of the last turn.
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
        partners: Partners | None = None,
    ) -> None:
        """Assemble the parts.

        Args:
            cluster: is observed and changed.
            clock: for pauses and ages.
            lease: without it the controller only observes.
            recorder: gets every event.
            planner: the functions that decide.
            limits: what the operator allows a plan to do.
            pace: how often plans are made.
            partners: what a controller may do besides; by default nothing.
        """
        partners = partners or Partners()
        self._changed_limits = partners.changed_limits
        self._cluster, self._clock, self._lease, self._recorder = cluster, clock, lease, recorder
        self._pace, self._show, self._masters = pace or Pace(), partners.show, partners.masters
        self._queues, self._nodes = partners.queues, partners.nodes
        self._wake = asyncio.Event()
        backoff = Backoff()
        self._plans = PlanMaker(planner, limits, recorder)
        self._writes = JobWrites(clock, recorder, backoff, limits, self._master_view)
        self._core = Core(
            clock,
            self._writes,
            backoff,
            retry_s=self._pace.retry_s,
            retry_at_most_s=self._pace.retry_at_most_s,
        )
        self._observer = Observer(
            clock, recorder, self._plans, self._pace.unreachable_s, limits, advisor=partners.advisor
        )
        calls = CycleCalls(recorder, self._is_finishing, self._look_again, self._wake.set, partners.advisor)
        self._cycle = PlanCycle(
            self._core,
            clock,
            self._plans,
            self._observer,
            backoff=backoff,
            pace=self._pace,
            limits=limits,
            calls=calls,
        )
        self._evictions = EarlyEvictions(
            self._core, clock, self._plans, recorder, view=self._view_now, wake=self._wake.set
        )
        self._sender = Sender(
            self._core, cluster, clock, lease, recorder, writes=self._pace.writes, wake=self._wake.set
        )
        self._is_leading = False
        self._has_changed = False
        self._has_looked = False  # else a change says nothing yet, as the cache is not complete
        self._reported_s = -inf
        self._report_task: asyncio.Task[None] | None = None
        self._lost: frozenset[str] = frozenset()
        self._views: dict[str, MasterView | None] = {}
        self.last_turn_s = clock.monotonic_s()

    @property
    def last_sign_of_life_s(self) -> float:
        """When the loop last ran, or the last write ended, in monotonic seconds; `/healthz` checks it."""
        return max(self.last_turn_s, self._sender.last_write_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Run the loop until `stop` is set, then wait for the writes in flight. No error ends the loop."""
        try:
            while not stop.is_set():
                self._wake.clear()
                pause_s = await self._turn()
                await self._wait(pause_s, stop)
        finally:
            self._evictions.close()
            await self._cycle.close()
            if not stop.is_set():
                self._sender.cancel()
            await self._sender.close()

    async def once(self, timeout_s: float) -> RoundResult:
        """Run `round` on a synced cluster with the lease held; SKIPPED or FOLLOWED if that takes too long."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            result = await self.round()
            if result not in {RoundResult.SKIPPED, RoundResult.FOLLOWED} or self._clock.monotonic_s() >= deadline_s:
                await self._sender.close()  # the cache may have been lost while something was sent
                return result
            await self._clock.sleep(self._pace.debounce_s)

    async def round(self) -> RoundResult:
        """Observe, ask the API server about new pods, make one plan, and send everything that follows from it."""
        began_s = self._clock.monotonic_s()
        failures = self._sender.failures
        self._core.try_again()
        try:
            result = await self._whole_round()
        except EdlError as error:
            self._recorder.skipped(str(error))
            result = RoundResult.SKIPPED
        except Exception as error:  # a bug in one plan must not stop the next ones
            self._recorder.failed("round", error)
            result = RoundResult.FAILED
        except BaseException:  # the process ends: nothing that was sent is left behind
            self._sender.cancel()
            await self._sender.close()
            raise
        if result is RoundResult.ACTED and self._sender.failures > failures:
            result = RoundResult.FAILED
        self._recorder.ended(result, self._clock.monotonic_s() - began_s)
        return result

    async def _whole_round(self) -> RoundResult:
        await self._take_changed_limits()
        await self._look(anyway=True)
        leads = self._lease.is_held()
        if not self._follow(leads=leads):
            await self._recorder.observed(self._core.snapshot, leader=leads)
            return RoundResult.FOLLOWED
        self._look_at_masters()
        try:
            if self._show is not None:
                return await self._cycle.show(self._show)
            self._core.at_once = False
            await self._send_all()
            await self._cycle.make()
            self._core.at_once = True
            await self._send_all()
        finally:
            await self._report()
        return RoundResult.ACTED

    async def _send_all(self) -> None:
        """Send until nothing is left that may be sent, and nothing is under way."""
        while True:
            self._sender.send()
            if self._sender.is_idle and not (self._core.has_more and self._lease.is_held()):
                return
            await self._sender.wait()
            await self._look()
            self._sender.end()

    # --- Turns

    async def _turn(self) -> float:
        """Run one iteration of the loop; return how many seconds to sleep unless an event comes."""
        self.last_turn_s = self._clock.monotonic_s()
        try:
            await self._look()
            self._sender.end()
            leads = self._lease.is_held()
            if not self._follow(leads=leads):
                return await self._observe_only()
            return await self._lead()
        except EdlError as error:
            self._recorder.skipped(str(error))
            self._recorder.ended(RoundResult.SKIPPED, self._clock.monotonic_s() - self.last_turn_s)
        except Exception as error:  # a bug in one turn must not stop the next turns
            self._recorder.failed("turn", error)
        return self._pace.debounce_s

    async def _lead(self) -> float:
        """Do the part of one iteration of the loop that needs the lease."""
        now_s = self._clock.monotonic_s()
        self._cycle.note_probe_answers()
        if self._cycle.next_due_s() <= now_s:
            await self._take_changed_limits()
            self._look_at_masters()
        if self._show is not None:
            if self._cycle.next_due_s() <= now_s:
                self._recorder.ended(await self._cycle.show(self._show), self._clock.monotonic_s() - now_s)
        else:
            self._evictions.look(self._cycle.limits)
            self._sender.send()
            self._cycle.begin_if_due()
        # While many pods come, plans follow each other, and nobody reads a report about each.
        is_new = self._cycle.is_new and not self._core.is_growing
        if self._report_task is None and (is_new or now_s - self._reported_s >= self._pace.interval_s):
            self._report_task = asyncio.ensure_future(self._report())
            self._report_task.add_done_callback(self._reported)
        if (self._core.has_more or self._sender.is_cut) and not self._sender.is_full and self._show is None:
            return 0.0
        send_s = max(self._core.next_look_s(), self._sender.next_place_s())
        times = (self._cycle.next_due_s(), send_s, self._evictions.next_look_s())
        next_s = min(*times, self._observer.next_lost_s(), now_s + self._pace.interval_s)
        return max(SHORTEST_S, next_s - self._clock.monotonic_s())

    async def _wait(self, pause_s: float, stop: asyncio.Event) -> None:
        """Wait until something happens, or until the given time has passed."""
        if pause_s <= 0.0 or self._wake.is_set() or stop.is_set():
            await asyncio.sleep(0)
            return
        if not (self._is_leading and self._has_looked):
            await wait_for_first(self._clock.sleep(pause_s), stop.wait())
            return
        report = self._masters.has_report.wait() if self._masters is not None else self._wake.wait()
        change = self._cluster.wait_for_change(pause_s)
        changed, *_ = await wait_for_first(change, self._wake.wait(), report, stop.wait())
        self._has_changed |= not changed.cancelled() and changed.exception() is None and changed.result()
        if self._masters is not None and self._masters.has_report.is_set():
            self._masters.has_report.clear()
            self._look_at_masters()
            self._cycle.timer.changed(self._clock.monotonic_s())

    async def _look(self, *, anyway: bool = False) -> None:
        """Take the snapshot of the cache, if it has changed or `anyway` is set.

        Raises:
            NotSyncedError: the cache is not complete.
        """
        now_s, urgent = self._clock.monotonic_s(), self._cluster.urgent_changes()
        self._has_changed |= await self._cluster.wait_for_change(0.0) or bool(urgent)
        if self._has_changed:
            self._cycle.timer.changed(now_s, urgent=urgent)
        elif not (anyway or self._sender.has_ended or self._cycle.next_due_s() <= now_s):
            return
        self._has_looked = False
        snapshot = await self._cluster.observe()
        self._has_changed, self._has_looked = False, True
        lost = self._observer.lost_pods(snapshot)
        if self._masters is not None and (snapshot.jobs is not self._core.snapshot.jobs or lost != self._lost):
            self._masters.update(snapshot.jobs if self._is_leading and self._show is None else (), lost)
        self._lost = lost
        self._core.seen(snapshot, lost)

    async def _look_again(self) -> None:
        """Take a new snapshot before a plan is published; if the cache is not complete, the last one counts."""
        try:
            await self._look(anyway=True)
        except EdlError as error:
            self._recorder.skipped(str(error))

    def _follow(self, *, leads: bool) -> bool:
        """Note whether this replica holds the lease, and return that."""
        if leads != self._is_leading:
            self._is_leading = leads
            if not leads:
                self._core.stand_down()
            if self._masters is not None:
                jobs = self._core.snapshot.jobs if leads and self._show is None else ()
                self._masters.update(jobs, self._lost)
        return leads

    async def _observe_only(self) -> float:
        """Do the part of one iteration of the loop that a replica without the lease does: only observe."""
        now_s = self._clock.monotonic_s()
        if now_s - self._reported_s >= self._pace.interval_s:
            self._reported_s = now_s
            await self._recorder.observed(self._core.snapshot, leader=False)
            self._recorder.ended(RoundResult.FOLLOWED, 0.0)
        return self._pace.debounce_s

    async def _take_changed_limits(self) -> None:
        limits = await self._changed_limits() if self._changed_limits is not None else None
        if limits is None:
            return
        self._cycle.limits = limits
        for part in (self._observer, self._plans, self._writes):
            part.use(limits)
        self._core.look_at_all()

    # --- Masters and reports

    def _look_at_masters(self) -> None:
        """Recompute the jobs whose masters' state has changed."""
        if self._masters is None:
            return
        before = self._views
        self._views = {job.uid: self._masters.master_view(job) for job in self._core.snapshot.jobs}
        self._core.look_at(uid for uid, view in self._views.items() if view != before.get(uid))

    def _master_view(self, job: Job) -> MasterView | None:
        return self._masters.master_view(job) if self._masters is not None else None

    def _is_finishing(self, job: Job) -> bool:
        return self._masters is not None and self._masters.is_finished(job)

    def _view_now(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return self._observer.view_between_plans(snapshot, self._observer.watch(snapshot), self._is_finishing)

    async def _report(self) -> None:
        """Update metrics, queue statuses and node reports; no decision depends on them."""
        self._reported_s = self._clock.monotonic_s()
        await self._recorder.observed(self._core.snapshot, leader=True)
        made = self._cycle.taken()
        if made is None:
            return
        try:
            if self._queues is not None:
                await self._queues.report(*made)
            if self._nodes is not None:
                await self._nodes.report(made[0].avoided)
        except Exception as error:  # a bug in a report for people must not stop the controller
            self._recorder.failed("status of queues or nodes", error)

    def _reported(self, task: asyncio.Task[None]) -> None:
        self._report_task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._recorder.failed("report", error)
