"""The walks of docs/architecture.md: few files, functions that exist, and called in the order in which they stand."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec
import pytest

from edl.clock import SystemClock
from edl.controller import early_evictions
from edl.controller.loop import Controller
from edl.controller.policy_planner import planner_of
from edl.kube.client.session import ApiSession
from edl.kube.cluster import KubernetesCluster
from edl.kube.leader_election import AlwaysHeld
from edl.kube.master_key import MasterKey
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.limits import Limits
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.planner.policies.registry import policy_named
from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.scheduler.scheduler import Scheduler
from edl.sandbox.stack import install
from edl.worker import connect
from tests.e2e.control_plane.nodes import make_nodes, manifest
from tests.e2e.sandbox.hollow import HollowNodes, Pace
from tests.worlds.master_server import TOKEN, serving

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MOST_FILES = 12
WALKS = (
    "From an edited maximum to a new trainer",
    "From a pending serving pod to an evicted trainer",
    "From a training loop to a leased shard",
)
STEP = re.compile(r"(?m)^\d+\. `(edl/[\w/]+\.py)`((?:, `[\w.]+`)+): ")
WAIT_S = 300.0
PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs"


class Call(NamedTuple):
    """A function of a walk."""

    file: str
    name: str

    @property
    def code(self) -> CodeType:
        found: Any = importlib.import_module(self.file.removesuffix(".py").replace("/", "."))
        for part in self.name.split("."):
            found = getattr(found, part)
        code = found.__code__
        assert isinstance(code, CodeType)
        return code


def walk(head: str) -> list[Call]:
    """The functions of a walk, in their order."""
    text = PAGE.read_text().partition(f"\n### {head}\n")[2]
    steps = STEP.findall(re.split(r"(?m)^##", text)[0])
    return [Call(file, name) for file, names in steps for name in re.findall(r"`([\w.]+)`", names)]


def handing_on(head: str) -> set[str]:
    """The files that hand calls of a walk on, as the page names them below it."""
    text = PAGE.read_text().partition(f"\n### {head}\n")[2].partition("\n### ")[0]
    return set(re.findall(r"`(edl/[\w/]+\.py)`", text.partition("\nHanded on by ")[2]))


class Noted(list[Call]):
    """Calls in their order.

    Attributes:
        ways: for each of them, the other files of edl through which it was called once those before it had been, the
            fewest of all times.
    """

    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self._calls, self._files = calls, {call.file for call in calls}
        self.ways: dict[Call, set[str]] = {}

    def note(self, call: Call, frame: FrameType | None) -> None:
        self.append(call)
        if not is_walked(self._calls[: self._calls.index(call)], self):
            return
        way = set()
        while frame is not None:
            way.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/"))
            frame = frame.f_back
        way = {file for file in way if file.startswith("edl/")} - self._files
        if "edl/sandbox/informer.py" not in way and len(way) < len(self.ways.get(call, range(1000))):
            self.ways[call] = way


@contextmanager
def called(calls: list[Call]) -> Iterator[Noted]:
    """Note each of these calls, in all threads that begin during the block; each call is noted each time."""
    wanted = {id(call.code): call for call in calls}
    noted = Noted(calls)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (call := wanted.get(id(frame.f_code))) is not None:
            noted.note(call, frame)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield noted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def is_walked(calls: list[Call], noted: list[Call]) -> bool:
    """True if the calls of a walk are among the noted ones, in this order."""
    rest = iter(noted)
    return all(call in rest for call in calls)


def in_order(calls: list[Call], noted: list[Call]) -> str:
    """The first call of a walk that is not among the noted ones after those before it; empty if there is none."""
    last = next((n for n in range(len(calls)) if not is_walked(calls[: n + 1], noted)), None)
    return (
        "" if last is None else f"{calls[last]} was not called after {calls[last - 1] if last else 'the beginning'}"
    )


@pytest.mark.parametrize("head", WALKS)
def test_a_walk_has_few_files_and_names_functions_that_exist(head: str) -> None:
    calls = walk(head)
    assert len({call.file for call in calls}) <= MOST_FILES
    assert len(calls) > 8
    for call in calls:
        assert (ROOT / call.file).is_file(), call
        assert Path(call.code.co_filename) == ROOT / call.file, call


class Cluster:
    """An API server with hollow nodes, a scheduler, and edl's controller in this process."""

    def __init__(self, session: ApiSession) -> None:
        self.session = session

    async def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.json.decode(await self.session.get(PODS))["items"]
        return found

    async def running(self, number: int) -> bool:
        return len([pod for pod in await self.pods() if pod["status"].get("phase") == "Running"]) >= number

    async def has_status(self, **fields: object) -> bool:
        job = msgspec.json.decode(await self.session.get(f"{JOBS}/train"))
        status = job.get("status", {})
        return all(status.get(name) == value for name, value in fields.items())

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not await holds():  # noqa: ASYNC110 - the server is asked, and has no event for it
                await asyncio.sleep(0.05)


