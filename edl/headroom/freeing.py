"""How long it takes to free capacity: from the decision until a serving pod runs where a trainer was.

Measured from snapshots: how long trainers take to end (eviction and grace), and serving pods to start once they have
a node. Until both were seen, a default counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import ceil
from statistics import median, quantiles

from edl.headroom.growth import MOST_TICKS, TICK_S
from edl.model.cluster import ClusterSnapshot
from edl.model.pods import Pod

REACTION_S = 1.0
"""The time from a waiting pod to the deletion of trainers for it, by a plan or by kube-scheduler's preemption."""

DEFAULT_STOP_S, DEFAULT_START_S = 8.0, 1.0
KEPT_SAMPLES = 64
_LONGEST_S = TICK_S * MOST_TICKS


class FreeingTime:
    """Measures how long trainers take to end and serving pods to start, from the snapshots that it is shown."""

    def __init__(self) -> None:
        self._stops: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self._starts: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self._leaving: dict[str, float] = {}  # uid -> when it was first seen to terminate
        self._arriving: dict[str, float] = {}  # uid -> when it was first seen with a node

    @property
    def is_measured(self) -> bool:
        """True once trainers were seen to end and serving pods to start."""
        return bool(self._stops and self._starts)

    @property
    def seconds(self) -> float:
        """Seconds in which capacity is freed and used: nine in ten trainers end, half the serving pods start."""
        stop_s = _most(self._stops) if self._stops else DEFAULT_STOP_S
        start_s = median(self._starts) if self._starts else DEFAULT_START_S
        return min(_LONGEST_S, REACTION_S + stop_s + start_s)

    @property
    def ticks(self) -> int:
        """The time in whole ticks of `growth.TICK_S`, at least 1."""
        return max(1, ceil(self.seconds / TICK_S))

    def observe(self, snapshot: ClusterSnapshot, serving: Iterable[Pod]) -> None:
        """Note which pods end and start; call it with each snapshot.

        Args:
            snapshot: the cluster.
            serving: its serving pods.
        """
        now_s = snapshot.observed_at_s
        leaving = [pod.uid for job in snapshot.jobs for pod in job.pods if pod.terminating and pod.node]
        before, self._leaving = self._leaving, {uid: self._leaving.get(uid, now_s) for uid in leaving}
        self._stops.extend(min(_LONGEST_S, now_s - at_s) for uid, at_s in before.items() if uid not in self._leaving)
        arriving: dict[str, float] = {}
        for pod in serving:
            since_s = self._arriving.get(pod.uid)
            if pod.node and pod.started_s is None:
                arriving[pod.uid] = now_s if since_s is None else since_s
            elif since_s is not None and pod.started_s is not None:
                self._starts.append(min(_LONGEST_S, max(0.0, pod.started_s - since_s)))
        self._arriving = arriving


def _most(samples: Iterable[float]) -> float:
    """The value that nine in ten samples do not exceed."""
    values = list(samples)
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
