"""The planner's cost and its distance from the optimum: `make benchmarks`.

Prints a line per size: CPU seconds of one decision on an empty cluster and of the next on the full one, the trainers
placed, the gap to the certified bound, and the peak memory so far. Figures of one run on one machine compare with
each other, not with those of another machine.
"""

from __future__ import annotations

import resource
import time

from benchmarks.worlds import carried_out, fleet, jobs_2017, mixed, nodes_2017
from edl.core.model import ClusterSnapshot
from edl.core.plan import Limits
from edl.core.policy import POLICIES, decide
from tests.builders import make_snapshot

__all__ = ["jobs_2017", "nodes_2017"]

LIMITS = Limits(deadline_s=120.0)


def measure(name: str, snapshot: ClusterSnapshot) -> None:
    """Decide on an empty cluster and on the full one, and print the line."""
    started_s = time.process_time()
    plan = decide(snapshot, POLICIES["maxmin"], LIMITS)
    cold_s = time.process_time() - started_s
    full = carried_out(snapshot, plan)
    started_s = time.process_time()
    again = decide(full, POLICIES["maxmin"], LIMITS)
    steady_s = time.process_time() - started_s
    trainers = sum(d.target for d in plan.decisions)
    changed = sum(d.target != d.current for d in again.decisions)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<24} {cold_s:8.2f} {steady_s:8.2f} {trainers:9d} {plan.certificate.gap:9.4%} "
        f"{changed:8d} {memory_mib:8.0f}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    print(f"{'size':<24} {'cold s':>8} {'full s':>8} {'trainers':>9} {'gap':>9} {'changed':>8} {'MiB':>8}")
    measure("2017: 20 jobs x 133", make_snapshot(nodes_2017(), jobs_2017(20)))
    for node_count, job_count in ((20, 10), (200, 50), (500, 100), (1000, 200)):
        measure(f"mixed: {job_count} jobs x {node_count}", mixed(node_count, job_count))
    for node_count, job_count in ((1000, 200), (10000, 1000)):
        measure(f"fleet: {job_count} jobs x {node_count}", fleet(node_count, job_count))


if __name__ == "__main__":
    main()
