"""The cluster of the 2017 experiment: 133 nodes, six jobs, and serving that grows from 100 to 400 pods and back.

The same wave is run three times on one cluster: over nothing, over training with the controller, and over the same
training with the controller stopped, so that only kube-scheduler's own preemption makes room. What the goals ask for
is computed here from the API server's objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.worlds.campaign import STEP_TIMEOUT_S, Filled, Step, Watched
from tests.e2e.worlds.harness import World, bounds, trainer_request
from tests.e2e.worlds.hindsight import best_without_moves
from tests.e2e.worlds.jobs import serving, training_job

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, measured beside kube-scheduler")]

POD_DELETE_S = 8.0
WAIT_FACTOR = 1.5  # of what a pod waits with kube-scheduler alone; two waves on a busy machine differ by a third
ATTAINABLE = 0.99  # of the trainers that fit beside the masters and pservers where they are
OPTIMAL = 0.99  # of what fits were pservers placed anew, too; masters stay
AFTER_S = 1.0  # pservers move after so long without a change
EVERY_S = 2.0  # a plan comes at least so often
QUIET_S = AFTER_S + EVERY_S + 2.5  # times have whole seconds
FLAGS = ("--consolidate-after-s", str(AFTER_S), "--interval-s", str(EVERY_S))
COOLDOWN_S = 60.0
WRITTEN_S = 3.0
"""A cooldown lies between two decisions and counts whole seconds; what is seen are deletions, some moments later."""
SHARE = "controller: InsufficientCapacity"
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}  # several pservers of a job may move at once
MOVED, MADE_WAY = "pserver: controller: Moved", "controller: Moved"
LEVELS = (100, 200, 300, 400)
SERVING = {"cpu": 3000, "memory": 3 * 2**30, "pods": 1}
JOBS = tuple(
    training_job(
        f"job-{i}",
        min_trainers=2,
        max_trainers=60,
        cpu="5",
        memory="8Gi",
        master={"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
        pserver={
            "min-instance": 10,
            "max-instance": 10,
            "resources": {"requests": {"cpu": "4", "memory": "5Gi"}, "limits": {"cpu": "4", "memory": "5Gi"}},
            "template": {"metadata": {"annotations": SAFE}},
        },
    )
    for i in range(6)
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each step is held at least, and whether it is held until the cluster is at rest and full again.

    It must be so within `rest_s`.
    """

    hold_s: float
    rests: bool = True
    rest_s: float = STEP_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Wave:
    """One wave: its steps, and how full the cluster was at rest before it and after each step."""

    steps: tuple[Step, ...]
    filled: tuple[Filled, ...]

    def rises(self) -> list[Step]:
        """The steps that asked for more."""
        return [step for step in self.steps if step.is_rise]

    def wait_s(self) -> float:
        """Seconds that a pod without free room waited, on the average."""
        return sum(step.shortfall for step in self.rises()) / sum(step.blocked for step in self.rises())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The full campaign runs the wave once more with a kube-scheduler that looks at every node."""
    if "percent_of_nodes_scored" in metafunc.fixturenames:
        is_full = metafunc.config.getoption("--campaign") == "full"
        metafunc.parametrize("percent_of_nodes_scored", [0, 100] if is_full else [0])


@pytest.mark.timeout(1800)
def test_serving_waves_over_six_jobs_on_133_nodes(
    control_plane: Callable[..., ControlPlane], percent_of_nodes_scored: int, *, is_full_campaign: bool
) -> None:
    """The short campaign goes down in one step."""
    pace = Pace(hold_s=90.0 if is_full_campaign else 0.0)
    down = LEVELS[-2::-1] if is_full_campaign else LEVELS[:1]
    settings = Settings(pod_delete_s=POD_DELETE_S, percent_of_nodes_scored=percent_of_nodes_scored)
    here = World(control_plane(mix="edl2017", settings=settings), *FLAGS)
    here.kube.create(serving(replicas=LEVELS[0]))
    watched = Watched(here, SERVING)
    with watched.following():
        here.kube.wait_until(lambda: here.ready_serving() == LEVELS[0], 60, "serving stands", poll_s=0.5)
        idle = wave(watched, [*LEVELS, LEVELS[0]], pace)
        with here.controller:
            train(watched)
            ours = wave(watched, [*LEVELS, *down], pace)
            pages = here.controller.fetch("/metrics")[1]
        alone = wave(watched, LEVELS, Pace(0.0, rests=False))
    report({"idle cluster": idle, "with the controller": ours, "kube-scheduler alone": alone})
    report_rest(ours)
    if is_full_campaign:
        best = best_without_moves([full.moment for full in ours.filled], trainer_request(JOBS[0]))
        print(
            f"who had known all of it, and moved no pserver: {best:.2%} of the optimum at the worst of these levels"
        )
    metrics = Metrics(pages)
    print(metrics.decisions())
    assert ours.wait_s() <= WAIT_FACTOR * alone.wait_s(), "serving waits no longer than without the controller"
    for step in ours.steps:
        ended = step.forced + step.later
        by_us = {cause for cause in ended if cause.startswith("controller")}
        assert by_us <= {SHARE, MADE_WAY}, f"{step}: the controller kills for a share, not again for serving"
        assert ended["scheduler"] <= step.blocked, f"{step}: at most one trainer ends for a pod that has no capacity"
        assert set(step.moved) <= {MOVED}, f"{step}: masters stay, and nobody but the controller ends pservers"
    for filled in ours.filled:
        assert filled.trainers >= ATTAINABLE * filled.beside, f"{filled}"
        assert filled.used >= OPTIMAL * filled.bound, f"{filled}"
    for name, job in here.jobs().items():
        least, most = bounds(job)
        shrinks = watched.voluntary_shrinks(name)
        assert all(b - a >= COOLDOWN_S - WRITTEN_S for a, b in pairwise(shrinks)), f"{name}: {watched.resizes[name]}"
        assert least <= watched.log.lowest[name], f"{name} is never below its minimum"
        assert most >= watched.log.most[name], f"{name} is never above its maximum"
    assert metrics.value("edl_plans_refused_total") == metrics.value("edl_decision_failures_total") == 0


def train(watched: Watched, jobs: Sequence[dict[str, Any]] = JOBS) -> None:
    """Submit the jobs and wait until they have filled the cluster."""
    here = watched.here
    since = time.monotonic()
    for job in jobs:
        watched.log.expect(job["metadata"]["name"], bounds(job)[0])
        here.submit(job)
    watched.wait_settled(QUIET_S)
    print(f"training has filled the cluster {time.monotonic() - since:.0f} s after the jobs came: {here.counts()}")


def wave(watched: Watched, levels: Sequence[int], pace: Pace) -> Wave:
    """Take serving through the levels, at rest at each of them."""
    here = watched.here
    steps, filled = [], [watched.filled(levels[0])] if here.jobs() else []
    for before, target in pairwise(levels):
        step = watched.go(before, target)
        if here.jobs() and pace.rests:
            watched.wait_settled(QUIET_S, pace.rest_s)
            step.rested_s = watched.log.changed - step.at_s
        elif not here.jobs():
            wait_gone(here, target)
        time.sleep(max(0.0, step.at_s + pace.hold_s - time.monotonic()))
        steps.append(watched.close(step))
        filled += [watched.filled(target)] if here.jobs() else []
    return Wave(tuple(steps), tuple(filled))


def wait_gone(here: World, count: int) -> None:
    """Wait until there are no more pods than that."""
    here.kube.wait_until(lambda: len(here.pods()) == count, 60, "the others are gone", poll_s=0.5)


def report(waves: Mapping[str, Wave]) -> None:
    """Print the figures of the waves side by side."""
    heads = ("ready s", "short pod-s", "blocked", "least", "wrote s")
    print(f"{'serving':>12} {'':>22} " + " ".join(f"{head:>11}" for head in heads) + "  ended")
    for name, metrics in waves.items():
        for step in metrics.steps:
            wrote = f"{step.first_write_s:11.2f}" if step.first_write_s is not None else f"{'-':>11}"
            print(
                f"{step.before:>5} -> {step.target:>3} {name:>22} {step.waited_s:11.1f} {step.shortfall:11.0f} "
                f"{step.blocked:11d} {step.least:11d} {wrote}  {dict(step.forced)}, then {dict(step.later)}"
                f"{f', {step.moved.total()} pservers moved' if step.moved else ''}"
            )
        print(
            f"{name}: shortfall {sum(s.shortfall for s in metrics.rises()):.0f} pod-seconds in the rises, "
            f"{sum(s.forced.total() for s in metrics.steps)} trainers ended for it, least possible "
            f"{sum(s.least for s in metrics.steps)}; {sum(s.later.total() for s in metrics.steps)} ended at rest"
        )


def report_rest(ours: Wave) -> None:
    """Print how full the cluster was before and after each step."""
    for full in ours.filled:
        print(
            f"at rest with {full.serving} serving pods: {full.trainers} trainers, {full.used:.1%} declared; "
            f"at most {full.optimum}, {full.bound:.1%}, {full.beside} beside the pservers where they are: "
            f"{full.used / full.bound:.2%} of the optimum"
        )


class Metrics:
    """The page that Prometheus scrapes."""

    def __init__(self, page: str) -> None:
        lines = (line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#"))
        self._values = {name: float(value) for name, _, value in lines}

    def value(self, name: str) -> float:
        """A metric, added up over its labels; one that nobody exports is an error."""
        series = [value for key, value in self._values.items() if key.partition("{")[0] == name]
        assert series, f"no metric {name}"
        return sum(series)

    def decisions(self) -> str:
        """How long decisions took."""
        said = []
        for what in ("decision", "round"):
            count, total = (self.value(f"edl_{what}_seconds_{part}") for part in ("count", "sum"))
            buckets = [(n.split('"')[1], v) for n, v in self._values.items() if n.startswith(f"edl_{what}_seconds_b")]
            half, most, slowest = (
                next(bound for bound, seen in buckets if seen >= share * count) for share in (0.5, 0.95, 1.0)
            )
            slowest = f"at most {slowest} s" if slowest != "+Inf" else f"over {buckets[-2][0]} s"
            said.append(
                f"{count:.0f} {what}s: mean {total / count:.2f} s, half within {half} s, 95 % within {most} s, "
                f"the slowest {slowest}"
            )
        return "\n".join(said)
