"""The planner on its worst days: `python -m benchmarks.worst_days [WORD]`, a line for each seeded world.

Families: every job asks for another amount; one odd job beside round sizes; more serving pods than the surplus; all
nodes lost. Each is there at three sizes. A line has the CPU seconds of the decision and its gap beside their targets,
and what the deadline cut short. Figures of one run on one machine compare with each other, not with another machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from benchmarks.worlds import carried_out, fleet
from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import Limits
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import POLICIES
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

LIMITS = Limits(deadline_s=30.0)


@dataclass(frozen=True, slots=True)
class WorstDay:
    """A world and what is wanted there.

    Attributes:
        name: its family and size.
        world: makes it.
        cpu_s: the target of the CPU seconds of one decision.
        gap: the target of the gap, as a part.
    """

    name: str
    world: Callable[[], ClusterSnapshot]
    cpu_s: float
    gap: float


def many_sizes(nodes: int, jobs: int, seed: int) -> ClusterSnapshot:
    """Nodes with odd amounts free, and jobs that all ask for another odd amount and want more than there is."""
    random = Random(seed)  # noqa: S311
    rows = tuple(
        make_node(
            f"n{i:05d}",
            random.choice((16, 32, 48, 64)) - 0.05 * random.randint(1, 30),
            random.choice((128, 192, 256)) - 0.125 * random.randint(1, 40),
        )
        for i in range(nodes)
    )
    return make_snapshot(rows, tuple(_odd_job(i, 8.0 * nodes / jobs, random) for i in range(jobs)))


def _odd_job(i: int, share: float, random: Random) -> Job:
    """A job of an amount of its own; it wants half to twice its share of the nodes."""
    least = 1 + i % 3
    return make_job(
        f"j{i:05d}",
        min_trainers=least,
        max_trainers=least + max(2, int(random.uniform(0.5, 2.0) * share)),
        cpu=round(random.uniform(0.5, 9.0), 2),
        memory_gib=round(random.uniform(1, 30) * 8) / 8,
        age_s=float(i),
    )


def round_sizes(nodes: int, jobs: int, seed: int) -> ClusterSnapshot:
    """Jobs of twenty round sizes on nodes of twelve kinds."""
    random = Random(seed)  # noqa: S311
    rows = tuple(make_node(f"n{i:05d}", (16, 32, 48, 64)[i % 4], (64, 128, 256)[i % 3]) for i in range(nodes))
    return make_snapshot(
        rows,
        tuple(
            make_job(
                f"j{i:05d}",
                max_trainers=3 + int(random.uniform(0.5, 2.0) * 6 * nodes / jobs),
                cpu=(1, 2, 4, 8)[i % 4],
                memory_gib=(4, 8, 16, 24, 48)[i % 5],
                age_s=float(i),
            )
            for i in range(jobs)
        ),
    )


def one_odd_job(nodes: int, jobs: int, seed: int) -> ClusterSnapshot:
    """The same with one job of 100 millicores and 2 GiB."""
    snapshot = round_sizes(nodes, jobs, seed)
    return replace(snapshot, jobs=(*snapshot.jobs, make_job("odd", cpu=0.1, memory_gib=2.0, max_trainers=5)))


def overload(nodes: int, jobs: int, seed: int) -> ClusterSnapshot:
    """A full cluster at its best plan, and more waiting serving pods of three cores than its surplus has room for."""
    empty = fleet(nodes, jobs, seed)
    full = carried_out(empty, study(empty, POLICIES["maxmin"], replace(LIMITS, deadline_s=600.0)).plan)
    waiting = tuple(make_serving(f"w{i:05d}", cpu=3, memory_gib=4) for i in range(nodes * 3 // 10))
    return replace(full, pods=(*full.pods, *waiting))


def outage(nodes: int, jobs: int, seed: int) -> ClusterSnapshot:
    """No node is ready, and no job has a pod."""
    snapshot = fleet(nodes, jobs, seed)
    return replace(snapshot, nodes=tuple(replace(node, ready=False) for node in snapshot.nodes))


def measure(day: WorstDay) -> None:
    """Decide once and print the line."""
    snapshot = day.world()
    started_s = time.process_time()
    try:
        plan = study(snapshot, POLICIES["maxmin"], LIMITS).plan
    except PlanError as error:
        print(
            f"{day.name:<26} {time.process_time() - started_s:7.2f} of {day.cpu_s:4.1f}  no plan: {error}", flush=True
        )
        return
    cpu_s = time.process_time() - started_s
    if problems := check(snapshot, plan):
        sys.exit(f"the plan breaks a rule: {problems}")
    gap, admitted = plan.certificate.gap, sum(d.admitted for d in plan.decisions)
    print(
        f"{day.name:<26} {cpu_s:7.2f} of {day.cpu_s:4.1f} {gap:8.2%} of {day.gap:5.1%} {admitted:8d}"
        f"  {', '.join(plan.cut)}",
        flush=True,
    )


def days() -> tuple[WorstDay, ...]:
    """Every family at three sizes."""
    targets = ((100, 40, 0.5, 0.03), (300, 100, 1.0, 0.03), (1000, 500, 3.0, 0.005))
    many = [WorstDay(f"many sizes {n} x {j}", partial(many_sizes, n, j, 1), s, g) for n, j, s, g in targets]
    odd = [WorstDay(f"one odd job {n} x 40", partial(one_odd_job, n, 40, 1), 0.5, 0.03) for n in (50, 100, 300)]
    more = [
        WorstDay(f"overload {n} x {n // 5}", partial(overload, n, n // 5, 1), 2.0, 0.03) for n in (100, 300, 1000)
    ]
    lost = [WorstDay(f"outage {n} x {n // 5}", partial(outage, n, n // 5, 1), 0.5, 0.0) for n in (300, 1000, 5000)]
    return (*many, *odd, *more, *lost)


def main() -> None:
    """Print the table; an argument limits it to worlds whose name contains it."""
    print(f"{'world':<26} {'CPU s':>7} {'goal':>7} {'gap':>8} {'goal':>8} {'admitted':>8}  cut short", flush=True)
    for day in days():
        if not sys.argv[1:] or any(word in day.name for word in sys.argv[1:]):
            measure(day)


if __name__ == "__main__":
    main()
