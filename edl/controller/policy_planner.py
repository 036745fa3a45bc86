"""Makes the plans of one policy, and remembers from one call to the next what saves time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from edl.controller.plan_maker import Planner
from edl.errors import PlanError
from edl.explain.decision import explained
from edl.explain.early_evictions import early_decisions
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, Quota
from edl.model.plan import NO_COLUMNS, ScaleDecision, ScalePlan
from edl.planner.clock import Clock
from edl.planner.decide import Study, study
from edl.planner.guard import check, check_early_evictions
from edl.planner.policies.base import Policy
from edl.planner.problem import Problem
from edl.planner.reading.kept import KeptReading
from edl.planner.starts import Start, startable

PLAN_WAITS_S = 0.3
"""How long a plan waits each time for a search for evictions ahead of it."""


def planner_of(policy: Policy, quotas: Callable[[], tuple[Quota, ...]]) -> Planner:
    """The functions that a controller decides with.

    Args:
        policy: how jobs share.
        quotas: returns those that count now.
    """
    deciding = PolicyPlanner(policy)

    def broken_rules(snapshot: ClusterSnapshot, plan: ScalePlan) -> Sequence[str]:
        return check(snapshot, plan, quotas())

    return Planner(
        deciding.choose,
        broken_rules,
        deciding.startable,
        early_evictions=deciding.early_evictions,
        explain=deciding.explain,
        rests=policy.rests,
    )


class PolicyPlanner:
    """Plans by one policy. Each plan starts from the columns of the one before it.

    `startable` is asked right after `decide`, mostly for the same cluster. Reading a large cluster takes as long as a
    part of the decision, so what the decision has read is used again.

    A plan that is being made waits while `early_evictions` runs in another thread: only one of two threads runs at a
    time, and a serving pod waits for the search. The plan's time goes on meanwhile. A search keeps what it has read
    for the next one, as a plan does.

    Args:
        policy: how jobs share.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._columns, self._kept, self._kept_for_search = NO_COLUMNS, KeptReading(), KeptReading()
        self._read: Problem | None = None
        self._made: tuple[Study, ClusterSnapshot, Clock] | None = None
        self._is_free = threading.Event()
        self._is_free.set()
        self._plan_waits_until_s = 0.0

    def decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """Make a plan that has passed its checks, with its sentences; errors as in `choose`."""
        return self.explain(self.choose(snapshot, limits))

    def choose(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """Make a plan that has passed its checks and has no sentences yet; see `planner.decide.study`.

        Raises:
            PlanError: no plan was made in time.
            RefusedPlanError: the plan broke a rule.
        """
        self._read = self._made = None
        clock = Clock(limits.deadline_s, self._now_s)
        made = study(snapshot, self._policy, limits, self._columns, clock, kept=self._kept)
        self._columns, self._read = made.plan.columns, made.context.problem
        self._made = (made, snapshot, clock)
        return made.plan

    def explain(self, plan: ScalePlan) -> ScalePlan:
        """Write the sentences of the plan that `choose` returned last, once.

        Raises:
            PlanError: another plan was chosen since, or the sentences were written already.
        """
        made, self._made = self._made, None  # its arrays are large
        if made is None or made[0].plan.decisions is not plan.decisions:
            raise PlanError("the sentences of a plan can be written once, before another one is chosen")
        return explained(*made)

    def early_evictions(self, snapshot: ClusterSnapshot, limits: Limits) -> tuple[ScaleDecision, ...]:
        """Choose evictions for pending serving pods ahead of a plan; see `planner.admission.early_evictions`.

        Raises:
            PlanError: the decisions broke a rule, or there was no time for them.
        """
        self._plan_waits_until_s = time.perf_counter() + PLAN_WAITS_S
        self._is_free.clear()
        try:
            decisions = early_decisions(snapshot, self._policy, limits, self._kept_for_search)
        finally:
            self._is_free.set()
        if problems := check_early_evictions(snapshot, decisions):
            raise PlanError("; ".join(problems))
        return decisions

    def _now_s(self) -> float:
        """The time, for the clock of a plan; a plan asks for it before anything that may take long."""
        if not self._is_free.is_set():
            self._is_free.wait(max(0.0, self._plan_waits_until_s - time.perf_counter()))
        return time.perf_counter()

    def startable(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> Sequence[Start]:
        """The pods of a plan that fit on their nodes now; see `planner.starts.startable`."""
        read, self._read = self._read, None  # its arrays are large
        return startable(snapshot, plan, read)
