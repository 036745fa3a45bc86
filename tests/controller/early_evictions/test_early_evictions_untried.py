"""Trainers for a serving pod that kube-scheduler has not tried yet: found at once, evicted if it finds no node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from edl.controller.early_evictions import VERDICT_S
from edl.model.pods import Pod
from tests.controller.early_evictions.scene import COME_S, FIND_S, PLAN_S, Scene, play, wide


def coming(scene: Scene, *pods: Pod, says_after_s: float, no_room: bool = True) -> Callable[[], Awaitable[None]]:
    """Pods come, kube-scheduler takes its time, and the script ends ten seconds later."""

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.come(*pods)
        await asyncio.sleep(says_after_s)
        scene.say(no_room=no_room)
        await asyncio.sleep(10.0)

    return script


@pytest.mark.parametrize("says_after_s", [0.02, 0.3, 0.6])
def test_the_trainers_are_found_while_kube_scheduler_tries_the_pod(says_after_s: float) -> None:
    scene = Scene()
    play(scene, coming(scene, wide(), says_after_s=says_after_s))
    assert scene.searches[0] < COME_S + 0.2
    assert len(scene.searches) == scene.asked == 1, "what was found is used"
    assert scene.searches[0] + FIND_S < scene.deleted()[0]
    assert COME_S + says_after_s < scene.deleted()[0] < COME_S + max(says_after_s, 0.3) + 0.15
    assert len(scene.deleted()) == 3


@pytest.mark.parametrize("says_after_s", [0.02, 0.3, 0.6, 2.0])
def test_no_trainer_goes_for_a_pod_that_kube_scheduler_has_room_for(says_after_s: float) -> None:
    scene = Scene()
    play(scene, coming(scene, wide(), says_after_s=says_after_s, no_room=False))
    assert scene.asked == 1
    assert not scene.deleted()


def test_what_was_found_is_kept_until_kube_scheduler_answers() -> None:
    scene = Scene()
    play(scene, coming(scene, wide(), says_after_s=VERDICT_S + 0.8))
    planned = [at for at in scene.planned if at > COME_S]
    assert scene.asked == 1
    assert planned[0] == pytest.approx(COME_S + 0.2 + PLAN_S, abs=0.05), "it waits for nobody"
    assert COME_S + VERDICT_S + 0.8 < scene.deleted()[0] < COME_S + VERDICT_S + 0.9
    assert len(scene.deleted()) == 3


def test_a_pod_that_kube_scheduler_takes_longer_for_than_a_plan_is_left_to_the_plan() -> None:
    scene = Scene()
    play(scene, coming(scene, wide(), says_after_s=PLAN_S + 1.0))
    planned = [at for at in scene.planned if at > COME_S]
    assert scene.asked == 1
    assert scene.deleted()[0] == pytest.approx(planned[1], abs=0.1), "the plan that follows kube-scheduler's answer"
    assert len(scene.deleted()) == 3


def test_a_pod_that_kube_scheduler_takes_long_for_does_not_keep_others_waiting() -> None:
    scene = Scene(plan_s=6.0)

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.come(wide("s"))
        await asyncio.sleep(0.5)
        scene.come(wide("t", cpu=2))
        await asyncio.sleep(0.5)
        slow, other = scene.cluster.serving
        scene.cluster.serving = (slow, replace(other, tried=True))
        scene.cluster.urge()
        await asyncio.sleep(10.0)

    play(scene, script)
    assert COME_S + VERDICT_S < scene.deleted()[0] < COME_S + VERDICT_S + 0.5
    assert scene.asked == 2


@pytest.mark.parametrize("cpu", [3, 2], ids=["an equal pod", "another pod"])
def test_kube_scheduler_must_have_no_room_for_each_of_the_pods_or_for_an_equal_one(cpu: float) -> None:
    scene = Scene()

    async def script() -> None:
        await asyncio.sleep(COME_S)
        scene.come(wide("s"), wide("t", cpu=cpu))
        await asyncio.sleep(0.4)
        first, second = scene.cluster.serving
        scene.cluster.serving = (replace(first, tried=True), second)
        scene.cluster.urge()
        await asyncio.sleep(0.2)
        assert bool(scene.deleted()) is (cpu == 3)
        scene.say()
        await asyncio.sleep(10.0)

    play(scene, script)
    assert COME_S + 0.4 < scene.deleted()[0] < COME_S + 0.8
    assert len(scene.deleted()) == 3 + cpu
