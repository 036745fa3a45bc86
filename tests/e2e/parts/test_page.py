"""Who sees the page of a controller, judged by a real API server with RBAC; and `edl dashboard` on a real cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from edl.clock import SystemClock
from edl.dashboard.access import NEEDED, DeniedError, ReviewGate
from edl.dashboard.serve import Address, PageSettings, serve_page
from edl.kube.client.session import ApiSession
from tests.e2e.conftest import ControlPlanes
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kubeconfig import read_kubeconfig
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.harness import install

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def plane(control_plane: ControlPlanes) -> ControlPlane:
    started = control_plane("small")
    install(started)
    return started


def token_of(plane: ControlPlane, account: str, *resources: str) -> dict[str, str]:
    """The headers of a new account that may list so many of the resources that the page shows."""
    plane.kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for right in NEEDED
        if right.resource in resources
    ]
    metadata: dict[str, Any] = {"name": f"page-{account}"}
    plane.kube.apply({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    plane.kube.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
        }
    )
    return {"Authorization": f"Bearer {read_kubeconfig(plane.kubeconfig_for(account)).token}"}


async def shows_the_nodes(plane: ControlPlane, response: aiohttp.ClientResponse) -> None:
    """The stream begins with the state, and shows every node once they are listed."""
    seen = (await response.content.readline()).decode()
    assert seen == "event: state\n"
    names = [f'"{node["metadata"]["name"]}"' for node in plane.kube.list("nodes")]
    async with asyncio.timeout(60):
        while not all(name in seen for name in names):
            seen += (await response.content.readline()).decode()


async def test_the_page_lets_in_those_who_may_list_what_it_shows_and_nobody_else(plane: ControlPlane) -> None:
    full = token_of(plane, "sees-all", "trainingjobs", "pods", "nodes")
    part = token_of(plane, "sees-pods", "pods")
    async with await ApiSession.open(str(plane.kubeconfig)) as administrator:
        gate = ReviewGate(administrator, SystemClock())
        await gate.check(full)
        with pytest.raises(DeniedError, match=r"list trainingjobs\.paddlepaddle\.org, list nodes") as lacks:
            await gate.check(part)
        assert lacks.value.status == 403
        for headers in ({"Authorization": "Bearer made-up"}, {}):
            with pytest.raises(DeniedError) as unknown:
                await gate.check(headers)
            assert unknown.value.status == 401


async def test_the_page_shows_the_nodes_of_a_real_cluster(plane: ControlPlane) -> None:
    async with await ApiSession.open(str(plane.kubeconfig)) as session:
        ready: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        page = asyncio.create_task(serve_page(session, PageSettings("127.0.0.1:0"), ready.set_result))
        try:
            address = await asyncio.wait_for(ready, 60)
            url, headers = f"{address.url.partition('#')[0]}events", {"Authorization": f"Bearer {address.token}"}
            async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
                await shows_the_nodes(plane, response)
        finally:
            page.cancel()
            await asyncio.gather(page, return_exceptions=True)


async def test_a_controller_process_serves_the_page_and_its_events_to_those_with_the_rights(
    plane: ControlPlane,
) -> None:
    full, part = (
        token_of(plane, "watches-all", "trainingjobs", "pods", "nodes"),
        token_of(plane, "watches-pods", "pods"),
    )
    controller = ControllerProcess(install(plane), plane.workdir)
    with controller:
        url = f"http://127.0.0.1:{controller.port}/page/"
        async with aiohttp.ClientSession() as http:
            async with http.get(url) as response:
                assert response.status == 200
                assert "<!doctype html>" in (await response.text()).lower()
            for headers, status in (({}, 401), (part, 403)):
                async with http.get(f"{url}events", headers=headers) as response:
                    assert response.status == status
            async with http.get(f"{url}events", headers=full) as response:
                await shows_the_nodes(plane, response)
