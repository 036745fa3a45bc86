"""How long serving pods wait for the deletion of trainers: `python -m benchmarks.reclaim [--pods 250 --nodes 500]`.

The scene of `make scale-peer` in virtual time: 500 nodes full of 4,000 trainers, or as many nodes as `--nodes` says.
The controller's own loop and planner run on simulated API servers (`requests_at_once`). Serving pods that preempt
nobody arrive at 200 a second; kube-scheduler tries them at the rate of the table, and `--cpu` trainers make way for
each. A decision takes `--plan` seconds. Prints the seconds from the first arrival to the first and to the last
deletion, how long the last deletion came after kube-scheduler's last try, and the snapshots. The load of the machine
changes none of these figures.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, field, replace
from random import Random

from benchmarks.acting import SlowPlanner
from benchmarks.requests_at_once import SERVERS, Server, SimulatedServer
from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.explain.decision import decide
from edl.model.actions import Action, DeletePod, Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import SERVING_GRACE_S, Limits, ServingLimits
from edl.model.pods import Pod
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.starts import startable
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.builders import make_job, make_node, make_serving
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld

TRAINERS, ON_A_NODE = 100, 8
REST_S = 12.0
LIMITS = Limits(deadline_s=1000.0, serving=ServingLimits(grace_s=SERVING_GRACE_S))


@dataclass(frozen=True, slots=True)
class Scene:
    """What happens.

    Attributes:
        nodes: their number; each is full of eight trainers, and a job has a hundred.
        pods: how many serving pods arrive.
        cpu: of each of them, so many trainers make way for it.
        least: the minimum of each job.
        arrivals_per_s: how many of them arrive in a second.
        plan_s: how long a decision takes.
    """

    nodes: int = 500
    pods: int = 250
    cpu: int = 1
    least: int = 10
    arrivals_per_s: float = 200.0
    plan_s: float = 0.15

    @property
    def deletions(self) -> int:
        """How many trainers are deleted."""
        return self.pods * self.cpu


@dataclass
class Times:
    """When things happened, in virtual seconds."""

    arrived_s: float = 0.0
    tried_s: float = 0.0
    deleted_s: list[float] = field(default_factory=list)
    snapshots: int = 0


class Cluster(FakeCluster):
    """The full cluster.

    Attributes:
        are_deleted: is set once as many trainers are deleted as serving pods come.
    """

    def __init__(self, server: Server, times: Times, scene: Scene) -> None:
        names = [f"n{number:05}" for number in range(scene.nodes)]
        nodes = tuple(make_node(name, cpu=ON_A_NODE, memory_gib=64) for name in names)
        world = PodWorld()
        for number in range(ON_A_NODE * scene.nodes // TRAINERS):
            first = number * TRAINERS
            hosts = tuple(names[(first + k) % scene.nodes] for k in range(TRAINERS))
            job = make_job(
                f"j{number:03}",
                trainers=TRAINERS,
                min_trainers=scene.least,
                max_trainers=TRAINERS,
                age_s=99.0,
                on=hosts,
            )
            world.add(job)
        super().__init__(world, nodes)
        self._server, self._times = SimulatedServer(server, Random(1)), times  # noqa: S311 - not a secret
        self._deletions, self.are_deleted = scene.deletions, asyncio.Event()

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot."""
        self._times.snapshots += 1
        return await super().observe()

    async def apply(self, action: Action) -> Outcome:
        """Carry out an action after the time that the server takes."""
        outcome = await self._server.apply(action)
        if isinstance(action, DeletePod):
            self._times.deleted_s.append(asyncio.get_running_loop().time())
            if len(self._times.deleted_s) == self._deletions:
                self.are_deleted.set()
        return replace(self.world.apply(action), seconds=outcome.seconds)

    def arrive(self, pod: Pod) -> None:
        """A serving pod comes."""
        self.serving = (*self.serving, pod)
        self.urge()

    def try_next(self) -> None:
        """kube-scheduler finds no node for the first pod that it has not tried."""
        first = next(number for number, pod in enumerate(self.serving) if not pod.tried)
        tried = replace(self.serving[first], tried=True, answered_s=asyncio.get_running_loop().time())
        self.serving = (*self.serving[:first], tried, *self.serving[first + 1 :])
        self.urge()


async def reclaim(server: Server, scene: Scene, tries_per_s: float) -> Times:
    """Play the scene; returns when things happened."""
    times, policy = Times(), policy_named("maxmin")
    cluster = Cluster(server, times, scene)
    controller = Controller(
        cluster=cluster,
        clock=LoopClock(),
        lease=FakeLease(),
        recorder=FakeRecorder(),
        planner=Planner(
            lambda snapshot, limits: decide(snapshot, policy, limits),
            check,
            startable,
            lambda: SlowPlanner(scene.plan_s),
        ),
        limits=LIMITS,
    )
    stop = asyncio.Event()
    running = asyncio.ensure_future(controller.run(stop))
    await asyncio.sleep(REST_S)
    times.arrived_s, times.snapshots = asyncio.get_running_loop().time(), 0
    await asyncio.gather(_arrive(cluster, scene), _schedule(cluster, scene, times, server.median_s, tries_per_s))
    await cluster.are_deleted.wait()
    stop.set()
    await running
    return times


async def _arrive(cluster: Cluster, scene: Scene) -> None:
    for number in range(scene.pods):
        pod = make_serving(f"web-{number:05}", cpu=scene.cpu, memory_gib=1)
        cluster.arrive(replace(pod, created_s=asyncio.get_running_loop().time()))
        await asyncio.sleep(1 / scene.arrivals_per_s)


async def _schedule(cluster: Cluster, scene: Scene, times: Times, request_s: float, tries_per_s: float) -> None:
    """kube-scheduler tries each pod a request after its arrival, at its own rate."""
    loop = asyncio.get_running_loop()
    for number in range(scene.pods):
        due_s = times.arrived_s + number / min(scene.arrivals_per_s, tries_per_s) + request_s
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        cluster.try_next()
    times.tried_s = loop.time()


def main() -> None:
    """Print a line for each server and each rate of kube-scheduler."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    usual = Scene()
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--pods", type=int, default=usual.pods)
    parser.add_argument("--cpu", type=int, default=usual.cpu)
    parser.add_argument("--least", type=int, default=usual.least)
    parser.add_argument("--arrivals", type=float, default=usual.arrivals_per_s)
    parser.add_argument("--plan", type=float, default=usual.plan_s)
    parser.add_argument("--server", default="", help="only servers whose name contains this")
    options = parser.parse_args()
    scene = Scene(options.nodes, options.pods, options.cpu, options.least, options.arrivals, options.plan)
    print(f"{'a request takes':<20}{'tries/s':>8}{'first':>8}{'last':>9}{'after the last try':>20}{'snapshots':>11}")
    for server in (one for one in SERVERS if options.server in one.name):
        for tries_per_s in (50.0, 200.0):
            found = run_virtual(reclaim(server, scene, tries_per_s))
            first_s, last_s = (found.deleted_s[k] - found.arrived_s for k in (0, scene.deletions - 1))
            late_s = found.deleted_s[scene.deletions - 1] - found.tried_s
            line = f"{server.name:<20}{tries_per_s:>8.0f}{first_s:>6.2f} s{last_s:>7.2f} s{late_s:>18.2f} s"
            print(f"{line}{found.snapshots:>11}", flush=True)


if __name__ == "__main__":
    main()
