"""From an event to the controller's first write, at rest and during a growth of thousands of pods."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.scale.figures import quantiles
from tests.e2e.scale.fill import Rate
from tests.e2e.scale.world import ScaleWorld

FIRST_S, AT_REST_S = 60.0, 60.0
"""Until no job was resized a moment ago, and how long the CPU at rest is measured."""
STALLED_S, POLL_S = 45.0, 0.5
"""A growth is over if it stands still for so long: jobs that gave way to serving do not grow for half a minute."""
PAUSE_S = 2.0
"""From a write to the next event: the controller's plan is over by then."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """How often each event happens.

    Attributes:
        at_rest: of each kind, at rest.
        growing: of each kind at most, while a growth lasts.
        growth: pods of the growth.
    """

    at_rest: int
    growing: int
    growth: int


def measure(world: ScaleWorld, campaign: Campaign) -> None:
    """Print what the controller costs, and how long it takes."""
    size = world.size
    print(
        f"{size.nodes} nodes, {size.nodes * size.serving + sum(map(len, world.pods.values()))} pods, {size.jobs} jobs"
    )
    time.sleep(FIRST_S)
    began = world.usage()
    time.sleep(AT_REST_S)
    now = world.usage()
    percent = 100 * (now.cpu_s - began.cpu_s) / AT_REST_S
    print(
        f"at rest: {percent:.1f} % of a core, {now.rss_mib:.0f} MiB (peak {now.peak_mib:.0f} MiB)",
    )
    events = _events(world)
    at_rest = {name: [_apart(happen) for _ in range(campaign.at_rest)] for name, happen in events.items()}
    _print(at_rest, "at rest")
    growing, written = _grow(world, campaign)
    _print(growing, "growing")
    alone = world.filled.per_s
    print(
        f"growth of {written.requests} pods: {written.per_s:.0f} a second; the API server alone: {alone:.0f}",
    )
    print(f"memory at the end: {world.usage().rss_mib:.0f} MiB (peak {world.usage().peak_mib:.0f} MiB)")


def _events(world: ScaleWorld) -> dict[str, Callable[[], float]]:
    return {
        "a job comes": world.job_comes,
        "a serving pod comes": world.serving_comes,
        "a node is lost": world.node_goes,
        "a job ends": world.job_ends,
    }


def _apart(happen: Callable[[], float]) -> float:
    seconds = happen()
    time.sleep(PAUSE_S)
    return seconds


def _grow(world: ScaleWorld, campaign: Campaign) -> tuple[dict[str, list[float]], Rate]:
    """Let events happen while jobs grow; returns their times, and how fast the growth was written."""
    size, events = world.size, _events(world)
    jobs = world.jobs[len(world.jobs) // 4 : -len(world.jobs) // 4]
    each = -(-campaign.growth // len(jobs))
    names = {f"{job}-trainer-{index}" for job in jobs for index in range(size.trainers, size.trainers + each)}
    found: dict[str, list[float]] = {name: [] for name in events}
    began_s = time.time()
    world.grow(jobs, size.trainers + each)
    world.audit.wait(began_s, lambda sent: sent.what == "create pods" and sent.name in names)
    for _ in range(campaign.growing):
        for name, happen in events.items():
            if len(_made(world, names, began_s)) < len(names):
                found[name].append(happen())
                time.sleep(PAUSE_S / 4)
    while len(made := _made(world, names, began_s)) < len(names) and time.time() - made[-1] < STALLED_S:
        time.sleep(POLL_S)
    return found, Rate(len(made), made[-1] - made[0])


def _made(world: ScaleWorld, names: set[str], since_s: float) -> list[float]:
    """When each pod of the growth was created."""
    first: dict[str, float] = {}
    for sent in world.audit.since(since_s):
        if sent.what == "create pods" and sent.name in names:
            first.setdefault(sent.name, sent.at_s)
    return sorted(first.values())


def _print(times: dict[str, list[float]], when: str) -> None:
    for name, seconds in times.items():
        print(f"{when}: {name:<22}{quantiles(seconds)}")
