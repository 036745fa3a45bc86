"""How much better a plan could be: its levels, and the sum, with the trainers that stay or with all placed anew."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from rich.console import Console

from benchmarks.contended_worlds import contended
from edl.controller.planning import judge_snapshot
from edl.errors import PlanError
from edl.explain.best_possible import BestPossible, best_lines, best_possible
from edl.explain.decision import explained_study
from edl.explain.plan_table import plan_json, print_plan
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import Certificate
from edl.planner.decide import Study
from edl.planner.policies.registry import policy_named
from tests.worlds import brute_force as oracle
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.rich_clusters import rich_fresh_worlds, rich_running_worlds
from tests.worlds.small_clusters import plan_for

ROUNDING = 1e-6


def studied(snapshot: ClusterSnapshot, policy: str = "maxmin") -> Study:
    return explained_study(snapshot, policy_named(policy), Limits())


def judged(snapshot: ClusterSnapshot, policy: str = "maxmin") -> tuple[Certificate, BestPossible]:
    made = studied(snapshot, policy)
    best = best_possible(made, 10.0)
    assert best is not None
    return made.plan.certificate, best


def in_the_way() -> ClusterSnapshot:
    """Two trainers of `small` run on a node each, where they keep two of the three nodes from `wide`."""
    small = make_job("small", trainers=2, min_trainers=2, max_trainers=2, on=("n000", "n001"))
    return make_snapshot(make_nodes(3, cpu=4), (small, make_job("wide", min_trainers=1, max_trainers=2, cpu=4)))


@pytest.mark.parametrize("policy", ["maxmin", "utility"])
def test_the_price_of_not_moving_pods_is_what_placing_all_of_them_anew_would_add(policy: str) -> None:
    certificate, best = judged(in_the_way(), policy)
    assert best.staying == pytest.approx(certificate.achieved, abs=ROUNDING)
    assert best.repacked == pytest.approx(certificate.bound, abs=ROUNDING)
    assert best.price_of_staying > 0.5


def test_nothing_is_lost_by_not_moving_pods_that_are_in_nobodys_way() -> None:
    small = make_job("small", trainers=4, min_trainers=4, max_trainers=4, on=("n000",))
    wide = make_job("wide", min_trainers=1, max_trainers=3, cpu=4)
    certificate, best = judged(make_snapshot(make_nodes(3, cpu=4), (small, wide)))
    assert best.price_of_staying == 0.0
    assert best.staying == pytest.approx(certificate.achieved, abs=ROUNDING)


def test_levels_are_the_lowest_three_with_their_jobs_and_whoever_has_all_is_in_none() -> None:
    jobs = tuple(make_job(f"j{k}", min_trainers=1, max_trainers=m) for k, m in enumerate((3, 5, 5, 9, 17, 1)))
    _, best = judged(make_snapshot(make_nodes(1, cpu=17), jobs))
    assert 2 <= len(best.levels) <= 3
    assert [level.fulfilment for level in best.levels] == sorted({level.fulfilment for level in best.levels})
    assert "j5" not in {job.name for level in best.levels for job in level.jobs}
    assert all(level.fulfilment <= level.bound < 1 for level in best.levels)


def test_a_cluster_with_room_for_all_has_no_levels() -> None:
    certificate, best = judged(make_snapshot(make_nodes(3), (make_job("a", max_trainers=3),)))
    assert (best.levels, certificate.gap) == ((), 0.0)


def test_a_cluster_without_jobs_has_no_levels() -> None:
    _, best = judged(make_snapshot(make_nodes(3)))
    assert (best.levels, best.staying, best.repacked) == ((), 0.0, 0.0)


@given(rich_fresh_worlds())
@examples(60)
def test_no_packing_of_an_empty_cluster_has_a_higher_lowest_level(world: ClusterSnapshot) -> None:
    made = studied(world)
    best = best_possible(made, 10.0)
    assert best is not None
    jobs = running(world, made)
    reached = [oracle.fair_levels(world, jobs, serving) for serving in oracle.servings(world)]
    if best.levels:
        assert best.levels[0].bound >= min(levels[0] for levels in reached) - ROUNDING
    else:
        assert all(level >= 1 - ROUNDING for level in made_levels(made))


@given(rich_running_worlds())
@examples(60)
def test_bounds_are_never_below_what_the_plan_has(world: ClusterSnapshot) -> None:
    certificate, best = judged(world)
    assert certificate.achieved <= best.staying <= best.repacked <= certificate.bound + ROUNDING
    assert all(level.bound >= level.fulfilment for level in best.levels)


@pytest.mark.parametrize("seed", range(6))
def test_the_plan_for_the_same_jobs_on_empty_nodes_is_within_the_bounds(seed: int) -> None:
    """With nothing that runs in the way it is one of the plans that place all pods anew."""
    snapshot = contended(6, 6, 4, seed)
    made = studied(snapshot)
    best = best_possible(made, 10.0)
    assert best is not None
    admitted = running(snapshot, made)
    anew = studied(replace(snapshot, jobs=tuple(replace(job, pods=()) for job in admitted)))
    if len(running(snapshot, anew)) < len(admitted) or anew.plan.serving.placed < made.plan.serving.placed:
        return
    assert best.levels[0].bound >= made_levels(anew)[0] - ROUNDING


def running(world: ClusterSnapshot, made: Study) -> list[Job]:
    admitted = {decision.job for decision in made.plan.decisions if decision.admitted}
    return [job for job in world.jobs if job.key in admitted]


def made_levels(made: Study) -> list[float]:
    packing = made.context.shared.packing
    return sorted(map(packing.fulfilment, packing.members))


def test_the_table_says_who_is_worst_off_and_what_not_moving_pods_costs() -> None:
    made = judge_snapshot(in_the_way(), "maxmin", Limits())
    out = io.StringIO()
    print_plan(made.plan, Console(file=out, width=200), best=made.best)
    assert "Worst off: default/wide with 0, at best 1\n" in out.getvalue()
    assert (
        "With these levels and the trainers that stay on their nodes: at most 1 (gap 0.000%); with all pods"
        " repacked: at most 2, so not moving pods costs up to 1\n"
    ) in out.getvalue()


def test_the_json_has_the_levels_and_both_sums() -> None:
    made = judge_snapshot(in_the_way(), "maxmin", Limits())
    certificate = json.loads(plan_json(made.plan, best=made.best))["certificate"]
    assert certificate["levels"] == [{"fulfilment": 0.0, "bound": 1.0, "jobs": ["default/wide"]}]
    assert certificate["staying"] == pytest.approx(1.0, abs=ROUNDING)
    assert certificate["repacked"] == pytest.approx(2.0, abs=ROUNDING)


def test_a_level_of_many_jobs_names_three_of_them() -> None:
    jobs = tuple(make_job(f"j{k}", min_trainers=1, max_trainers=4) for k in range(5))
    certificate, best = judged(make_snapshot(make_nodes(1, cpu=6), jobs))
    (first, *_) = best_lines(certificate, best)
    assert first.count("default/") == 4 - 1 + first.count(";")
    assert "and 1 more job with 0, at best 0" in first


def test_a_policy_that_is_only_for_comparison_has_no_bounds() -> None:
    assert judge_snapshot(in_the_way(), "edl-2017", Limits()).best is None


def test_a_plan_whose_bounds_are_late_is_printed_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise PlanError("too late")

    monkeypatch.setattr("edl.explain.best_possible.level_bounds", late)
    judged = judge_snapshot(in_the_way(), "maxmin", Limits())
    assert judged.best is None
    assert judged.plan.decisions == plan_for(in_the_way()).decisions
    with pytest.raises(PlanError, match=r"no certificate within 10 s; plan without --certificate"):
        judge_snapshot(in_the_way(), "maxmin", Limits(), proves=True)


def test_serving_pods_that_wait_take_their_part_of_each_bound() -> None:
    jobs = (make_job("a", min_trainers=1, max_trainers=8), make_job("b", min_trainers=1, max_trainers=8))
    _, best = judged(make_snapshot(make_nodes(1, cpu=9), jobs, (make_serving("web", cpu=3),)))
    (level,) = best.levels
    assert 0 < level.fulfilment == level.bound < 1
