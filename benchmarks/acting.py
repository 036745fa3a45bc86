"""How long a new job waits for its first status while a growth of thousands of pods is being written.

    python -m benchmarks.acting [--pods 7000] [--latency 0.02]

The controller's own loop, in virtual time, on an API server that takes the same time for each write. The planner is
replaced by fixed targets that take `--plan` seconds, as the real one does on a large cluster. Prints the virtual
seconds from the arrival of a job to its first status and to its first pod, in the middle of the growth, and how long
the growth took.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.model.actions import Action, CreatePod, Outcome, PatchStatus
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import Certificate, ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.builders import make_job, make_node
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld

T = TypeVar("T")
NEW = JobKey("default", "new")
JOBS = 100


class _Start:
    def __init__(self, job: JobKey, node: str) -> None:
        self.job, self.role, self.node = job, Role.TRAINER, node


class SlowPlanner:
    """Runs the planner's functions inline, and lets virtual time pass for each plan."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        """Run the function."""
        del deadline_s
        result = call()
        if isinstance(result, ScalePlan):
            await asyncio.sleep(self._seconds)
            return cast("T", replace(result, seconds=self._seconds))
        return result


def decide(snapshot: ClusterSnapshot, _: Limits) -> ScalePlan:
    """Give each job its maximum."""
    decisions = []
    for job in snapshot.jobs:
        live, target = len(job.live_trainers), job.max_trainers
        nodes = (("n000", target - live),) if target > live else ()
        decisions.append(
            ScaleDecision(
                job.key, job.generation, live, target, job.min_trainers, target, True, Reason.AT_MAX, "", nodes=nodes
            )
        )
    return ScalePlan(tuple(decisions), Certificate("fulfilment", 1.0, 1.0))


def startable(_: ClusterSnapshot, plan: ScalePlan) -> list[_Start]:
    """Every pod of the plan, those of minimums first, as the real planner has them."""
    pods = [
        (number >= d.min_trainers, number, d.job, node)
        for d in plan.decisions
        for node, count in d.nodes
        for number in range(d.target - count, d.target)
    ]
    return [_Start(job, node) for _, _, job, node in sorted(pods)]


def measure(pods: int, latency_s: float, plan_s: float) -> str:
    """Let a job arrive a second into the growth; returns a line of figures."""
    world = PodWorld()
    for number in range(JOBS):
        world.add(make_job(f"j{number:03}", min_trainers=1, max_trainers=pods // JOBS))
    seen: dict[str, float] = {}
    created: set[tuple[JobKey, int]] = set()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cluster = FakeCluster(world, (make_node("n000"),))
        cluster.delay_s, is_grown = latency_s, asyncio.Event()

        def note(action: Action) -> Outcome | None:
            if action.job == NEW and isinstance(action, PatchStatus | CreatePod):
                seen.setdefault(type(action).__name__, loop.time())
            if isinstance(action, CreatePod):
                seen["last pod"] = loop.time()
                created.add((action.job, action.index))
                if len(created) == pods // JOBS * JOBS + 2:
                    is_grown.set()
            return None

        cluster.policies = note
        controller = Controller(
            cluster=cluster,
            clock=LoopClock(),
            lease=FakeLease(),
            recorder=FakeRecorder(),
            planner=Planner(decide, lambda _s, _p: (), startable, lambda: SlowPlanner(plan_s)),
            limits=Limits(),
        )
        stop = asyncio.Event()
        began_s = loop.time()
        running = asyncio.ensure_future(controller.run(stop))
        await asyncio.sleep(3 * plan_s + 3)
        arrived_s = loop.time()
        world.add(make_job(NEW.name, min_trainers=1, max_trainers=2))
        cluster.urge()
        await is_grown.wait()
        stop.set()
        await running
        seen["arrived"], seen["began"] = arrived_s, began_s

    run_virtual(main())
    status, pod = (seen[name] - seen["arrived"] for name in ("PatchStatus", "CreatePod"))
    return (
        f"{pods} pods, {latency_s * 1000:g} ms a write, {plan_s:g} s a decision: first status after {status:.1f} s,"
        f" first pod after {pod:.1f} s; the growth took {seen['last pod'] - seen['began']:.0f} s"
    )


def main() -> None:
    """Print the figures of both latencies, or of the one that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, default=7000)
    parser.add_argument("--latency", type=float, action="append")
    parser.add_argument("--plan", type=float, default=0.9)
    options = parser.parse_args()
    for latency_s in options.latency or [0.02, 0.3]:
        print(measure(options.pods, latency_s, options.plan), flush=True)


if __name__ == "__main__":
    main()
