"""A large cluster without an API server: it is listed from memory, and each write comes back on a watch.

A write takes 20 ms, and eight are carried out at once, as on a busy server. Pods of jobs run as soon as they are
created, and deleted ones are gone at once. A serving pod is bound once a node has the CPU for it, as kube-scheduler
does it, so one that comes where a trainer has just ended waits for nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from benchmarks.loop_stalls import Memory
from benchmarks.one_round import job, pods_of_jobs, raw, serving_pod
from edl.api.pods import pod_manifest
from edl.api.v1 import parse_job
from edl.clock import SystemClock
from edl.kube.client.session import ApiSession
from edl.kube.mirror.cache import ClusterCache
from edl.kube.translate.status_body import status_body
from edl.model.actions import Action, CreatePod, DeletePod, Outcome, PatchStatus, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.quantity import parse_quantity
from edl.model.resources import CPU
from tests.e2e.control_plane.nodes import NodeSpec, manifest

SERVING, TRAINERS, WANTED, NODES_PER_JOB = 8, 9, 14, 5
NODE = {"cpu": "10.3", "memory": "64Gi", "pods": "110"}
WIDE = "2200m"  # of a serving pod: more than a node has free at first, and less than without its trainers
WRITE_S, AT_ONCE = 0.02, 8
IMAGE = "example/edl"
JOBS, PODS, OWN = "/apis/paddlepaddle.org/v1/trainingjobs", "/api/v1/pods", "/api/v1/pods own"
RUNS = {"phase": "Running", "startTime": "2026-11-22T10:00:00Z"}
TRIED = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
ADMITTED = {
    "phase": "Running",
    "observedGeneration": 1,
    "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-22T10:00:00Z"}],
}
"""A controller of before has written that: one that starts asks the API server about new jobs only."""
Object = dict[str, Any]
_WIDE_MILLI = parse_quantity(WIDE, CPU)


class World:
    """The objects: ten pods on each node, a job for five nodes, and each job wants half as many trainers more.

    Attributes:
        jobs: by name.
        serving: some of the serving pods.
        pods: how many there are.
        free: the CPU that each node has free, in millicores.
        held: by name of a pod that may end: its node, and its CPU in millicores.
    """

    def __init__(self, nodes: int) -> None:
        names = [f"node-{number:05}" for number in range(nodes)]
        each = parse_quantity(NODE[CPU], CPU) - SERVING * parse_quantity("1", CPU)
        self.free, self.held = dict.fromkeys(names, each), dict[str, tuple[str, int]]()
        bodies = [job(f"job-{number:05}") for number in range(max(1, nodes // NODES_PER_JOB))]
        for body in bodies:
            body["spec"]["trainer"]["max-instance"] = WANTED
            body["status"] = ADMITTED
        of_jobs = raw(bodies)
        own = list(pods_of_jobs(bodies, names, TRAINERS))
        for number, pod in enumerate(own):
            self.bind(pod, names[number % nodes])
        serving = [serving_pod(f"web-{name}-{k}", name) for name in names for k in range(SERVING)]
        for pod in serving:
            pod["status"] = RUNS
        self.collections = {
            JOBS: of_jobs,
            "/api/v1/nodes": raw([manifest(NodeSpec(name, NODE), number) for number, name in enumerate(names)]),
            PODS: raw(serving),
            OWN: raw(own),
        }
        self.jobs = {str(body["metadata"]["name"]): body for body in bodies}
        self.serving, self.pods = serving[:1000], len(serving) + len(own)

    def bind(self, pod: Object, node: str) -> None:
        """Let a pod run on a node."""
        requests = (container["resources"]["requests"] for container in pod["spec"]["containers"])
        milli = sum(parse_quantity(request[CPU], CPU) for request in requests)
        self.held[pod["metadata"]["name"]] = node, milli
        self.free[node] -= milli
        pod["spec"]["nodeName"], pod["status"] = node, RUNS

    def end(self, name: str) -> None:
        """A pod ends, if it runs."""
        if (held := self.held.pop(name, None)) is not None:
            node, milli = held
            self.free[node] += milli

    def node_for(self, milli: int) -> str:
        """A node with so much free CPU; empty if there is none."""
        return next((node for node, free in self.free.items() if free >= milli), "")


class Watches(Memory):
    """A session from memory whose watches bring every line that was sent, in turn."""

    def __init__(self, collections: Mapping[str, list[bytes]]) -> None:
        super().__init__(collections)
        self._sent: dict[str, asyncio.Queue[bytes]] = {}
        self._versions = itertools.count(10)

    def bring(self, what: str, kind: str, body: Object) -> None:
        """Send an event of an object, in a new version, on the watch of a collection."""
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self._queue(what).put_nowait(msgspec.json.encode({"type": kind, "object": body}))

    def _queue(self, what: str) -> asyncio.Queue[bytes]:
        return self._sent.setdefault(what, asyncio.Queue())

    async def _lines(self, key: str) -> AsyncIterator[bytes]:
        while True:
            yield await self._queue(key).get()


class Echoing:
    """The Cluster port of a controller: what it writes comes back on a watch.

    Attributes:
        cache: the mirror.
        watches: what it lists and watches.
        writes: when each write arrived, in monotonic seconds, with the action.
        waiting: the serving pods without a node, by name.
    """

    def __init__(self, world: World) -> None:
        self._world, self._clock, self._places = world, SystemClock(), asyncio.Semaphore(AT_ONCE)
        self.watches = Watches(world.collections)
        self.cache = ClusterCache(cast("ApiSession", self.watches), self._clock)
        self.writes: list[tuple[float, Action]] = []
        self.waiting: dict[str, Object] = {}
        self._wide: list[str] = []
        self._new = asyncio.Event()

    async def observe(self) -> ClusterSnapshot:
        """See `KubernetesCluster.observe`."""
        await self.cache.translate(self._clock.now_s())
        await self.cache.wait_for_change(0.0, debounce_s=0.0)
        return self.cache.snapshot(self._clock.now_s())

    async def wait_for_change(self, timeout_s: float) -> bool:
        """See `KubernetesCluster.wait_for_change`."""
        return await self.cache.wait_for_change(timeout_s, debounce_s=0.0)

    def urgent_changes(self) -> frozenset[str]:
        """See `KubernetesCluster.urgent_changes`."""
        return self.cache.urgent_changes()

    async def apply(self, action: Action) -> Outcome:
        """Carry out a write, and let a watch bring it."""
        self.writes.append((time.monotonic(), action))
        self._new.set()
        async with self._places:
            await asyncio.sleep(WRITE_S)
        return Outcome(action, Result.DONE if self._echo(action) else Result.UNCHANGED)

    def _echo(self, action: Action) -> bool:
        body = self._world.jobs[action.job.name]
        if isinstance(action, PatchStatus):
            body["status"] = body.get("status", {}) | status_body(action.status)
            self.watches.bring(JOBS, "MODIFIED", body)
        elif isinstance(action, CreatePod):
            pod = pod_manifest(
                parse_job(body), action.role, action.index, default_master_image=IMAGE, priority_classes=()
            )
            pod["metadata"] |= {"uid": f"{action.pod_name}-{len(self.writes)}", "creationTimestamp": _now()}
            self._world.bind(pod, action.node or "")
            self.watches.bring(OWN, "ADDED", pod)
        elif isinstance(action, DeletePod):
            metadata = {"name": action.pod, "namespace": action.job.namespace, "uid": action.pod_uid}
            self.watches.bring(OWN, "DELETED", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
            self._world.end(action.pod)
            self._schedule()
        else:
            return False
        return True

    async def after(
        self,
        happen: Callable[[], None],
        is_about: Callable[[Action], bool],
        limit_s: float,
        is_over: Callable[[], bool] = lambda: False,
    ) -> float:
        """Let something happen; returns the seconds until the first write about it, at most `limit_s`.

        Args:
            happen: lets it happen.
            is_about: whether a write is about it.
            limit_s: how long to wait.
            is_over: whether nobody waits for a write about it any more.
        """
        began_s, seen = time.monotonic(), len(self.writes)
        happen()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    self._new.clear()
                    for at_s, action in self.writes[seen:]:
                        seen += 1
                        if is_about(action):
                            return at_s - began_s
                    if is_over():
                        return time.monotonic() - began_s
                    await self._new.wait()
        return limit_s

    async def silence(self, quiet_s: float) -> None:
        """Wait until nothing was written for so long."""
        while True:
            self._new.clear()
            try:
                async with asyncio.timeout(quiet_s):
                    await self._new.wait()
            except TimeoutError:
                return

    def job_comes(self, name: str) -> None:
        """A job arrives."""
        body = job(name)
        body["metadata"] |= {"uid": name, "creationTimestamp": _now(), "generation": 1}
        self._world.jobs[name] = body
        self.watches.bring(JOBS, "ADDED", body)

    def serving_comes(self, name: str) -> None:
        """A serving pod arrives that fits nowhere and preempts nobody; others come before it where it would fit."""
        for number in itertools.count():
            if not self._world.node_for(_WIDE_MILLI):
                break
            self._serving_comes(f"{name}-{number}")
        self._serving_comes(name)

    def _serving_comes(self, name: str) -> None:
        pod = serving_pod(name, "")
        pod["spec"] |= {"preemptionPolicy": "Never", "priority": 10}
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = WIDE
        pod["metadata"] |= {"uid": name, "creationTimestamp": _now()}
        pod["status"] = TRIED
        self.waiting[name] = pod
        self._wide.append(name)
        self.watches.bring(PODS, "ADDED", pod)
        self._schedule()

    def _schedule(self) -> None:
        """Bind the serving pods that a node has the CPU for now."""
        for name, pod in list(self.waiting.items()):
            if node := self._world.node_for(_WIDE_MILLI):
                self._world.bind(pod, node)
                del self.waiting[name]
                self.watches.bring(PODS, "MODIFIED", pod)
                self._new.set()

    def serving_goes(self) -> None:
        """All serving pods that came are deleted."""
        for name in self._wide:
            self.waiting.pop(name, None)
            self._world.end(name)
            metadata = {"name": name, "namespace": "default", "uid": name}
            self.watches.bring(PODS, "DELETED", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        self._wide.clear()

    def job_changes(self, name: str, most: int) -> None:
        """The maximum of a job changes."""
        body = self._world.jobs[name]
        body["spec"]["trainer"]["max-instance"] = most
        body["metadata"]["generation"] = body["metadata"].get("generation", 1) + 1
        self.watches.bring(JOBS, "MODIFIED", body)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
