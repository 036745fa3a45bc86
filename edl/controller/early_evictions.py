"""Evictions ahead of the plan: trainers are evicted for a serving pod that no plan has seen yet.

On a large cluster a plan takes a second, and most of it says who grows where. Which surplus trainers must end so that
a serving pod fits is found in a fraction of that. It is found while kube-scheduler tries the pod, and the trainers
are evicted once kube-scheduler has found no capacity. A plan that is being made goes on, and is merged.

This is done only if the last plan took more than `SLOW_S`, or one that is being made has taken so long, and for
`MOST_PODS` new pods at most. Otherwise, and once a plan was published that knows the pods, the plan says which
trainers end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from edl.clock import Clock
from edl.controller.allotment import serving_needing_capacity
from edl.controller.core import Core
from edl.controller.plan_maker import PlanMaker
from edl.controller.ports import Recorder
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.planner.waits import refused, serving_grace_left_s

SLOW_S = 0.25
"""A plan that takes no longer than this is waited for: it chooses among all trainers."""
MOST_PODS = 16
"""The most new serving pods for which trainers are evicted ahead of a plan; for more, a plan evicts fewer."""
VERDICT_S = 0.7
"""How long a search waits for kube-scheduler to try its pods, if other pods wait for a search."""


@dataclass(slots=True)
class EarlySearch:
    """Trainers that are being found, or were found, for some serving pods.

    Attributes:
        awaited: UIDs of the serving pods.
        view: what they are found in.
        limits: what the operator allows.
        until_s: the monotonic time until which kube-scheduler's answer is waited for while other pods wait, too.
        decisions: for the jobs that lose trainers; None while they are being found.
    """

    awaited: frozenset[str]
    view: ClusterSnapshot
    limits: Limits
    until_s: float
    decisions: Sequence[ScaleDecision] | None = None


class EarlyEvictions:
    """Finds trainers to evict for serving pods that arrive while a plan is being made, once for each pod.

    Args:
        core: is told which trainers end.
        clock: for the time of kube-scheduler's answer.
        plans: finds the trainers.
        recorder: is told what is evicted.
        view: the planner's view of a cluster.
        wake: called once trainers were found.

    Attributes:
        search: what is being found, or was found and waits for kube-scheduler's answer.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        plans: PlanMaker,
        recorder: Recorder,
        *,
        view: Callable[[ClusterSnapshot], ClusterSnapshot],
        wake: Callable[[], None],
    ) -> None:
        self._core, self._clock, self._plans, self._recorder = core, clock, plans, recorder
        self._view, self._wake = view, wake
        self._known: frozenset[str] = frozenset()
        self.search: EarlySearch | None = None
        self._deciding_since_s = inf
        self._task: asyncio.Task[None] | None = None

    def look(self, limits: Limits) -> None:
        """Take the snapshot of the cache: begin to search trainers to evict, or evict those that were found."""
        self.judge()
        now_s = self._clock.monotonic_s()
        self._deciding_since_s = min(now_s, self._deciding_since_s) if self._plans.is_deciding else inf
        if not self._core.snapshot.waiting_serving:
            self._known = frozenset()
        elif self.search is None and self._is_slow(now_s) and (search := self.begin(limits)) is not None:
            self._task = asyncio.ensure_future(self._find(search))

    def _is_slow(self, now_s: float) -> bool:
        return self._plans.took_s > SLOW_S or now_s >= self._deciding_since_s + SLOW_S

    def next_look_s(self) -> float:
        """The monotonic time of the next look although nothing changes; infinity if there is none.

        It is when kube-scheduler's answer need not be waited for any more, or when a plan has taken long.
        """
        search, now_s = self.search, self._clock.monotonic_s()
        if search is not None:
            return search.until_s if search.decisions is not None and search.until_s > now_s else inf
        return (
            self._deciding_since_s + SLOW_S
            if self._core.snapshot.waiting_serving and not self._is_slow(now_s)
            else inf
        )

    def close(self) -> None:
        """End the search under way."""
        if self._task is not None:
            self._task.cancel()
        self.search = None

    def begin(self, limits: Limits) -> EarlySearch | None:
        """Begin a search for the serving pods that have come; None if there is nothing to search."""
        snapshot = self._core.snapshot
        waiting = serving_needing_capacity(snapshot)
        self._known &= waiting
        new = waiting - self._known
        if not new:
            return None
        self._known |= new
        if len(new) > MOST_PODS:
            return None
        view = self._view(self._core.assumed())
        new &= serving_needing_capacity(view)
        if not new:
            return None
        in_grace = serving_grace_left_s(snapshot, limits)  # the search supposes that these will find no capacity
        if in_grace:
            tried = tuple(
                replace(pod, tried=True) if pod.uid in new and (pod.namespace, pod.name) in in_grace else pod
                for pod in view.pods
            )
            view = replace(view, pods=tried)
        self.search = EarlySearch(new, view, limits, self._clock.monotonic_s() + VERDICT_S)
        return self.search

    async def _find(self, search: EarlySearch) -> None:
        search.decisions = await self._plans.early_evictions(search.view)
        self._wake()

    def judge(self) -> None:
        """Evict the trainers found once kube-scheduler has reported that none of the pods fits anywhere."""
        search, snapshot = self.search, self._core.snapshot
        if search is None or search.decisions is None:
            return
        self.search = None
        waiting = serving_needing_capacity(snapshot)
        is_over = self._clock.monotonic_s() >= search.until_s and bool(waiting - self._known)
        is_over |= search.awaited <= self._core.allotments.known
        if search.decisions and search.awaited <= waiting:
            if search.awaited <= refused(snapshot):
                self._recorder.evicted_early(search.view, search.limits, search.decisions)
                self._core.amended(search.decisions, search.view, search.awaited)
            elif not is_over:
                self.search = search
                return
        if not search.awaited <= waiting:  # some found a node meanwhile: for the others it is searched again
            self._known -= search.awaited - self._core.allotments.known
