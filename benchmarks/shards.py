"""What it costs to share a cluster between controllers: `python -m benchmarks.shards [--nodes 1000] [--jobs 200]`.

A fleet is planned as one, and split into 2 and 4 pools of nodes with a planner each. Jobs are dealt to the pools in
turn (`dealt`), or at random, as a hash of their names would do it (`hashed`). Prints, over all pools, the trainers,
the jobs that are admitted, the mean and the lowest tenth of fulfilment, and the CPU seconds of the slowest planner.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from benchmarks.worlds import fleet
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.planner.policies.registry import policy_named

COUNTS = (2, 4)
LIMITS = Limits(deadline_s=1000.0)


@dataclass(frozen=True, slots=True)
class Shared:
    """The plans of all pools together."""

    decisions: tuple[ScaleDecision, ...]
    slowest_s: float

    def __str__(self) -> str:
        parts = sorted(_fulfilment(decision) for decision in self.decisions)
        lowest = parts[: max(1, len(parts) // 10)]
        trainers, admitted = (sum(d.target for d in self.decisions), sum(d.admitted for d in self.decisions))
        return f"{trainers:>9}{admitted:>9}{fmean(parts):>8.3f}{fmean(lowest):>14.3f}{self.slowest_s:>9.2f}"


def pools(snapshot: ClusterSnapshot, count: int, pool_of: Callable[[int], int]) -> list[ClusterSnapshot]:
    """Every count-th node with its pods forms a pool; `pool_of` gives the pool of a job by its number."""
    found = []
    for pool in range(count):
        nodes = snapshot.nodes[pool::count]
        names = {node.name for node in nodes}
        pods = tuple(pod for pod in snapshot.pods if pod.node in names)
        jobs = tuple(job for number, job in enumerate(snapshot.jobs) if pool_of(number) == pool)
        found.append(replace(snapshot, nodes=nodes, pods=pods, jobs=jobs))
    return found


def planned(parts: Sequence[ClusterSnapshot]) -> Shared:
    """Plan each pool by itself."""
    decisions: list[ScaleDecision] = []
    slowest_s = 0.0
    for part in parts:
        began_s = time.process_time()
        decisions += decide(part, policy_named("maxmin"), LIMITS).decisions
        slowest_s = max(slowest_s, time.process_time() - began_s)
    return Shared(tuple(decisions), slowest_s)


def _fulfilment(decision: ScaleDecision) -> float:
    return decision.target / max(1, decision.max_trainers)


def main() -> None:
    """Print a line for each number of pools and each way to deal the jobs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args()
    snapshot = fleet(options.nodes, options.jobs)
    print(f"{options.nodes} nodes, {options.jobs} jobs")
    print(f"{'pools':<16}{'trainers':>9}{'admitted':>9}{'mean':>8}{'lowest tenth':>14}{'CPU s':>9}")
    print(f"{'1':<16}{planned([snapshot])}", flush=True)
    for count in COUNTS:
        chance = Random(count)  # noqa: S311 - not a secret
        hashed = [chance.randrange(count) for _ in snapshot.jobs]
        dealt = [number % count for number in range(len(snapshot.jobs))]
        print(f"{f'{count}, dealt':<16}{planned(pools(snapshot, count, dealt.__getitem__))}", flush=True)
        print(f"{f'{count}, hashed':<16}{planned(pools(snapshot, count, hashed.__getitem__))}", flush=True)


if __name__ == "__main__":
    main()
