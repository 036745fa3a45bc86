"""The worst off are raised as far as bounds allow, in few tries; only the draft that is chosen is searched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.contended_worlds import contended
from edl.model.limits import Limits
from edl.planner.packing import grow
from edl.planner.policies import raising
from edl.planner.policies.raising import Draft, furthest, raises
from edl.planner.problem_reader import read_problem
from edl.planner.programs.packing_anew import pack_anew
from edl.planner.reallocation import Terms
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_nodes, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for

DEADLINE_S = 60.0


def two_jobs() -> TrialPacking:
    jobs = (make_job("a", max_trainers=12), make_job("b", max_trainers=12))
    return TrialPacking(read_problem(make_snapshot(make_nodes(1), jobs), Limits()), (0, 1))


@pytest.mark.parametrize("possible", range(10, 25))
def test_as_little_less_is_promised_as_can_be_had_and_few_steps_are_tried(possible: int) -> None:
    """Two jobs have nine and four trainers, and so many can be had in all: the second is raised, the first gives."""
    room, tried = two_jobs(), list[dict[int, int]]()
    tries = raises(room, Terms({0: 12, 1: 12}, {0: 9, 1: 4}), may_take=True)

    def reach(terms: Terms) -> TrialPacking | None:
        tried.append(dict(terms.fair_share))
        return room if sum(terms.fair_share.values()) <= possible else None

    found = [terms.fair_share for _, terms in furthest(tries, reach)]
    assert len(tried) <= 10
    best = max(
        (number, -steps.index(terms), terms)
        for number, steps in enumerate(tries)
        for terms in steps
        if sum(terms.fair_share.values()) <= possible
    )
    assert found[-1] == best[2].fair_share
    assert min(found[-1].values()) > 4
    assert [min(fair_share.values()) for fair_share in found] == sorted(
        min(fair_share.values()) for fair_share in found
    )


def test_nothing_is_raised_where_not_even_the_least_can_be_had() -> None:
    tries = raises(two_jobs(), Terms({0: 12, 1: 12}, {0: 9, 1: 4}), may_take=True)
    assert len(tries) > 1
    tried: list[Terms] = []
    assert furthest(tries, tried.append) == []
    assert len(tried) == 1


def test_a_job_at_its_ceiling_ends_the_raises() -> None:
    assert raises(two_jobs(), Terms({0: 12, 1: 4}, {0: 9, 1: 4}), may_take=True) == []


def test_those_that_gave_are_raised_in_turn() -> None:
    """Here the worst off is at 0.46 once the best off have given; then two of those that gave can be raised, too."""
    plan = plan_for(contended(30, 15, 4, 0))
    spans = [(d.target - d.min_trainers) / (d.max_trainers - d.min_trainers) for d in plan.decisions if d.admitted]
    assert min(spans) > 0.48


def test_a_draft_is_what_can_be_had_without_a_search() -> None:
    packing, ceiling = two_jobs(), {0: 12, 1: 12}
    sure, beyond = Terms(ceiling, {0: 0, 1: 0}), Terms(ceiling, {0: 3, 1: 3})
    further = packing.copy()
    draft = Draft(((packing, sure), (further, beyond)))
    assert draft.packing is packing
    assert draft.aim is beyond
    grow(further, ceiling, beyond.fair_share)
    assert Draft(((packing, sure), (further, beyond))).packing is further


@pytest.mark.parametrize(("nodes", "jobs", "sizes", "seed"), [(12, 15, 12, 2), (30, 15, 4, 0), (12, 6, 12, 1)])
def test_only_the_draft_that_is_chosen_is_searched(
    nodes: int, jobs: int, sizes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    right: Callable[..., TrialPacking | None] = pack_anew

    def counted(packing: TrialPacking, *rest: object) -> TrialPacking | None:
        calls.append(len(packing.placed))
        return right(packing, *rest)

    monkeypatch.setattr(raising, "pack_anew", counted)
    plan = plan_for(contended(nodes, jobs, sizes, seed))
    assert not plan.cut
    assert len(calls) <= raising.SEARCHES + 1


def test_the_worst_off_is_raised_by_a_search_where_no_growth_finds_the_place() -> None:
    """Trainers of two and three cores on two nodes of six: three small ones fit only beside no large one."""
    jobs = (
        make_job("two", min_trainers=0, max_trainers=3, cpu=2),
        make_job("three", min_trainers=0, max_trainers=2, cpu=3),
    )
    plan = plan_for(make_snapshot((make_node("n0", 6), make_node("n1", 6)), jobs))
    assert (decision_of(plan, "two").target, decision_of(plan, "three").target) == (3, 2)
