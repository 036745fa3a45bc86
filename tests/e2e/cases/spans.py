"""How long pods of each role took to be bound, to start and to end, as watches saw it."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from edl.sim.scenario import Scenario
from tests.e2e.cases.controller_log import CONTROLLER
from tests.e2e.worlds import facts

Object = Mapping[str, Any]
SERVING, SCHEDULER = "serving", "scheduler"
BURST_PAUSE_S = 0.1
"""Pods that come with shorter pauses were sent at once."""

WITHIN = (0.05, 0.95)
"""The parts of the pods between which a span is taken, so that one late pod does not make it."""


@dataclass(slots=True)
class Life:
    """When each thing happened to a pod, in seconds of the scenario; None if it did not.

    Attributes:
        tried_s: kube-scheduler found no node for it; nominated_s: and chose one to make room on.
        refusals: how often its status said so before it was bound; what does not change is not written.
        over_s: it is gone or has ended, so its node is free.
    """

    name: str
    role: str
    created_s: float
    node: str = ""
    tried_s: float | None = None
    nominated_s: float | None = None
    bound_s: float | None = None
    ran_s: float | None = None
    deleted_s: float | None = None
    over_s: float | None = None
    refusals: int = 0


class Spans:
    """Measures while it is shown each change of each pod.

    Attributes:
        seconds: by what happened and by role: `try`, `nominate`, `bind`, `start`, `stop`. For the role `scheduler`:
            what the first try of a pod took, after the pod before: `place`, `preempt`, `refuse`.
        lives: of each pod, by UID.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.lives: dict[str, Life] = {}
        self._scheduled_s = 0.0

    def see(self, uid: str, pod: Object | None, role: str, now_s: float) -> None:
        """A pod changed, or is gone; a pod that is gone or has ended leaves its room."""
        life = self.lives.get(uid)
        if life is None:
            life = self.lives[uid] = Life("" if pod is None else pod["metadata"]["name"], role, now_s)
            if pod is not None and pod["spec"].get("nodeName"):  # it was there before anybody looked
                life.bound_s = life.ran_s = now_s
        if pod is not None:
            self._see_present(life, pod, now_s)
        if life.over_s is None and (pod is None or facts.is_finished(pod)):
            life.over_s = now_s
            if life.deleted_s is not None and life.ran_s is not None:
                self.seconds["stop", role].append(now_s - life.deleted_s)

    def _see_present(self, life: Life, pod: Object, now_s: float) -> None:
        if life.bound_s is None:
            self._see_scheduling(life, pod, now_s)
        if life.ran_s is None and life.bound_s is not None and facts.is_running(pod):
            life.ran_s = now_s
            self.seconds["start", life.role].append(now_s - life.bound_s)
        if life.deleted_s is None and facts.is_terminating(pod):
            life.deleted_s = now_s

    def _see_scheduling(self, life: Life, pod: Object, now_s: float) -> None:
        """What kube-scheduler has written, if it is something."""
        since_s, is_first, status = now_s - life.created_s, life.tried_s is None, pod["status"]
        done = ""
        if _is_refused(status):
            life.refusals += 1
            done = "refuse"
            if is_first:
                life.tried_s = now_s
                self.seconds["try", life.role].append(since_s)
        if life.nominated_s is None and status.get("nominatedNodeName"):
            life.nominated_s = now_s
            self.seconds["nominate", life.role].append(since_s)
            done = "preempt"
        if pod["spec"].get("nodeName"):
            life.node, life.bound_s = pod["spec"]["nodeName"], now_s
            self.seconds["bind", life.role].append(since_s)
            done = "place"
        if done and is_first:
            self.seconds[done, SCHEDULER].append(now_s - max(life.created_s, self._scheduled_s))
        if done:
            self._scheduled_s = now_s

    def write(self, path: Path) -> None:
        """Write what happened to each pod, as CSV."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(each.name for each in fields(Life))
            writer.writerows(astuple(life) for life in self.lives.values())

    def summary(self) -> dict[str, list[float]]:
        """For each span: how many there were, the shortest, the median and the longest time, and the mean."""
        found = {}
        for (what, role), seconds in sorted((self.seconds | self._pace()).items()):
            times = *np.quantile(seconds, (WITHIN[0], 0.5, WITHIN[1])), np.mean(seconds)
            found[f"{role} {what}"] = [len(seconds), *(round(float(s), 4) for s in times)]
        return found

    def _pace(self) -> dict[tuple[str, str], list[float]]:
        """What passes between two pods that the controller creates in one go."""
        created = sorted(life.created_s for life in self.lives.values() if life.role != SERVING)
        pauses = [after - before for before, after in pairwise(created) if after - before <= BURST_PAUSE_S]
        return {("pace", CONTROLLER): pauses} if pauses else {}


def _is_refused(status: Object) -> bool:
    conditions = status.get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def as_seen(scenario: Scenario, summary: Mapping[str, list[float]]) -> Scenario:
    """The scenario with the times that pods, plans, writes and the scheduler's tries took."""
    fields = scenario.latency.model_dump()
    for what, role in product(("start", "stop"), ("trainer", "pserver", "master", SERVING)):
        if (seen := summary.get(f"{role} {what}")) is not None:
            _, low, *_, mean = seen
            fields[f"{what}_s"][role] = (low, max(low, 2 * mean - low))
    if (plan := summary.get(f"{CONTROLLER} plan")) is not None:
        fields["decide_s"] = (plan[1], max(plan[1], 2 * plan[-1] - plan[1]))
    if (write := summary.get(f"{CONTROLLER} write")) is not None:
        fields["write_s"] = write[1]
    if (pace := summary.get(f"{CONTROLLER} pace")) is not None:
        fields["writes_per_s"] = 1.0 / max(pace[-1], 1e-3)
    keys = {"pod_s": "place", "preempt_s": "preempt"}
    times = {
        key: summary[f"{SCHEDULER} {what}"][-1] for key, what in keys.items() if f"{SCHEDULER} {what}" in summary
    }
    latency = type(scenario.latency).model_validate(fields)
    return scenario.model_copy(update={"latency": latency, "scheduler": scenario.scheduler.model_copy(update=times)})
