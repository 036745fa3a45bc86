"""Whether running pods can be resized is asked rarely, and again after an upgrade."""

from __future__ import annotations

from aiohttp import web

from edl.kube.discovery import ASKED_AGAIN_AFTER_S, RETRIED_AFTER_S, PodResizing
from tests.worlds.fake_api import FakeApi, FakeClock, connected, refusal


class OneList(FakeApi):
    """Serves the resource list of v1."""

    names: tuple[str, ...] = ()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.faults or request.path != "/api/v1":
            return await super()._handle(request)
        self.requests.append((request.method, request.path, {}))
        resources = [{"name": name, "verbs": ["get", "patch", "update"]} for name in self.names]
        return web.json_response({"kind": "APIResourceList", "resources": resources})


async def test_the_resource_list_says_so_and_is_read_again_after_a_time() -> None:
    api, clock = OneList(), FakeClock()
    async with connected(api) as session:
        resizing = PodResizing(session, clock)
        api.names = ("pods", "pods/status")
        assert not await resizing.is_there()
        api.names = ("pods", "pods/resize")
        clock.time_s += ASKED_AGAIN_AFTER_S - 1
        assert not await resizing.is_there()
        assert len(api.requests) == 1
        clock.time_s += 1
        assert await resizing.is_there()


async def test_a_server_that_does_not_answer_changes_nothing() -> None:
    api, clock = OneList(), FakeClock()
    api.names = ("pods/resize",)
    async with connected(api) as session:
        resizing = PodResizing(session, clock)
        assert await resizing.is_there()
        clock.time_s += ASKED_AGAIN_AFTER_S
        api.faults.append(refusal(403, "Forbidden", "no"))
        assert await resizing.is_there()
        api.names = ()
        clock.time_s += RETRIED_AFTER_S
        assert not await resizing.is_there()
