"""New pods are packed anew only where a bound says that something can be gained by it."""

from __future__ import annotations

import numpy as np
import pytest

from edl.model.limits import Limits
from edl.planner.packing import grow
from edl.planner.problem_reader import read_problem
from edl.planner.programs import packing_anew
from edl.planner.programs.packing_anew import WORST_SHORTFALL, could_place_anew, pack_anew
from edl.planner.solvers.integer_program import IntegerProgram
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_nodes, make_snapshot

DEADLINE_S = 60.0


def badly_packed() -> TrialPacking:
    """Two nodes of six cores; trainers of two and of three cores, one of each on each; a core of both is lost."""
    jobs = (make_job("two", min_trainers=0, max_trainers=3, cpu=2), make_job("three", min_trainers=0, cpu=3))
    packing = TrialPacking(read_problem(make_snapshot(make_nodes(2, cpu=6), jobs), Limits()), (0, 1))
    for node in (0, 1):
        for j in (0, 1):
            packing.place_trainer(j, node)
    return packing


def test_new_pods_are_packed_anew_so_that_promises_are_kept() -> None:
    packing = badly_packed()
    ceiling = {j: packing.problem.demands[j].max_trainers for j in (0, 1)}
    two = next(j for j in (0, 1) if packing.problem.demands[j].job.key.name == "two")
    wanted = {two: 3, 1 - two: 2}
    assert could_place_anew(packing, ceiling, wanted, DEADLINE_S)
    anew = pack_anew(packing, ceiling, wanted, DEADLINE_S)
    assert anew is not None
    assert anew.count == wanted
    assert (anew.free >= 0).all()
    assert not could_place_anew(packing, ceiling, {two: 3, 1 - two: 3}, DEADLINE_S)


def test_the_least_shortfall_that_no_bound_excludes_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    packing, searched, search = badly_packed(), list[IntegerProgram](), IntegerProgram.solve

    def noted(program: IntegerProgram, limit_s: float) -> list[int] | None:
        searched.append(program)
        return search(program, limit_s)

    monkeypatch.setattr(IntegerProgram, "solve", noted)
    ceiling = {j: packing.problem.demands[j].max_trainers for j in (0, 1)}
    two = next(j for j in (0, 1) if packing.problem.demands[j].job.key.name == "two")
    anew = pack_anew(packing, ceiling, {two: 3, 1 - two: 3}, DEADLINE_S)  # 15 cores of 12
    assert anew is not None
    assert anew.count == {two: 3, 1 - two: 2}
    (program,) = searched
    worst = int(np.flatnonzero(program.cost == WORST_SHORTFALL)[0])
    most = packing.problem.demands[1 - two].max_trainers
    assert program.low[worst] == program.high[worst] == pytest.approx(1 / most)


def test_thousands_of_new_pods_are_not_repacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = badly_packed()
    ceiling = {j: packing.problem.demands[j].max_trainers for j in (0, 1)}
    wanted = {j: 3 if packing.problem.demands[j].job.key.name == "two" else 2 for j in (0, 1)}
    monkeypatch.setattr(packing_anew, "MOST_PODS", len(packing.placed))
    assert pack_anew(packing, ceiling, wanted, DEADLINE_S) is not None
    monkeypatch.setattr(packing_anew, "MOST_PODS", len(packing.placed) - 1)
    assert pack_anew(packing, ceiling, wanted, DEADLINE_S) is None


def test_no_search_begins_where_the_bound_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = badly_packed()
    ceiling = {j: packing.problem.demands[j].max_trainers for j in (0, 1)}
    anew = pack_anew(packing, ceiling, packing.count, DEADLINE_S)
    assert anew is not None
    grow(anew, ceiling, anew.count)
    monkeypatch.setattr(IntegerProgram, "solve", lambda *_: pytest.fail("a search began"))
    assert pack_anew(anew, ceiling, anew.count, DEADLINE_S) is None


@pytest.mark.parametrize(("near", "is_searched"), [(1e-3, True), (0.5, False)])
def test_a_gain_that_is_a_small_part_of_all_is_not_searched_for(
    near: float, is_searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    packing = badly_packed()
    ceiling = {j: packing.problem.demands[j].max_trainers for j in (0, 1)}
    monkeypatch.setattr(packing_anew, "NEAR", near)
    assert (pack_anew(packing, ceiling, {0: 0, 1: 0}, DEADLINE_S) is not None) == is_searched
