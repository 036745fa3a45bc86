"""Whether running pods can be resized, and how old Kueue is, is asked rarely, and again after an upgrade."""

from __future__ import annotations

import pytest
from aiohttp import web

from edl.kube.discovery import ASKED_AGAIN_AFTER_S, RETRIED_AFTER_S, KueueVersion, PodResizing
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


class OneSchema(FakeApi):
    """Serves the schema of Kueue's Workloads."""

    most: int | None = 18

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.faults or request.path != "/openapi/v3/apis/kueue.x-k8s.io/v1beta2":
            return await super()._handle(request)
        self.requests.append((request.method, request.path, {}))
        spec = {"properties": {"podSets": {"type": "array", "maxItems": self.most}}}
        schemas = {"io.x-k8s.kueue.v1beta2.Workload": {"properties": {"spec": spec if self.most else {}}}}
        return web.json_response({"components": {"schemas": {"other": {"properties": {}}, **schemas}}})


@pytest.mark.parametrize(("most", "is_old"), [(18, False), (20, False), (10, True), (8, True), (None, False)])
async def test_the_schema_of_workloads_says_how_old_kueue_is(most: int | None, is_old: bool) -> None:
    api, clock = OneSchema(), FakeClock()
    api.most = most
    async with connected(api) as session:
        assert ("older than 0.19" in await KueueVersion(session, clock).problem()) is is_old


async def test_kueue_is_asked_again_after_an_upgrade_and_a_fault_changes_nothing() -> None:
    api, clock = OneSchema(), FakeClock()
    api.most = 10
    async with connected(api) as session:
        version = KueueVersion(session, clock)
        assert await version.problem()
        clock.time_s += ASKED_AGAIN_AFTER_S
        api.faults.append(refusal(403, "Forbidden", "no"))
        assert await version.problem()
        api.most = 18
        clock.time_s += RETRIED_AFTER_S
        assert not await version.problem()
        assert len(api.requests) == 2 + 1
