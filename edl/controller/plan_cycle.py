"""Makes one plan after the other while writes are sent, and assembles the input of each.

`pace` says when a plan is due. Until the API server was asked about the pods of a new job, a plan leaves the job out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from edl.clock import Clock
from edl.controller.allotment import Start, serving_needing_capacity
from edl.controller.backoff import Backoff
from edl.controller.core import Core
from edl.controller.observer import Observer
from edl.controller.pace import Pace, PlanTimer
from edl.controller.pauses.calm import CalmJobs
from edl.controller.pauses.refused_resizes import as_refused
from edl.controller.pauses.undone_starts import UndoneStarts
from edl.controller.pauses.unscheduled import UnscheduledTrainers
from edl.controller.pauses.unstarted_growth import UnstartedGrowth
from edl.controller.plan_maker import PlanMaker
from edl.controller.ports import HeadroomAdvisor, Recorder, RoundResult
from edl.errors import PlanError
from edl.explain.refusals import who_refuses
from edl.lifecycle.allowance import as_allowed, wants_pods
from edl.lifecycle.broken_nodes import one_trial_per_node
from edl.lifecycle.lent_cpu.guard import judge_requests
from edl.lifecycle.lent_cpu.running_requests import changed_requests, keep_refusals
from edl.lifecycle.trials.ending import as_ending
from edl.lifecycle.trials.rejecting_nodes import away_in_plan
from edl.lifecycle.trials.unstarted import as_started
from edl.model.actions import CreatePod, ResizePod, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScalePlan


@dataclass(frozen=True, slots=True)
class CycleCalls:
    """The functions by which the plan cycle asks and informs its controller.

    Attributes:
        recorder: is told how each plan ended.
        is_finishing: True if the master of a job says that all data is consumed.
        look: takes what the cache shows; called before a plan is published, as pods may have found nodes meanwhile.
        wake: called once a plan is published.
        advisor: hears of each plan; it says what capacity to reserve for serving.
    """

    recorder: Recorder
    is_finishing: Callable[[Job], bool]
    look: Callable[[], Awaitable[None]]
    wake: Callable[[], None]
    advisor: HeadroomAdvisor | None = None


class PlanCycle:
    """Makes plans and publishes them.

    Args:
        core: gets each plan.
        clock: for the times.
        plans: makes them.
        observer: makes the planner's view.
        backoff: which pods the API server rejects.
        pace: how often.
        limits: what the operator allows.
        calls: what the controller is asked and told meanwhile.

    Attributes:
        timer: when the next plan is due.
        limits: what the operator allows.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        plans: PlanMaker,
        observer: Observer,
        *,
        backoff: Backoff,
        pace: Pace,
        limits: Limits,
        calls: CycleCalls,
    ) -> None:
        self._core, self._clock, self._plans, self._observer = core, clock, plans, observer
        self._backoff, self._recorder, self._advisor = backoff, calls.recorder, calls.advisor
        self._is_finishing, self._look, self._wake = calls.is_finishing, calls.look, calls.wake
        self.limits, self.timer = limits, PlanTimer(pace)
        self._undone, self._unstarted, self._unscheduled = UndoneStarts(), UnstartedGrowth(), UnscheduledTrainers()
        self._calm = CalmJobs()
        self._made: tuple[ClusterSnapshot, ScalePlan] | None = None
        self._held_requests: dict[str, float] = {}
        self._left_out: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def note_probe_answers(self) -> None:
        """Make a plan due if the API server has meanwhile accepted the pods of a job that the last plan left out."""
        answered = {uid for uid in self._left_out if not self._core.is_unprobed(uid)}
        if answered:
            self._left_out -= answered
            self.timer.changed(self._clock.monotonic_s(), urgent=self._core.namespaces_of(answered))

    def next_due_s(self) -> float:
        """When the next plan is due, in monotonic seconds; infinity while one is being made."""
        if self._task is not None:
            return inf
        is_growing = self._core.is_growing and not self._core.is_held(self._clock.monotonic_s())
        return self.timer.due_s(is_growing=is_growing, asked_s=self._core.under_way.asked_s())

    def begin_if_due(self) -> None:
        """Begin a plan if one is due and none is being made."""
        if self.next_due_s() <= self._clock.monotonic_s():
            self._task = asyncio.ensure_future(self._make())

    async def _make(self) -> None:
        began_s = self._clock.monotonic_s()
        try:
            result = await self.make()
        except Exception as error:  # a bug must not stop the next plans
            self._recorder.failed("plan", error)
            self._core.published(None)
            result = RoundResult.FAILED
        self._task, ended_s = None, self._clock.monotonic_s()
        self.timer.ended(ended_s)
        self._recorder.ended(result, ended_s - began_s)
        self._wake()

    async def close(self) -> None:
        """Cancel the plan under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def make(self) -> RoundResult:
        """Make one plan of what the cache shows now and of what is under way, and publish it."""
        view = await self.begin()
        return await self.publish(view, await self._plans.plan(view))

    async def begin(self) -> ClusterSnapshot:
        """Begin a plan; return its input: the present state of the cache with the effects of the writes in flight."""
        began_s = self._clock.monotonic_s()
        is_urgent = self.timer.began(began_s)
        self._left_out = unprobed = self._core.unprobed()
        snapshot = self._core.plan_begins(unprobed)
        watch = self._observer.watch(snapshot)
        view = await self._observer.planner_view(
            snapshot, watch, self._is_finishing, unprobed=unprobed, is_urgent=is_urgent
        )
        await asyncio.sleep(0)
        self._core.watch(watch)
        allowed = await self.allowed(view)
        await asyncio.sleep(0)
        wake_in_s = self._plans.next_timer_s(allowed) - allowed.observed_at_s
        pauses = (self._undone, self._unstarted, self._unscheduled)
        ends_s = [pause.next_end_s(began_s) for pause in pauses]
        self.timer.wake(min(began_s + wake_in_s, *ends_s, self._backoff.resize_s(began_s)))
        return allowed

    async def publish(self, view: ClusterSnapshot, plan: ScalePlan | None) -> RoundResult:
        """Publish the plan made from the result of `begin`; None if no plan could be made.

        What the cache shows by now decides which CPU requests change. Its sentences follow, unless events of the
        workloads of others, which edl resizes, need them at once.
        """
        if plan is None:
            self._core.published(None)
            return RoundResult.FAILED
        if is_explained := any(job.owner_count is not None for job in view.jobs):
            plan = await self._plans.explained(view, plan)
        starts = await self._starts(view, plan)
        await self._look()
        requests = self._changed_requests(self._core.snapshot, {start.node for start in starts})
        awaited = serving_needing_capacity(view)
        self._core.published(plan, starts, requests, awaited=awaited, is_explained=is_explained)
        if not is_explained:
            self._wake()
            plan = await self._plans.explained(view, plan)
            self._core.explained(plan)
            await asyncio.sleep(0)
        self._undone.note(view, plan, self._clock.monotonic_s())
        if self._core.has_needless_evictions():
            self._recorder.postponed("deletion of trainers for serving pods: the waiting pods have capacity now")
        if self._advisor is not None:
            self._advisor.planned(view, plan)
        self._made = (view, plan)
        return RoundResult.ACTED

    async def show(self, show: Callable[[ClusterSnapshot, ScalePlan], None]) -> RoundResult:
        """Make one plan and show it without publishing it."""
        began_s = self._clock.monotonic_s()
        self.timer.began(began_s)
        snapshot = self._core.snapshot
        view = await self._observer.planner_view(snapshot, self._observer.watch(snapshot), self._is_finishing)
        self.timer.wake(began_s + self._plans.next_timer_s(view) - view.observed_at_s)
        plan = await self._plans.plan(view)
        if plan is not None:
            plan = await self._plans.explained(view, plan)
            show(view, plan)
        return RoundResult.SHOWN if plan is not None else RoundResult.FAILED

    @property
    def is_new(self) -> bool:
        """True if a plan was published since the last call of `taken`."""
        return self._made is not None

    def taken(self) -> tuple[ClusterSnapshot, ScalePlan] | None:
        """Return the last published plan with its view; None if it was returned before."""
        made, self._made = self._made, None
        return made

    async def _starts(self, view: ClusterSnapshot, plan: ScalePlan) -> tuple[Start, ...]:
        """The pods of the plan that may start now; on a node to be tested, only one."""
        found = [Start(start.job, start.role, start.node) for start in await self._plans.startable(view, plan)]
        retries, now_s = self._backoff.retries, self._clock.monotonic_s()
        tried = tuple(chain.from_iterable(retries.tried(job, now_s) for job in view.jobs))
        return one_trial_per_node(one_trial_per_node(found, view.avoided), tried, view.jobs, roles=frozenset(Role))

    async def allowed(self, view: ClusterSnapshot) -> ClusterSnapshot:
        """Return the planner's view: rejections by API server and nodes limit jobs, and jobs in a pause do not start.

        A rejection ends with the wish: once the job has all that it wants, or its spec changes. Each part looks at
        some thousand jobs at most, and anything else may be done between two of them.
        """
        now_s, time_s, retries = self._clock.monotonic_s(), view.observed_at_s, self._backoff.retries
        rejecting = {job.key: retries.rejecting(job, now_s) for job in view.jobs}
        if any(rejecting.values()):
            jobs = tuple(away_in_plan(job, rejecting[job.key], view.nodes) for job in view.jobs)
            view = replace(view, jobs=jobs, rejecting=tuple(chain.from_iterable(rejecting.values())))
        view = self._undone.apply(view, now_s)
        await asyncio.sleep(0)
        calm = self._calm.among(view.jobs)
        jobs = tuple(job if job.uid in calm else as_started(job, time_s) for job in self._allowed(view, now_s))
        view = view if jobs == view.jobs else replace(view, jobs=jobs)
        await asyncio.sleep(0)
        view = self._unstarted.apply(view, now_s, lambda job: retries.holds_back(job, now_s, time_s), calm)
        await asyncio.sleep(0)
        view = self._unscheduled.apply(view, now_s, calm)
        await asyncio.sleep(0)
        return as_ending(view)

    def _allowed(self, view: ClusterSnapshot, now_s: float) -> tuple[Job, ...]:
        kept, rejected = self._backoff.refused_jobs(ResizeWorkload), self._backoff.refused_jobs(CreatePod)
        if kept:
            refused = self._backoff.refused_resize
            jobs = (as_refused(job, refused(job.uid), now_s) if job.uid in kept else job for job in view.jobs)
            view = replace(view, jobs=tuple(jobs))
        if not rejected:
            return view.jobs
        for job in (job for job in view.jobs if job.uid in rejected):
            if not wants_pods(job) or self._core.has_new_spec(job):
                self._backoff.drop(job.uid, CreatePod)
        return tuple(as_allowed(job, self._refusal(job, now_s)) for job in view.jobs)

    def _refusal(self, job: Job, now_s: float) -> Refusal | None:
        """The creation of the job that the API server rejects at present."""
        rejected = self._backoff.refused_creation(job.uid, now_s)
        if rejected is None:
            return None
        is_tried, live = rejected.accepted_s is not None, len(job.live_trainers)
        reason, message = who_refuses(rejected.reason, rejected.message)
        return Refusal(live + rejected.step if is_tried else live, is_tried, reason, message, rejected.message)

    def _changed_requests(
        self, snapshot: ClusterSnapshot, busy_nodes: set[str]
    ) -> Mapping[JobKey, tuple[ResizePod, ...]]:
        """The CPU requests of running trainers that change, by job."""
        if not self.limits.lending.running:
            return {}
        self._held_requests = keep_refusals(self._held_requests, snapshot, self._clock.monotonic_s())
        changes = changed_requests(snapshot, self.limits, busy_nodes, self._held_requests)
        judged = judge_requests(snapshot, self.limits, changes, busy_nodes, self._held_requests)
        for problem in judged.problems:
            self._recorder.failed("CPU requests", PlanError(f"{problem}; this is a bug in edl"))
        return judged.allowed
