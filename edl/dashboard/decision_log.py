"""The last decisions that changed, each with its explanation and the certificate of its plan."""

from __future__ import annotations

from collections import deque

from edl.dashboard.view import Body, certificate_body, decision_body
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan

CAPACITY = 200
MAX_OF_A_PLAN = 50
"""So many changes of one plan are kept; a plan for 1,000 new jobs would push out everything else."""


class DecisionLog:
    """Notes each decision that differs from the one before it for the same job.

    Attributes:
        entries: oldest first.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.entries: deque[Body] = deque(maxlen=capacity)
        self._last: dict[JobKey, ScaleDecision] = {}
        self._number = 0

    def take(self, plan: ScalePlan, time_s: float) -> list[Body]:
        """Note what a plan changes; returns the new entries.

        Args:
            plan: the newest plan.
            time_s: when it was made, in seconds since the epoch.
        """
        changed = [d for d in plan.decisions if _is_new(d, self._last.get(d.job))]
        self._last = {d.job: d for d in plan.decisions}
        entries = [self._entry(d, plan, time_s) for d in changed[:MAX_OF_A_PLAN]]
        self.entries.extend(entries)
        return entries

    def _entry(self, decision: ScaleDecision, plan: ScalePlan, time_s: float) -> Body:
        self._number += 1
        return {
            "id": self._number,
            "time": round(time_s, 1),
            "job": str(decision.job),
            "current": decision.current,
            **decision_body(decision),
            "certificate": certificate_body(plan),
        }


def _is_new(decision: ScaleDecision, before: ScaleDecision | None) -> bool:
    if before is None:
        return True
    now = (decision.target, decision.admitted, decision.reason, decision.victims, decision.moves)
    return now != (before.target, before.admitted, before.reason, before.victims, before.moves)
