"""What the controller would have cost: CPU, memory, the lengths of decisions and an estimate of its writes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.shadow.document import Costs

_STEP = 1.02
"""Lengths of decisions are counted in classes that are 2 % wide."""
_SHORTEST_S = 1e-4


def class_of(seconds: float) -> int:
    """The number of the histogram class that a duration falls into."""
    return max(0, math.ceil(math.log(max(seconds, _SHORTEST_S) / _SHORTEST_S) / math.log(_STEP)))


def length_of(number: int) -> float:
    """The longest duration of a histogram class, in seconds."""
    return float(_SHORTEST_S * _STEP**number)


def quantile(classes: Mapping[int, int], part: float) -> float | None:
    """The length, in seconds, that this part of all decisions does not exceed; None without decisions."""
    left = math.ceil(part * sum(classes.values()))
    for number in sorted(classes):
        left -= classes[number]
        if left <= 0:
            return length_of(number)
    return None


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class CostMeter:
    """Measures the cost of this process, and adds it to that of earlier runs.

    Attributes:
        classes: how many decisions there were of each class of length.
        costs: the sums so far; `finish` computes the rest.
    """

    def __init__(self, costs: Costs, classes: Mapping[int, int]) -> None:
        self.costs, self.classes = costs, dict(classes)
        self._before_s = costs.cpu_s
        self._wanted: dict[JobKey, ScaleDecision] = {}
        self._victims: frozenset[tuple[JobKey, str]] = frozenset()

    def decided(self, seconds: float, *, is_plan: bool) -> None:
        """Note that a decision was made, or failed, after so many seconds."""
        if not is_plan:
            self.costs.failed += 1
            return
        self.costs.decisions += 1
        number = class_of(seconds)
        self.classes[number] = self.classes.get(number, 0) + 1
        self.costs.worst_s = max(self.costs.worst_s or 0.0, seconds)

    def planned(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Count the writes that the plan needs and the plan before it did not.

        Of a TrainingJob: each victim, each pod that is to be created, its status and an event. Of a workload with a
        controller of its own: one patch and one event for a new count.
        """
        jobs = {job.key: job for job in view.jobs}
        victims = frozenset((d.job, name) for d in plan.decisions for name in d.victims)
        for decision in plan.decisions:
            before, job = self._wanted.get(decision.job), jobs[decision.job]
            had = before.target if before is not None else decision.current
            is_new_count = decision.target not in (had, decision.current)
            if job.owner_count is not None:
                self.costs.writes += 2 * is_new_count
                continue
            self.costs.writes += max(0, decision.target - max(had, decision.current))
            self.costs.writes += is_new_count
            self.costs.writes += before is None or _shown(before) != _shown(decision)
        own = {key for key, job in jobs.items() if job.owner_count is None}
        self.costs.writes += sum(key in own for key, _ in victims - self._victims)
        self._wanted = {decision.job: decision for decision in plan.decisions}
        self._victims = victims

    def look(self) -> None:
        """Read the CPU time and the memory of the process."""
        self.costs.cpu_s = self._before_s + time.process_time()
        self.costs.rss_bytes = max(self.costs.rss_bytes, resident_bytes())

    def finish(self, observed_s: float) -> Costs:
        """The costs, for a report over so many seconds."""
        self.look()
        made = self.costs.model_copy()
        made.median_s, made.p99_s = quantile(self.classes, 0.5), quantile(self.classes, 0.99)
        if observed_s > 0:
            made.cpu_share = made.cpu_s / observed_s
            made.writes_per_minute = 60.0 * made.writes / observed_s
        return made


def _shown(decision: ScaleDecision) -> tuple[int, int, str, str]:
    return decision.current, decision.target, decision.reason, decision.message
