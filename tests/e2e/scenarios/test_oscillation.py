"""Serving that comes and goes every twenty seconds deletes no more trainers than necessary.

Twenty nodes full with three jobs, as in the serving wave. Every rise needs room, so trainers end for it; what must
not happen is that more end than without the controller, that jobs are resized for one another meanwhile, or that
trainers come back before the room has been theirs for the time that the planner promises.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.campaign import Step, Watched
from tests.e2e.worlds.harness import World, bounds
from tests.e2e.worlds.jobs import serving, training_job

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, measured beside kube-scheduler")]

POD_DELETE_S = 8.0
LATE_S = 4.0  # a pod's end is up to a second late, and a busy machine binds and starts pods a little later
HALF_PERIOD_S = 20.0
SERVING_PODS = 20
HOLD_S = 30.0  # after a shrink for serving a job does not grow for so long; stamps are whole seconds
COOLDOWN_S = 60.0
SERVING = {"cpu": 3000, "memory": 3 * 2**30, "pods": 1}
TRAINING = tuple(
    training_job(name, min_trainers=2, max_trainers=60, cpu="2", elasticity={"cooldownSeconds": int(COOLDOWN_S)})
    for name in "abc"
)


@pytest.mark.timeout(1500)
def test_a_load_that_comes_and_goes_every_twenty_seconds_does_not_thrash(
    control_plane: Callable[..., ControlPlane], *, is_full_campaign: bool
) -> None:
    here = World(control_plane(mix="twenty", pod_delete_s=POD_DELETE_S))
    here.kube.create(serving())
    watched = Watched(here, SERVING)
    with watched.following():
        with here.controller:
            for job in TRAINING:
                watched.log.expect(job["metadata"]["name"], bounds(job)[0])
                here.submit(job)
            here.wait_full(120)
            began_s = time.time()
            rises = oscillate(watched, cycles=15 if is_full_campaign else 2)
            lasted_s = time.time() - began_s
            here.wait_full(120)
            settled = time.monotonic()
            time.sleep(2 * HALF_PERIOD_S if is_full_campaign else 5.0)
            assert not watched.log.causes(settled), "what has settled stays"
        alone = watched.close(watched.go(0, SERVING_PODS))
    report(rises, watched, alone)
    for rise in rises:
        by_us = [cause for cause in rise.forced + rise.later if cause.startswith("controller")]
        assert not by_us, f"{rise}: nobody ends again for serving, nor for another job's share"
        assert rise.forced.total() <= alone.forced.total(), f"{rise}: no more end than without the controller"
        assert rise.waited_s <= max(POD_DELETE_S, alone.waited_s) + LATE_S, f"{rise}"
        held = [at - rise.at_s for at in watched.log.created.values() if 0 < at - rise.at_s < HOLD_S - 2.0]
        assert not held, f"{rise}: trainers came {held} s after it"
    for name, job in here.jobs().items():
        shrinks = watched.voluntary_shrinks(name)
        assert all(b - a >= COOLDOWN_S for a, b in pairwise(shrinks)), f"{name}: {watched.resizes[name]}"
        assert len(shrinks) <= 1 + lasted_s // COOLDOWN_S
        assert watched.log.lowest[name] >= bounds(job)[0]


def oscillate(watched: Watched, cycles: int) -> list[Step]:
    """Take serving up and down so many times, and return the rises with what happened until the next one."""
    rises = []
    for _ in range(cycles):
        rise = watched.go(0, SERVING_PODS)
        wait_until(rise.at_s + HALF_PERIOD_S)
        watched.here.kube.scale("deployments", "web", 0)
        wait_until(rise.at_s + 2 * HALF_PERIOD_S)
        rises.append(watched.close(rise))
    return rises


def wait_until(at_s: float) -> None:
    """Sleep until that monotonic time."""
    time.sleep(max(0.0, at_s - time.monotonic()))


def report(rises: list[Step], watched: Watched, alone: Step) -> None:
    """Print the figures."""
    for name, step in (*((f"rise {i}", rise) for i, rise in enumerate(rises)), ("kube-scheduler alone", alone)):
        print(
            f"{name}: ready after {step.waited_s:.1f} s, {step.shortfall:.0f} pod-seconds short; "
            f"ended {dict(step.forced + step.later)}, least possible {step.least}"
        )
    for name, resizes_of_job in sorted(watched.resizes.items()):
        shown = ", ".join(f"{r['from']} -> {r['to']} {r['reason']}" for r in resizes_of_job)
        print(f"{name}: {len(watched.voluntary_shrinks(name))} voluntary shrinks; {shown}")
