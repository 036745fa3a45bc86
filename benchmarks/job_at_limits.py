"""Measures what jobs at all limits of a pod at once cost a decision: `python -m benchmarks.job_at_limits`.

A line for each number of such jobs beside 40 plain ones: CPU seconds of the decision, of one such job, and what the
planner itself says the costliest job cost. Compare figures only with those of the same run on the same machine.
"""

from __future__ import annotations

import time

from benchmarks.worst_worlds import one_odd_job
from edl.model.limits import Limits
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.policies.registry import POLICIES
from tests.worlds.oversized_pods import job_at_limits
from tests.worlds.small_clusters import with_jobs

DEADLINE_S = 60.0
JOBS = 40


def main() -> None:
    """Print the table."""
    print(f"{'nodes':>6} {'at limits':>9} {'CPU s':>7} {'ms each':>8}  costliest")
    for nodes in (300, 1000, 5000):
        world, plain_s = one_odd_job(nodes, JOBS, 1).snapshot, 0.0
        for count in (0, 1, 8, 20):
            snapshot = with_jobs(world, *(job_at_limits(i) for i in range(count)))
            clock = Clock(DEADLINE_S, time.process_time)
            plan = study(snapshot, POLICIES["maxmin"], Limits(deadline_s=DEADLINE_S), clock=clock).plan
            plain_s = plain_s if count else clock.spent_s
            each_ms = 1000 * (clock.spent_s - plain_s) / max(1, count)
            costliest = f"{plan.costliest[0]} {1000 * plan.costliest[1]:.1f} ms" if plan.costliest else ""
            print(f"{nodes:6d} {count:9d} {clock.spent_s:7.2f} {each_ms:8.1f}  {costliest}", flush=True)


if __name__ == "__main__":
    main()
