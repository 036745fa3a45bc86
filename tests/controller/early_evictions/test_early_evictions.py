"""Trainers are evicted for serving pods ahead of a plan. The planner is real; a plan takes two virtual seconds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from edl.controller.early_evictions import MOST_PODS, SLOW_S
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from edl.sim.virtual_time import run_virtual
from tests.controller.early_evictions.scene import COME_S, PLAN_S, Scene, after, play, wide
from tests.worlds.builders import make_job


def test_trainers_go_before_the_plan_is_made_and_their_job_says_why() -> None:
    scene = Scene()
    play(scene, after((COME_S, (wide(),)), scene=scene))
    deleted = scene.deleted()
    assert len(deleted) == 3, "the plan that follows wants no more"
    assert COME_S < deleted[0] <= deleted[-1] < COME_S + 0.6
    ends = [action for _, action in scene.diary if isinstance(action, MarkPod | DeletePod)]
    assert {action.intent for action in ends} == {Reason.SERVING_NEEDS_ROOM}
    statuses = [action.status for at, action in scene.diary if isinstance(action, PatchStatus) and at > COME_S]
    assert "yields 3 trainers to serving" in statuses[0].explanation
    events = [action for at, action in scene.diary if isinstance(action, EmitEvent) and at > COME_S]
    assert len({(event.reason, event.message) for event in events}) == len(events)
    planned = [at for at in scene.planned if at > COME_S]
    assert planned[0] < COME_S + PLAN_S + 0.3, "it waits for no plan, and no plan for it"


def test_an_error_when_trainers_are_evicted_ahead_of_a_plan_stops_nothing_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()

    def breaks(*_: object) -> None:
        raise ValueError("a label is none")

    monkeypatch.setattr(scene.recorder, "evicted_early", breaks)
    play(scene, after((COME_S, (wide(),)), scene=scene))
    assert len(scene.recorder.failures) == 1
    assert len(scene.deleted()) == 3, "the plan finds them"


def test_every_intent_is_written_before_its_deletion() -> None:
    scene = Scene()
    play(scene, after((COME_S, (wide(),)), scene=scene))
    marked: set[str] = set()
    for _, action in scene.diary:
        if isinstance(action, MarkPod):
            marked.add(action.pod)
        elif isinstance(action, DeletePod):
            assert action.pod in marked or not action.marked


def test_a_plan_that_is_being_made_goes_on_and_is_merged() -> None:
    scene = Scene()
    play(scene, after((COME_S, (wide(),)), (COME_S + 1.5, (wide("t", cpu=2),)), scene=scene))
    first, last = scene.deleted()[2], scene.deleted()[-1]
    assert first < COME_S + 0.35
    assert COME_S + 1.5 < last < COME_S + 1.5 + 0.35
    assert len(scene.deleted()) == 5, "the plan that was made for the first pod takes nothing back, and wants no more"
    planned = [at for at in scene.planned if at > COME_S]
    assert planned[0] == pytest.approx(COME_S + 0.2 + PLAN_S, abs=0.05)


def test_serving_pods_that_keep_coming_never_keep_a_plan_from_being_published() -> None:
    scene = Scene()
    comes = [(COME_S + number, (wide(f"s{number}", cpu=1),)) for number in range(12)]
    play(scene, after(*comes, scene=scene))
    planned = [COME_S, *(at for at in scene.planned if COME_S < at < COME_S + 14.0)]
    assert max(later - before for before, later in pairwise(planned)) <= PLAN_S + 0.5
    assert len(scene.deleted()) == 12
    for number, at in enumerate(scene.deleted()):
        assert COME_S + number < at < COME_S + number + 0.35


def test_serving_pods_that_keep_coming_never_keep_a_new_job_from_its_minimum() -> None:
    """A pod comes each 0.3 s, and each but the first when the one before it has been tried."""
    scene = Scene(plan_s=1.0, trainers=64, max_trainers=64, cpu=0.25, nodes=3)
    new = make_job("new", min_trainers=2, max_trainers=2, cpu=2)

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.world.add(replace(new, created_s=COME_S))
        for number in range(40):
            scene.say()
            scene.come(wide(f"s{number}", cpu=0.25))
            await asyncio.sleep(0.3)

    play(scene, script)
    created = [at for at, action in scene.diary if isinstance(action, CreatePod) and action.job == new.key]
    assert len(created) == 2
    assert max(created) < COME_S + 2 * scene.plan_s + 1.0
    assert len(scene.deleted()) >= 35


def test_a_suspended_job_ends_although_serving_pods_keep_coming() -> None:
    scene = Scene(plan_s=1.0)
    small = make_job("small", trainers=1, max_trainers=1, on=("n002",))
    scene.world.add(small)

    async def script() -> None:
        await asyncio.sleep(COME_S)
        for number in range(20):
            scene.say()
            scene.come(wide(f"s{number}", cpu=0.25))
            if number == 5:
                scene.world.jobs[small.key] = replace(scene.world.jobs[small.key], suspended=True, generation=2)
            await asyncio.sleep(0.3)

    play(scene, script)
    ends = [at for at, action in scene.diary if isinstance(action, DeletePod) and action.job == small.key]
    assert ends[0] < COME_S + 6 * 0.3 + 0.1


def test_trainers_are_evicted_ahead_for_a_pod_once() -> None:
    scene = Scene()
    play(scene, after((COME_S, (wide(),)), scene=scene))
    assert len(scene.searches) == scene.asked == 1


def test_a_pod_that_nobody_can_help_is_looked_at_once() -> None:
    scene = Scene()
    play(scene, after((COME_S, (wide(cpu=20),)), (COME_S + 5.0, ()), (COME_S + 10.0, ()), scene=scene))
    assert scene.asked == 1
    assert not scene.deleted()


def test_a_plan_that_does_not_take_long_is_waited_for() -> None:
    scene = Scene(plan_s=SLOW_S - 0.05)
    play(scene, after((COME_S, (wide(),)), scene=scene))
    assert not scene.searches
    assert len(scene.deleted()) == 3


def test_many_pods_at_once_wait_for_the_plan() -> None:
    scene = Scene()
    pods = tuple(wide(f"s{number:02}", cpu=0.5) for number in range(MOST_PODS + 1))
    play(scene, after((COME_S, pods), scene=scene))
    assert not scene.searches
    assert scene.deleted()[0] > COME_S + PLAN_S


def test_a_pod_that_has_room_meanwhile_costs_nobody_anything() -> None:
    scene = Scene()

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.serve(wide())
        await scene.has_searched.wait()
        scene.cluster.serving = tuple(replace(pod, nominated="n000") for pod in scene.cluster.serving)
        await asyncio.sleep(10.0)

    play(scene, script)
    assert not scene.deleted()


def test_without_the_lease_nothing_is_deleted() -> None:
    scene = Scene()

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.serve(wide())
        await scene.has_searched.wait()
        scene.lease.held = False
        await asyncio.sleep(10.0)

    play(scene, script)
    assert not scene.deleted()


def test_a_job_that_comes_meanwhile_is_answered() -> None:
    scene = Scene()

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.come(wide())
        await asyncio.sleep(0.3)
        scene.world.add(replace(make_job("b"), status=None))
        scene.cluster.urge()
        await asyncio.sleep(0.3)
        scene.say()
        await asyncio.sleep(10.0)

    play(scene, script)
    news = [at for at, action in scene.diary if isinstance(action, PatchStatus) and action.job.name == "b"]
    assert COME_S + 0.3 < news[0] < COME_S + 0.5
    assert COME_S + 0.6 < scene.deleted()[0] < COME_S + 0.8


def test_an_eviction_that_the_api_server_does_not_answer_is_tried_again_after_a_pause() -> None:
    scene = Scene()
    refusals: list[float] = []

    async def script() -> None:
        note = scene.cluster.policies

        def refuse(action: Action) -> Outcome | None:
            if isinstance(action, MarkPod | DeletePod) and scene.now_s < COME_S + 6.0:
                refusals.append(scene.now_s)
                return Outcome(action, Result.FAILED, "Timeout", "the API server is slow")
            return note(action)

        scene.cluster.policies = refuse
        await asyncio.sleep(COME_S)
        scene.serve(wide())
        await asyncio.sleep(30.0)

    play(scene, script)
    assert 0 < len(refusals) < 20
    assert len(scene.deleted()) == 3
    assert scene.deleted()[0] < COME_S + 6.0 + 5.0


def test_a_whole_round_evicts_by_its_plan() -> None:
    scene = Scene()

    async def main() -> None:
        controller = scene.build()
        await controller.round()
        scene.serve(wide())
        await controller.round()

    run_virtual(main())
    assert len(scene.planned) == 2
    assert not scene.searches
    assert len(scene.deleted()) == 3


def test_a_growth_makes_way_for_it_and_goes_on_afterwards() -> None:
    scene = Scene(trainers=2, max_trainers=15, delay_s=0.3, writes=1)
    served: list[float] = []

    async def script() -> None:
        await scene.has_created.wait()
        scene.serve(wide(cpu=7.5))
        served.append(scene.now_s)
        await asyncio.sleep(60.0)

    play(scene, script)
    created = [at for at, action in scene.diary if isinstance(action, CreatePod)]
    assert served[0] < scene.deleted()[0] < served[0] + 0.3 + 0.35 + 0.3, "after the write that is under way"
    assert max(created) > scene.deleted()[0]


def test_a_first_plan_that_takes_long_is_not_waited_for() -> None:
    """After a start nobody knows yet how long plans take; on the largest clusters the first one takes ten seconds."""
    scene = Scene(plan_s=10.0)
    play(scene, after((1.0, (wide(),)), (2.0, (wide("t", cpu=2),)), scene=scene))
    assert scene.planned[0] == pytest.approx(10.0, abs=0.5)
    assert len(scene.deleted()) == 5
    assert scene.deleted()[2] < 1.0 + SLOW_S + 0.35
    assert scene.deleted()[4] < 2.0 + 0.35


def test_a_pod_that_comes_as_a_plan_begins_waits_for_it_a_little() -> None:
    scene = Scene(plan_s=10.0)

    async def script() -> None:
        scene.serve(wide())
        await asyncio.sleep(2.0)

    play(scene, script)
    assert len(scene.deleted()) == 3
    assert SLOW_S <= scene.deleted()[0] < 1.5


def test_a_pod_does_not_wait_for_a_plan_because_another_one_that_came_with_it_found_a_node() -> None:
    scene = Scene(plan_s=6.0, trainers=14)

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.serve(wide("fits", cpu=2), wide("s"))
        await scene.has_searched.wait()
        fits, other = scene.cluster.serving
        scene.cluster.serving = (replace(fits, node="n001"), other)
        scene.cluster.urge()
        await asyncio.sleep(3.0)

    play(scene, script)
    assert len(scene.deleted()) == 2, "one core of its node is free"
    assert scene.deleted()[-1] < COME_S + 0.8
    assert scene.asked == 2


def test_a_bug_in_one_search_does_not_stop_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    right = scene.early_evictions

    def breaks_once(snapshot: ClusterSnapshot, limits: Limits) -> tuple[ScaleDecision, ...]:
        found = right(snapshot, limits)
        if scene.asked == 1:
            raise ValueError("a number is none")
        return found

    monkeypatch.setattr(scene, "early_evictions", breaks_once)
    play(scene, after((COME_S, (wide("s0", cpu=1),)), (COME_S + 10.0, (wide("s1", cpu=1),)), scene=scene))
    assert scene.asked == 2
    assert scene.recorder.failures == ["search for serving pods ahead of the plan: a number is none"]
    assert any(COME_S + 10.0 < at < COME_S + 10.5 for at in scene.deleted())
