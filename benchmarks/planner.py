"""Measures the planner's cost and its gap to the optimum, and two baselines: `make benchmarks`.

Prints a line for each size: CPU seconds of a decision on an empty cluster (cold), on the full cluster that results
(full), and after ten jobs have changed (changed), the last two with the columns of the plan before; the trainers, the
gaps to the certified bound, the trainers deleted for the change, and the peak memory so far. Then the baselines on
the empty cluster: the trainers of the 2017 controller that fit, and those of one integer program over jobs and nodes
within a time limit. Compare figures only with those of the same run on the same machine.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from benchmarks.job_by_node import solve
from benchmarks.worlds import carried_out, few_kinds, fleet, jobs_2017, mixed, nodes_2017, with_changes
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import NO_COLUMNS, KeptColumns, ScalePlan
from edl.planner.guard import check
from edl.planner.policies.edl_2017 import Edl2017
from edl.planner.policies.registry import POLICIES
from tests.worlds.builders import make_snapshot

__all__ = ["jobs_2017", "nodes_2017"]

LIMITS = Limits(deadline_s=120.0)
CHANGES = 10
GREEDY_NODES = 3_000  # with more nodes the 2017 policy, which looks at them one by one, is left out
PROGRAM_LIMIT_S = 20.0


def timed(snapshot: ClusterSnapshot, columns: KeptColumns = NO_COLUMNS) -> tuple[ScalePlan, float]:
    """Make a plan and check it; return it and its CPU seconds."""
    started_s = time.process_time()
    plan = decide(snapshot, POLICIES["maxmin"], LIMITS, columns)
    cpu_s = time.process_time() - started_s
    problems = check(snapshot, plan)
    if problems or plan.certificate.bound < plan.certificate.achieved:
        sys.exit(f"the plan breaks a rule: {problems}")
    return plan, cpu_s


def measure(name: str, snapshot: ClusterSnapshot) -> None:
    """Decide on an empty cluster, on the full one, and after ten changes; print the line."""
    plan, cold_s = timed(snapshot)
    full = carried_out(snapshot, plan)
    again, full_s = timed(full, plan.columns)
    changed, changed_s = timed(with_changes(full, CHANGES), again.columns)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    trainers = sum(d.target for d in plan.decisions)
    baselines = f"{_apart(greedy, snapshot)} {_apart(program, snapshot)}"
    deleted = sum(len(d.victims) for d in changed.decisions if d.admitted)
    print(
        f"{name:<24} {cold_s:7.2f} {full_s:7.2f} {changed_s:8.2f} {trainers:9d} {plan.certificate.gap:8.3%}"
        f" {changed.certificate.gap:8.3%} {deleted:8d} {memory_mib:6.0f} {baselines}",
        flush=True,
    )


def _apart(baseline: Callable[[ClusterSnapshot], str], snapshot: ClusterSnapshot) -> str:
    """Run a baseline in a separate process, so that its memory does not count as the planner's."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(baseline, snapshot).result()


def greedy(snapshot: ClusterSnapshot) -> str:
    """The columns of the 2017 controller: CPU seconds and trainers."""
    if len(snapshot.nodes) > GREEDY_NODES:
        return f"{'-':>8} {'-':>8}"
    started_s = time.process_time()
    plan = Edl2017().plan(replace(snapshot), LIMITS)
    cpu_s = time.process_time() - started_s
    return f"{cpu_s:8.2f} {sum(d.target - d.pending for d in plan.decisions):8d}"


def program(snapshot: ClusterSnapshot) -> str:
    """The columns of one integer program over jobs and nodes: CPU seconds and trainers."""
    answer = solve(snapshot, PROGRAM_LIMIT_S)
    if answer is None:
        return f"{'-':>8} {'-':>8}"
    return f"{answer.cpu_s:8.2f} {'none' if answer.trainers is None else answer.trainers:>8}"


def main() -> None:
    """Print the table; arguments limit it to sizes whose name contains one of them."""
    worlds: dict[str, Callable[[], ClusterSnapshot]] = {
        "2017: 20 jobs x 133": lambda: make_snapshot(nodes_2017(), jobs_2017(20)),
        "mixed: 10 jobs x 20": lambda: mixed(20, 10),
        "mixed: 50 jobs x 200": lambda: mixed(200, 50),
        "mixed: 200 jobs x 1000": lambda: mixed(1000, 200),
        "fleet: 50 jobs x 200": lambda: fleet(200, 50),
        "fleet: 200 jobs x 1000": lambda: fleet(1000, 200),
        "fleet: 600 jobs x 3000": lambda: fleet(3000, 600),
        "fleet: 1000 jobs x 10000": lambda: fleet(10_000, 1000),
        "fleet: 5000 jobs x 10000": lambda: fleet(10_000, 5000),
        "1 shape: 1000 x 10000": lambda: few_kinds(10_000, 1000, 1),
        "5 shapes: 1000 x 10000": lambda: few_kinds(10_000, 1000, 5),
        "15 shapes: 1000 x 10000": lambda: few_kinds(10_000, 1000, 15),
        "40 shapes: 1000 x 10000": lambda: few_kinds(10_000, 1000, 40),
    }
    chosen = [name for name in worlds if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    head = ("cold s", "full s", "changed s", "trainers", "gap", "gap ch.", "deleted", "MiB")
    widths = (7, 7, 8, 9, 8, 8, 8, 6)
    titles = " ".join(f"{title:>{width}}" for title, width in zip(head, widths, strict=True))
    print(f"{'size':<24} {titles} {'2017 s':>8} {'trainers':>8} {'j x n s':>8} {'trainers':>8}", flush=True)
    for name in chosen:
        measure(name, worlds[name]())


if __name__ == "__main__":
    main()
