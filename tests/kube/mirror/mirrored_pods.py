"""Pods of a fake API server, mirrored by a reflector."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from edl.kube.client.session import ApiSession
from edl.kube.mirror.reflector import Reflector, ReflectorCalls, ReflectorPace, Resource
from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import PODS
from edl.kube.translate.objects import PodObject
from tests.worlds.fake_api import FakeApi, FakeClock, connected, eventually

PATH = "/api/v1/pods"


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a"}, "status": status}


@dataclass
class Mirror:
    api: FakeApi
    clock: FakeClock
    store: ObjectStore[PodObject]
    reflector: Reflector[PodObject]
    changes: list[int]
    task: asyncio.Task[None]

    def names(self) -> list[str]:
        return sorted(name for _, name in self.store.objects)

    async def shows(self, *names: str) -> None:
        await eventually(lambda: self.names() == sorted(names) and self.reflector.synced.is_set())


@asynccontextmanager
async def mirrored(
    api: FakeApi, pace: ReflectorPace | None = None, resource: Resource | None = None
) -> AsyncIterator[Mirror]:
    async with connected(api) as session:
        mirror = _mirror(api, session, pace or ReflectorPace(), resource or Resource(PATH))
        try:
            yield mirror
        finally:
            mirror.task.cancel()
            with suppress(asyncio.CancelledError):
                await mirror.task


def _mirror(api: FakeApi, session: ApiSession, pace: ReflectorPace, resource: Resource) -> Mirror:
    clock, store, changes = FakeClock(), ObjectStore[PodObject](), list[int]()
    reflector = Reflector(
        session,
        resource,
        PODS,
        store,
        clock,
        pace=pace,
        rng=random.Random(1),  # noqa: S311 - jitter that repeats
        calls=ReflectorCalls(on_change=lambda: changes.append(len(store.objects))),
    )
    return Mirror(api, clock, store, reflector, changes, asyncio.ensure_future(reflector.run()))


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()
