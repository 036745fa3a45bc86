"""Makes the plans of one policy, and remembers from one call to the next what saves time."""

from __future__ import annotations

from collections.abc import Sequence

from edl.errors import PlanError
from edl.explain.decision import explained_study
from edl.explain.relief import relief_decisions
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import NO_COLUMNS, Limits, ScaleDecision, ScalePlan
from edl.planner.guard import check_relief
from edl.planner.policies.base import Policy
from edl.planner.problem import Problem
from edl.planner.starts import Start, startable


class PolicyPlanner:
    """Plans by one policy. Each plan starts from the columns of the one before it.

    `startable` is asked right after `decide`, mostly for the same cluster. Reading a large cluster takes as long as a
    part of the decision, so what the decision has read is used again.

    Args:
        policy: how jobs share.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._columns = NO_COLUMNS
        self._read: Problem | None = None

    def decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """Make a plan that has passed its checks; see `explain.decision.decide`.

        Raises:
            PlanError: no plan was made in time.
            RefusedPlanError: the plan broke a rule.
        """
        self._read = None
        made = explained_study(snapshot, self._policy, limits, self._columns)
        self._columns, self._read = made.plan.columns, made.context.problem
        return made.plan

    def relieve(self, snapshot: ClusterSnapshot, limits: Limits) -> tuple[ScaleDecision, ...]:
        """Make room for serving pods ahead of a plan; see `planner.admission.relief`.

        Raises:
            PlanError: the decisions broke a rule, or there was no time for them.
        """
        decisions = relief_decisions(snapshot, self._policy, limits)
        if problems := check_relief(snapshot, decisions):
            raise PlanError("; ".join(problems))
        return decisions

    def startable(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> Sequence[Start]:
        """The pods of a plan that fit on their nodes now; see `planner.packing.startable`."""
        read, self._read = self._read, None  # its arrays are large
        return startable(snapshot, plan, read)
