"""Claims and volumes on an embedded API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from edl.sandbox.controllers.loop import Informers
from edl.sandbox.controllers.volumes import VolumeController, chosen_volume
from tests.sandbox.controllers.conftest import Api

Object = dict[str, Any]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


@asynccontextmanager
async def binding(api: Api) -> AsyncIterator[None]:
    """The controller at work."""
    informers = Informers(api.session, ["PersistentVolumeClaim", "PersistentVolume"])
    controller = VolumeController(api.session, informers, "folder")
    tasks = (asyncio.create_task(informers.run()), asyncio.create_task(controller.run()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def claim(name: str, size: str = "1Gi", **spec: Any) -> Object:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": body}


def volume(name: str, size: str = "1Gi", **spec: Any) -> Object:
    body = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual",
        "hostPath": {"path": f"/srv/{name}"},
        **spec,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": body}


async def phase(api: Api, path: str) -> str:
    return str((await api.get(path)).get("status", {}).get("phase"))


async def test_a_claim_of_the_default_class_is_bound_to_a_folder(api: Api) -> None:
    async with binding(api):
        await api.create(CLAIMS, claim("own"))
        await api.create(CLAIMS, claim("other", storageClassName="fast"))

        async def is_bound() -> bool:
            return await phase(api, f"{CLAIMS}/own") == "Bound"

        await api.until(is_bound)
        assert await phase(api, f"{CLAIMS}/other") == "Pending"


async def test_a_claim_is_bound_to_a_volume_made_by_hand_which_is_released_after_it(api: Api) -> None:
    async with binding(api):
        await api.create(VOLUMES, volume("data"))

        async def is_available() -> bool:
            return await phase(api, f"{VOLUMES}/data") == "Available"

        await api.until(is_available)
        made = await api.create(CLAIMS, claim("mine", storageClassName="manual"))

        async def is_bound() -> bool:
            return await phase(api, f"{CLAIMS}/mine") == "Bound" and await phase(api, f"{VOLUMES}/data") == "Bound"

        await api.until(is_bound)
        stored = await api.get(f"{CLAIMS}/mine")
        assert stored["spec"]["volumeName"] == "data"
        assert stored["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
        assert stored["status"]["capacity"] == {"storage": "1Gi"}
        reference = (await api.get(f"{VOLUMES}/data"))["spec"]["claimRef"]
        assert (reference["name"], reference["uid"]) == ("mine", made["metadata"]["uid"])
        await api.delete(f"{CLAIMS}/mine")

        async def is_released() -> bool:
            return await phase(api, f"{VOLUMES}/data") == "Released"

        await api.until(is_released)


def test_the_smallest_volume_that_fits_is_chosen() -> None:
    wanted = claim("a", "2Gi", storageClassName="manual")
    volumes = [volume("large", "10Gi"), volume("small", "1Gi"), volume("fits", "2Gi")]
    chosen = chosen_volume(wanted, volumes)
    assert chosen is not None
    assert chosen["metadata"]["name"] == "fits"
    for others in (
        {"storageClassName": "fast"},
        {"accessModes": ["ReadWriteMany"]},
        {"volumeName": "none"},
        {"selector": {"matchLabels": {"disk": "fast"}}},
        {"volumeMode": "Block"},
    ):
        assert chosen_volume(claim("a", "2Gi", **{"storageClassName": "manual", **others}), volumes) is None


def test_a_volume_that_names_a_claim_is_for_it_alone() -> None:
    reserved = volume("data", claimRef={"namespace": "default", "name": "a"})
    wanted = claim("a", storageClassName="manual")
    assert chosen_volume(wanted, [volume("aaa"), reserved]) is reserved
    assert chosen_volume(claim("b", storageClassName="manual"), [reserved]) is None
