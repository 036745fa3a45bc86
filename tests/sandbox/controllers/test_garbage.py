"""The garbage collector on an embedded API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from edl.sandbox.controllers.garbage import GarbageCollector
from edl.sandbox.controllers.loop import Informers
from tests.sandbox.controllers.conftest import Api

Object = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture(autouse=True)
async def collecting(api: Api) -> AsyncIterator[None]:
    """A collector of Secrets and ConfigMaps."""
    informers = Informers(api.session, ["Secret", "ConfigMap"])
    tasks = [
        asyncio.create_task(informers.run()),
        asyncio.create_task(GarbageCollector(api.session, informers).run()),
    ]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def owner(api: Api, name: str, **metadata: Any) -> Object:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return await api.create(MAPS, body)


async def dependent(api: Api, name: str, *owners: Object, blocks: bool = False, **metadata: Any) -> Object:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for one in owners
    ]
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "ownerReferences": references, **metadata},
    }
    return await api.create(SECRETS, body)


async def gone(api: Api, path: str) -> bool:
    return await api.find(path) is None


async def test_dependents_go_after_their_owner(api: Api) -> None:
    await dependent(api, "child", await owner(api, "parent"))
    await api.delete(f"{MAPS}/parent")
    await api.until(lambda: gone(api, f"{SECRETS}/child"))


async def test_a_dependent_stays_while_one_of_its_owners_lives(api: Api) -> None:
    first, second = await owner(api, "first"), await owner(api, "second")
    await dependent(api, "child", first, second)
    await api.delete(f"{MAPS}/first")

    async def has_one_owner() -> bool:
        return len((await api.get(f"{SECRETS}/child"))["metadata"]["ownerReferences"]) == 1

    await api.until(has_one_owner)
    assert (await api.get(f"{SECRETS}/child"))["metadata"]["ownerReferences"][0]["name"] == "second"


async def test_an_owner_of_the_same_name_is_another_owner(api: Api) -> None:
    former = await owner(api, "parent")
    await api.delete(f"{MAPS}/parent")
    await owner(api, "parent")
    await dependent(api, "child", former)
    await api.until(lambda: gone(api, f"{SECRETS}/child"))


async def test_in_the_foreground_dependents_go_first(api: Api) -> None:
    parent = await owner(api, "parent")
    await dependent(api, "child", parent, blocks=True, finalizers=["test/hold"])
    await api.delete(f"{MAPS}/parent", "Foreground")

    async def is_deleted() -> object:
        return (await api.get(f"{SECRETS}/child"))["metadata"].get("deletionTimestamp")

    await api.until(is_deleted)
    assert await api.find(f"{MAPS}/parent") is not None
    await api.session.patch(f"{SECRETS}/child", {"metadata": {"finalizers": None}})
    await api.until(lambda: gone(api, f"{MAPS}/parent"))
    assert await api.find(f"{SECRETS}/child") is None


async def test_orphans_stay_without_their_owner(api: Api) -> None:
    await dependent(api, "child", await owner(api, "parent"))
    await api.delete(f"{MAPS}/parent", "Orphan")
    await api.until(lambda: gone(api, f"{MAPS}/parent"))
    assert not (await api.get(f"{SECRETS}/child"))["metadata"].get("ownerReferences")
