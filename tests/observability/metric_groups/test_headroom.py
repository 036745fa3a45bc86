"""What the metrics show of the room that is kept for serving."""

from __future__ import annotations

from dataclasses import replace

from edl.model.headroom import Headroom
from edl.observability.metrics import Metrics
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape, make_snapshot
from tests.worlds.small_clusters import plan_for


def test_learned_room_is_wanted_and_held() -> None:
    """A node of 8 cores, one of them used: two pods of three cores fit, and three are asked for."""
    asked = Headroom(make_shape(3), 3, "why")
    world = make_snapshot(make_nodes(1), (make_job("a"),), (make_serving("web", cpu=1, node="n000"),))
    metrics = Metrics()
    for headroom, wanted, held in (((asked,), 3, 2), ((), 0, 0)):
        snapshot = replace(world, headroom=headroom)
        metrics.observed(snapshot, leader=True)
        metrics.planned(snapshot, plan_for(snapshot))
        text = metrics.render().decode()
        assert f'edl_headroom_pods{{state="wanted"}} {wanted}.0' in text
        assert f'edl_headroom_pods{{state="held"}} {held}.0' in text
