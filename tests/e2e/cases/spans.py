"""How long pods of each role took to be bound, to start and to end, as watches saw it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from edl.sim.scenario import Scenario
from tests.e2e.worlds import facts

Object = Mapping[str, Any]
SERVING = "serving"
WITHIN = (0.05, 0.95)
"""The parts of the pods between which a span is taken, so that one late pod does not make it."""


@dataclass(slots=True)
class _Life:
    created_s: float
    bound_s: float | None = None
    ran_s: float | None = None
    deleted_s: float | None = None
    is_over: bool = False


class Spans:
    """Measures while it is shown each change of each pod.

    Attributes:
        seconds: by what happened and by role: `bind`, `start`, `stop`.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._lives: dict[str, _Life] = {}

    def see(self, uid: str, pod: Object | None, role: str, now_s: float) -> None:
        """A pod changed, or is gone; a pod that is gone or has ended leaves its room."""
        life = self._lives.get(uid)
        if life is None:
            life = self._lives[uid] = _Life(now_s)
            if pod is not None and pod["spec"].get("nodeName"):  # it was there before anybody looked
                life.bound_s = life.ran_s = now_s
        if pod is not None:
            self._see_present(life, pod, role, now_s)
        is_over = pod is None or facts.is_finished(pod)
        if is_over and not life.is_over and life.deleted_s is not None and life.ran_s is not None:
            self.seconds["stop", role].append(now_s - life.deleted_s)
        life.is_over = is_over
        if pod is None:
            del self._lives[uid]

    def _see_present(self, life: _Life, pod: Object, role: str, now_s: float) -> None:
        if life.bound_s is None and pod["spec"].get("nodeName"):
            life.bound_s = now_s
            self.seconds["bind", role].append(now_s - life.created_s)
        if life.ran_s is None and life.bound_s is not None and facts.is_running(pod):
            life.ran_s = now_s
            self.seconds["start", role].append(now_s - life.bound_s)
        if life.deleted_s is None and facts.is_terminating(pod):
            life.deleted_s = now_s

    def summary(self) -> dict[str, list[float]]:
        """For each span with a few pods: how many pods, the shortest, the median and the longest time."""
        found = {}
        for (what, role), seconds in sorted(self.seconds.items()):
            low, half, high = np.quantile(seconds, (WITHIN[0], 0.5, WITHIN[1]))
            found[f"{role} {what}"] = [len(seconds), *(round(float(s), 2) for s in (low, half, high))]
        return found


def as_seen(scenario: Scenario, summary: Mapping[str, list[float]]) -> Scenario:
    """The scenario with the times that pods took to start and to end."""
    fields = scenario.latency.model_dump()
    for what, role in product(("start", "stop"), ("trainer", "pserver", "master", SERVING)):
        if (seen := summary.get(f"{role} {what}")) is not None:
            fields[f"{what}_s"][role] = (seen[1], seen[3])
    return scenario.model_copy(update={"latency": type(scenario.latency).model_validate(fields)})
