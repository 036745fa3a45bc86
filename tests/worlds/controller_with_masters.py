"""The controller on fake pods, with real masters: calls over loopback, journals on a disk, real time.

The pods are those of a `PodWorld`. A kubelet of a few lines starts and stops them, and gives a master's pod the
address of a real master. The tests make the calls of trainers themselves, one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kubernetes.aio.client import Configuration

from edl.clock import SystemClock
from edl.controller.loop import Controller, Partners
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.explain.decision import decide
from edl.kube.client.session import ApiSession
from edl.kube.master_client import HttpMasterClient
from edl.kube.master_key import MasterKey, make_token
from edl.model.cluster import Node
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.progress import Progress
from edl.model.status import JobPhase, JobStatus
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.starts import startable
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld
from tests.worlds.master_server import Served, serving
from tests.worlds.waiting import PATIENCE

KEY = JobKey("default", "a")
SECRET = b"0123456789abcdef0123456789abcdef"
PACE = CallPace(
    interval_s=0.2, retry_s=0.05, retry_at_most_s=0.3, report_wait_s=30.0, measured_interval_s=0.5, window_s=1.0
)


def controller_token(job: Job) -> str:
    return make_token(SECRET, job.key, job.uid, "controller")


def sharded(
    name: str = "a", *, pservers: int = 0, min_trainers: int = 2, max_trainers: int = 2, **fields: Any
) -> Job:
    fixed = [FixedPods(Role.MASTER, make_shape(0.25), 1)]
    fixed += [FixedPods(Role.PSERVER, make_shape(0.5), pservers)] if pservers else []
    job = make_job(name, min_trainers=min_trainers, max_trainers=max_trainers, fixed=tuple(fixed))
    return replace(job, has_dataset=True, **fields)


@dataclass
class Linked:
    """One set of pods and one controller.

    Attributes:
        ip: the address of a job's master; "" for a master that has none.
        log: the log lines about masters.
    """

    world: PodWorld
    wire: HttpMasterClient
    nodes: tuple[Node, ...] = field(default_factory=lambda: make_nodes(2))
    ip: Callable[[JobKey], str] = lambda _: "127.0.0.1"
    lease: FakeLease = field(default_factory=FakeLease)
    log: list[str] = field(default_factory=list)
    policy: str = "maxmin"
    pace: CallPace = PACE

    def __post_init__(self) -> None:
        policy = policy_named(self.policy)
        self.cluster, self.recorder = FakeCluster(self.world, self.nodes), FakeRecorder()
        clock = SystemClock()
        self.masters = MasterMonitor(self.wire, clock, self.lease, lambda _, what: self.log.append(what), self.pace)
        self.controller = Controller(
            cluster=self.cluster,
            clock=clock,
            lease=self.lease,
            recorder=self.recorder,
            planner=Planner(lambda s, limits: decide(s, policy, limits), check, startable),
            limits=Limits(),
            pace=Pace(interval_s=1.0, debounce_s=0.02),
            partners=Partners(masters=self.masters),
        )
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._stop.clear()
        self._tasks = [asyncio.create_task(self.controller.run(self._stop)), asyncio.create_task(self._kubelet())]

    async def stop(self) -> None:
        self._stop.set()
        self._tasks[1].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.masters.close()

    async def _kubelet(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            before = dict(self.world.jobs)
            self.world.step()
            for key, job in self.world.jobs.items():
                for pod in job.pods:
                    if pod.role is Role.MASTER and pod.ip != self.ip(key):
                        self.world.change(key, pod.name, ip=self.ip(key))
            if before != self.world.jobs:
                self.cluster.touch()

    def job(self, key: JobKey = KEY) -> Job:
        return self.world.jobs[key]

    def status(self, key: JobKey = KEY) -> JobStatus:
        return self.job(key).status or JobStatus()

    def phase(self) -> JobPhase:
        return self.status().phase

    def progress(self, key: JobKey = KEY) -> Progress:
        return self.status(key).dataset or Progress()

    def pod(self, name: str, key: JobKey = KEY) -> Pod:
        return self.world.pods(key)[name]

    def take(self, name: str, key: JobKey = KEY) -> None:
        """A user deletes a pod; it is removed at once."""
        self.world.drop(key, name)
        self.cluster.touch()

    def finish(self, name: str, exit_code: int = 0) -> None:
        self.world.finish(KEY, name, exit_code)
        self.cluster.touch()


class Trainer:
    """A trainer whose calls the test makes."""

    def __init__(self, served: Served, pod: Pod) -> None:
        self.served, self.pod = served, pod
        self.seq = 0
        self.leases: list[dict[str, Any]] = []

    async def sync(self, want: int = 0, wait_s: float = 0.0, **said: Any) -> dict[str, Any]:
        self.seq += 1
        session = {"pod_uid": self.pod.uid, "incarnation": 1, "name": self.pod.name}
        body = {"session": session, "seq": self.seq, "want": want, "wait_s": wait_s, **said}
        status, answer = await self.served.ask("POST", "/v1/sync", body)
        assert status == 200, answer
        self.leases = [lease for lease in self.leases if lease["fence"] not in answer["revoked"]]
        self.leases += answer["leases"]
        found: dict[str, Any] = answer
        return found

    async def work(self, count: int = 1) -> dict[str, Any]:
        """Take and finish that many leases."""
        answer: dict[str, Any] = {}
        for _ in range(count):
            if not self.leases:
                answer = await self.sync(1, 2.0)
            done, self.leases = self.leases, []
            answer = await self.sync(done=[_item(lease) for lease in done])
        return answer

    async def move(self, positions: int) -> None:
        """Report progress of the first lease."""
        first = self.leases[0]
        first["cursor"] = first.get("cursor", first["start"]) + positions
        await self.sync(progress=[{**_item(first), "cursor": first["cursor"]}])

    async def end(self) -> None:
        """Work until the job has ended."""
        while (await self.work())["status"] != "job_end":
            pass


def _item(lease: dict[str, Any]) -> dict[str, Any]:
    return {name: lease[name] for name in ("epoch", "start", "end", "fence")}


@asynccontextmanager
async def wired(tmp_path: Path, port: int) -> AsyncIterator[HttpMasterClient]:
    """A client of masters at that port, with the key of the tests."""
    (tmp_path / "key").write_bytes(SECRET)
    async with (
        ApiSession(Configuration(host="http://127.0.0.1:1")) as session,
        HttpMasterClient(MasterKey(tmp_path / "key", session, "paddlecloud"), port) as wire,
    ):
        yield wire


@asynccontextmanager
async def linked(
    tmp_path: Path,
    job: Job,
    source: str = "index:100",
    *,
    policy: str = "maxmin",
    nodes: tuple[Node, ...] = make_nodes(2),
    **master: Any,
) -> AsyncIterator[tuple[Linked, Served]]:
    """A running job, its controller and its master."""
    given = {"shard_size": 10, **master}
    async with (
        serving(tmp_path / "journal", source, controller=controller_token(job), **given) as served,
        wired(tmp_path, served.port) as wire,
    ):
        here = Linked(PodWorld(), wire, nodes, policy=policy)
        here.world.add(job)
        here.start()
        try:
            await until(lambda: here.phase() is JobPhase.RUNNING, "the job runs")
            await until(lambda: here.status().dataset is not None, "its master was heard")
            yield here, served
        finally:
            await here.stop()


async def until(holds: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Let the event loop run until the condition holds."""
    try:
        async with asyncio.timeout(timeout_s * PATIENCE):
            while not holds():  # noqa: ASYNC110 - the condition has no event to wait for
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s * PATIENCE:g} s: {what}") from None
