"""The program of deletions proposes only what fits to the byte, although its solver works with a tolerance."""

from __future__ import annotations

from dataclasses import replace

from edl.model.plan import Limits
from edl.model.resources import CPU, MEMORY, PODS, PodShape, Resources
from edl.planner.problem_reader import read_problem
from edl.planner.programs.deletions import fewest_victims
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import GIB, make_job, make_node, make_serving, make_snapshot

TINY = PodShape(Resources.of({CPU: 1, MEMORY: 36, PODS: 1}))
DEADLINE_S = 60.0


def small_packing(nodes: int) -> TrialPacking:
    """Nodes of 64 GiB, a job of one trainer of 64 GiB, and a waiting serving pod of 36 bytes."""
    pods = (replace(make_serving("s", cpu=1, memory_gib=1), shape=TINY),)
    job = make_job("large", cpu=1, memory_gib=64, max_trainers=1)
    rows = tuple(make_node(f"n{i}", 16, 64) for i in range(nodes))
    return TrialPacking(read_problem(make_snapshot(rows, (job,), pods), Limits()), (0,))


def test_does_not_place_a_tiny_pod_on_a_full_node() -> None:
    packing = small_packing(nodes=1)
    (waiting,) = packing.problem.waiting

    assert fewest_victims(packing, {waiting.shape: 1}, DEADLINE_S) is None


def test_finds_the_node_that_has_room_for_a_tiny_pod() -> None:
    packing = small_packing(nodes=2)
    (waiting,) = packing.problem.waiting

    found = fewest_victims(packing, {waiting.shape: 1}, DEADLINE_S)

    assert found is not None
    used = {node: 0 for node, _, _ in found.places}
    for node, shape, pods in found.places:
        used[node] += pods * int(packing.problem.request[shape, packing.problem.names.index(MEMORY)])
    assert sorted(used.values()) == [36, 64 * GIB]
