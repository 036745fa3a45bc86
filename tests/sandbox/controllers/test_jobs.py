"""`batch/v1` Jobs on an embedded API server: their number of pods, their end, and which pods go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from edl.sandbox.controllers.jobs import JobController
from edl.sandbox.controllers.loop import Informers
from tests.sandbox.controllers.conftest import Api

Object = dict[str, Any]
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def keeping(api: Api) -> AsyncIterator[None]:
    """The controller at work."""
    informers = Informers(api.session, ["Pod", "Job"])
    tasks = (asyncio.create_task(informers.run()), asyncio.create_task(JobController(api.session, informers).run()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def job(**spec: Any) -> Object:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    metadata = {"name": "train", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


async def live(api: Api) -> list[str]:
    """The names of the pods that are not finished, oldest first."""
    pods = (await api.get(PODS))["items"]
    unfinished = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}]
    return [
        pod["metadata"]["name"] for pod in sorted(unfinished, key=lambda p: int(p["metadata"]["resourceVersion"]))
    ]


async def set_phase(api: Api, name: str, phase: str) -> None:
    await api.session.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})


async def until_live(api: Api, count: int) -> list[str]:
    async def holds() -> bool:
        return len(await live(api)) == count

    await api.until(holds)
    return await live(api)


async def until_status(api: Api, **fields: int) -> Object:
    async def holds() -> bool:
        status = (await api.get(f"{JOBS}/train")).get("status") or {}
        return all((status.get(key) or 0) == value for key, value in fields.items())

    await api.until(holds)
    return dict((await api.get(f"{JOBS}/train"))["status"])


def conditions(status: Object) -> set[str]:
    return {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}


async def test_a_job_follows_its_parallelism_and_a_resize_is_no_failure(api: Api) -> None:
    async with keeping(api):
        await api.create(JOBS, job(parallelism=3))
        names = await until_live(api, 3)
        await set_phase(api, names[0], "Running")
        await api.session.patch(f"{JOBS}/train", {"spec": {"parallelism": 1}})
        assert await until_live(api, 1) == [names[0]], "pods that do not run go first"
        await api.session.patch(f"{JOBS}/train", {"spec": {"parallelism": 4}})
        await until_live(api, 4)
        await until_status(api, active=4, failed=0)


async def test_a_work_queue_of_which_a_pod_has_succeeded_keeps_the_others(api: Api) -> None:
    async with keeping(api):
        await api.create(JOBS, job(parallelism=3))
        names = await until_live(api, 3)
        await set_phase(api, names[0], "Succeeded")
        await until_status(api, succeeded=1, active=2)
        await api.session.patch(f"{JOBS}/train", {"spec": {"parallelism": 1}})
        for name in names[1:]:
            assert name in await live(api)
            await set_phase(api, name, "Succeeded")
        assert "Complete" in conditions(await until_status(api, succeeded=3, active=0))


async def test_no_more_pods_than_completions_that_remain(api: Api) -> None:
    async with keeping(api):
        await api.create(JOBS, job(parallelism=2, completions=3))
        for done in range(3):
            names = await until_live(api, min(2, 3 - done))
            await set_phase(api, names[0], "Succeeded")
            await until_status(api, succeeded=done + 1)
        status = await until_status(api, active=0)
        assert "Complete" in conditions(status)
        assert status["completionTime"]


async def test_indexes_are_given_once_and_the_highest_go_with_the_completions(api: Api) -> None:
    async with keeping(api):
        await api.create(JOBS, job(parallelism=3, completions=3, completionMode="Indexed"))
        await until_live(api, 3)
        await api.session.patch(f"{JOBS}/train", {"spec": {"parallelism": 2, "completions": 2}})
        names = await until_live(api, 2)
        assert sorted(name.split("-")[1] for name in names) == ["0", "1"]


async def test_a_job_with_too_many_failures_fails(api: Api) -> None:
    async with keeping(api):
        await api.create(JOBS, job(parallelism=1, backoffLimit=1))
        for failed in range(2):
            (name,) = await until_live(api, 1)
            await set_phase(api, name, "Failed")
            await until_status(api, failed=failed + 1)
        assert "Failed" in conditions(await until_status(api, active=0))


async def test_a_suspended_job_has_no_pods(api: Api) -> None:
    async with keeping(api):
        await api.create(JOBS, job(parallelism=2))
        await until_live(api, 2)
        await api.session.patch(f"{JOBS}/train", {"spec": {"suspend": True}})
        await until_live(api, 0)
        assert "Suspended" in conditions(await until_status(api, active=0, failed=0))
