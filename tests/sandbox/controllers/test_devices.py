"""Claims on devices on an embedded API server: made for pods, reserved, freed, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from edl.sandbox.controllers.devices import DeviceClaimController
from edl.sandbox.controllers.garbage import GarbageCollector
from edl.sandbox.controllers.loop import Informers
from edl.sandbox.scheduler.scheduler import Scheduler
from tests.sandbox.controllers.conftest import Api
from tests.worlds.rules.device_scenes import claim, device, device_class, slice_of, template, uses

Object = dict[str, Any]
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def at_work(api: Api, *, devices: int = 1) -> AsyncIterator[None]:
    """Scheduler and controllers, and a node with devices."""
    await api.create(f"{GROUP}/deviceclasses", device_class())
    await api.create(f"{GROUP}/namespaces/default/resourceclaimtemplates", template())
    await api.create(f"{GROUP}/resourceslices", slice_of("n0", *(device(f"gpu-{place}") for place in range(devices))))
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}, "conditions": [ready]}
    await api.create(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": status}
    )
    informers = Informers(api.session, ["Pod", "ResourceClaim", "ResourceClaimTemplate"])
    tasks = [
        asyncio.create_task(work)
        for work in (
            informers.run(),
            DeviceClaimController(api.session, informers).run(),
            GarbageCollector(api.session, informers).run(),
            Scheduler(api.session).run(),
        )
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def submit(api: Api, name: str, **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}
    return await api.create(PODS, {**body, "spec": {"containers": [container], **(spec or uses())}})


async def claims(api: Api) -> list[Object]:
    found: list[Object] = (await api.get(CLAIMS))["items"]
    return found


def bound(api: Api, name: str) -> Callable[[], Awaitable[bool]]:
    async def is_bound() -> bool:
        return bool((await api.get(f"{PODS}/{name}"))["spec"].get("nodeName"))

    return is_bound


def refused(api: Api, name: str, words: str) -> Callable[[], Awaitable[bool]]:
    async def is_refused() -> bool:
        conditions = (await api.get(f"{PODS}/{name}"))["status"].get("conditions") or ()
        return any(words in one.get("message", "") for one in conditions)

    return is_refused


async def test_a_pod_gets_a_claim_of_its_own_and_the_next_one_waits_until_it_has_ended(api: Api) -> None:
    async with at_work(api):
        first = await submit(api, "first")
        await api.until(bound(api, "first"))
        (mine,) = await claims(api)
        assert mine["metadata"]["name"].startswith("first-gpu-")
        assert mine["metadata"]["ownerReferences"][0]["uid"] == first["metadata"]["uid"]
        assert mine["status"]["reservedFor"][0]["uid"] == first["metadata"]["uid"]
        assert mine["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        statuses = (await api.get(f"{PODS}/first"))["status"]["resourceClaimStatuses"]
        assert statuses == [{"name": "gpu", "resourceClaimName": mine["metadata"]["name"]}]
        await submit(api, "second")
        await api.until(refused(api, "second", "1 cannot allocate all claims. still not schedulable, preemption:"))
        await api.session.patch(f"{PODS}/first/status", {"status": {"phase": "Succeeded"}})
        await api.until(bound(api, "second"))

        async def is_gone() -> bool:
            return [one["metadata"]["name"].rpartition("-")[0] for one in await claims(api)] == ["second-gpu"]

        await api.until(is_gone)


async def test_a_deleted_pod_gives_its_device_back(api: Api) -> None:
    async with at_work(api):
        await submit(api, "first")
        await api.until(bound(api, "first"))
        await api.session.request("DELETE", f"{PODS}/first", body={"gracePeriodSeconds": 0})
        await submit(api, "second")
        await api.until(bound(api, "second"))


async def test_pods_share_a_claim_that_stays_and_loses_its_devices_with_the_last_of_them(api: Api) -> None:
    async with at_work(api):
        await api.create(CLAIMS, claim("shared"))
        for name in ("a", "b"):
            await submit(api, name, **uses("shared", shared=True))
            await api.until(bound(api, name))
        (shared,) = await claims(api)
        assert {one["name"] for one in shared["status"]["reservedFor"]} == {"a", "b"}
        for name in ("a", "b"):
            await api.session.request("DELETE", f"{PODS}/{name}", body={"gracePeriodSeconds": 0})

        async def is_free() -> bool:
            (found,) = await claims(api)
            return not found["status"].get("allocation") and not found["metadata"].get("finalizers")

        await api.until(is_free)


async def test_a_claim_in_use_outlives_its_deletion(api: Api) -> None:
    async with at_work(api):
        await api.create(CLAIMS, claim("shared"))
        await submit(api, "a", **uses("shared", shared=True))
        await api.until(bound(api, "a"))
        await api.delete(f"{CLAIMS}/shared")
        assert (await api.get(f"{CLAIMS}/shared"))["metadata"]["deletionTimestamp"]
        await api.session.request("DELETE", f"{PODS}/a", body={"gracePeriodSeconds": 0})

        async def is_gone() -> bool:
            return await api.find(f"{CLAIMS}/shared") is None

        await api.until(is_gone)


async def test_a_template_that_is_not_there_is_an_event_and_the_pod_runs_once_it_is(api: Api) -> None:
    async with at_work(api):
        await submit(api, "p", **uses("later"))

        async def is_told() -> bool:
            events = (await api.get("/api/v1/namespaces/default/events"))["items"]
            return any('PodResourceClaim gpu: resource claim template "later"' in one["message"] for one in events)

        await api.until(is_told)
        assert not await bound(api, "p")()
        await api.create(f"{GROUP}/namespaces/default/resourceclaimtemplates", template(name="later"))
        await api.until(bound(api, "p"))
