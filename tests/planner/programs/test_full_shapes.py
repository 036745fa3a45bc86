"""Which shapes are proved to have no slot left, several of them at once."""

from __future__ import annotations

from random import Random

import pytest

from edl.model.limits import Limits
from edl.planner.problem_reader import read_problem
from edl.planner.programs.fair_share import read_share_problem
from edl.planner.programs.full_shapes import full_shapes
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_nodes, make_snapshot

SIZES = (1, 2, 3, 5)


def packed(nodes: int, cpu: int, counts: dict[int, int]) -> tuple[TrialPacking, dict[int, int]]:
    """New trainers, `counts` of each size in cores, each on the node it fits best. And the shape of each size."""
    jobs = tuple(make_job(f"j{size}", cpu=size, memory_gib=0, max_trainers=99) for size in SIZES)
    problem = read_problem(make_snapshot(make_nodes(nodes, cpu=cpu), jobs), Limits())
    packing = TrialPacking(problem, range(len(jobs)))
    demands = {size: problem.demands[j] for j, size in enumerate(SIZES)}
    for size, count in sorted(counts.items(), reverse=True):
        for _ in range(count):
            if (node := packing.tightest(demands[size].shape)) >= 0:
                packing.place_trainer(demands[size].index, node)
    return packing, {size: demand.shape for size, demand in demands.items()}


def proved(packing: TrialPacking, shapes: dict[int, int]) -> set[int]:
    """The sizes that are proved to have no slot."""
    found = full_shapes(read_share_problem(packing, stays=True), packing.count, list(shapes.values()), 10.0)
    return {size for size, shape in shapes.items() if shape in found}


def test_all_shapes_of_a_full_cluster_are_proved_by_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    packing, shapes = packed(3, 8, {5: 3, 3: 3})
    monkeypatch.setattr("edl.planner.programs.full_shapes.full_shapes", None)  # no half is asked
    assert proved(packing, shapes) == set(SIZES)


def test_a_shape_that_has_a_slot_does_not_hide_that_others_have_none() -> None:
    packing, shapes = packed(3, 8, {5: 3, 3: 2, 2: 1})
    assert proved(packing, shapes) == {2, 3, 5}


def test_a_slot_that_only_another_arrangement_has_is_not_proved_away() -> None:
    packing, shapes = packed(2, 4, {})
    for node in (0, 1):
        packing.place_trainer(SIZES.index(2), node)
    assert not packing.slots(shapes[3]).any()
    assert proved(packing, shapes) == {5}


@pytest.mark.parametrize("seed", range(10))
def test_whoever_places_one_more_finds_no_shape_that_was_proved_full(seed: int) -> None:
    """All trainers and one more are placed anew, the largest first, in a hundred orders."""
    random = Random(seed)  # noqa: S311
    nodes, cpu = random.randint(2, 5), random.choice((7, 8, 10))
    packing, shapes = packed(nodes, cpu, {size: random.randint(0, 2 * nodes) for size in SIZES})
    full = proved(packing, shapes)
    assert full <= {size for size, shape in shapes.items() if not packing.slots(shape).any()}
    sizes = [SIZES[place.owner] for place in packing.placed]
    for size in full:
        for _ in range(100):
            order, rooms = random.sample([*sizes, size], len(sizes) + 1), [cpu] * nodes
            for each in order:
                best = min((room for room in rooms if room >= each), default=0)
                if not best:
                    break
                rooms[rooms.index(best)] -= each
            else:
                pytest.fail(f"one more of {size} cores fits beside {sizes} on {nodes} nodes of {cpu}")
