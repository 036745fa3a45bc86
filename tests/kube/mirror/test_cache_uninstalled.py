"""A cluster in which nobody has installed edl: the cache of a process that only looks at it."""

from __future__ import annotations

from aiohttp import web

from edl.kube.mirror.mirrored import Mirrored
from edl.kube.translate.objects import HasMetadata
from tests.kube.mirror.mirrored_cluster import NODES, PODS, pod, world
from tests.worlds.fake_api import FakeApi, eventually, refusal


class WithoutEdl(FakeApi):
    """An API server that has no resource of edl."""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/apis/paddlepaddle.org"):
            return refusal(404, "NotFound", "the server could not find the requested resource")(request)
        return await super()._handle(request)


async def test_decisions_are_made_without_the_crds_if_they_are_not_required() -> None:
    async with world(WithoutEdl(), mirrored=Mirrored(requires_jobs=False)) as w:
        await eventually(lambda: not w.cache.unready())
        assert w.cache.snapshot(0.0).jobs == ()
        assert w.cache.unread()["/apis/paddlepaddle.org/v1/trainingjobs"] == 404


async def test_a_controller_makes_none() -> None:
    async with world(WithoutEdl()) as w:
        await eventually(lambda: any("trainingjobs" in line for line in w.cache.problems()))
        assert w.cache.unready()


async def test_each_change_is_told_with_what_was_before() -> None:
    seen: list[tuple[str | None, str | None]] = []

    def name_of(one: HasMetadata | None) -> str | None:
        return one.metadata.name if one and one.metadata else None

    def note(before: HasMetadata | None, after: HasMetadata | None) -> None:
        seen.append((name_of(before), name_of(after)))

    async with world(on_event=note) as w:
        await w.settled()
        w.api.put(NODES, {"metadata": {"name": "n1"}})
        await eventually(lambda: (None, "n1") in seen)
        w.api.put(PODS, pod("web"))
        await eventually(lambda: (None, "web") in seen)
        w.api.put(PODS, {**pod("web"), "status": {"phase": "Pending"}})
        await eventually(lambda: ("web", "web") in seen)
        w.api.remove(PODS, "web", "ads")
        await eventually(lambda: ("web", None) in seen)
        assert [one.metadata.name for one in w.cache.nodes() if one.metadata] == ["n1"]
        assert w.cache.lists_done == 3
