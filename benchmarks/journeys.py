"""How many files of edl a change passes through: `python -m benchmarks.journeys`.

Three journeys run for real over loopback, and every file of edl in which a function is called on the way counts: a
serving pod that does not fit, from its watch event until a trainer is deleted; a new TrainingJob, until its trainers
are created; a trainer's request for work, until the lease stands in the journal. `-v` lists the files.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import edl
from edl.clock import SystemClock
from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.explain.decision import decide
from edl.kube.cluster import KubernetesCluster
from edl.kube.leader_election import AlwaysHeld
from edl.kube.master_key import MasterKey
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.limits import Limits
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.starts import startable
from tests.kube.writer_on_fake_api import WritableApi
from tests.worlds.fake_api import connected, eventually
from tests.worlds.master_server import serving

ROOT = Path(edl.__file__).parent
JOBS = "/apis/paddlepaddle.org/v1/trainingjobs"
JOBS_OF_ADS = "/apis/paddlepaddle.org/v1/namespaces/ads/trainingjobs"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
QUIET_S = 1.5  # the first plan is over by then
Object = dict[str, Any]


@contextmanager
def journey(name: str) -> Iterator[None]:
    """Print how many files of edl have a function that was called meanwhile, in any thread."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    own = sorted(str(Path(f).relative_to(ROOT)) for f in files if f.startswith(f"{ROOT}/"))
    print(f"{name:<46} {len(own):3d} files in {len({f.split('/')[0] for f in own})} packages")
    if "-v" in sys.argv:
        print("   ", " ".join(own))


def node(name: str) -> Object:
    """A node of six cores."""
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "6", "memory": "16Gi", "pods": "110"}, "conditions": ready},
    }


def serving_pod(name: str) -> Object:
    """A pod of three cores that kube-scheduler could not place."""
    tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {"name": name, "namespace": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}], "priority": 0},
        "status": {"phase": "Pending", "conditions": [tried]},
    }


def training_job() -> Object:
    """A job that could fill the node."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    trainer = {"entrypoint": "train", "min-instance": 1, "max-instance": 4, "resources": resources}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "ctr", "namespace": "ads", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"image": "i", "fault_tolerant": True, "trainer": trainer},
    }


def trainer_pod(index: int) -> Object:
    """A trainer of the job that runs on the node."""
    labels = {f"paddlepaddle.org/{k}": v for k, v in (("job", "ctr"), ("role", "trainer"), ("index", str(index)))}
    return {
        "metadata": {"name": f"ctr-trainer-{index}", "namespace": "ads", "labels": labels},
        "spec": {
            "containers": [{"name": "trainer", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            "nodeName": "n1",
        },
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    }


@asynccontextmanager
async def controlled(api: WritableApi) -> AsyncIterator[None]:
    """A controller at work on what the server holds."""
    clock = SystemClock()
    async with connected(api) as session:
        key = MasterKey(Path(tempfile.mkdtemp()) / "key", session, "paddlecloud")
        cache = ClusterCache(session, clock, default_master_image="m")
        writer = Writer(session, cache, clock, key=key, default_master_image="m", max_grace_s=600)
        controller = Controller(
            cluster=KubernetesCluster(cache, writer, clock),
            clock=clock,
            lease=AlwaysHeld(),
            recorder=ControllerRecorder(Metrics(), policy=""),
            planner=Planner(
                lambda snapshot, limits: decide(snapshot, policy_named(""), limits),
                check,
                startable,
            ),
            limits=Limits(deadline_s=30.0),
        )
        tasks = (asyncio.create_task(cache.run()), asyncio.create_task(controller.run(asyncio.Event())))
        try:
            await eventually(lambda: cache.is_synced)
            await asyncio.sleep(QUIET_S)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class OneStore(WritableApi):
    """Shows an object of a namespace in the collection of all namespaces, too, as a real server does."""

    def put(self, path: str, obj: Object) -> Object:
        """Create or replace an object in both collections, with one version."""
        stored = super().put(path, obj)
        if "/namespaces/" in path:
            before, _, after = path.partition("/namespaces/")
            everywhere = f"{before}/{after.partition('/')[2]}"
            key = (stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
            old = self.objects[everywhere].get(key) if everywhere in self.objects else None
            self.objects.setdefault(everywhere, {})[key] = stored
            self.history.append((self.revision, everywhere, "MODIFIED" if old else "ADDED", stored, old))
        return stored


def cluster() -> OneStore:
    """One node and nothing on it."""
    api = OneStore()
    others = ("/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/apps/v1/daemonsets", STORAGE)
    api.objects = {path: {} for path in (PODS, NODES, JOBS, *others)}
    api.put(NODES, node("n1"))
    return api


async def pod_event() -> None:
    """Serving takes a node back from a job that fills it."""
    api = cluster()
    api.put(JOBS, training_job())
    for index in range(4):
        api.put(PODS, trainer_pod(index))
    async with controlled(api):
        with journey("pod event -> first write to a trainer"):
            api.put(PODS, serving_pod("api-7"))
            await eventually(lambda: any("ctr-trainer" in path for _, path, _ in api.requests), timeout_s=30)


async def new_job() -> None:
    """A job gets the trainers that it asks for."""
    api = cluster()
    async with controlled(api):
        with journey("max-instance -> created trainer"):
            api.put(JOBS_OF_ADS, training_job())
            await eventually(
                lambda: any(m == "POST" and path.endswith("/pods") for m, path, _ in api.requests), timeout_s=30
            )


async def master_journey() -> None:
    """A trainer asks for work."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder)) as served:
            with journey("lease -> journal"):
                await served.sync("t-0", 1, want=1)


def main() -> None:
    """Run all of them."""
    asyncio.run(pod_event())
    asyncio.run(new_job())
    asyncio.run(master_journey())


if __name__ == "__main__":
    main()
