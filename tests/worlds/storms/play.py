"""Plays an hour: the real controller beside the life of the cluster, with a look at everything every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from pathlib import Path

from edl.controller.loop import Controller
from edl.controller.policy_planner import planner_of
from edl.kube.cluster import KubernetesCluster
from edl.kube.master_key import MasterKey
from edl.kube.mirror.cache import ClusterCache
from edl.kube.writer import Writer
from edl.model.limits import Limits
from edl.planner.policies.registry import policy_named
from edl.sandbox.apiserver.storage.store import Change, ChangeType
from edl.sim.virtual_time import START_S, InlineRunner, VirtualLoop
from tests.worlds.fakes import FakeLease, FakeRecorder
from tests.worlds.storms.cluster_life import ClusterLife
from tests.worlds.storms.local_server import (
    JOBS,
    QUOTAS,
    TRAINING_JOBS,
    LocalServer,
    LocalSession,
    Object,
    StormClock,
)
from tests.worlds.storms.random_hour import Hour, JobPlan, hour_of, manifest, node, quota, serving_pod
from tests.worlds.storms.storm_rules import StormRules
from tests.worlds.storms.troubles import Kind, Trouble, Troubles, job_of
from tests.worlds.storms.truth import Truth
from tests.worlds.storms.world_view import Watcher

BUSY_S, IDLE_S = 0.25, 1.0
"""How often the cluster lives a step, while something changes and while nothing does."""
LOOK_S = 5.0
MASTER = "edl:1"
LIMITS = Limits(deadline_s=1e9)
"""A plan that is cut short by the time it takes differs between runs."""


@dataclass
class Played:
    """An hour while it is played, and what came of it.

    Attributes:
        broken: the rules that were broken; empty after a good hour.
    """

    hour: Hour
    folder: Path
    on_look: Callable[[Played], None] = lambda _: None
    broken: list[str] = field(default_factory=list)

    async def play(self) -> None:
        """Play it from its beginning to its end."""
        self.server = LocalServer(self.hour.seed)
        self.recorder = FakeRecorder()
        loop = asyncio.get_running_loop()
        self.troubles = Troubles(self.hour.troubles, loop.time, {job.key: job for job in self.hour.jobs})
        self.server.webhook = self.troubles.review
        self.life = ClusterLife(self.server, self.troubles, self.hour.owner_s, self.hour.scheduler_s)
        self.watcher, self.truth = Watcher(), Truth()
        self.rules = StormRules(self.hour.jobs, self.troubles)
        self.server.cluster.store.listen("pods", self._note_pod)
        self._happens: list[tuple[float, int, Callable[[], None]]] = []
        self._prepare()
        session = LocalSession(self.server)
        cache = ClusterCache(session, StormClock(), default_master_image=MASTER)
        stop = asyncio.Event()
        mirror = asyncio.ensure_future(cache.run())
        running = asyncio.ensure_future(self._controller(session, cache).run(stop))
        try:
            await self._live(START_S + self.hour.lasts_s)
        finally:
            stop.set()
            await running
            mirror.cancel()
            with suppress(asyncio.CancelledError):
                await mirror
            await session.close()
        self.broken += [*self.rules.broken, *self.rules.count(self.server.asked)]
        self.broken += [f"false: {statement}" for statement in self.truth.false]
        self.broken += [f"a round failed: {failure}" for failure in self.recorder.failures]
        self.broken += [f"a plan broke a rule: {problem}" for problem in self.recorder.problems]

    def _controller(self, session: LocalSession, cache: ClusterCache) -> Controller:
        clock = StormClock()
        key = MasterKey(self.folder / "key", session, "red")
        writer = Writer(session, cache, clock, key=key, default_master_image=MASTER, max_grace_s=600)
        return Controller(
            cluster=KubernetesCluster(cache, writer, clock),
            clock=clock,
            lease=FakeLease(),
            recorder=self.recorder,
            planner=replace(planner_of(policy_named("maxmin"), lambda: ()), new_thread=InlineRunner),
            limits=LIMITS,
        )

    async def _live(self, end_s: float) -> None:
        loop = asyncio.get_running_loop()
        look_s = loop.time() + LOOK_S
        while (now_s := loop.time()) < end_s:
            before = self.server.cluster.store.version
            while self._happens and self._happens[0][0] <= now_s:
                heappop(self._happens)[2]()
            self.life.step()
            if now_s >= look_s:
                look_s = now_s + LOOK_S
                self._look(now_s)
            await asyncio.sleep(BUSY_S if self.server.cluster.store.version != before else IDLE_S)

    def _look(self, now_s: float) -> None:
        collections = {"nodes": "nodes", "pods": "pods", "jobs": TRAINING_JOBS, "batch": JOBS, "quotas": QUOTAS}
        view = self.watcher.view(
            now_s, {name: self.server.objects(at) for name, at in collections.items()}, self.server.admitted
        )
        self.truth.look(view)
        self.rules.look(view)
        self.rules.refused(view, self.server.asked)
        self.on_look(self)

    def _note_pod(self, change: Change) -> None:
        now_s = asyncio.get_running_loop().time()
        self.watcher.note(change.entry.value, now_s)
        if change.type is ChangeType.ADDED:
            self.rules.made(change.entry.value, now_s)

    # --- What happens

    def _at(self, at_s: float, what: Callable[[], None]) -> None:
        heappush(self._happens, (at_s, len(self._happens), what))

    def _prepare(self) -> None:
        for number in range(self.hour.nodes):
            made = self.server.must("POST", "/api/v1/nodes", node(number))
            self.server.put("nodes", {**made, "status": node(number)["status"]})
        for job in self.hour.jobs:
            self._at(START_S + job.comes_s, partial(self._create, job))
        for number, wave in enumerate(self.hour.waves):
            names = [f"web-{number}-{pod}" for pod in range(wave.pods)]
            for name in names:
                pod = serving_pod(name, wave.cores)
                self._at(START_S + wave.comes_s, partial(self._serve, pod))
                self._at(START_S + wave.goes_s, partial(self._unserve, name))
        for trouble in self.hour.troubles:
            self._prepare_trouble(trouble)

    def _prepare_trouble(self, trouble: Trouble) -> None:
        if trouble.kind is Kind.QUOTA:
            path = f"/api/v1/namespaces/{trouble.target}/resourcequotas"
            self._at(trouble.begin_s, partial(self._set_quota, path, trouble))
            self._at(trouble.end_s, partial(self._tolerate, "DELETE", f"{path}/team-quota"))
        elif trouble.kind is Kind.RECREATED:
            job = next(job for job in self.hour.jobs if job.key == trouble.target)
            policy, times = trouble.detail
            for at_s in times:
                self._at(at_s, partial(self._recreate, job, policy))

    def _create(self, job: JobPlan) -> None:
        self.server.must("POST", *manifest(job))

    def _serve(self, pod: Object) -> None:
        self.server.must("POST", "/api/v1/namespaces/web/pods", pod)

    def _unserve(self, name: str) -> None:
        self._tolerate("DELETE", f"/api/v1/namespaces/web/pods/{name}")

    def _set_quota(self, path: str, trouble: Trouble) -> None:
        self._tolerate("DELETE", f"{path}/team-quota")
        self.server.must("POST", path, quota(trouble.detail))

    def _recreate(self, job: JobPlan, policy: str) -> None:
        path, _ = manifest(job)
        for pod in self.server.objects("pods"):
            if policy == "Orphan" and job_of(pod) == job.key:
                free = {key: value for key, value in pod["metadata"].items() if key != "ownerReferences"}
                self.server.put("pods", {**pod, "metadata": free})
        self._tolerate("DELETE", f"{path}/{job.name}", {"propagationPolicy": "Background"})
        self._create(job)

    def _tolerate(self, method: str, path: str, body: Object | None = None) -> None:
        """A request that may come too late."""
        self.server.answer(method, path, body, {})


def play(seed: int, folder: Path, on_look: Callable[[Played], None] = lambda _: None) -> Played:
    """Play the hour of a seed."""
    return play_hour(hour_of(seed, START_S), folder, on_look)


def play_hour(hour: Hour, folder: Path, on_look: Callable[[Played], None] = lambda _: None) -> Played:
    """Play an hour."""
    played = Played(hour, folder, on_look)
    loop = VirtualLoop()
    loop.ignore_threads()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(played.play())
        finally:
            loop.watch_threads()
    return played
