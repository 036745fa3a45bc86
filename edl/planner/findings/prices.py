"""What one more unit of something scarce would be worth to the objective, read from the program's dual values.

Dual values are not unique: a price is a hint. `edl explain` confirms one by solving again.
"""

from __future__ import annotations

from edl.model.plan import Price
from edl.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from edl.model.units import GIB, amounts, count, rank_of
from edl.planner.findings.pools import pool_of
from edl.planner.problem import Problem
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.limit_rows import quotas_of
from edl.planner.quota import LIMITS

SMALLEST_PRICE = 1e-6


def prices_of(proof: Proof, problem: Problem) -> tuple[Price, ...]:
    """A price for each scarce pod shape, node class, serving shape and quota: what one more would add."""
    if proof.solution is None:
        return ()
    columns = proof.cluster.columns
    total = problem.allocatable.sum(axis=0).tolist()
    prices = []
    for shape, worth in zip(columns.shapes, proof.solution.slot_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            name, resource = amounts(problem.shapes[shape].request), _scarcest(problem, shape, total)
            prices.append(Price("shape", name, resource, worth))
            if proof.cluster.serving.get(shape):
                prices.append(Price("serving", name, resource, worth))
    for group, worth in zip(columns.classes, proof.solution.class_price.tolist(), strict=True):
        if worth > SMALLEST_PRICE:
            first = problem.snapshot.nodes[group.nodes[0]].name
            others, pool = len(group.nodes) - 1, pool_of(problem.snapshot.nodes[group.nodes[0]])
            name = f"{first} and {count(others, 'node')} like it" if others else first
            name = f"{name} ({pool})" if pool else name
            prices.append(Price("class", name, _scarcest(problem, columns.shapes[0], total), worth))
    quotas = quotas_of(problem, proof.cluster.jobs)
    worths = proof.solution.row_price.tolist()[len(proof.cluster.rows) - len(quotas) :]
    for row, worth in zip(quotas, worths, strict=True):
        if worth > SMALLEST_PRICE:
            unit = {CPU: 1000, MEMORY: GIB, EPHEMERAL_STORAGE: GIB}.get(row.resource.removeprefix(LIMITS), 1)
            name = f"{row.namespace}/{row.queue}" if row.namespace else row.queue
            prices.append(Price("quota", name, row.resource, worth * unit / max(1, row.limit)))
    return tuple(prices)


def _scarcest(problem: Problem, shape: int, total: list[int]) -> str:
    """The resource of which the shape requests the largest part of the cluster's total."""
    asked = [(c, n) for c, n in enumerate(problem.request[shape].tolist()) if n > 0]
    return (
        problem.names[min(asked, key=lambda a: (-a[1] / max(1, total[a[0]]), rank_of(problem.names[a[0]])))[0]]
        if asked
        else ""
    )
