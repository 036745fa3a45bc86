"""A baseline: one integer program with a variable for each job and node, under a time limit.

It admits every job and maximises the sum of fulfilments; it does not put the worst-off jobs first. It is the obvious
formulation, and shows what node classes and patterns save.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.planner.problem_reader import read_problem

MOST_VARIABLES = 60_000


@dataclass(frozen=True, slots=True)
class RolePolicy:
    """The result: CPU seconds, trainers, and the sum of fulfilments; None if no solution was found."""

    cpu_s: float
    trainers: int | None
    fulfilment: float | None


def solve(snapshot: ClusterSnapshot, limit_s: float) -> RolePolicy | None:
    """Solve the program for an empty cluster; return None if it is too large to build."""
    world = read_problem(snapshot, Limits())
    pods = [(demand.index, demand.shape, -1) for demand in world.demands]
    pods += [(demand.index, need.shape, need.missing) for demand in world.demands for need in demand.needs]
    nodes = len(world.empty)
    if len(pods) * nodes > MOST_VARIABLES:
        return None
    started_s = time.process_time()
    rows, columns, amounts, sums = [], [], [], []
    scale = world.largest.astype(np.float64)
    high = np.zeros(len(pods) * nodes)
    for k, (_, shape, _) in enumerate(pods):
        variables = k * nodes + np.arange(nodes)
        high[variables] = np.where(world.opened[shape], np.inf, 0.0)
        for r in np.flatnonzero(world.request[shape]).tolist():
            rows.append(np.arange(nodes) * len(scale) + r)
            columns.append(variables)
            amounts.append(np.full(nodes, world.request[shape, r] / scale[r]))
        sums.append(variables)
    size = len(pods) * nodes
    room = (world.empty.clip(min=0) / scale).ravel()
    capacity = coo_array(
        (np.concatenate(amounts), (np.concatenate(rows), np.concatenate(columns))), shape=(len(room), size)
    ).tocsr()
    count = coo_array(
        (np.ones(size), (np.repeat(np.arange(len(pods)), nodes), np.concatenate(sums))), shape=(len(pods), size)
    ).tocsr()
    low = np.array([world.demands[j].min_trainers if n < 0 else n for j, _, n in pods], dtype=np.float64)
    most = np.array([world.demands[j].max_trainers if n < 0 else n for j, _, n in pods], dtype=np.float64)
    each = np.array([1.0 / max(1, c.max_trainers - c.min_trainers) for c in world.demands])
    gain = np.array([each[j] if n < 0 else 0.0 for j, _, n in pods])
    result = milp(
        -np.repeat(gain, nodes),
        integrality=np.ones(size, dtype=np.int64),
        bounds=Bounds(np.zeros(size), high),
        constraints=[LinearConstraint(capacity, ub=room), LinearConstraint(count, lb=low, ub=most)],
        options={"time_limit": limit_s},
    )
    cpu_s = time.process_time() - started_s
    if result.x is None:
        return RolePolicy(cpu_s, None, None)
    given = np.asarray(count @ np.asarray(result.x).round(), dtype=np.float64)[: len(world.demands)]
    return RolePolicy(cpu_s, int(given.sum()), float(((given - low[: len(given)]) * each).sum()))
