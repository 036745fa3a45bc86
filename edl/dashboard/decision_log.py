"""The last decisions that changed, each with its explanation and the certificate of its plan."""

from __future__ import annotations

from collections import deque
from itertools import islice

from edl.dashboard.view import Body, certificate_body, decision_body
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.status import Reason

CAPACITY = 200
MAX_OF_A_PLAN = 50
"""The most changes kept of one plan, so that a plan for 1,000 new jobs does not displace all others."""
_NAMED_PODS = 3
"""The most serving pods that are named as the cause of deletions."""


class DecisionLog:
    """Notes each decision that differs from the one before it for the same job.

    Attributes:
        entries: oldest first.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.entries: deque[Body] = deque(maxlen=capacity)
        self._last: dict[JobKey, ScaleDecision] = {}
        self._number = 0

    def take(self, plan: ScalePlan, snapshot: ClusterSnapshot) -> list[Body]:
        """Note what a plan changes; returns the new entries.

        Args:
            plan: the newest plan.
            snapshot: what it was made from.
        """
        changed = [d for d in plan.decisions if _is_new(d, self._last.get(d.job))]
        self._last = {d.job: d for d in plan.decisions}
        waiting = [f"{pod.namespace}/{pod.name}" for pod in islice(snapshot.waiting_serving, _NAMED_PODS)]
        entries = [self._entry(d, plan, snapshot.observed_at_s, waiting) for d in changed[:MAX_OF_A_PLAN]]
        self.entries.extend(entries)
        return entries

    def _entry(self, decision: ScaleDecision, plan: ScalePlan, time_s: float, waiting: list[str]) -> Body:
        self._number += 1
        is_for_serving = decision.shrink_reason == Reason.SERVING_NEEDS_ROOM.value
        return {
            "id": self._number,
            "time": round(time_s, 1),
            "job": str(decision.job),
            "current": decision.current,
            **decision_body(decision),
            "for": waiting if is_for_serving else [],
            "certificate": certificate_body(plan),
        }


def _is_new(decision: ScaleDecision, before: ScaleDecision | None) -> bool:
    if before is None:
        return True
    now = (decision.target, decision.admitted, decision.reason, decision.victims, decision.moves)
    return now != (before.target, before.admitted, before.reason, before.victims, before.moves)
