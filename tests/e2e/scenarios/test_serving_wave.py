"""Waves of serving pods: they must not wait, and must not cost more trainers than necessary.

The same wave is run three times on clusters of the same kind: over nothing, over training with the controller, and
over the same training with the controller stopped, so that only kube-scheduler's own preemption makes room. A pod
takes eight seconds to go on these nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, measured beside kube-scheduler")]

POD_DELETE_S = 8.0
WAVES = {True: 2, False: 1}  # in the full campaign, and else
STEPS = (10, 20)  # serving pods; twenty nodes hold forty
SERVING = {"cpu": 3000, "memory": 3 * 2**30, "pods": 1}
TRAINING = tuple(training_job(name, min_trainers=2, max_trainers=60, cpu="2") for name in "abc")


@dataclass(frozen=True, slots=True)
class Wave:
    """What one rise of the wave came to, per step: seconds to the target, the least victims; and who ended."""

    seconds: tuple[float, ...]
    least: tuple[int, ...]
    causes: dict[str, int]


def rise(here: World, steps: Sequence[int] = STEPS) -> Wave:
    """Scale serving up step by step, waiting each time until every pod is ready."""
    seconds, least = [], []
    with PodLog(here.kube) as log:
        for before, target in zip((0, *steps), steps, strict=False):
            least.append(facts.least_victims(here.kube.list("nodes"), here.pods(), SERVING, target - before))
            since = time.monotonic()
            here.kube.scale("deployments", "web", target)
            wait_ready(here, target)
            seconds.append(time.monotonic() - since)
    return Wave(tuple(seconds), tuple(least), dict(log.causes()))


def wait_ready(here: World, target: int) -> None:
    """Wait until that many serving pods are ready."""
    here.kube.wait_until(lambda: here.ready_serving() == target, 90, f"{target} serving pods are ready")


def ebb(here: World) -> None:
    """Take all serving away."""
    here.kube.scale("deployments", "web", 0)
    here.kube.wait_until(lambda: not here.kube.list("pods", labels="app=web"), 40, "serving is gone")


@pytest.mark.timeout(900)
def test_serving_waits_no_longer_than_one_pod_deletion_and_costs_no_needless_trainer(
    control_plane: Callable[..., ControlPlane], *, is_full_campaign: bool
) -> None:
    here = World(control_plane(mix="twenty", pod_delete_s=POD_DELETE_S))
    here.kube.create(serving())
    idle = rise(here)
    ebb(here)
    with here.controller:
        for job in TRAINING:
            here.submit(job)
        here.wait_full(120)
        full = sum(here.counts().values())
        waves = []
        for _ in range(WAVES[is_full_campaign]):
            waves.append(rise(here))
            with PodLog(here.kube) as calm:
                ebb(here)
                here.kube.wait_until(lambda: sum(here.counts().values()) >= full, 120, "training is back")
                here.wait_full(90)
            assert not calm.causes(), "no trainer ends while the wave ebbs and training takes the capacity back"
    alone = rise(here)
    for wave in waves:
        report(idle, wave, alone)
        for step, waited in enumerate(wave.seconds):
            assert waited <= idle.seconds[step] + POD_DELETE_S + 2.0, f"step {step}"
        assert sum(wave.causes.values()) <= sum(alone.causes.values())
        assert wave.causes.keys() <= {"scheduler"}, "the controller kills none: every pod had a nominated node"


def report(idle: Wave, ours: Wave, alone: Wave) -> None:
    """Print the figures side by side."""
    for what, wave in (("idle cluster", idle), ("with the controller", ours), ("kube-scheduler alone", alone)):
        waited = " + ".join(f"{s:.1f}" for s in wave.seconds)
        print(f"{what}: {waited} s to {STEPS}; trainers ended {wave.causes}; least possible {wave.least}")


def test_serving_that_may_not_preempt_gets_the_least_room_that_will_do_from_the_controller(
    control_plane: Callable[..., ControlPlane],
) -> None:
    here = World(control_plane(mix="small", pod_delete_s=2.0))
    modest = {"metadata": {"name": "modest"}, "value": 10, "preemptionPolicy": "Never"}
    here.kube.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **modest})
    here.kube.create(serving(priorityClassName="modest"))
    with here.controller:
        for job in TRAINING[:2]:
            here.submit(job)
        here.wait_full(60)
        wave = rise(here, steps=(5,))
        print(f"5 pods that may not preempt: {wave}")
    assert wave.causes == {"controller: ServingNeedsRoom": wave.least[0]}
    assert all(count >= 2 for count in here.counts().values())
