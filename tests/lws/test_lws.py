"""The published sample of LeaderWorkerSet, resized by edl beside the real controller."""

from __future__ import annotations

import pytest

from tests.e2e.worlds.jobs import serving
from tests.lws.programs import SETS
from tests.lws.scene import NAME, SIZE, Scene

pytestmark = pytest.mark.cluster("the controller of LeaderWorkerSets runs on a real control plane only")


def test_groups_come_and_go_whole(here: Scene) -> None:
    here.kube.create(here.sample(low=1, high=3))
    here.wait_groups(3)
    before = here.uids()
    here.kube.create(serving(replicas=5, cpu="1", memory="1Gi"))
    here.wait(lambda: here.world.ready_serving() == 5, "serving has what four free cpus lack")
    here.wait_groups(2)
    after = here.uids()
    assert after.items() <= before.items(), "no pod of a group that stays started again"
    assert len(after) == 2 * SIZE, "a group that goes for one pod goes whole"
    here.kube.scale("deployments", "web", 0)
    here.wait_groups(3)
    assert after.items() <= here.uids().items()
    assert "NotResized" not in here.events()


def test_a_set_whose_minimum_does_not_fit_has_no_group_until_it_fits(here: Scene) -> None:
    here.kube.create(here.sample(low=2, high=4))
    here.wait_groups(4)
    here.kube.create(serving(replicas=9, cpu="1", memory="1Gi"))
    here.wait(lambda: here.world.ready_serving() == 9, "serving leaves seven cpus")
    here.wait(lambda: not here.pods(), "one group is less than its minimum")
    assert here.replicas() == 0
    here.kube.scale("deployments", "web", 0)
    here.wait_groups(4)


def test_a_count_that_somebody_else_scales_is_left_to_them(here: Scene) -> None:
    here.kube.create(here.sample(low=1, high=4))
    here.wait_groups(4)
    here.kube.scale(SETS, NAME, 2)
    here.wait(lambda: "NotResized" in here.events(), "an event names the other writer")
    assert "counted in pods of groups of 4, to 8 after edl had set it to 16" in here.events()["NotResized"]
    here.wait_groups(2)
