"""The hollow nodes of the tests: what happens next to a pod."""

from __future__ import annotations

from typing import Any, cast

from edl.kube.client.session import ApiSession
from tests.e2e.sandbox.hollow import HollowNodes, Pace, Stage


def running(cpu: str) -> dict[str, Any]:
    """A pod whose only container requests so much."""
    containers = [{"name": "trainer", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"uid": "one"}, "spec": {"containers": containers}}


async def test_a_second_resize_is_done_although_no_pod_between_both_was_seen() -> None:
    nodes, resize = HollowNodes(cast(ApiSession, None), Pace(1.0, 1.0, 1.0)), (Stage.RESIZE, 0.0)
    first = nodes._planned(running("100m"), resize, 0.0)
    assert first is not None
    first.is_started = True

    second = nodes._planned(running("1"), resize, 1.0)

    assert second is not None
    assert not second.is_started
    assert nodes._planned(running("1"), resize, 2.0) is second
