"""Chooses which trainers to delete so that pods of one shape fit: the fewest, then the cheapest, on eligible nodes.

Capacity is freed node by node, never in total. Each node offers slots for deletions (so many slots if these trainers
are deleted), and `programs.offers` chooses among the offers; for one shape that is exact. Among equal
numbers of deletions, the cheapest victim is a pod that does not run yet. After that come trainers of the job that is
best off, or of the one among equals whose resizes cost least; then surplus trainers, and those that started last.
Placing without any deletion uses the same table; the cost is then the slots that trainers lose.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import log2, prod
from operator import add
from typing import NamedTuple

import numpy as np

from edl.model.jobs import Job
from edl.planner.evictions import shortfall
from edl.planner.problem import DeletionOrder, IntArray, JobDemand, count_slots, order_of
from edl.planner.programs.offers import IMPOSSIBLE, SPARE_CHOICE, WIDE, Choice, Cost, NodeOffer, cheapest
from edl.planner.trial_packing import TrialPacking

# A cost is two integers with a bit field for each criterion, the most important first. The first integer holds the
# number of deletions, those of running pods, and unfairness with what a resize costs; the second those of base pods,
# lost slots, and what the node has to spare.
DELETION, RUNNING, UNFAIR_STEPS, COST_STEPS = 1 << 44, 1 << 26, 127, 16
BASE, LOST, LATE, SPARE_STEPS = 1 << 44, 1 << 22, 16, 15
MIX_LIMIT = 64  # at most so many combinations of shapes to delete are tried on one node


def choose(packing: TrialPacking, shape: int, count: int, allowance: Mapping[int, int]) -> list[Choice]:
    """Choose nodes, and trainers to delete there, for as many pods of one shape as possible, at most `count`.

    Trainers of jobs that end late are chosen only if no others free capacity: nobody can wait for them.

    Args:
        packing: the packing; not changed.
        shape: index of the pods' shape.
        count: how many are wanted, >= 1.
        allowance: how many trainers of each job may be deleted; a job that is not named loses none. The limit is kept
            on each node, not over all nodes: a caller that applies the choices must watch the sum and call again.

    Returns:
        The choices, one for each node used, sorted by node. Together they hold as many pods as possible, with the
        fewest deletions; if there are trainers that end late, and others free capacity for some pods, only for these.
    """
    demands = packing.problem.demands
    soon = {j: most for j, most in allowance.items() if not demands[j].ends_late}
    if len(soon) < len(allowance) and (found := _chosen(packing, shape, count, soon)):
        return found
    return _chosen(packing, shape, count, allowance)


def _chosen(packing: TrialPacking, shape: int, count: int, allowance: Mapping[int, int]) -> list[Choice]:
    """The choices over all trainers that may be deleted."""
    if packing.problem.plans_in_bulk:
        slots = packing.slots(shape)
        if int(slots.sum()) >= count:
            return _fill_free(packing, shape, count, slots)
        if not any(allowance.values()):  # every free slot is used, and there are no others
            return [Choice(node, int(slots[node]), ()) for node in np.flatnonzero(slots).tolist()]
        nodes = _promising(packing, shape, count, allowance)
        prices = _rough_prices(packing, allowance, nodes)
    else:
        nodes = np.flatnonzero(packing.problem.opened[shape])
    free_offers = _free_offers(packing, shape, count, nodes)
    if sum(offers[-1].slots for offers in free_offers.values()) >= count:
        return cheapest(free_offers, count)
    if not packing.problem.plans_in_bulk:
        prices = _deletion_prices(packing, allowance)
    offers = {node: [*free] for node, free in free_offers.items()}
    best = IMPOSSIBLE
    for least, node in sorted(_least_costs(packing, shape, prices, nodes)):
        if count == 1 and least > best:  # no further node is chosen
            break
        order = deletion_order(packing, node, allowance)
        found = _offers_with_victims(packing, (shape, count), node, order, prices)
        offers.setdefault(node, []).extend(found)
        best = min([best, *(offer.cost[0] for offer in found)])
    return cheapest({node: o for node, o in offers.items() if o}, count)


def _least_costs(
    packing: TrialPacking, shape: int, prices: Mapping[int, Cost], nodes: IntArray
) -> list[tuple[int, int]]:
    """Return the nodes on which deletions free capacity, as pairs of the least cost of a pod there and the node.

    The cost is the first integer of a `Cost`, as if every trainer there were as large as the largest one and as cheap
    as the cheapest one that may be deleted.
    """
    problem, request = packing.problem, packing.problem.request[shape]
    trainers = np.array([i for i in prices if packing.node_of[i] >= 0], dtype=np.int64)
    node, freed = packing.node_of[trainers], problem.request[problem.trainer_shape[trainers]]
    every, largest = np.zeros_like(packing.free), np.zeros_like(packing.free)
    np.add.at(every, node, freed)
    np.maximum.at(largest, node, freed)
    price = np.full(len(packing.free), IMPOSSIBLE, dtype=np.int64)
    np.minimum.at(price, node, np.array([prices[i][0] for i in trainers.tolist()], dtype=np.int64))
    gains = count_slots(packing.free + every, request) > packing.slots(shape)
    found = nodes[gains[nodes]]
    lack = shortfall(packing.free[found], request)
    deletions = (-(-lack // largest[found].clip(min=1))).max(axis=1, initial=0)
    return list(zip((deletions * price[found]).tolist(), found.tolist(), strict=True))


def _promising(packing: TrialPacking, shape: int, count: int, allowance: Mapping[int, int]) -> IntArray:
    """The nodes of a large cluster that need the fewest deletions for a slot, enough of them to choose from.

    For each node, its trainers that may be deleted are taken away one by one, the largest first, and the best prefix
    counts.
    """
    problem = packing.problem
    allowed = np.zeros(len(problem.demands), dtype=np.int64)
    allowed[list(allowance)] = list(allowance.values())
    live_trainers, node = packing.with_node()
    may_delete = (allowed[problem.trainer_demand[live_trainers]] > 0) & problem.opened[shape, node]
    live_trainers, node = live_trainers[may_delete], node[may_delete]
    free = packing.slots(shape)
    nodes_with_slots = np.flatnonzero(free)[:count]
    if not len(live_trainers):
        return nodes_with_slots
    asked = np.flatnonzero(
        problem.request[shape]
    )  # rules may be a hundred resources that this shape does not ask for
    slack = packing.free[:, asked].clip(min=0)[node]
    each = problem.request[problem.trainer_shape[live_trainers]][:, asked]
    if packing.counts_requests:
        each = each - problem.trainer_lent[live_trainers][:, asked]
    size = (problem.request[problem.trainer_shape[live_trainers]] / problem.largest).sum(axis=1)
    order = np.lexsort((live_trainers, -size, node))
    live_trainers, node, slack = live_trainers[order], node[order], slack[order]
    starts = np.flatnonzero(np.diff(node, prepend=-1))
    freed = np.cumsum(each[order], axis=0)
    rank = np.arange(len(node)) - np.repeat(starts, np.diff(starts, append=len(node)))
    before = np.vstack([np.zeros((1, freed.shape[1]), dtype=np.int64), freed])[np.arange(len(node)) - rank]
    gained = np.minimum(count_slots(slack + freed - before, problem.request[shape, asked]), count) - free[node]
    deletions = np.where(gained > 0, (rank + 1) / gained.clip(min=1), np.inf)
    best = np.lexsort((node, -gained, deletions))
    best = best[np.isfinite(deletions[best])]
    best = best[np.sort(np.unique(node[best], return_index=True)[1])]
    enough = int(np.searchsorted(np.cumsum(gained[best]), SPARE_CHOICE * count + WIDE)) + 1
    return np.union1d(node[best[:enough]], nodes_with_slots)


def _rough_prices(packing: TrialPacking, allowance: Mapping[int, int], nodes: IntArray) -> dict[int, Cost]:
    """The cost of each deletion on these nodes, as if it were the only one of its job."""
    prices: dict[int, Cost] = {}
    for node in nodes.tolist():
        for index in packing.at[node]:
            trainer = packing.problem.live_trainers[index]
            if allowance.get(trainer.demand, 0) > 0:
                demand, (running, base) = packing.problem.demands[trainer.demand], trainer.order[:2]
                excess, steps = packing.count[trainer.demand] > demand.max_trainers, _cost_steps(demand.job)
                unfair = _unfairness(demand, packing.count[trainer.demand], steps)
                prices[index] = ((not excess) * DELETION + running * RUNNING + unfair, base * BASE)
    return prices


def deletion_order(packing: TrialPacking, node: int, allowance: Mapping[int, int]) -> list[int]:
    """The trainers of a node in the order of deletion: those that do not run, then those of the best-off job.

    Of jobs that are equally well off, the one whose resizes cost least comes first.
    """
    live_trainers, demands = packing.problem.live_trainers, packing.problem.demands
    order = {index: order_of(packing.problem, index) for index in packing.at[node]}
    queues: dict[int, list[int]] = {}
    for index in sorted(order, key=lambda i: order[i]):
        queue = queues.setdefault(live_trainers[index].demand, [])
        if len(queue) < allowance.get(live_trainers[index].demand, 0):
            queue.append(index)

    def urgency(j: int, taken: int) -> tuple[bool, float, int, DeletionOrder, float, int, int]:
        """Sort key of a job by its next trainer to delete, given how many are deleted already."""
        index, job = queues[j][taken], demands[j].job
        level = packing.fulfilment(j, -taken)
        return (order[index][0], -level, _cost_steps(job), order[index], -job.created_s, -j, taken)

    heap = [urgency(j, 0) for j, queue in queues.items() if queue]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        *_, j, taken = heap[0]
        found.append(queues[-j][taken])
        if taken + 1 < len(queues[-j]):
            heapq.heapreplace(heap, urgency(-j, taken + 1))
        else:
            heapq.heappop(heap)
    return found


def _fill_free(packing: TrialPacking, shape: int, count: int, slots: IntArray) -> list[Choice]:
    """Use free slots for `count` pods: nodes where a slot costs least come first, and each is filled."""
    nodes = np.flatnonzero(slots)
    pods = slots[nodes]
    cost = lost_slots(packing, shape, nodes, pods) / pods
    late = (packing.now[nodes] < pods[:, None] * packing.problem.request[shape]).any(axis=1)
    order = np.lexsort((nodes, -pods, late, cost))
    before = np.cumsum(pods[order]) - pods[order]
    used = order[before < count]
    given = np.minimum(pods[used], count - before[before < count])
    return sorted(
        (Choice(node, n, ()) for node, n in zip(nodes[used].tolist(), given.tolist(), strict=True)),
        key=lambda choice: choice.node,
    )


def lost_slots(packing: TrialPacking, shape: int, nodes: IntArray, pods: int | IntArray) -> IntArray:
    """How many trainers no longer fit on a node once more pods are there.

    Args:
        packing: the packing; not changed.
        shape: index of the pods' shape.
        nodes: indices of the nodes to judge.
        pods: how many pods come to each; one number for all of them, or one for each.

    Returns:
        (len(nodes),) slots of the reference shapes that are lost, added up over the shapes.
    """
    problem = packing.problem
    lost = np.zeros(len(nodes), dtype=np.int64)
    asked = np.flatnonzero(problem.request[[shape, *problem.reference]].any(axis=0))
    request = problem.request[:, asked]
    before = packing.free[np.ix_(nodes, asked)]
    if packing.counts_requests:
        before = before - packing.lent[np.ix_(nodes, asked)]
    after = before - np.reshape(pods, (-1, 1)) * request[shape]
    for other in problem.reference:
        fits = problem.opened[other, nodes]
        lost += fits * (count_slots(before, request[other]) - count_slots(after, request[other]))
    if packing.counts_requests:  # a trainer that is slowed counts as a slot, so that truly free capacity comes first
        lost += ((after < 0) & (request[shape] > 0)).any(axis=1)
    return lost


def _free_offers(packing: TrialPacking, shape: int, count: int, within: IntArray) -> dict[int, list[NodeOffer]]:
    """The offers of nodes without any deletion.

    The cost is lost slots, then waiting time, then free capacity left.
    """
    slots = np.zeros(len(packing.free), dtype=np.int64)
    slots[within] = np.minimum(packing.slots(shape)[within], count)
    offers: dict[int, list[NodeOffer]] = {}
    request = packing.problem.request[shape]
    scale = packing.problem.largest
    for pods in _steps(slots):
        nodes = np.flatnonzero(slots >= pods)
        lost = lost_slots(packing, shape, nodes, pods)
        late = (packing.now[nodes] < pods * request).any(axis=1)
        spare = ((packing.free[nodes] - pods * request) / scale).clip(0, 1).mean(axis=1)
        costs = lost * LOST + late * LATE + (spare * SPARE_STEPS).astype(np.int64)
        for node, cost in zip(nodes.tolist(), costs.tolist(), strict=True):
            offers.setdefault(node, []).append(NodeOffer(pods, (0, cost)))
    return offers


def _steps(slots: IntArray) -> list[int]:
    """The numbers of slots that are offered: every one up to WIDE, and the most that each node holds."""
    return sorted({*range(1, min(int(slots.max(initial=0)), WIDE) + 1), *np.unique(slots).tolist()} - {0})


def _deletion_prices(packing: TrialPacking, allowance: Mapping[int, int]) -> dict[int, Cost]:
    """The cost of each deletion, as if each job lost its trainers in its order of deletion.

    Trainers beyond the maximum of their job come first and cost no deletion.
    """
    prices: dict[int, Cost] = {}
    for j, allowed in sorted(allowance.items()):
        if allowed <= 0:
            continue
        demand, count = packing.problem.demands[j], packing.count[j]
        own = demand.live_trainers
        placed = (np.flatnonzero(packing.node_of[own.start : own.stop] >= 0) + own.start).tolist()
        excess, steps = count - demand.max_trainers, _cost_steps(demand.job)
        order = sorted((order_of(packing.problem, i), i) for i in placed)
        for rank, ((running, base, *_), index) in enumerate(order):
            unfair = _unfairness(demand, count - rank, steps)
            prices[index] = ((rank >= excess) * DELETION + running * RUNNING + unfair, base * BASE)
    return prices


def _unfairness(demand: JobDemand, count: int, steps: int) -> int:
    """How badly off a job would be with `count` trainers; if equal, how much training time its resize costs."""
    level = min(1.0, max(0.0, demand.fulfilment(count)))
    return round(UNFAIR_STEPS * (1.0 - level)) * COST_STEPS + steps


def _cost_steps(job: Job) -> int:
    """How much training time a resize of a job costs, in doublings of a second: small differences do not count."""
    return min(COST_STEPS - 1, round(log2(1.0 + (job.resize_cost_s or 0.0))))


def _offers_with_victims(
    packing: TrialPacking, wanted: tuple[int, int], node: int, order: list[int], prices: Mapping[int, Cost]
) -> list[NodeOffer]:
    """The cheapest way to each number of slots that needs a deletion on this node."""
    shape, count = wanted
    best: dict[int, NodeOffer] = {}
    requested = [(r, amount) for r, amount in enumerate(packing.problem.request[shape].tolist()) if amount > 0]
    free = packing.free[node].tolist()
    without_deletion = min((free[r] // amount for r, amount in requested), default=count)
    for way in _ways_to_free(packing, order, [r for r, _ in requested], prices):
        fits = ((free[r] + freed) // amount for (r, amount), freed in zip(requested, way.freed, strict=True))
        slots = min(min(fits, default=count), count)
        for pods in range(max(without_deletion, 0) + 1, slots + 1):
            if pods not in best or way.cost < best[pods].cost:
                best[pods] = NodeOffer(pods, way.cost, way.live_trainers)
    return [best[pods] for pods in sorted(best)]


class _Way(NamedTuple):
    """Trainers of one node to delete, what their deletions free of some resources, and what these cost."""

    live_trainers: tuple[int, ...]
    freed: tuple[int, ...]
    cost: Cost

    def beside(self, other: _Way) -> _Way:
        """Combine two ways to free capacity."""
        freed = tuple(map(add, self.freed, other.freed))
        return _Way(
            self.live_trainers + other.live_trainers,
            freed,
            (self.cost[0] + other.cost[0], self.cost[1] + other.cost[1]),
        )


def _ways_to_free(
    packing: TrialPacking, order: list[int], resources: list[int], prices: Mapping[int, Cost]
) -> Iterator[_Way]:
    """Yield sets of trainers to delete: prefixes of the order, or mixes of prefixes by shape if these are few."""
    groups: dict[int, list[_Way]] = {}
    single: list[_Way] = []
    for index in order:
        freed = packing.freed(index).tolist()
        single.append(_Way((index,), tuple(freed[r] for r in resources), prices[index]))
        groups.setdefault(packing.problem.live_trainers[index].shape, []).append(single[-1])
    if len(groups) <= 1 or prod(len(group) + 1 for group in groups.values()) > MIX_LIMIT:
        yield from accumulate(single, _Way.beside)
        return
    nothing = _Way((), (0,) * len(resources), (0, 0))
    ways = [nothing]
    for group in groups.values():
        prefixes = list(accumulate(group, _Way.beside, initial=nothing))
        ways = [way.beside(prefix) for way in ways for prefix in prefixes]
    yield from ways[1:]
