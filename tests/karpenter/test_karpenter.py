"""Karpenter brings a node for a job that asks, and takes it when nothing is on it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.worlds.jobs import training_job
from tests.karpenter.scene import ASKS, Scene

pytestmark = pytest.mark.cluster("Karpenter runs on a real control plane only")

Start = Callable[..., Scene]
QUIET_S = 45.0
"""Longer than Karpenter takes to remove an empty node: 10 s, a look every 10 s, and 15 s to be sure."""


def stays_as_it_is(here: Scene) -> list[str]:
    """What comes or goes while nothing is asked for."""
    before, until_s = len(here.log), time.monotonic() + QUIET_S
    here.wait(lambda: time.monotonic() >= until_s, "a while has passed")
    return [what for _, what in here.log[before:]]


def test_a_waiting_minimum_brings_a_node_and_runs_and_the_empty_node_leaves(scene: Start) -> None:
    here = scene()
    world = here.world
    world.submit(training_job("old", min_trainers=3, max_trainers=3))
    here.wait(lambda: world.running("old") == 3, "the cluster is full")
    world.submit(training_job("new", min_trainers=3, max_trainers=3, **ASKS))
    here.wait(here.requests, "the job asks for a node")
    here.wait(here.claims, "Karpenter orders one")
    here.wait(lambda: world.running("new") == 3, "the job runs")
    here.wait(lambda: here.seen("request goes") == 1, "its request pod is gone")
    (node,) = here.nodes()
    said = here.events("new")
    assert said["NodeCame"] == f"node {node['metadata']['name']} of group spot has joined the cluster"
    assert stays_as_it_is(here) == []
    world.withdraw("new")
    here.wait(lambda: here.seen("node goes") == 1, "Karpenter removes the empty node")
    here.wait(lambda: not here.claims(), "and forgets it")
    assert world.running("old") == 3
    assert stays_as_it_is(here) == []
    assert [what.split()[0] for _, what in here.log] == ["request", "node", "request", "node"]


def test_surplus_keeps_a_node_until_it_is_drained(scene: Start) -> None:
    here = scene("--drain-idle-s=30")
    world = here.world
    world.submit(training_job("surplus", min_trainers=2, max_trainers=20))
    here.wait(lambda: world.running("surplus") == 3, "the cluster is full")
    world.submit(training_job("new", min_trainers=4, max_trainers=4, **ASKS))
    here.wait(lambda: world.running("new") == 4, "the job that asked runs")
    world.withdraw("new")
    here.wait(lambda: world.running("surplus") == 6, "surplus grows onto the node of Karpenter")
    here.wait(lambda: world.running("surplus") == 3, "edl drains the node")
    here.wait(lambda: here.seen("node goes") == 1, "Karpenter removes it")
    assert stays_as_it_is(here) == []
    assert here.seen("node comes") == 1
