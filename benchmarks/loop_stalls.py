"""What holds up the event loop of a controller, and for how long: `python -m benchmarks.loop_stalls [--nodes 5000]`.

The loop renews the lease, so nothing on it may take long. The cache lists a large cluster from memory, without an API
server, and the controller decides and writes; no write has an effect. Prints the longest steps on the loop, in CPU
seconds of its thread, with the line at which each step ended.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import CoroutineType
from typing import cast
from unittest.mock import patch

import msgspec

from benchmarks.one_round import LIMITS, NODES_PER_JOB, SERVING, job, planned, pods_of_jobs, raw, serving_pod
from edl.clock import SystemClock
from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.dashboard.feed import Feed
from edl.dashboard.live import Live
from edl.explain.decision import decide
from edl.kube.client.session import ApiSession
from edl.kube.leader_election import AlwaysHeld
from edl.kube.mirror.cache import ClusterCache
from edl.model.actions import Action, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.starts import startable
from tests.e2e.control_plane.nodes import NodeSpec, manifest
from tests.e2e.scale.process import Usage

PAGE = 500
SHOWN = 12


class Memory:
    """The part of a session that a cache needs; it lists from memory, and its watches bring one event each."""

    def __init__(self, collections: Mapping[str, list[bytes]]) -> None:
        self._collections = collections
        self._event = asyncio.Event()
        self.change: dict[str, bytes] = {}

    def send(self, what: str, line: bytes) -> None:
        """Send a line on the watch of a collection."""
        self.change[what] = line
        self._event.set()

    async def list(
        self, path: str, *, params: Mapping[str, str], limit: int, continue_: str, timeout_s: float, max_bytes: int
    ) -> bytes:
        """A page, which comes from a network: other tasks get their turn."""
        del limit, timeout_s, max_bytes
        await asyncio.sleep(0)
        found, begin = self._collections.get(_key(path, params), []), int(continue_ or 0)
        page, after = found[begin : begin + PAGE], begin + PAGE
        token = f',"continue":"{after}"' if after < len(found) else ""
        return b'{"metadata":{"resourceVersion":"9"%s},"items":[%s]}' % (token.encode(), b",".join(page))

    @asynccontextmanager
    async def watch(
        self, path: str, *, params: Mapping[str, str], **_: object
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch."""
        yield self._lines(_key(path, params))

    async def _lines(self, key: str) -> AsyncIterator[bytes]:
        while True:
            await self._event.wait()
            if key in self.change:
                yield self.change.pop(key)
            await asyncio.sleep(0.01)


class Nothing:
    """The Cluster port with a cache that observes and writes that change nothing."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache, self._clock = cache, SystemClock()

    async def observe(self) -> ClusterSnapshot:
        """See `KubernetesCluster.observe`."""
        await self._cache.translate(self._clock.now_s())
        await self._cache.wait_for_change(0.0, debounce_s=0.0)
        return self._cache.snapshot(self._clock.now_s())

    async def wait_for_change(self, timeout_s: float) -> bool:
        """See `KubernetesCluster.wait_for_change`."""
        return await self._cache.wait_for_change(timeout_s, debounce_s=0.0)

    def urgent_changes(self) -> frozenset[str]:
        """See `KubernetesCluster.urgent_changes`."""
        return self._cache.urgent_changes()

    async def apply(self, action: Action) -> Outcome:
        """Take no time, and change nothing."""
        await asyncio.sleep(0)
        return Outcome(action, Result.UNCHANGED)


@contextmanager
def watched() -> Iterator[list[tuple[float, str]]]:
    """Measure each step on the event loop; yields (CPU seconds, where) of each."""
    steps: list[tuple[float, str]] = []
    run = Handle._run  # noqa: SLF001 - asyncio offers no other place at which every step passes

    def measured(handle: Handle) -> None:
        began_s = time.thread_time()
        run(handle)
        steps.append((time.thread_time() - began_s, _where(handle)))

    with patch.object(Handle, "_run", measured):
        yield steps


def _where(handle: Handle) -> str:
    """The line of edl at which a step ended: where the innermost of its coroutines waits now."""
    task = getattr(getattr(handle, "_callback", None), "__self__", None)
    if not isinstance(task, asyncio.Task):
        return str(getattr(handle, "_callback", ""))[:80]
    found = "its end"
    one: object = task.get_coro()
    outermost = getattr(one, "__qualname__", "")
    while isinstance(one, CoroutineType) and one.cr_frame is not None:
        if "/edl/" in one.cr_code.co_filename:
            found = f"{one.__qualname__}:{one.cr_frame.f_lineno}"
        one = one.cr_await
    return f"{outermost} at {found}"


def _key(path: str, params: Mapping[str, str]) -> str:
    selector = params.get("labelSelector", "")
    return path + (" own" if selector and not selector.startswith("!") else "")


def cluster(nodes: int) -> dict[str, list[bytes]]:
    """Every collection as the API server sends it."""
    names = [f"node-{number:04}" for number in range(nodes)]
    room = {"cpu": "13", "memory": "64Gi", "pods": "110"}
    jobs = [job(f"job-{number:04}") for number in range(max(1, nodes // NODES_PER_JOB))]
    return {
        "/apis/paddlepaddle.org/v1/trainingjobs": raw(jobs),
        "/api/v1/nodes": raw([manifest(NodeSpec(name, room), number) for number, name in enumerate(names)]),
        "/api/v1/pods": raw([serving_pod(f"web-{name}-{k}", name) for name in names for k in range(SERVING)]),
        "/api/v1/pods own": raw(list(pods_of_jobs(jobs, names))),
    }


async def play(collections: dict[str, list[bytes]]) -> None:
    """List everything, decide, let a pod come, and decide again."""
    clock, memory = SystemClock(), Memory(collections)
    cache = ClusterCache(cast("ApiSession", memory), clock)
    policy = policy_named("maxmin")
    page = Live(clock, Feed(), planned)
    controller = Controller(
        cluster=Nothing(cache),
        clock=clock,
        lease=AlwaysHeld(),
        recorder=ControllerRecorder(Metrics(), policy=policy.name, onlooker=page),
        planner=Planner(lambda snapshot, limits: decide(snapshot, policy, limits), check, startable),
        limits=Limits(deadline_s=10 * LIMITS.deadline_s),
    )
    mirroring = asyncio.ensure_future(cache.run())
    await cache.wait_until_synced()
    await asyncio.sleep(1.0)
    for number in range(3):
        print(f"round {number}: {await controller.round()}", flush=True)
        pod = serving_pod(f"late-{number}", "")
        event = msgspec.json.encode({"type": "ADDED", "object": msgspec.json.decode(raw([pod])[0])})
        memory.send("/api/v1/pods", event)
        await asyncio.sleep(0.1)
    mirroring.cancel()
    await asyncio.gather(mirroring, return_exceptions=True)


def main() -> None:
    """Print the longest steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=5000)
    options = parser.parse_args()
    collections = cluster(options.nodes)
    before = Usage.of(os.getpid())
    with watched() as steps:
        asyncio.run(play(collections))
    more_mib = Usage.of(os.getpid()).peak_mib - before.rss_mib
    print(f"memory for {sum(map(len, collections.values()))} objects: {more_mib:.0f} MiB at most")
    for seconds, where in sorted(steps, reverse=True)[:SHOWN]:
        print(f"{seconds:7.3f} s  {where}")


if __name__ == "__main__":
    main()
