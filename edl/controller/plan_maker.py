"""Makes plans in the planner thread, and reduces the last plan if no new one can be made.

`decide` checks every plan that it makes, so a new plan is not checked again here. A fallback plan was made for
another snapshot, so it is checked here. It has a thread of its own, because the planner thread may still be busy with
the decision that failed. Nothing here computes on the event loop, which also renews the lease.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from edl.controller.kept_plan import KeptPlan
from edl.controller.planner_thread import PlannerThread
from edl.controller.ports import Recorder
from edl.errors import PlanError, PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.planner.fallback import failure_of, without_growth
from edl.planner.guard import RefusedPlanError
from edl.planner.unplaceable import LOOK_AFTER_S, LOOK_EVERY_S, WaitRecords, watch

T = TypeVar("T")
_DEADLINE_SLACK_S = 1.0
"""How long after its deadline a decision may still run before its thread is abandoned."""


class StartablePod(Protocol):
    """A pod of a plan that fits on its node now, as `planner.starts.startable` returns it."""

    @property
    def job(self) -> JobKey:
        """The job of the pod."""

    @property
    def role(self) -> Role:
        """The role of the pod."""

    @property
    def node(self) -> str:
        """The node with the free capacity."""


class FunctionRunner(Protocol):
    """Runs one pure function at a time, away from the event loop."""

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        """Run the function and return its result.

        Raises:
            PlanError: the function missed the deadline, or an earlier one still runs.
        """


@dataclass(frozen=True, slots=True)
class Planner:
    """The pure functions that plans are made with, and where they run.

    Attributes:
        decide: makes a plan and checks it; raises RefusedPlanError if the plan breaks a rule, PlanError if there is
            none.
        check: names each broken rule of a plan; used for fallback plans, which `decide` did not make.
        startable: the pods of a plan that fit on their nodes now.
        new_thread: makes the threads that these functions run in.
        early_evictions: chooses evictions for pending serving pods ahead of a plan, as decisions for the jobs that
            lose trainers; it may be called while `decide` runs.
        explain: writes the sentences of the plan that `decide` made last; None if that had them already.
        rests: jobs may rest after a resize; see `Policy.rests`.
    """

    decide: Callable[[ClusterSnapshot, Limits], ScalePlan]
    check: Callable[[ClusterSnapshot, ScalePlan], Sequence[str]]
    startable: Callable[[ClusterSnapshot, ScalePlan], Sequence[StartablePod]]
    new_thread: Callable[[], FunctionRunner] = PlannerThread
    early_evictions: Callable[[ClusterSnapshot, Limits], Sequence[ScaleDecision]] = lambda _view, _limits: ()
    explain: Callable[[ScalePlan], ScalePlan] | None = None
    rests: bool = True


class PlanMaker:
    """Makes the plans of one controller and remembers the last one.

    Attributes:
        took_s: how long the last plan took that was made anew.
        is_deciding: a plan is being made anew.
    """

    def __init__(self, planner: Planner, limits: Limits, recorder: Recorder) -> None:
        self._planner, self._limits, self._recorder = planner, limits, recorder
        self._thread, self._fallback_thread = planner.new_thread(), planner.new_thread()
        self._search_thread = planner.new_thread()
        self._last: ScalePlan | None = None
        self._unexplained: ScalePlan | None = None
        self._looked_s = -math.inf
        self._kept: KeptPlan[Sequence[StartablePod]] = KeptPlan(limits, rests=planner.rests)
        self.took_s, self.is_deciding = 0.0, False

    def use(self, limits: Limits) -> None:
        """Replace the limits and discard the kept plan."""
        self._limits, self._kept = limits, KeptPlan(limits, rests=self._planner.rests)

    def next_timer_s(self, view: ClusterSnapshot) -> float:
        """When a new decision may differ from the last one although nothing changed, in seconds since the epoch.

        The time that the last plan took is subtracted, so that the next one is ready then.
        """
        return self._kept.next_timer_s(view, self.took_s)

    async def plan(self, view: ClusterSnapshot) -> ScalePlan | None:
        """Return a checked plan: a new one, else a fallback plan; None leaves the cluster unchanged.

        The last plan counts as new while nothing has changed that a decision depends on. A new one may have no
        sentences yet; `explained` writes them.

        Args:
            view: the snapshot as the planner sees it: jobs with their effective bounds, unplaceable pods marked.
        """
        if (kept := self._kept.plan_for(view)) is not None:
            return kept
        self._kept.forget()
        self.is_deciding = True
        try:
            plan = await self._compute(self._thread, lambda: self._planner.decide(view, self._limits))
        except Exception as error:  # whatever the solver raises, the controller goes on with a fallback plan
            self._recorder.not_planned(view, error)
            return await self._fall_back(view, failure_of(error))
        finally:
            self.is_deciding = False
        self._last = self._unexplained = plan
        self.took_s = plan.seconds
        self._kept.keep(view, plan)
        return plan

    async def explained(self, view: ClusterSnapshot, plan: ScalePlan) -> ScalePlan:
        """Return the plan that `plan` returned with its sentences, and record it if it is new.

        Args:
            view: the snapshot as the planner saw it.
            plan: the plan.
        """
        if plan is not self._unexplained:
            return plan
        self._unexplained, explain, said = None, self._planner.explain, plan
        if explain is not None:
            try:
                said = await self._compute(self._thread, lambda: explain(plan))
            except Exception as error:  # a plan counts without its sentences, too
                self._recorder.failed("the sentences of a plan", error)
                said = replace(plan, decisions=tuple(map(_without_sentence, plan.decisions)))
        self._last = said
        self._kept.explain(plan, said)
        await asyncio.sleep(0)
        await self._recorder.planned(view, self._limits, said)
        return said

    async def early_evictions(self, view: ClusterSnapshot) -> Sequence[ScaleDecision]:
        """Choose evictions for pending serving pods ahead of the next plan; none if that would take too long.

        Args:
            view: the snapshot as the planner sees it.
        """
        try:
            return await self._compute(self._search_thread, lambda: self._planner.early_evictions(view, self._limits))
        except PlanError as error:
            self._recorder.postponed(f"capacity for serving pods ahead of the plan: {error}")
        except Exception as error:  # a bug in one search must not stop the next ones
            self._recorder.failed("search for serving pods ahead of the plan", error)
        return ()

    async def startable(self, view: ClusterSnapshot, plan: ScalePlan) -> Sequence[StartablePod]:
        """The pods of the plan that fit on their nodes now; none if that cannot be computed in time."""
        if not any(d.nodes or d.fixed_nodes for d in plan.decisions):
            return ()
        is_kept = self._kept.is_kept(view, plan)
        if is_kept and self._kept.starts is not None:
            return self._kept.starts
        try:
            starts = await self._compute(self._thread, lambda: self._planner.startable(view, plan))
        except PlanError as error:
            self._recorder.postponed(f"creation of pods: {error}")
            return ()
        if is_kept:
            self._kept.starts = starts
        return starts

    async def wait_records(
        self, before: WaitRecords, view: ClusterSnapshot, now_s: float, *, is_urgent: bool
    ) -> WaitRecords:
        """Return the records of `planner.unplaceable.watch`; the old ones if new ones would take too long.

        Args:
            before: the records of the plan before.
            view: the snapshot, with no pod marked.
            now_s: monotonic seconds.
            is_urgent: the plan answers something that cannot wait, so free capacity is looked for by a later plan.
        """
        is_tried = any(pod.has_answer for pod in view.waiting_serving)
        if not is_tried or now_s - self._looked_s < (LOOK_AFTER_S if is_urgent else LOOK_EVERY_S):
            return watch(before, view, now_s, looks=False)  # cheap
        self._looked_s = now_s
        try:
            return await self._compute(self._thread, lambda: watch(before, view, now_s))
        except PlanError:  # a busy or late thread; the decision that follows reports it
            return before

    async def _fall_back(self, view: ClusterSnapshot, failure: PlanFailure) -> ScalePlan | None:
        """Return the last plan without its growth; None if there is none or if it breaks a rule in this snapshot."""
        last = self._last
        if last is None:
            return None
        try:
            plan = await self._compute(self._fallback_thread, lambda: self._reduced(last, view, failure))
        except PlanError as error:
            self._recorder.not_planned(view, error)
            return None
        await self._recorder.planned(view, self._limits, plan)
        return plan

    def _reduced(self, last: ScalePlan, view: ClusterSnapshot, failure: PlanFailure) -> ScalePlan:
        """Reduce the plan and check the result, for the jobs that it still decides about.

        Raises:
            RefusedPlanError: the reduced plan breaks a rule.
        """
        plan = without_growth(last, view, failure)
        decided = {decision.job for decision in plan.decisions}
        judged = replace(view, jobs=tuple(job for job in view.jobs if job.key in decided))
        if problems := tuple(self._planner.check(judged, plan)):
            raise RefusedPlanError(plan, problems)
        return plan

    async def _compute(self, thread: FunctionRunner, call: Callable[[], T]) -> T:
        return await thread.run(call, self._limits.deadline_s + _DEADLINE_SLACK_S)


def _without_sentence(decision: ScaleDecision) -> ScaleDecision:
    of = f"{decision.target} of {decision.max_trainers}"
    return replace(decision, message=decision.message or f"{of}: {decision.reason}; edl could not say why")
