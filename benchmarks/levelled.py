"""Measures what level shares cost in sum, on worlds small enough for exact answers: `python -m benchmarks.levelled`.

For each seeded world of `many sizes`: the largest sum of fulfilments of any plan, the sum of the plan whose
fulfilments are lexicographically largest from the worst off upwards (both by integer programs over nodes and jobs),
and those of edl's plan; then the fulfilment of the worst off in the last two. Every world begins empty.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from benchmarks.worst_worlds import many_sizes
from edl.model.limits import Limits
from edl.planner.clock import Clock
from edl.planner.decide import study
from edl.planner.policies.registry import POLICIES
from edl.planner.problem import Problem

FloatArray = NDArray[np.float64]
NODES, JOBS, SEEDS, DEADLINE_S = 5, 6, 10, 60.0
LIMIT_S = 5.0


class Exact:
    """The integer program of one world: x[node, job] trainers, and t, a level that some jobs reach."""

    def __init__(self, problem: Problem) -> None:
        """Take nodes and jobs; each job has its minimum at least."""
        self.low = np.array([d.min_trainers for d in problem.demands], dtype=np.float64)
        self.span = np.array([max(1, d.max_trainers - d.min_trainers) for d in problem.demands], dtype=np.float64)
        self.high = np.array([d.max_trainers for d in problem.demands], dtype=np.float64)
        nodes, jobs = len(problem.empty), len(self.low)
        request = problem.request[[d.shape for d in problem.demands]] / problem.largest
        room = np.zeros((nodes * request.shape[1], nodes * jobs + 1))
        for n in range(nodes):
            room[n * request.shape[1] : (n + 1) * request.shape[1], n * jobs : (n + 1) * jobs] = request.T
        self.count = np.hstack([np.tile(np.eye(jobs), nodes), np.zeros((jobs, 1))])
        self._room = LinearConstraint(room, ub=(problem.empty / problem.largest).ravel())

    def best(self, cost: FloatArray, least: FloatArray, reach: FloatArray) -> FloatArray | None:
        """(jobs,) the trainers that cost least, of `least` and more; jobs with `reach` 1 reach the level t."""
        level = self.count.copy()
        level[:, -1] = -self.span
        result = milp(
            cost,
            integrality=np.concatenate([np.ones(len(cost) - 1), [0]]),
            bounds=Bounds(np.zeros(len(cost)), np.concatenate([np.full(len(cost) - 1, np.inf), [1.0]])),
            constraints=[
                self._room,
                LinearConstraint(self.count, lb=least, ub=self.high),
                LinearConstraint(level[reach > 0], lb=self.low[reach > 0]),
            ],
            options={"time_limit": LIMIT_S, "mip_rel_gap": 0.0},
        )
        return None if result.x is None else np.round(self.count @ result.x)

    def most(self) -> FloatArray:
        """(jobs,) the trainers of the largest sum of fulfilments."""
        cost = -self.count.T @ (1.0 / self.span)
        found = self.best(cost, self.low, np.zeros(len(self.low)))
        return self.low if found is None else found

    def fairest(self) -> FloatArray:
        """(jobs,) the trainers that are lexicographically largest: the level rises, and who blocks it is frozen."""
        free, least = np.ones(len(self.low)), self.low.copy()
        level_only = np.zeros(self.count.shape[1])
        level_only[-1] = -1.0
        while free.any():
            found = self.best(level_only, least, free)
            if found is None:
                break
            level = float(((found - self.low) / self.span)[free > 0].min())
            reached = np.where(free > 0, np.ceil(self.low + level * self.span - 1e-6), least)
            least = np.maximum(least, reached)
            stuck = [
                k
                for k in np.flatnonzero(free).tolist()
                if self.best(0.0 * level_only, least + np.eye(len(least))[k], np.zeros(len(least))) is None
            ]
            if not stuck:  # only all together are blocked: the one that needs most for its next trainer stays
                stuck = [int(np.where(free > 0, 1.0 / self.span, -1.0).argmax())]
            free[stuck] = 0.0
        return least


def main() -> None:
    """Print the table."""
    sums_head = f"{'largest sum':>11} {'fairest sum':>11} {'plan sum':>9}"
    print(f"{'seed':>4} {sums_head} {'worst, fairest':>14} {'worst, plan':>11}")
    for seed in range(SEEDS):
        snapshot = many_sizes(NODES, JOBS, seed).snapshot
        limits = Limits(deadline_s=DEADLINE_S)
        made = study(snapshot, POLICIES["maxmin"], limits, clock=Clock(DEADLINE_S, time.process_time))
        exact = Exact(made.context.problem)
        demands = made.context.problem.demands
        targets = {d.job: d.target for d in made.plan.decisions}
        plan = np.array([targets[demand.job.key] for demand in demands], dtype=np.float64)
        if len(made.context.shared.packing.members) < len(demands):
            continue
        sums, worst = [], []
        for count in (exact.most(), exact.fairest(), plan):
            reached = (count - exact.low) / exact.span
            sums.append(float(reached.sum()))
            worst.append(float(reached.min()))
        print(
            f"{seed:4d} {sums[0]:11.3f} {sums[1]:11.3f} {sums[2]:9.3f} {worst[1]:14.3f} {worst[2]:11.3f}", flush=True
        )


if __name__ == "__main__":
    main()
