"""Masters of one namespace that lie: they cost the controller neither its lease nor memory, and few writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.faults.leading import Leader, leading, mallory
from tests.e2e.faults.stage import SMALL, Stage
from tests.e2e.worlds.follow import Follower
from tests.e2e.worlds.jobs import training_job
from tests.e2e.worlds.lying_masters import EAGER_CALLS, LyingMasters

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("forty jobs with their pods, and calls at the pace of a real controller")
LOUD = {"huge": 24, "long": 4, "pieces": 4, "silent": 4}
CHANGING = {"changing": 4}
"""In another namespace, since edl calls all masters of a namespace rarely whose masters answer too much."""
TINY: Object = {"master": {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}, **SMALL}
LONG_ANSWERS = 40
LATER_CALLS = 6
"""Calls to each master that has used up its changes."""
MOST_MIB = 300.0
WITHIN_S = 60.0


@dataclass
class Scene:
    """Masters that lie, and a controller that calls them.

    Attributes:
        changing: the namespace of those that change their mind.
    """

    stage: Stage
    changing: str
    leader: Leader
    masters: LyingMasters

    def all_changed(self, calls: int) -> bool:
        """Whether each master that changes its mind was called so often."""
        counts = self.masters.calls_of("changing")
        return len(counts) == CHANGING["changing"] and min(counts) >= calls


@pytest.fixture(scope="module")
def scene(running: Stage) -> Iterator[Scene]:
    """Tiny jobs whose masters lie from their start on."""
    with ExitStack() as stack:
        masters = stack.enter_context(LyingMasters())
        spaces = [stack.enter_context(mallory(running)) for _ in range(2)]
        leader = stack.enter_context(leading(running, running.account))
        for space, liars in zip(spaces, (LOUD, CHANGING), strict=True):
            _let_lie(running, masters, space, liars)
        yield Scene(running, spaces[1], leader, masters)


def _let_lie(stage: Stage, masters: LyingMasters, space: str, liars: dict[str, int]) -> None:
    kube = stage.here.kube
    names = {f"{kind}-{number}": kind for kind, count in liars.items() for number in range(count)}
    for name in names:
        job = training_job(name, min_trainers=1, max_trainers=1, **TINY)
        kube.create({**job, "metadata": {"name": name}}, space)
    kube.wait_until(lambda: _running_masters(stage, space) == len(names), WITHIN_S, "their masters run")
    for name, kind in names.items():
        masters.speak_for(kube, name, kind, space)


def _running_masters(stage: Stage, space: str) -> int:
    pods = stage.here.kube.list("pods", space, labels="paddlepaddle.org/role=master")
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def test_long_and_slow_answers_cost_neither_the_lease_nor_memory(scene: Scene) -> None:
    stage, kube = scene.stage, scene.stage.here.kube
    stage.submit("heard")
    stage.wait_grown("heard")
    scene.masters.speak_for(kube, "heard", "honest")
    kube.wait_until(
        lambda: stage.status("heard").get("dataset", {}).get("total") == 60, WITHIN_S, "the master of others is heard"
    )

    def answers() -> int:
        return sum(sum(scene.masters.calls_of(kind)) for kind in ("huge", "long"))

    kube.wait_until(lambda: answers() >= LONG_ANSWERS, WITHIN_S, "they have answered at length")
    scene.leader.assert_led(MOST_MIB)
    print(f"{scene.leader.peak_bytes / 2**20:.0f} MiB after {answers()} long answers")
    stage.assert_only_grown("heard")
    stage.assert_steady()


def test_masters_that_change_their_mind_at_each_call_cause_few_writes(scene: Scene) -> None:
    kube = scene.stage.here.kube
    written: Counter[str] = Counter()

    def see(_: str, job: Object) -> None:
        written[job["metadata"]["name"]] += job["metadata"]["namespace"] == scene.changing

    # Changes of two kinds at each of the first calls use the budget of ten up; each later change has to wait for it.
    kube.wait_until(lambda: scene.all_changed(EAGER_CALLS + 1), WITHIN_S, "all have used up their changes")
    with Follower(kube, "trainingjobs", lambda _: None, see):
        kube.wait_until(lambda: scene.all_changed(EAGER_CALLS + 1 + LATER_CALLS), WITHIN_S, "they go on")
    print(f"writes {dict(written)} after {scene.masters.calls_of('changing')} calls")
    assert max(written.values(), default=0) <= LATER_CALLS / 3
    scene.leader.assert_led(MOST_MIB)
