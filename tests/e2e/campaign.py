"""Serving goes up and down over training on a large cluster, and every step is measured from the API's objects."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.e2e import world
from tests.e2e.follow import Follower
from tests.e2e.harness import World, trainer_request
from tests.e2e.hindsight import Moment
from tests.e2e.pod_log import PodLog, cause_of_end

Object = dict[str, Any]
FOR_A_SHARE = {"InsufficientCapacity", "Cooldown", "ResizeNotWorthIt"}  # of another job, which the cooldown bounds
ONE_SHRINK_S = 5.0  # a plan's deletions come this close together, on a busy machine too
STEP_TIMEOUT_S = 120.0
POLL_S = 0.5  # a look at all pods of a large cluster is a tenth of a second of one core


@dataclass(slots=True)
class Step:
    """What one change of the serving count came to.

    Attributes:
        at_s: monotonic time of the change.
        blocked: pods of it for which no room was free: each waits for somebody's end, whoever chooses.
        least: the least number of trainers whose end makes room for all of it.
        waited_s: from the change until as many pods as asked for were ready (or left).
        shortfall: pod-seconds below the target.
        forced: who ended how many trainers until then.
        later: who ended how many from then until the next step.
        first_write_s: from the change to the first sign of a write of the controller; None where there was none.
        moved: masters and pservers that ended until the next step, by role and cause.
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

    @property
    def is_rise(self) -> bool:
        """True where serving asks for more."""
        return self.target > self.before


@dataclass(frozen=True, slots=True)
class Filled:
    """How full the cluster is at rest; trainers, and parts of the cpu that nodes offer.

    Attributes:
        trainers: there are so many.
        optimum: so many would fit were masters, pservers and trainers placed anew and serving left where it stands.
        beside: so many would fit were only trainers placed anew.
        used: requested, over allocatable; bound: the same with the optimum.
        moment: the cluster, for whoever compares it with others.
    """

    serving: int
    trainers: int
    optimum: int
    beside: int
    used: float
    bound: float
    moment: Moment = field(repr=False)


class Watched:
    """A cluster of which every pod, and every write to a TrainingJob, is followed.

    Attributes:
        resizes: every `status.lastResize` that each job ever showed.
    """

    def __init__(self, here: World, serving: world.Amounts) -> None:
        self.here = here
        self.log = PodLog(here.kube)
        self.resizes: dict[str, list[Object]] = {}
        self._serving = serving
        self._told: list[float] = []

    @contextmanager
    def following(self) -> Iterator[Watched]:
        """Follow while the context lasts."""
        jobs = Follower(self.here.kube, "trainingjobs", lambda _: None, self._written)
        with self.log, jobs:
            yield self

    def _written(self, change: str, job: Object) -> None:
        if change == "MODIFIED":  # nobody but the controller changes a job in these tests
            self._told.append(time.monotonic())
        resize = (job.get("status") or {}).get("lastResize")
        shown = self.resizes.setdefault(job["metadata"]["name"], [])
        if resize and (not shown or shown[-1] != resize):
            shown.append(resize)

    def voluntary_shrinks(self, job: str) -> list[float]:
        """When the controller ended running trainers of the job for the share of another; monotonic."""
        shrinks: list[float] = []
        for at, pod in self.log.ended_of(job):
            intent = (pod["metadata"].get("annotations") or {}).get(world.INTENT)
            is_new = not shrinks or at > shrinks[-1] + ONE_SHRINK_S
            if intent in FOR_A_SHARE and pod["spec"].get("nodeName") and is_new:
                shrinks.append(at)
        return shrinks

    def wait_settled(self, quiet_s: float) -> None:
        """Wait until the cluster is full, at rest, and has been left alone for some time."""

        def restless() -> str:
            left_s = self.log.changed + quiet_s - time.monotonic()
            return f"quiet for {left_s:.0f} s more" if left_s > 0 else ""

        self.here.wait_full(STEP_TIMEOUT_S, poll_s=1.0, further=restless)

    def moved(self, since: float, until: float) -> Counter[str]:
        """How many masters and pservers ended in that time, by role and cause."""
        ended = [pod for at, pod in self.log.fixed_ended.values() if since < at <= until]
        return Counter(f"{pod['metadata']['labels'][world.ROLE_LABEL]}: {cause_of_end(pod)}" for pod in ended)

    def go(self, before: int, target: int) -> Step:
        """Scale serving and wait until it stands at its target; `close` completes what is said of the step."""
        nodes, pods = self.here.kube.list("nodes"), self.here.pods()
        step = Step(before, target, 0.0)
        if step.is_rise:
            more = target - before
            step.blocked = max(0, more - world.slots(self._serving, world.free_room(nodes, pods)))
            step.least = world.least_victims(nodes, pods, self._serving, more)
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
        """Say what the step came to by now."""
        ready = self.log.ready("web")
        until = next((at for at, n in ready if at > step.at_s and n == step.target), time.monotonic())
        step.waited_s = until - step.at_s
        if step.is_rise:
            step.shortfall = world.shortfall(ready, step.target, step.at_s, until)
        step.forced = self.log.causes(step.at_s, until)
        step.later = self.log.causes(until)
        step.moved = self.moved(step.at_s, math.inf)
        writes = [at for at in self._written_at() if at > step.at_s]
        step.first_write_s = min(writes) - step.at_s if writes else None
        return step

    def _written_at(self) -> list[float]:
        """When something that only the controller writes was seen."""
        return [*self._told, *self.log.created.values()]

    def filled(self, serving: int) -> Filled:
        """How full it is now."""
        nodes, pods = self.here.kube.list("nodes"), self.here.pods()
        jobs = self.here.jobs()
        trainer = trainer_request(next(iter(jobs.values())))
        trainers = sum(len(world.trainers(pods, name)) for name in jobs)
        others = [p for p in pods if (p["metadata"].get("labels") or {}).get(world.ROLE_LABEL) != "trainer"]
        most = sum(job["spec"]["trainer"]["max-instance"] for job in jobs.values())
        optimum = min(most, world.most_trainers(nodes, pods, trainer))
        used = world.utilisation(nodes, pods)
        whole = sum(world.amount("cpu", node["status"]["allocatable"]["cpu"]) for node in nodes)
        bound = used + (optimum - trainers) * trainer["cpu"] / whole
        return Filled(
            serving=serving,
            trainers=trainers,
            optimum=optimum,
            beside=min(most, world.slots(trainer, world.free_room(nodes, others))),
            used=used,
            bound=bound,
            moment=Moment(nodes, pods, optimum, bound * whole / trainer["cpu"]),
        )
