"""Measures the planner on its worst days: `make worst-days [WORDS=...]`, a line for each seeded world.

Each family of `benchmarks.worst_worlds` is there at three sizes, and at a fourth with `--largest`. A line has the
CPU seconds of a decision and its gap, each beside its target, the peak memory so far, the jobs admitted, and what the
deadline cut short; before that, for each peer policy, CPU seconds and the part of the sum of fulfilments that it
reaches. Figures of one run on one machine compare with each other, not with those of another machine.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.worst_worlds import FAMILIES, World
from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScalePlan
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import COMPARISONS, POLICIES

DEADLINE_S = 10.0
PEERS = ("edl-2017", "static-min", "static-max")
PEER_NODES = 1_000  # with more nodes, peers are left out
SIZES = {"small": (100, 40), "medium": (1000, 500), "large": (5000, 1000), "largest": (10_000, 5000)}
CPU_S = {"small": 0.5, "medium": 3.0, "large": 10.0, "largest": 30.0}
GAP = {"small": 0.03, "medium": 0.005, "large": 0.005, "largest": 0.005}


class CpuClock(Clock):
    """A clock of CPU seconds. Solvers count wall seconds, so their limits grow by what a CPU second takes here."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(deadline_s, time.process_time)
        self._wall_since_s = time.perf_counter()

    def left_s(self, most_s: float) -> float:
        """Wall seconds that one program may take, if the machine stays as busy as it was since the decision began."""
        return super().left_s(most_s) * max(1.0, (time.perf_counter() - self._wall_since_s) / max(self.spent_s, 1e-3))


@dataclass(frozen=True, slots=True)
class Target:
    """What is wanted of a family besides the targets of its size: CPU seconds at any size."""

    cpu_s: float = float("inf")


TARGETS = {
    "one odd job": Target(0.5),
    "overload": Target(2.0),
    "outage": Target(0.5),
    "host ports": Target(1.0),
    "affinity lists": Target(3.0),
}


def fulfilled(jobs: tuple[Job, ...], plan: ScalePlan) -> float:
    """The sum of the fulfilments of the jobs that run: 0 at the minimum, 1 at the declared maximum."""
    reached = 0.0
    for job, decision in zip(jobs, plan.decisions, strict=True):
        span = job.max_trainers - job.min_trainers
        count = decision.target - decision.pending
        if decision.admitted and count >= job.min_trainers:
            reached += 1.0 if span <= 0 else min(1.0, (count - job.min_trainers) / span)
    return reached


def timed(world: World, policy: str) -> tuple[ScalePlan | None, float, str]:
    """Decide once: the plan, CPU seconds, and what went wrong."""
    limits = replace(world.limits, deadline_s=DEADLINE_S)
    started_s = time.process_time()
    try:
        if policy in COMPARISONS:
            plan = COMPARISONS[policy].plan(world.snapshot, limits)
        else:
            clock = CpuClock(DEADLINE_S)  # whatever else the machine does
            plan = study(world.snapshot, POLICIES[policy], limits, clock=clock).plan
    except PlanError as error:
        return None, time.process_time() - started_s, str(error)
    return plan, time.process_time() - started_s, ""


def peers_of(world: World, ours: ScalePlan) -> str:
    """What each peer needs, and reaches in parts of what the plan reaches."""
    if len(world.snapshot.nodes) > PEER_NODES:
        return ""
    best = fulfilled(world.snapshot.jobs, ours)
    columns = []
    for peer in PEERS:
        plan, cpu_s, _ = timed(world, peer)
        reached = "-" if plan is None or not best else f"{fulfilled(world.snapshot.jobs, plan) / best:.2f}"
        columns.append(f"{cpu_s:7.2f} {reached:>5}")
    return " ".join(columns)


def measure(family: str, size: str, seed: int, *, with_peers: bool) -> None:
    """Decide once and print the line."""
    nodes, jobs = SIZES[size]
    world = FAMILIES[family](nodes, jobs, seed)
    name, cpu_target = f"{family} {nodes} x {jobs}", min(CPU_S[size], TARGETS.get(family, Target()).cpu_s)
    started_s = time.perf_counter()
    plan, cpu_s, failure = timed(world, "maxmin")
    wall_s = time.perf_counter() - started_s
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    costs = f"{name:<30} {cpu_s:7.2f} of {cpu_target:4.1f} {wall_s:6.2f}"
    if plan is None:
        print(f"{costs}  no plan: {failure}", flush=True)
        return
    _stop_on_broken_rules(world.snapshot, plan, world)
    quality = f"{plan.certificate.gap:8.2%} of {GAP[size]:5.1%} {memory_mib:6.0f}"
    admitted = sum(d.admitted for d in plan.decisions)
    peers = f" {peers_of(world, plan):<41}" if with_peers else ""
    print(f"{costs} {quality} {admitted:8d}{peers} {', '.join(plan.cut)}", flush=True)


def _stop_on_broken_rules(snapshot: ClusterSnapshot, plan: ScalePlan, world: World) -> None:
    problems: Any = check(snapshot, plan, world.limits.quotas)
    if problems or plan.certificate.bound < plan.certificate.achieved:
        sys.exit(f"the plan breaks a rule: {problems}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the planner on its worst days.")
    parser.add_argument("words", nargs="*", help="only worlds whose name contains one of these")
    parser.add_argument("--largest", action="store_true", help="also 10,000 nodes x 5,000 jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peers", action="store_true", help="leave the peer policies out")
    given = parser.parse_args()
    peers = "" if given.no_peers else "".join(f" {peer:>13}" for peer in PEERS)
    head = f"{'CPU s':>7} {'goal':>7} {'wall s':>6} {'gap':>8} {'goal':>8} {'MiB':>6} {'admitted':>8}"
    print(f"{'world':<30} {head}{peers} cut short", flush=True)
    for size in [name for name in SIZES if name != "largest" or given.largest]:
        for family in FAMILIES:
            nodes, jobs = SIZES[size]
            if not given.words or any(word in f"{family} {nodes} x {jobs}" for word in given.words):
                measure(family, size, given.seed, with_peers=not given.no_peers)


if __name__ == "__main__":
    main()
