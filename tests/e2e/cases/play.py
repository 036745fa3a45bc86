"""Plays a scenario on a cluster: nodes, Deployments and jobs at their times, the controller with its flags."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from edl.model.quantity import parse_quantity
from edl.model.resources import CPU
from edl.sim.measures import measure
from edl.sim.meter import Decisions, Recording
from edl.sim.scenario import FixedSpec, JobGroup, LatencySpec, MeasureSpec, Scenario, Series
from tests.e2e.cases.controller_log import times_of
from tests.e2e.cases.recorder import Recorder
from tests.e2e.cases.spans import Spans
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job

Object = dict[str, Any]
Act = Callable[[], None]
SETTLE_S = 120.0
LEARNED = ("peak", "conformal", "foresight")


class NotPlayableError(Exception):
    """A scenario asks for what no cluster of these tests can do."""


@dataclass(frozen=True, slots=True)
class Played:
    """The result.

    Attributes:
        figures: as of `edl.sim.measures.measure`, without those that nobody can see from outside.
        late_s: by how much the latest event of the timeline was late.
        spans: how long pods took.
    """

    figures: dict[str, float]
    recording: Recording
    late_s: float
    spans: Spans


def shortened(scenario: Scenario, until_s: float | None) -> Scenario:
    """The scenario up to a moment; by default to the end of what is measured."""
    spec = scenario.measure
    ends = [span[1] for span in (spec.steady_s, spec.ramps_s) if span is not None]
    last_s = until_s or max([spec.until_s or scenario.duration_s, *ends])
    kept = MeasureSpec(
        from_s=spec.from_s,
        until_s=min(last_s, spec.until_s or last_s),
        steady_s=_until(spec.steady_s, last_s),
        ramps_s=_until(spec.ramps_s, last_s),
    )
    return scenario.model_copy(update={"duration_s": min(last_s, scenario.duration_s), "measure": kept})


def _until(span: tuple[float, float] | None, last_s: float) -> tuple[float, float] | None:
    return (span[0], min(span[1], last_s)) if span is not None and span[0] < last_s else None


def node_specs(scenario: Scenario) -> list[NodeSpec]:
    """The nodes; what their own daemons use is not allocatable."""
    found = []
    for group in scenario.nodes:
        capacity = {"pods": "110", **{name: str(value) for name, value in group.resources.items()}}
        free = parse_quantity(capacity["cpu"], CPU) - parse_quantity(group.system_cpu, CPU)
        names = (f"{group.name}-{number}" for number in range(group.count))
        found += [NodeSpec(name, capacity, {"cpu": f"{free}m"}, group.labels) for name in names]
    return found


def flags_of(scenario: Scenario) -> list[str]:
    """The flags of the controller.

    Raises:
        NotPlayableError: it has no such flag, or the scenario has what is not played.
    """
    spec = scenario.controller
    if spec.serving_headroom in LEARNED:
        raise NotPlayableError(f"serving_headroom {spec.serving_headroom} exists in the simulator only; use auto")
    if scenario.node_events or any(group.work is not None for group in scenario.jobs):
        raise NotPlayableError("node_events and work are not played; leave them out")
    if any(group.master is None for group in scenario.jobs):
        raise NotPlayableError("an elastic job of a cluster has a master; give each job group one")
    flags = [
        *("--interval-s", str(spec.interval_s), "--max-load-desired", str(spec.max_load_desired)),
        *("--serving-headroom", str(spec.serving_headroom), "--surplus-cpu-request", str(spec.surplus_cpu_request)),
    ]
    return flags + (["--serving-slo", str(spec.serving_slo)] if spec.serving_headroom == "auto" else [])


class Playing:
    """One scenario on one cluster, whose nodes are those of `node_specs`.

    Args:
        scenario: what to play.
        here: the cluster; its controller has the flags of `flags_of`.
        seed: of the jitter of arrivals.
    """

    def __init__(self, scenario: Scenario, here: World, seed: int = 0) -> None:
        self._scenario, self._here, self._seed = scenario, here, seed
        groups = scenario.nodes
        self._system = sum(parse_quantity(g.system_cpu, CPU) * g.count for g in groups) / 1000
        self._cores = sum(parse_quantity(g.resources["cpu"], CPU) * g.count for g in groups) / 1000
        self._recorder = Recorder(here.kube, self._system)

    def play(self) -> Played:
        """Let serving settle, play everything at its time, and measure."""
        with self._recorder.following():
            self._settle()
            with self._here.controller:
                self._recorder.begin()
                late_s = [self._act(at_s, act) for at_s, act in sorted(self._events(), key=lambda event: event[0])]
                self._wait(self._scenario.duration_s)
                recording = self._recorder.end()
            self._recorder.spans.seconds |= times_of(self._here.controller.log.read_text().splitlines())
        runs = list(self._recorder.runs.values())
        figures = measure(self._scenario, recording, runs, Decisions(), start_s=0.0, cores=self._cores)
        unseen = ("useful_utilisation", "used_utilisation", "trainers_slowed", "samples", "trainer_hours_lost")
        kept = {name: value for name, value in figures.items() if name not in unseen}
        return Played(kept, recording, max(late_s, default=0.0), self._recorder.spans)

    def _settle(self) -> None:
        for spec in self._scenario.serving:
            first = spec.replicas[0][1] if spec.replicas[0][0] == 0 else 0
            cpu, memory = str(spec.resources["cpu"]), str(spec.resources.get("memory", "1Gi"))
            body = serving(spec.name, replicas=first, cpu=cpu, memory=memory)
            body["spec"]["template"]["metadata"] |= _paced(self._scenario.latency, "serving")
            self._here.kube.create(body)
            self._recorder.scaled(spec.name, first)
        wanted = sum(spec.replicas[0][1] for spec in self._scenario.serving if spec.replicas[0][0] == 0)
        self._here.kube.wait_until(lambda: self._recorder.ready() == wanted, SETTLE_S, "serving of second 0 is ready")

    def _events(self) -> Iterator[tuple[float, Act]]:
        rng = random.Random(f"{self._scenario.name} {self._seed}")  # noqa: S311 - a test, no secret
        for spec in self._scenario.serving:
            for at_s, replicas in spec.replicas:
                if at_s > 0:
                    yield at_s, partial(self._scale, spec.name, replicas)
        for group in self._scenario.jobs:
            for number, at_s in enumerate(_moments(group.arrival, group.count, rng)):
                yield at_s, partial(self._submit, group, f"{group.name}-{number}")
            if group.removal is not None:
                for number, at_s in enumerate(_moments(group.removal, group.count, rng)):
                    yield at_s, partial(self._remove, f"{group.name}-{number}")

    def _act(self, at_s: float, act: Act) -> float:
        """Wait for the moment and act, if the scenario lasts so long; returns by how much it was late."""
        if at_s >= self._scenario.duration_s:
            return 0.0
        self._wait(at_s)
        late_s = self._recorder.now_s() - at_s
        act()
        return late_s

    def _wait(self, at_s: float) -> None:
        time.sleep(max(0.0, at_s - self._recorder.now_s()))

    def _scale(self, name: str, replicas: int) -> None:
        self._recorder.scaled(name, replicas)
        self._here.kube.scale("deployments", name, replicas)

    def _submit(self, group: JobGroup, name: str) -> None:
        self._recorder.submitted(group, name)
        self._here.submit(job_of(group, name, self._scenario))

    def _remove(self, name: str) -> None:
        self._recorder.removed(name)
        self._here.withdraw(name)


def job_of(group: JobGroup, name: str, scenario: Scenario) -> Object:
    """The TrainingJob of a group, with the latencies of the scenario."""

    def fixed(spec: FixedSpec, role: str) -> Object:
        amounts = {key: str(value) for key, value in spec.resources.items()}
        bounds = {"min-instance": spec.count, "max-instance": spec.count} if role == "pserver" else {}
        return {"resources": {"requests": amounts, "limits": amounts}, **bounds, "template": template(role)}

    def template(role: str) -> Object:
        return {"metadata": _paced(scenario.latency, role)}

    roles = (("master", group.master), ("pserver", group.pserver))
    body = training_job(
        name,
        min_trainers=group.min,
        max_trainers=group.max,
        cpu=str(group.trainer["cpu"]),
        memory=str(group.trainer.get("memory", "1Gi")),
        trainer={"template": template("trainer")},
        **{role: fixed(spec, role) for role, spec in roles if spec is not None},
    )
    body["spec"]["elasticity"] = {"cooldownSeconds": int(group.cooldown_s)}
    return body


def _moments(series: Series, count: int, rng: random.Random) -> list[float]:
    return [max(0.0, at_s + rng.uniform(-series.jitter_s, series.jitter_s)) for at_s in series.moments(count)]


def _paced(latency: LatencySpec, role: str) -> Object:
    """Annotations for kwok: how long a pod takes to start and to end, the means of the scenario's spans."""
    start_s, stop_s = mean(latency.start_of(role)), mean(latency.stop_of(role))
    return {"annotations": {"edl.test/start-s": f"{start_s:g}", "edl.test/stop-s": f"{stop_s:g}"}}
