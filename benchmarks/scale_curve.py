"""What one controller costs at each size: `python -m benchmarks.scale_curve [NODES ...]`.

Ten pods on each node and a job for five nodes, on a server that echoes writes (`benchmarks.echoing_server`); mirror,
controller and planner are the real ones, and all jobs want more than there is. One column for each size, of a process
of its own. CPU seconds: of the thread that decides, or of the process. Times of events: seconds from the watch to the
controller's first write about it, of all of them the longest; 60 if there was none by then. For a serving pod that
is a deletion for serving; one that gets a node before does not wait. *At rest* begins once
nothing was written for four seconds; on a large cluster holds of growth still end then, and bring further plans.
Compare figures of one run only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from benchmarks.echoing_server import PODS, TRAINERS, Echoing, World
from benchmarks.loop_stalls import watched
from edl.clock import SystemClock
from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.controller.policy_planner import PolicyPlanner
from edl.kube.leader_election import AlwaysHeld
from edl.model.actions import Action, DeletePod
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.status import Reason
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.processes.garbage import rare_searches
from tests.e2e.scale.process import Usage

SIZES = (500, 1000, 2000, 5000, 10_000, 15_000)
CHANGED, POD_EVENTS, TIMES = 10, 200, 6
QUIET_S, REST_S, LIMIT_S = 2.0, 15.0, 60.0
LIMITS = Limits(deadline_s=120.0)


@dataclass
class Line:
    """The figures of one size; CPU seconds unless the name says otherwise."""

    nodes: int
    pods: int = 0
    list_s: float = 0.0
    cold_s: float = 0.0
    changed_s: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    event_ms: float = 0.0
    at_rest: float = 0.0
    times: dict[str, list[float]] = field(default_factory=dict)
    bytes_per_pod: float = 0.0
    rss_mib: float = 0.0
    peak_mib: float = 0.0
    longest_ms: float = 0.0
    longest_at: str = ""


@dataclass
class Decision:
    """When a decision began, in monotonic seconds; its CPU seconds, and the seconds of its stages."""

    began_s: float
    cpu_s: float
    stages: dict[str, float]


class Timed:
    """The planner's functions, with the CPU seconds of each decision and its stages."""

    def __init__(self) -> None:
        self._policy = policy_named("maxmin")
        self._planner = PolicyPlanner(self._policy)
        self.made: list[Decision] = []
        self._decided, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def functions(self) -> Planner:
        """What the controller decides with."""
        planner = self._planner
        return Planner(
            self._decide,
            check,
            planner.startable,
            early_evictions=planner.early_evictions,
            explain=self._explain,
            rests=self._policy.rests,
        )

    def _explain(self, plan: ScalePlan) -> ScalePlan:
        said = self._planner.explain(plan)
        self.made[-1].stages.update(said.stages)
        return said

    def _decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        at_s, began_s = time.monotonic(), time.thread_time()
        plan = self._planner.choose(snapshot, limits)
        self.made.append(Decision(at_s, time.thread_time() - began_s, dict(plan.stages)))
        self._loop.call_soon_threadsafe(self._decided.set)
        return plan

    async def after(self, at_s: float) -> Decision:
        """The first decision that begins after a time, in monotonic seconds."""
        while True:
            self._decided.clear()
            for decision in self.made:
                if decision.began_s > at_s:
                    return decision
            await self._decided.wait()


async def play(line: Line, world: World) -> None:
    """List everything, let all jobs grow, rest, and let everything happen that is measured."""
    before, began_s = Usage.of(os.getpid()), time.process_time()
    cluster, planner, stop = Echoing(world), Timed(), asyncio.Event()
    mirroring = asyncio.ensure_future(cluster.cache.run())
    synced = asyncio.ensure_future(cluster.cache.wait_until_synced())
    await asyncio.wait((mirroring, synced), return_when=asyncio.FIRST_COMPLETED)
    if mirroring.done():
        mirroring.result()
    await cluster.observe()
    line.list_s = time.process_time() - began_s
    gc.collect()
    line.bytes_per_pod = (Usage.of(os.getpid()).rss_mib - before.rss_mib) * 2**20 / line.pods
    controller = Controller(
        cluster=cluster,
        clock=SystemClock(),
        lease=AlwaysHeld(),
        recorder=ControllerRecorder(Metrics(), policy="maxmin"),
        planner=planner.functions(),
        limits=LIMITS,
    )
    running = asyncio.ensure_future(controller.run(stop))
    line.cold_s = (await planner.after(0.0)).cpu_s
    await _happen(line, cluster, "growing", TIMES)
    await cluster.silence(2 * QUIET_S)
    began_s = time.process_time()
    await asyncio.sleep(REST_S)
    line.at_rest = (time.process_time() - began_s) / REST_S
    await _happen(line, cluster, "at rest", TIMES)
    await cluster.silence(QUIET_S)
    for name in list(world.jobs)[:CHANGED]:
        cluster.job_changes(name, TRAINERS - 2)
    changed = await planner.after(time.monotonic())
    await cluster.silence(QUIET_S)
    line.changed_s, line.stages = changed.cpu_s, changed.stages
    stop.set()
    await running
    line.event_ms = 1000 * await _pods_change(world, cluster)
    usage = Usage.of(os.getpid())
    line.rss_mib, line.peak_mib = usage.rss_mib - before.rss_mib, usage.peak_mib - before.rss_mib
    mirroring.cancel()
    await asyncio.gather(mirroring, return_exceptions=True)


