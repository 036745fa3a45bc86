"""What rules between pods and volumes depend on: mirrored where edl may read it, and no condition for a decision."""

from __future__ import annotations

import pytest

from edl.kube.translate.rules.facts import RuleFacts, RuleObjects, read_facts
from tests.kube.mirror.mirrored_cluster import NODES, PODS, world
from tests.worlds.fake_api import FakeApi, eventually, refusal
from tests.worlds.rules.scenes import bound, node, pod, storage

VOLUMES, CLAIMS = "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"
USES = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]


def filled(api: FakeApi) -> FakeApi:
    """Two nodes in zones a and b, and a pod that waits with a volume in zone c."""
    for one in (node("n0", zone="a"), node("n1", zone="b")):
        api.put(NODES, one)
    for one in bound(storage("c"), "pv-c0"):
        path = {"PersistentVolume": VOLUMES, "PersistentVolumeClaim": CLAIMS}.get(one["kind"])
        if path is not None:
            api.put(path, one)
    api.put(PODS, pod("web-0", volumes=USES))
    return api


async def test_the_zone_of_a_volume_counts() -> None:
    async with world(filled(FakeApi())) as w:
        await w.settled()
        (waiting,) = w.cache.snapshot(0.0).waiting_serving
        assert waiting.blocked == "volume pv-c0 of claim data is in zone c; no node is left"
        w.api.put(NODES, node("n2", zone="c"))
        await eventually(lambda: not w.cache.snapshot(0.0).waiting_serving[0].blocked)


@pytest.mark.parametrize(("code", "lines"), [(403, 1), (404, 0)])
async def test_without_the_right_decisions_are_made_as_before_and_it_is_said_once(code: int, lines: int) -> None:
    api = filled(FakeApi())
    api.broken[VOLUMES] = refusal(code, "Forbidden", "no volumes for you")
    async with world(api) as w:
        await eventually(lambda: not w.cache.unready())
        (waiting,) = w.cache.snapshot(0.0).waiting_serving
        assert waiting.blocked == ""
        said = "persistentvolumes cannot be read (403), so plans do not see the rules of these; give edl the right"
        assert w.cache.left_out() == [said] * lines
        del api.broken[VOLUMES]
        await eventually(lambda: w.cache.snapshot(0.0).waiting_serving[0].blocked)
        await eventually(lambda: w.cache.left_out() == [])


async def test_a_claim_that_comes_after_its_pod_is_missing_until_it_is_there() -> None:
    """A list may be read before the claim was made; then the pod waits one look longer, and nobody ends for it."""
    api = FakeApi()
    for name in ("n0", "n1"):
        api.put(NODES, node(name))
    api.put(PODS, pod("web-0", volumes=USES))
    async with world(api) as w:
        await w.settled()
        (waiting,) = w.cache.snapshot(0.0).waiting_serving
        assert waiting.blocked == "PersistentVolumeClaim data does not exist"
        for one in bound(storage("c"), "pv-c0"):
            if one["kind"] == "PersistentVolumeClaim":
                w.api.put(CLAIMS, one)
        gone = "PersistentVolume pv-c0 of claim data does not exist"
        await eventually(lambda: w.cache.snapshot(0.0).waiting_serving[0].blocked == gone)
        w.api.put(VOLUMES, {"metadata": {"name": "pv-c0"}, "spec": {}})
        await eventually(lambda: not w.cache.snapshot(0.0).waiting_serving[0].blocked)


@pytest.mark.parametrize("code", [403, 404])
async def test_a_claim_that_edl_may_not_read_is_not_missing(code: int) -> None:
    api = filled(FakeApi())
    api.broken[CLAIMS] = refusal(code, "Forbidden", "no claims for you")
    async with world(api) as w:
        await eventually(lambda: not w.cache.unready())
        (waiting,) = w.cache.snapshot(0.0).waiting_serving
        assert waiting.blocked == ""


async def test_what_rules_depend_on_is_read_again_only_once_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of thousands of nodes has as many CSINodes, and pods change many times a second."""
    read: list[RuleObjects] = []

    def noted(objects: RuleObjects) -> RuleFacts:
        read.append(objects)
        return read_facts(objects)

    monkeypatch.setattr("edl.kube.mirror.cache.read_facts", noted)
    async with world(filled(FakeApi())) as w:
        await w.settled()
        await eventually(lambda: bool(w.cache.snapshot(0.0).waiting_serving[0].blocked))
        count = len(read)
        w.api.put(PODS, pod("web-1", volumes=USES))
        await eventually(lambda: len(w.cache.snapshot(0.0).waiting_serving) == 2)
        assert len(read) == count
        assert all(one.blocked for one in w.cache.snapshot(0.0).waiting_serving)
        before = w.cache.snapshot(0.0).waiting_serving[0].blocked
        w.api.remove(VOLUMES, "pv-c0")
        await eventually(lambda: w.cache.snapshot(0.0).waiting_serving[0].blocked != before)
        assert len(read) > count