def training_job(most: int) -> dict[str, Any]:
    amounts = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "train"},
        "spec": {
            "image": "trainer",
            "fault_tolerant": True,
            "master": {"resources": small},
            "trainer": {"entrypoint": "train", "min-instance": 1, "max-instance": most, "resources": amounts},
        },
    }


@asynccontextmanager
async def cluster(folder: Path, cpu: str, most: int) -> AsyncIterator[Cluster]:
    """A cluster with one node, on which the job runs with all its trainers."""
    path, clock = folder / "kubeconfig", SystemClock()
    async with ApiServer() as server:
        server.write_kubeconfig(path)
        async with await ApiSession.open(str(path)) as session, await ApiSession.open(str(path)) as mine:
            await install(session)
            await session.request("DELETE", "/apis/storage.k8s.io/v1/storageclasses/folder")  # no claims without it
            (node,) = make_nodes(1, cpu=cpu)
            await session.post("/api/v1/nodes", manifest(node, 0))
            await session.post(JOBS, training_job(most))
            cache = ClusterCache(mine, clock, default_master_image="master", controller_namespace="paddlecloud")
            key = MasterKey(folder / "key", mine, "paddlecloud")
            writer = Writer(mine, cache, clock, key=key, default_master_image="master", max_grace_s=600)
            controller = Controller(
                cluster=KubernetesCluster(cache, writer, clock),
                clock=clock,
                lease=AlwaysHeld(),
                recorder=ControllerRecorder(Metrics(), policy="maxmin"),
                planner=planner_of(policy_named(""), lambda: ()),
                limits=Limits(deadline_s=WAIT_S),
            )
            nodes = HollowNodes(session, Pace(pod_delete_s=0.1, pod_ready_s=0.1, node_grace_s=40.0))
            stop = asyncio.Event()
            parts = [cache.run(), controller.run(stop), Scheduler(session).run(), nodes.run()]
            tasks = [asyncio.create_task(part) for part in parts]
            here = Cluster(session)
            try:
                await here.until(lambda: here.running(1 + most))
                await here.until(lambda: here.has_status(phase="Running"))
                yield here
            finally:
                stop.set()
                await asyncio.gather(tasks[1])
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_edited_maximum_walks_to_a_new_trainer(tmp_path: Path) -> None:
    calls = walk(WALKS[0])
    async with cluster(tmp_path, "8", 1) as here:
        with called(calls) as noted:
            await here.session.patch(f"{JOBS}/train", {"spec": {"trainer": {"max-instance": 2}}})
            await here.until(lambda: here.running(3))
    assert in_order(calls, noted) == ""
    assert set().union(*noted.ways.values()) == handing_on(WALKS[0])


async def test_a_pending_serving_pod_walks_to_an_evicted_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_evictions, "SLOW_S", WAIT_S)  # on a busy machine, too, the plan says who ends
    calls = walk(WALKS[1])
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    web = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"preemptionPolicy": "Never", "containers": [container]},
    }
    async with cluster(tmp_path, "2500m", 2) as here:
        with called(calls) as noted:
            await here.session.post(PODS, web)
            await here.until(lambda: is_bound(here, "web"))
    assert in_order(calls, noted) == ""
    assert set().union(*noted.ways.values()) == handing_on(WALKS[1])


async def is_bound(here: Cluster, name: str) -> bool:
    return any(pod["metadata"]["name"] == name and pod["spec"].get("nodeName") for pod in await here.pods())


async def test_a_training_loop_walks_to_a_leased_shard(tmp_path: Path) -> None:
    calls = walk(WALKS[2])

    def loop(url: str) -> list[int]:
        with connect(url, token=TOKEN, environment={"POD_NAME": "a", "POD_UID": "uid-a"}) as job:
            return sorted(job.records())

    async with serving(tmp_path, "index:10") as served:
        with called(calls) as noted, ThreadPoolExecutor(1) as fresh:  # a thread that begins here
            records = await asyncio.get_running_loop().run_in_executor(fresh, loop, served.url)
    assert records == list(range(10))
    assert in_order(calls, noted) == ""


def test_an_order_that_is_not_kept_is_found() -> None:
    first, second = Call("a.py", "a"), Call("b.py", "b")
    assert is_walked([first, second], [second, first, first, second])
    assert in_order([first, second], [second, first]) == f"{second} was not called after {first}"
    assert in_order([first, second], [second]) == f"{first} was not called after the beginning"
