"""Limits of pods against what nodes have."""

from __future__ import annotations

from dataclasses import replace

from edl.model.cluster import ClusterSnapshot
from edl.model.overcommit import Limit, overcommit
from edl.model.pods import PodPhase
from edl.model.resources import CPU, MEMORY
from tests.worlds.builders import GIB, make_job, make_node, make_resources, make_serving, make_snapshot


def world() -> ClusterSnapshot:
    """Two nodes of 8 cores: the first one's pods may use 12 cores by their limits, and one has no limit."""
    job = make_job("a", trainers=2, on=("n1",))
    trainers = tuple(replace(pod, limits=make_resources(cpu=4, memory_gib=8)) for pod in job.pods)
    limited = replace(make_serving("s", node="n1"), limits=make_resources(cpu=4))
    ended = replace(make_serving("t", node="n1"), limits=make_resources(cpu=99), phase=PodPhase.SUCCEEDED)
    waiting = replace(make_serving("u"), limits=make_resources(cpu=99))
    nodes = (make_node("n1"), make_node("n2"), make_node("n3", ready=False))
    return make_snapshot(
        nodes, (replace(job, pods=trainers),), (limited, ended, waiting, make_serving("v", node="n2"))
    )


def test_bound_pods_count_by_node_and_those_without_a_limit_beside_them() -> None:
    found = overcommit(world())
    assert found.nodes["n1"] == (Limit(CPU, 12000, 8000, 0), Limit(MEMORY, 16 * GIB, 32 * GIB, 1))
    assert found.nodes["n2"] == (Limit(CPU, 0, 8000, 1), Limit(MEMORY, 0, 32 * GIB, 1))
    assert found.cluster == (Limit(CPU, 12000, 16000, 1), Limit(MEMORY, 16 * GIB, 64 * GIB, 2))


def test_the_worst_node_is_the_one_with_the_highest_part_of_those_asked_for() -> None:
    found = overcommit(world())
    worst = found.worst(CPU)
    assert worst is not None
    assert (worst[0], worst[1].part) == ("n1", 1.5)
    assert found.worst(CPU, ["n2"]) == ("n2", Limit(CPU, 0, 8000, 1))
    assert found.worst(CPU, []) is None
    assert Limit(CPU, 5, 0, 0).part == 0.0
