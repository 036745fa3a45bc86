"""Scales serving up and down on a large cluster with training jobs, and measures each step from the API's objects."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.worlds import facts
from tests.e2e.worlds.follow import Follower
from tests.e2e.worlds.harness import World, trainer_request
from tests.e2e.worlds.hindsight import Moment
from tests.e2e.worlds.pod_log import PodLog, cause_of_end

Object = dict[str, Any]
FOR_A_SHARE = {"InsufficientCapacity", "Cooldown", "ResizeNotWorthIt"}  # the cooldown limits how often
ONE_SHRINK_S = 5.0  # the deletions of one plan are this close together, even on a busy machine
STEP_TIMEOUT_S = 120.0
EARLY_S = 10.0
"""Trainers that are deleted within this time after a rise of serving are deleted for that rise."""
POLL_S = 0.5  # to list all pods of a large cluster takes a tenth of a second of one core


@dataclass(slots=True)
class Step:
    """The effect of one change of the serving count.

    Attributes:
        at_s: monotonic time of the change.
        blocked: new serving pods that do not fit into free resources, so that trainers must be deleted for them.
        least: the least number of trainers whose deletion makes all of them fit.
        waited_s: time from the change until the wanted number of pods was ready (or removed).
        shortfall: pod-seconds below the target.
        forced: trainers deleted until then, by cause.
        later: trainers deleted from then until the next step, by cause.
        first_write_s: time from the change to the first write of the controller; None if there was none.
        moved: masters and pservers deleted until the next step, by role and cause.
        early: trainers deleted in the first `EARLY_S`, by cause.
        rested_s: time from the change until the cluster was at rest and full; None if nobody waited for it.
    """

    before: int
    target: int
    at_s: float
    blocked: int = 0
    least: int = 0
    waited_s: float = 0.0
    shortfall: float = 0.0
    forced: Counter[str] = field(default_factory=Counter)
    later: Counter[str] = field(default_factory=Counter)
    first_write_s: float | None = None
    moved: Counter[str] = field(default_factory=Counter)
    early: Counter[str] = field(default_factory=Counter)
    rested_s: float | None = None

    @property
    def is_rise(self) -> bool:
        """True if the step adds serving pods."""
        return self.target > self.before


@dataclass(frozen=True, slots=True)
class Filled:
    """How full the cluster is when nothing changes.

    Attributes:
        trainers: the number of trainers.
        optimum: trainers that would fit if pservers and trainers were placed again around masters and serving pods.
        beside: trainers that would fit if only trainers were placed again.
        used: cpu over allocatable cpu, as declared; bound: the same with the optimum.
        moment: the cluster, to compare with other moments.
    """

    serving: int
    trainers: int
    optimum: int
    beside: int
    used: float
    bound: float
    moment: Moment = field(repr=False)


class Watched:
    """A cluster in which every pod and every write to a TrainingJob is recorded.

    Attributes:
        resizes: each `status.lastResize` of each job.
    """

    def __init__(self, here: World, serving: facts.Amounts) -> None:
        self.here = here
        self.log = PodLog(here.kube)
        self.resizes: dict[str, list[Object]] = {}
        self._serving = serving
        self._written_s: list[float] = []

    @contextmanager
    def following(self) -> Iterator[Watched]:
        """Record while the context lasts."""
        jobs = Follower(self.here.kube, "trainingjobs", lambda _: None, self._written)
        with self.log, jobs:
            yield self

    def _written(self, change: str, job: Object) -> None:
        if change == "MODIFIED":  # only the controller changes a job in these tests
            self._written_s.append(time.monotonic())
        resize = (job.get("status") or {}).get("lastResize")
        shown = self.resizes.setdefault(job["metadata"]["name"], [])
        if resize and (not shown or shown[-1] != resize):
            shown.append(resize)

    def voluntary_shrinks(self, job: str) -> list[float]:
        """Monotonic times at which the controller deleted running trainers of the job for another job's share.

        One that got its node while the controller deleted it has not run; nothing limits how often such ones end.
        """
        shrinks: list[float] = []
        for at, pod in self.log.ended_of(job):
            intent = facts.intent_of(pod)
            is_new = not shrinks or at > shrinks[-1] + ONE_SHRINK_S
            if intent in FOR_A_SHARE and pod["status"].get("startTime") and is_new:
                shrinks.append(at)
        return shrinks

    def wait_settled(self, quiet_s: float, timeout_s: float = STEP_TIMEOUT_S) -> None:
        """Wait until the cluster is full and has not changed for some time."""

        def restless() -> str:
            left_s = self.log.changed + quiet_s - time.monotonic()
            return f"quiet for {left_s:.0f} s more" if left_s > 0 else ""

        self.here.wait_full(timeout_s, poll_s=1.0, further=restless)

    def moved(self, since: float, until: float) -> Counter[str]:
        """The number of masters and pservers deleted in that time, by role and cause."""
        ended = [pod for at, pod in self.log.fixed_ended.values() if since < at <= until]
        return Counter(f"{pod['metadata']['labels'][facts.ROLE_LABEL]}: {cause_of_end(pod)}" for pod in ended)

    def go(self, before: int, target: int) -> Step:
        """Scale serving and wait until it reaches its target; `close` completes the step."""
        nodes, pods = self.here.kube.list("nodes"), self.here.pods()
        step = Step(before, target, 0.0)
        if step.is_rise:
            more = target - before
            step.blocked = max(0, more - facts.slots(self._serving, facts.free_room(nodes, pods)))
            step.least = facts.least_victims(nodes, pods, self._serving, more)
        step.at_s = time.monotonic()
        self.here.kube.scale("deployments", "web", target)
        self.here.kube.wait_until(
            lambda: self._standing() == target, STEP_TIMEOUT_S, f"{target} serving pods are ready", poll_s=POLL_S / 2
        )
        return step

    def _standing(self) -> int:
        ready = self.log.ready("web")
        return ready[-1][1] if ready else 0

    def close(self, step: Step) -> Step:
        """Complete the figures of the step."""
        ready = self.log.ready("web")
        until = next((at for at, n in ready if at > step.at_s and n == step.target), time.monotonic())
        step.waited_s = until - step.at_s
        if step.is_rise:
            step.shortfall = facts.shortfall(ready, step.target, step.at_s, until)
        step.forced = self.log.causes(step.at_s, until)
        step.later = self.log.causes(until)
        step.early = self.log.causes(step.at_s, step.at_s + EARLY_S)
        step.moved = self.moved(step.at_s, math.inf)
        writes = [at for at in self._written_at() if at > step.at_s]
        step.first_write_s = min(writes) - step.at_s if writes else None
        return step

    def _written_at(self) -> list[float]:
        """The time of the first event that only the controller causes."""
        return [*self._written_s, *self.log.created.values()]

    def filled(self, serving: int) -> Filled:
        """How full the cluster is now."""
        nodes, pods = self.here.kube.list("nodes"), [facts.as_declared(pod) for pod in self.here.pods()]
        jobs = self.here.jobs()
        trainer = trainer_request(next(iter(jobs.values())))
        trainers = sum(len(facts.trainers(pods, name)) for name in jobs)
        others = [p for p in pods if (p["metadata"].get("labels") or {}).get(facts.ROLE_LABEL) != "trainer"]
        most = sum(job["spec"]["trainer"]["max-instance"] for job in jobs.values())
        optimum = min(most, facts.most_trainers(nodes, pods, trainer))
        used = facts.utilisation(nodes, pods)
        whole = sum(facts.amount("cpu", node["status"]["allocatable"]["cpu"]) for node in nodes)
        bound = used + (optimum - trainers) * trainer["cpu"] / whole
        return Filled(
            serving=serving,
            trainers=trainers,
            optimum=optimum,
            beside=min(most, facts.slots(trainer, facts.free_room(nodes, others))),
            used=used,
            bound=bound,
            moment=Moment(nodes, pods, optimum, bound * whole / trainer["cpu"]),
        )
