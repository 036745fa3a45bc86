"""What Queue objects cost a decision: `python -m benchmarks.queues [--nodes 200] [--jobs 1000]`.

The same fleet is planned without queues, and with 10, 100 and 1000 queues that lend to each other; the jobs are dealt
to the queues in turn. Half of the queues want more than their own. Prints the CPU seconds of computing the shares
(best of 3) and of the whole decision, and for each job the microseconds of the shares and the calls of the decision.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial

from benchmarks.calls import calls_of
from benchmarks.worlds import fleet
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.queues import Queue
from edl.model.resources import CPU
from edl.planner.policies.registry import policy_named
from edl.planner.queues.borrowing import borrowing_quotas

COUNTS = (0, 10, 100, 1000)
LIMITS = Limits(deadline_s=1000.0)


def with_queues(snapshot: ClusterSnapshot, count: int) -> ClusterSnapshot:
    """The snapshot with so many queues; together they have the CPU of the cluster."""
    if not count:
        return snapshot
    total = sum(node.allocatable[CPU] for node in snapshot.nodes)
    each = 2 * total // count
    queues = tuple(
        Queue(f"q{number:04}", ((CPU, each // 4 if number % 2 else 3 * each // 4),)) for number in range(count)
    )
    jobs = tuple(replace(job, queue=queues[number % count].name) for number, job in enumerate(snapshot.jobs))
    return replace(snapshot, jobs=jobs, queues=queues)


def shares_s(snapshot: ClusterSnapshot) -> float:
    """CPU seconds of the shares alone."""
    taken = []
    for _ in range(3):
        began_s = time.process_time()
        borrowing_quotas(snapshot)
        taken.append(time.process_time() - began_s)
    return min(taken)


def main() -> None:
    """Print a line for each number of queues."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1000)
    asked = parser.parse_args()
    snapshot = fleet(asked.nodes, asked.jobs)
    print(f"{'queues':>7}{'shares s':>10}{'us a job':>10}{'decision s':>12}{'calls a job':>13}{'admitted':>10}")
    for count in COUNTS:
        view = with_queues(snapshot, count)
        shares = shares_s(view)
        began_s = time.process_time()
        plan = decide(view, policy_named("maxmin"), LIMITS)
        seconds = time.process_time() - began_s
        calls = calls_of(partial(decide, view, policy_named("maxmin"), LIMITS))
        admitted = sum(decision.admitted for decision in plan.decisions)
        costs = f"{shares:>10.3f}{1e6 * shares / asked.jobs:>10.0f}{seconds:>12.2f}{calls / asked.jobs:>13.0f}"
        print(f"{count:>7}{costs}{admitted:>10}")


if __name__ == "__main__":
    main()
