"""A cluster for the page: nodes, two jobs, serving pods, on the small API server of `fake_api`; and its page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from edl.dashboard.serve import Address, PageSettings, serve_page
from tests.worlds import raw_objects as raw
from tests.worlds.fake_api import FakeApi, Object, connected

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
JOBS = "/apis/paddlepaddle.org/v1/trainingjobs"
_RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no node has enough free cpu",
    "lastTransitionTime": "2026-01-05T10:00:00Z",
}
_REFUSED = {"phase": "Pending", "conditions": [_UNSCHEDULABLE]}
HOSTILE = "<img src=x onerror=alert(1)>'\"&;${7*7}"

PASTED = """apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: new, namespace: ads}
spec:
  fault_tolerant: true
  trainer: {min-instance: 2, max-instance: 4, entrypoint: x, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""


@dataclass(frozen=True, slots=True)
class PageCluster:
    """The API server, and where its page is served."""

    api: FakeApi
    address: Address

    def start_trainer(self, index: int, *, job: str = "ctr", node: str = "n000") -> None:
        """Let a trainer run."""
        self.api.put(PODS, trainer(index, job=job, node=node))

    def start_serving(self, name: str, *, node: str = "n001", cpu: str = "2") -> None:
        """Let a serving pod run."""
        self.api.put(PODS, serving(name, node=node, cpu=cpu))


def node(name: str) -> Object:
    return {**raw.node(name), "apiVersion": "v1"}


def job(name: str, *, least: int = 1, most: int = 8) -> Object:
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec = {"trainer": {"min-instance": least, "max-instance": most, "entrypoint": "x", "resources": requests}}
    return raw.job(name, uid=f"uid-{name}", spec=spec, status={"phase": "Running"})


def trainer(index: int, *, job: str = "ctr", node: str = "n000") -> Object:
    spec = {"nodeName": node, "containers": [raw.container("1", "1Gi")]}
    return raw.trainer(index, job=job, owner=raw.owned_by(f"uid-{job}", job), spec=spec, status=_RUNNING)


def serving(name: str, *, node: str = "n001", cpu: str = "2") -> Object:
    spec = {**({"nodeName": node} if node else {}), "containers": [raw.container(cpu, "1Gi")]}
    return raw.pod(name, namespace="web", spec=spec, status=_RUNNING if node else _REFUSED)


def fill(api: FakeApi, *, nodes: int = 4) -> None:
    """Two jobs with five trainers, and two serving pods."""
    for number in range(nodes):
        api.put(NODES, node(f"n{number:03d}"))
    for name in ("ctr", "vision"):
        api.put(JOBS, job(name))
    for index in range(3):
        api.put(PODS, trainer(index))
    for index in range(2):
        api.put(PODS, trainer(index, job="vision", node="n001"))
    for name in ("front-0", "front-1"):
        api.put(PODS, serving(name))


@asynccontextmanager
async def page_of_cluster(
    *, nodes: int = 4, listen: str = "127.0.0.1:0", api: FakeApi | None = None
) -> AsyncIterator[PageCluster]:
    """The page of a filled cluster, or of the given one."""
    server = api or FakeApi()
    if api is None:
        fill(server, nodes=nodes)
    async with connected(server) as session:
        ready: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        serving_task = asyncio.create_task(serve_page(session, PageSettings(listen), ready.set_result))
        try:
            serving_task.add_done_callback(lambda _: ready.cancel())
            await asyncio.wait({ready})
            if serving_task.done():
                serving_task.result()
            yield PageCluster(server, ready.result())
        finally:
            serving_task.cancel()
            await asyncio.gather(serving_task, return_exceptions=True)
