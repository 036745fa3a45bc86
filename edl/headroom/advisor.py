"""Advises how much capacity each plan should keep for serving pods of each shape, from the plans' snapshots.

The memory of an advisor may be lost at any moment: after a restart it starts cold, keeps nothing and says so.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from edl.headroom.freeing import FreeingTime
from edl.headroom.learner import Answer, Learner
from edl.model.cluster import ClusterSnapshot
from edl.model.headroom import Headroom
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import CPU, PodShape, without_rules

MOST_SHAPES = 64
"""Shapes that are learned; the ones seen last stay."""

COOLDOWN_S = 60.0
"""The least time from a first deletion of trainers for headroom to the next deletions for it."""

GRANT_S = 10.0
"""How long deletions for headroom may continue, so that a plan whose writes were dropped can be repeated."""

LEAST_CORES = 0.01
"""The CPU that an idle pod counts with if it requests less, in cores."""


class Reservation(Protocol):
    """Decides how much capacity to reserve for the pods of one shape."""

    def observe(self, at_s: float, pods: int, window: int) -> Answer:
        """Note how many pods of the shape there are, and return for how many more to keep capacity."""


class Advisor:
    """Keeps a `Reservation` for each shape, and the pause between deletions for capacity.

    Attributes:
        freeing: how long freeing takes, as measured.
    """

    def __init__(self, slo: float) -> None:
        """Start without history.

        Args:
            slo: idle core-seconds that one waiting pod-second costs, > 0.
        """
        self._slo = slo
        self._reservations: dict[PodShape, Reservation] = {}
        self._granted_s: float | None = None  # when deletions for capacity began last
        self._noted: ScalePlan | None = None
        self.freeing = FreeingTime()

    def new_reservation(self, shape: PodShape) -> Reservation:
        """Make the learner of a pod shape that was not seen before."""
        return Learner(max(LEAST_CORES, shape.request[CPU] / 1000), self._slo)

    def advise(self, snapshot: ClusterSnapshot) -> tuple[Headroom, ...]:
        """Return the capacity that the next plan should reserve, in the order in which the shapes were first seen."""
        serving = [pod for pod in snapshot.pods if is_serving(pod)]
        self.freeing.observe(snapshot, serving)
        counts: Counter[PodShape] = Counter()
        for shape, pods in Counter(pod.shape for pod in serving if pod.is_live and not pod.gated).items():
            counts[without_rules(shape)] += pods
        for shape in counts:
            if shape not in self._reservations:
                self._reservations[shape] = self.new_reservation(shape)
        while len(self._reservations) > MOST_SHAPES:
            self._reservations.pop(
                next((s for s in self._reservations if s not in counts), next(iter(self._reservations)))
            )
        now_s, window = snapshot.observed_at_s, self.freeing.ticks
        may_delete = self._may_delete(now_s)
        answers = {
            shape: reservation.observe(now_s, counts[shape], window)
            for shape, reservation in self._reservations.items()
        }
        return tuple(Headroom(shape, a.pods, a.reason, may_delete and a.pods > 0) for shape, a in answers.items())

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Note a plan that was made for a snapshot with this advice: deletions for capacity begin the pause."""
        if plan is self._noted:
            return
        self._noted, now_s = plan, snapshot.observed_at_s
        if any(kept.deleted for kept in plan.headroom) and not self._is_within(now_s, COOLDOWN_S):
            self._granted_s = now_s

    def _may_delete(self, now_s: float) -> bool:
        return not self._is_within(now_s, COOLDOWN_S) or self._is_within(now_s, GRANT_S)

    def _is_within(self, now_s: float, pause_s: float) -> bool:
        return self._granted_s is not None and 0 <= now_s - self._granted_s < pause_s


def is_serving(pod: Pod) -> bool:
    """True for a pod that serves: neither training nor a daemon, and not below the priority of serving."""
    return pod.job is None and pod.priority >= 0 and not pod.daemon and not pod.is_finished
