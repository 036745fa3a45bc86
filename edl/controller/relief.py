"""Room for serving pods ahead of the plan, if plans take long.

On a large cluster a plan takes a second, and a serving pod that waits for it waits longer than it must. Which surplus
trainers make room for it is found in a fraction of that. So a round whose snapshot shows new serving pods without
room deletes these trainers and ends; the plan is left to the next round. A plan that is being made when such a pod
comes is given up for it, but never two in a row. Pods that keep coming put a plan off for some seconds; the next one
is made to its end and carried out, because other jobs wait for it.

kube-scheduler takes a few tenths of a second to say that it has no room, and finding the trainers takes as long. Both
go on together: for pods that have just come the trainers are found at once, and deleted when kube-scheduler has said
so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edl.clock import Clock
from edl.controller.plan_maker import PlanMaker
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScaleDecision
from edl.planner.waits import refused

SLOW_S = 0.25
"""A plan that takes no longer than this is waited for: it chooses among all trainers."""
MOST_PODS = 16
"""So many new serving pods get room ahead of a plan at most; for more of them, the plan finds fewer deletions."""
PUT_OFF_S = 3.0
"""For so long at most, room is made without a plan in between."""


@dataclass(frozen=True, slots=True)
class Gifts:
    """What jobs give ahead of a plan.

    Attributes:
        decisions: for the jobs that give trainers; empty if the plan is to decide everything.
        awaited: UIDs of the serving pods that kube-scheduler must have found no room for before anything is deleted.
    """

    decisions: Sequence[ScaleDecision] = ()
    awaited: frozenset[str] = frozenset()


class Relief:
    """Decides when room is made ahead of a plan, and for which pods.

    A pod is known once a plan or a relief has seen it; it gets no second relief. Before kube-scheduler has tried it,
    trainers are looked for once.

    Args:
        plans: makes plans and reliefs.
        clock: for the time without a plan.
    """

    def __init__(self, plans: PlanMaker, clock: Clock) -> None:
        self._plans, self._clock = plans, clock
        self._put_off_s: float | None = None  # when a plan was put off first
        self._known: frozenset[str] = frozenset()
        self._untried: frozenset[str] = frozenset()
        self._has_abandoned = False

    def is_on(self) -> bool:
        """True if plans take so long that serving pods get room ahead of them, and none is overdue."""
        return self._plans.took_s > SLOW_S and not self._is_plan_overdue()

    async def gifts(self, view: ClusterSnapshot, grace_left_s: Mapping[tuple[str, str], float]) -> Gifts:
        """What jobs give now, or once kube-scheduler has found no room for pods that have just come.

        Args:
            view: the snapshot as the planner sees it.
            grace_left_s: serving pods that are left to kube-scheduler for now; see `waits.serving_grace_left_s`.
        """
        waiting = {pod.uid: (pod.namespace, pod.name) for pod in view.waiting_serving if pod.needs_room}
        untried = frozenset(uid for uid, name in waiting.items() if name in grace_left_s)
        due = waiting.keys() - untried
        new, self._known = due - self._known, frozenset(due)
        come, self._untried = untried - self._untried, untried
        if new:
            return Gifts(await self._plans.relieve(view) if self._is_worthwhile(len(new)) else ())
        if not self._is_worthwhile(len(come)):
            return Gifts()
        return Gifts(await self._plans.relieve(_as_tried(view, come)), come)

    def accepted(self, gifts: Gifts) -> None:
        """What jobs give is about to go."""
        self._known |= gifts.awaited
        self._put_off()

    def interrupts(self, now: ClusterSnapshot) -> bool:
        """Give up the plan that is being made if new serving pods need room; True if it was given up.

        Args:
            now: the cluster while the plan is being made.
        """
        new = refused(now) - self._known
        if self._has_abandoned or not self._is_worthwhile(len(new)):
            return False
        self._has_abandoned = True
        self._put_off()
        self._plans.abandon()
        return True

    def planned(self) -> None:
        """A plan was made to its end and carried out, so the next one may be given up."""
        self._has_abandoned, self._put_off_s = False, None

    def _put_off(self) -> None:
        if self._put_off_s is None:
            self._put_off_s = self._clock.monotonic_s()

    def _is_plan_overdue(self) -> bool:
        """True if plans were put off for so long that the next one is made and carried out, whatever comes."""
        return self._put_off_s is not None and self._clock.monotonic_s() >= self._put_off_s + PUT_OFF_S

    def _is_worthwhile(self, new_pods: int) -> bool:
        return 0 < new_pods <= MOST_PODS and self.is_on()


def _as_tried(view: ClusterSnapshot, uids: frozenset[str]) -> ClusterSnapshot:
    """The snapshot as if kube-scheduler had tried these pods."""
    return replace(view, pods=tuple(replace(pod, tried=True) if pod.uid in uids else pod for pod in view.pods))
