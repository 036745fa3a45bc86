"""Lost nodes and Endpoints on an embedded API server."""

from __future__ import annotations

import asyncio
from typing import Any

from edl.sandbox.controllers.cluster import EndpointsController, NodeController
from edl.sandbox.controllers.loop import Informers
from edl.sandbox.kubelet.node import NodeAgent, NodeShape
from edl.sandbox.objects import condition, is_true
from tests.sandbox.controllers.conftest import Api

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"


async def stop(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def pod(name: str, tolerations: list[Object]) -> Object:
    spec = {"nodeName": "n-0", "containers": [{"name": "c", "image": "busybox"}], "tolerations": tolerations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_a_lost_node_is_marked_its_pods_leave_and_it_may_come_back(api: Api) -> None:
    agent = NodeAgent(api.session, "n-0", NodeShape(), 1)
    await agent.register()
    await api.create(PODS, pod("leaves", [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]))
    await api.create(PODS, pod("stays", [{"operator": "Exists"}]))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.session.patch(f"{PODS}/stays/status", {"status": status})
    informers = Informers(api.session, ["Node", "Pod", "Lease"])
    tasks = (
        asyncio.create_task(informers.run()),
        asyncio.create_task(NodeController(api.session, informers, grace_s=1).run()),
    )

    async def is_marked() -> bool:
        node = await api.get("/api/v1/nodes/n-0")
        ready = condition(node, "Ready") or {}
        return ready["status"] == "Unknown" and len(node["spec"].get("taints") or ()) == 2

    async def is_leaving() -> bool:
        found = await api.find(f"{PODS}/leaves")
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    async def is_back() -> bool:
        await agent.register()
        node = await api.get("/api/v1/nodes/n-0")
        return not node["spec"].get("taints")

    async def is_not_ready() -> bool:
        return not is_true(await api.get(f"{PODS}/stays"), "Ready")

    await api.until(is_marked)
    await api.until(is_leaving)
    await api.until(is_not_ready)
    assert not (await api.get(f"{PODS}/stays"))["metadata"].get("deletionTimestamp")
    await api.until(is_back)
    await stop(*tasks)


async def test_endpoints_follow_the_pods_of_a_service(api: Api) -> None:
    informers = Informers(api.session, ["Service", "Pod", "Endpoints"])
    controller = EndpointsController(api.session, informers)
    tasks = (asyncio.create_task(informers.run()), asyncio.create_task(controller.run()))
    service = {"selector": {"app": "x"}, "clusterIP": "None", "ports": [{"port": 80}]}
    metadata = {"name": "s"}
    await api.create(
        "/api/v1/namespaces/default/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    )
    made = pod("a", [])
    made["metadata"]["labels"] = {"app": "x"}
    await api.create(PODS, made)
    path = "/api/v1/namespaces/default/endpoints/s"

    async def addresses(field: str) -> list[str]:
        found = await api.find(path) or {}
        return [one["ip"] for subset in found.get("subsets") or () for one in subset.get(field) or ()]

    async def has(field: str, *wanted: str) -> bool:
        return await addresses(field) == list(wanted)

    status: Object = {"podIP": "127.9.0.1", "podIPs": [{"ip": "127.9.0.1"}], "phase": "Running"}
    await api.session.patch(f"{PODS}/a/status", {"status": status})
    await api.until(lambda: has("notReadyAddresses", "127.9.0.1"))
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    await api.session.patch(f"{PODS}/a/status", {"status": status})
    await api.until(lambda: has("addresses", "127.9.0.1"))
    await api.delete(f"{PODS}/a")
    await api.until(lambda: has("addresses"))
    await stop(*tasks)
