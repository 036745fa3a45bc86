"""Preferences of one job, however many, hold up no other: they are followed in few steps, and the clock is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, repeat

import numpy as np
import pytest

from benchmarks.hostile_jobs import HONEST, KINDS, beside, cluster
from edl.model.limits import Limits
from edl.planner import decide, preference
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.preference import follow_preferences
from edl.planner.problem import IntArray
from edl.planner.problem_reader import read_problem
from edl.planner.trial_packing import TrialPacking
from edl.planner.victims import lost_slots
from tests.planner.test_preference import nodes, pool, wishing
from tests.worlds.builders import make_job, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for

WITH_PREFERENCES = ["hostnames", "levels", "ordinary", "pservers"]


@pytest.mark.parametrize("kind", WITH_PREFERENCES)
def test_pods_move_in_batches_whatever_number_of_scores_there_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand pods on a hundred nodes: at most a few looks for each pair of nodes that pods leave and go to."""
    judged = []

    def counted(packing: TrialPacking, shape: int, nodes: IntArray, pods: int | IntArray) -> IntArray:
        judged.append(len(nodes))
        return lost_slots(packing, shape, nodes, pods)

    monkeypatch.setattr(preference, "lost_slots", counted)
    plan = plan_for(beside(cluster(120), KINDS[kind](0, 120)))

    assert decision_of(plan, HONEST.key.name, HONEST.key.namespace).target == 20
    assert len(judged) < 1_000
    assert sum(judged) < 120_000


@pytest.mark.parametrize("kind", WITH_PREFERENCES)
def test_preferences_end_with_their_time_and_the_plan_is_whole_without_them(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, now_s = beside(cluster(120), KINDS[kind](0, 120)), [0.0]

    def too_late(packing: TrialPacking) -> None:
        now_s[0] = 8.8
        follow_preferences(packing)

    whole = plan_for(world)
    monkeypatch.setattr(decide, "follow_preferences", too_late)
    plan = study(world, policy_named("maxmin"), Limits(), clock=Clock(10.0, lambda: now_s[0])).plan

    assert plan.cut == ("preferences",)
    assert [d.target for d in plan.decisions] == [d.target for d in whole.decisions]
    assert plan.certificate == whole.certificate
    assert not check(world, plan, Limits().quotas)


def test_the_clock_is_asked_before_each_move() -> None:
    world = make_snapshot(nodes(*"abcdefgh"), (wishing(make_job("a", max_trainers=4), pool("g"), pool("h", 60)),))
    moved = []
    for allowed in range(30):
        seconds = chain(repeat(0.0, allowed + 2), repeat(2.0))
        problem = read_problem(world, Limits(), clock=Clock(1.0, partial(next, seconds)))
        room = TrialPacking(problem, (0,))
        for node in range(4):
            room.place_trainer(0, node)
        follow_preferences(room)
        moved.append(sum(place.node == 7 for place in room.placed))
        assert (problem.clock.cut == ["preferences"]) == (moved[-1] < 4)
    assert set(moved) == {0, 1, 2, 3, 4}


def test_a_job_with_few_pods_is_not_behind_one_with_thousands() -> None:
    small = wishing(make_job("small", max_trainers=4, cpu=2), *KINDS["hostnames"](0, 120).preferred)
    large = replace(KINDS["hostnames"](0, 120), key=make_job("all").key)
    world = beside(cluster(120), small, large)
    problem = read_problem(world, Limits())
    rooms = {}
    for work in (0, 400_000):
        room = TrialPacking(problem, range(len(problem.demands)))
        for demand in problem.demands:
            count = min(1_000, demand.max_trainers)
            for _ in range(count):
                room.place_trainer(demand.index, int(np.flatnonzero(room.slots(demand.shape))[0]))
        follow_preferences(room, work=work)
        rooms[work] = room
    index = next(d.index for d in problem.demands if d.job.key == small.key)
    before, after = (
        [place.node for place in room.placed if place.owner == index] for room in (rooms[0], rooms[400_000])
    )
    assert max(before) < 56 <= min(after)
