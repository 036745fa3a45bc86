"""Room for serving pods ahead of the plan, if plans take long.

On a large cluster a plan takes a second, and a serving pod that waits for it waits longer than it must. Which surplus
trainers make room for it is found in a fraction of that. So a round whose snapshot shows new serving pods without
room deletes these trainers and ends; the plan is left to the next round. A plan that is being made when such a pod
comes is given up for it, but never two in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.controller.plan_maker import PlanMaker
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScaleDecision

SLOW_S = 0.25
"""A plan that takes no longer than this is waited for: it chooses among all trainers."""
MOST_PODS = 16
"""So many new serving pods get room ahead of a plan at most; for more of them, the plan finds fewer deletions."""


class Relief:
    """Decides when room is made ahead of a plan, and for which pods.

    A pod is known once a plan or a relief has seen it; it gets no second relief.

    Args:
        plans: makes plans and reliefs.
    """

    def __init__(self, plans: PlanMaker) -> None:
        self._plans = plans
        self._known: frozenset[str] = frozenset()
        self._has_abandoned = False

    def is_on(self) -> bool:
        """True if plans take so long that serving pods get room ahead of them."""
        return self._plans.took_s > SLOW_S

    async def decisions(
        self, view: ClusterSnapshot, grace_left_s: Mapping[tuple[str, str], float]
    ) -> Sequence[ScaleDecision]:
        """Decisions for the jobs that make room now; empty if the plan is to decide everything.

        Args:
            view: the snapshot as the planner sees it.
            grace_left_s: serving pods that are left to kube-scheduler for now; see `waits.serving_grace_left_s`.
        """
        due = {
            pod.uid
            for pod in view.waiting_serving
            if pod.needs_room and (pod.namespace, pod.name) not in grace_left_s
        }
        new, self._known = due - self._known, frozenset(due)
        if not self._is_worthwhile(len(new)):
            return ()
        return await self._plans.relieve(view)

    def interrupts(self, now: ClusterSnapshot) -> bool:
        """Give up the plan that is being made if new serving pods need room; True if it was given up.

        Args:
            now: the cluster while the plan is being made.
        """
        new = sum(pod.tried and pod.needs_room and pod.uid not in self._known for pod in now.waiting_serving)
        if self._has_abandoned or not self._is_worthwhile(new):
            return False
        self._has_abandoned = True
        self._plans.abandon()
        return True

    def planned(self) -> None:
        """A plan was made to its end, so the next one may be given up."""
        self._has_abandoned = False

    def _is_worthwhile(self, new_pods: int) -> bool:
        return 0 < new_pods <= MOST_PODS and self.is_on()
