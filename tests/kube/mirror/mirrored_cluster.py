"""The cache of a cluster, on a fake API server: objects to put there, and what the cache shows of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from edl.kube.mirror.cache import ClusterCache
from edl.kube.mirror.reflector import ReflectorPace
from tests.worlds.fake_api import FakeApi, FakeClock, connected, eventually

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
JOBS = "/apis/paddlepaddle.org/v1/trainingjobs"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
OURS = {"paddlepaddle.org/job": "ctr"}
QUEUES = "/apis/paddlepaddle.org/v1/queues"
QUOTAS = "/api/v1/resourcequotas"


def pod(name: str, *, labels: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    owner = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": "ctr", "uid": "uid-ctr"}
    owners = [{**owner, "controller": True}] if name.startswith("ctr-") else []
    return {
        "metadata": {
            "name": name,
            "namespace": "ads",
            "labels": labels or {},
            "ownerReferences": owners,
            **metadata,
        },
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    }


def job(name: str = "ctr") -> dict[str, Any]:
    trainer = {"min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name, "namespace": "ads", "uid": f"uid-{name}"}, "spec": {"trainer": trainer}}


@dataclass
class World:
    api: FakeApi
    clock: FakeClock
    cache: ClusterCache

    async def settled(self) -> None:
        """Wait until every collection is listed and watched."""
        watches = 6
        await eventually(lambda: self.cache.is_synced and self.api.count("watch") >= watches)

    def own(self, now_s: float = 0.0) -> list[str]:
        return [p.name for j in self.cache.snapshot(now_s).jobs for p in j.pods]

    def foreign(self) -> list[str]:
        return [p.name for p in self.cache.snapshot(0.0).pods]


@asynccontextmanager
async def world(
    api: FakeApi | None = None, pace: ReflectorPace | None = None, **options: Any
) -> AsyncIterator[World]:
    api, clock = api or FakeApi(), FakeClock()
    async with connected(api) as session:
        cache = ClusterCache(session, clock, pace=pace, **options)
        task = asyncio.ensure_future(cache.run())
        try:
            yield World(api, clock, cache)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