async def _happen(line: Line, cluster: Echoing, when: str, times: int) -> None:
    """Let jobs and serving pods come, one after the other; note how long each waits for its first write."""

    def about_job(action: Action, name: str) -> bool:
        return action.job.name == name

    for number in range(times):
        name = f"new-{when[0]}-{number:04}"
        waited_s = await cluster.after(partial(cluster.job_comes, name), partial(about_job, name=name), LIMIT_S)
        line.times.setdefault(f"a job comes, {when}", []).append(waited_s)
        await asyncio.sleep(0.5)
        pod = f"wide-{when[0]}-{number:04}"
        waited_s = await cluster.after(
            partial(cluster.serving_comes, pod), _is_for_serving, LIMIT_S, lambda: not cluster.waiting
        )
        line.times.setdefault(f"a serving pod comes, {when}", []).append(waited_s)
        cluster.serving_goes()
        await asyncio.sleep(0.5)


def _is_for_serving(action: Action) -> bool:
    return isinstance(action, DeletePod) and action.intent == Reason.SERVING_NEEDS_ROOM


async def _pods_change(world: World, cluster: Echoing) -> float:
    """Let serving pods change one by one; returns the CPU seconds of each until a snapshot shows it."""
    spent_s = 0.0
    for body in world.serving[:POD_EVENTS]:
        body["metadata"]["labels"]["changed"] = "yes"
        began_s = time.process_time()
        cluster.watches.bring(PODS, "MODIFIED", body)
        await cluster.wait_for_change(10.0)
        await cluster.observe()
        spent_s += time.process_time() - began_s
    return spent_s / POD_EVENTS


def measured(nodes: int) -> Line:
    """The figures of one size; for a process of its own."""
    world = World(nodes)
    line = Line(nodes, world.pods)
    gc.collect()
    with rare_searches(), watched() as steps:
        asyncio.run(play(line, world))
    seconds, line.longest_at = max(steps)
    line.longest_ms = 1000 * seconds
    return line


def show(lines: list[Line]) -> None:
    """Print a table: a row for each figure, a column for each size."""
    last = lines[-1]
    rows: list[tuple[str, str, Callable[[Line], float]]] = [
        ("pods", ",.0f", lambda one: one.pods),
        ("list and translate everything, CPU s", ".2f", lambda one: one.list_s),
        ("a cold decision, CPU s", ".3f", lambda one: one.cold_s),
        ("a decision on ten changed jobs, CPU s", ".3f", lambda one: one.changed_s),
        *((f"  {stage}", ".3f", partial(_stage, stage=stage)) for stage in last.stages),
        *((f"{name}, s", ".2f", partial(_longest, name=name)) for name in last.times),
        ("at rest, of a core", ".1%", lambda one: one.at_rest),
        ("an event of a pod, CPU ms", ".2f", lambda one: one.event_ms),
        ("bytes for each pod, listed", ",.0f", lambda one: one.bytes_per_pod),
        ("more memory at the end, MiB", ".0f", lambda one: one.rss_mib),
        ("more memory at most, MiB", ".0f", lambda one: one.peak_mib),
        ("longest step on the event loop, ms", ".0f", lambda one: one.longest_ms),
    ]
    print(f"{'nodes':<40}" + "".join(f"{one.nodes:>10,}" for one in lines))
    for name, form, value in rows:
        print(f"{name:<40}" + "".join(f"{value(one):>10{form}}" for one in lines))
    for one in lines:
        print(f"longest step with {one.nodes:,} nodes: {one.longest_at}", flush=True)


def _stage(line: Line, stage: str) -> float:
    return line.stages.get(stage, 0.0)


def _longest(line: Line, name: str) -> float:
    return max(line.times.get(name, [0.0]))


def main() -> None:
    """Print the figures of each size as it ends, and the table of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("nodes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    lines = []
    for nodes in options.nodes:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            lines.append(process.submit(measured, nodes).result())
        show(lines[-1:])
    if len(lines) > 1:
        show(lines)


if __name__ == "__main__":
    main()
