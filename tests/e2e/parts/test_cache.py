"""The cache on a real API server: pages, events, selectors, compaction and the controller's own writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from edl.clock import SystemClock
from edl.errors import ConflictError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError, RefusedError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.cache import ClusterCache
from edl.kube.mirror.reflector import ReflectorPace
from tests.e2e.conftest import ControlPlanes
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.harness import install

PODS = "/api/v1/namespaces/default/pods"
OURS = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "trainer"}


def pod(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "10Mi"}}}
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def job() -> dict[str, Any]:
    trainer = {"entrypoint": "x", "min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": "ctr", "namespace": "default"}
    spec = {"trainer": trainer}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


@asynccontextmanager
async def cached(
    plane: ControlPlane, pace: ReflectorPace | None = None
) -> AsyncIterator[tuple[ApiSession, ClusterCache]]:
    async with await ApiSession.open(str(plane.kubeconfig)) as session:
        cache = ClusterCache(session, SystemClock(), pace=pace)
        task = asyncio.ensure_future(cache.run())
        try:
            async with asyncio.timeout(60):
                await cache.wait_until_synced()
            yield session, cache
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until(cache: ClusterCache, own: list[str], foreign: list[str]) -> None:
    """Wait until the cache shows exactly those pods of the namespace."""

    def shown() -> tuple[list[str], list[str]]:
        snapshot = cache.snapshot(0.0)
        return (
            [p.name for j in snapshot.jobs for p in j.pods],
            [p.name for p in snapshot.pods if p.namespace == "default"],
        )

    async with asyncio.timeout(60):
        while cache.unready() or shown() != (own, foreign):
            await cache.wait_for_change(0.2, debounce_s=0.0)


@pytest.fixture
def plane(control_plane: ControlPlanes) -> ControlPlane:
    started = control_plane("small")
    install(started)
    return started


async def test_the_cache_follows_the_cluster(plane: ControlPlane) -> None:
    async with cached(plane, ReflectorPace(page_items=2)) as (session, cache):
        created = await session.post("/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs", job())
        kind = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob"}
        owner = {**kind, "name": "ctr", "uid": created["metadata"]["uid"], "controller": True}
        owned = pod("ctr-trainer-0", OURS)
        owned["metadata"]["ownerReferences"] = [owner]
        stored = await session.post(PODS, owned)
        cache.answered("Pod", stored)
        for i in range(3):
            await session.post(PODS, pod(f"web-{i}"))
        await until(cache, ["ctr-trainer-0"], ["web-0", "web-1", "web-2"])
        assert len(cache.snapshot(0.0).nodes) == len(plane.kube.list("nodes"))

        labelled = {"labels": {**OURS, "paddle-job": "ctr"}, "ownerReferences": [owner]}
        relabelled = await session.patch(f"{PODS}/web-1", {"metadata": labelled})
        cache.answered("Pod", relabelled)
        await until(cache, ["ctr-trainer-0", "web-1"], ["web-0", "web-2"])
        await session.patch(f"{PODS}/web-1", {"metadata": {"ownerReferences": None}})
        await until(cache, ["ctr-trainer-0"], ["web-0", "web-1", "web-2"])

        uid = relabelled["metadata"]["uid"]
        answer = await session.delete(f"{PODS}/web-1", uid=uid)
        cache.deleted("Pod", ("default", "web-1"), uid, answer)
        assert all(p.terminating for p in cache.snapshot(0.0).pods if p.name == "web-1")
        await until(cache, ["ctr-trainer-0"], ["web-0", "web-2"])
        assert cache.left_out() == []


async def test_the_api_server_refuses_in_words_that_we_understand(plane: ControlPlane) -> None:
    async with await ApiSession.open(str(plane.kubeconfig)) as session:
        stored = await session.post(PODS, pod("p"))
        with pytest.raises(AlreadyExistsError, match='"p" already exists'):
            await session.post(PODS, pod("p"))
        with pytest.raises(ConflictError):
            await session.delete(f"{PODS}/p", uid="another")
        with pytest.raises(ConflictError):
            await session.patch(f"{PODS}/p", {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}})
        with pytest.raises(RefusedError, match="422"):
            await session.post(PODS, pod("Not a Name"))
        await session.delete(f"{PODS}/p", uid=stored["metadata"]["uid"], grace_s=0)
        with pytest.raises(NotFoundError):
            await session.get(f"{PODS}/p")
