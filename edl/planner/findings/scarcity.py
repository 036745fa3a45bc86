"""Why one more trainer does not fit: which resource is full on which nodes, which jobs hold it, what one would cost.

Everything here is read from the finished packing: whole pods on real nodes. Nothing depends on a price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edl.model.cluster import Node
from edl.model.names import Role
from edl.model.resources import RULE_PREFIX
from edl.model.units import rank_of
from edl.planner.evictions import evictions_needed, shortfall
from edl.planner.objective import Exchange
from edl.planner.problem import BoolArray, IntArray, Problem, count_slots
from edl.planner.trial_packing import SERVING, TrialPacking

HOLDERS_TRIED = 8  # best-off holders for which the cost of one more trainer is computed


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which some nodes have less free than one more pod requests.

    Attributes:
        nodes: their indices; a node is listed once, with the most widespread of the resources that it lacks.
        most_free: the most that any of them has free.
    """

    resource: str
    nodes: tuple[int, ...]
    most_free: int


@dataclass(frozen=True, slots=True)
class SurplusHolder:
    """A job with trainers above its minimum on nodes that another job could use.

    Attributes:
        surplus: how many of its trainers there are above its minimum.
        part: the share of the scarce resource on those nodes that its surplus uses.
    """

    demand: int
    surplus: int
    part: float


def usable(packing: TrialPacking, shape: int) -> BoolArray:
    """(nodes,) True if a node accepts pods of a shape and is large enough for one; if none is, all that accept it.

    By taints and selectors alone, a node without GPUs accepts a pod that requests one; its GPUs are not full. A node
    on which a rule allows no pod is large enough: what the rule allows is full there.
    """
    problem = packing.problem
    is_rule = np.array([name.startswith(RULE_PREFIX) for name in problem.names], dtype=bool)
    large: BoolArray = problem.opened[shape]
    large = large & ((problem.allocatable >= problem.request[shape]) | is_rule).all(axis=1)
    return large if large.any() else problem.opened[shape]


def open_to_any(problem: Problem, shapes: Sequence[int]) -> BoolArray:
    """(nodes,) True if a node accepts new pods of at least one of some shapes."""
    found: BoolArray = np.logical_or.reduce([problem.opened[shape] for shape in shapes])
    return found


def held_by_minimums(packing: TrialPacking, is_open: BoolArray) -> IntArray:
    """(demands, resources) what the minimums, masters and pservers of running jobs hold on some nodes."""
    problem = packing.problem
    runs = np.zeros(len(problem.demands), dtype=np.bool_)
    runs[list(packing.members)] = True
    bound = ~problem.held.is_trainer & is_open[problem.held.node] & runs[problem.held.demand]
    held = np.zeros((len(problem.demands), len(problem.names)), dtype=np.int64)
    np.add.at(held, problem.held.demand[bound], problem.request[problem.held.shape[bound]])
    trainers, at = packing.with_node()
    here = Counter(problem.trainer_demand[trainers[is_open[at]]].tolist())
    for place in packing.placed:
        if place.owner == SERVING or not is_open[place.node]:
            continue
        if place.role is Role.TRAINER:
            here[place.owner] += 1
        else:
            held[place.owner] += problem.request[place.shape]
    for j, count in here.items():
        held[j] += min(count, problem.demands[j].min_trainers) * problem.request[problem.demands[j].shape]
    return held


class NodeKinds:
    """The nodes in kinds that no toleration can tell apart, because thousands may be asked about thousands of times.

    Nodes of a kind may differ in labels and in what is free.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Group the nodes."""
        kinds: dict[tuple[object, ...], int] = {}
        self._examples: list[Node] = []
        order = []
        for node in nodes:
            kind = kinds.setdefault((node.ready, node.cordoned, node.taints), len(self._examples))
            if kind == len(self._examples):
                self._examples.append(node)
            order.append(kind)
        self._kind_of = np.array(order, dtype=np.int64)

    def among(self, chosen: BoolArray) -> list[tuple[Node, int]]:
        """The first node of each kind among some nodes, and how many of them are of the kind."""
        kinds, first, number = np.unique(self._kind_of[chosen], return_index=True, return_counts=True)
        return [(self._examples[int(kinds[at])], int(number[at])) for at in np.argsort(first).tolist()]


def open_nodes(packing: TrialPacking, shape: int) -> list[int]:
    """Indices of the usable nodes."""
    nodes: list[int] = usable(packing, shape).nonzero()[0].tolist()
    return nodes


def shortages(packing: TrialPacking, shape: int) -> tuple[Shortage, ...]:
    """The resources that one more pod of the shape lacks, the most widespread first."""
    problem = packing.problem
    left = usable(packing, shape).nonzero()[0]
    asked = [(name, c) for c, name in enumerate(problem.names) if problem.request[shape, c] > 0]
    found = []
    while len(left):
        lacking = {name: left[packing.free[left, c] < problem.request[shape, c]] for name, c in asked}
        name = min(lacking, key=lambda n: (-len(lacking[n]), rank_of(n)), default="")
        if not name or not len(lacking[name]):
            break
        column = dict(asked)[name]
        most = int(packing.free[lacking[name], column].max())
        found.append(Shortage(name, tuple(lacking[name].tolist()), max(0, most)))
        left = left[packing.free[left, column] >= problem.request[shape, column]]
    return tuple(found)


def nearest(packing: TrialPacking, shape: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    """The node that lacks least for one more pod, with (resource, amount) for all it lacks; -1 if none accepts it."""
    problem = packing.problem
    nodes = usable(packing, shape).nonzero()[0]
    if not len(nodes):
        return -1, ()
    lack = shortfall(packing.free[nodes], problem.request[shape])
    part = lack / problem.allocatable[nodes].max(axis=0, initial=1).clip(min=1)
    best = int(part.max(axis=1, initial=0).argmin())
    found = [(name, int(lack[best, c])) for c, name in enumerate(problem.names) if lack[best, c] > 0]
    return int(nodes[best]), tuple(sorted(found, key=lambda one: rank_of(one[0])))


class PlacedTrainers:
    """The trainers of a finished packing as arrays, because they are searched once per trainer shape.

    Attributes:
        node, demand: (trainers,) where each trainer is, kept or new, and whose it is; sorted by demand.
        is_alike: (trainers,) whether it has the shape that its job asks for now.
    """

    def __init__(self, packing: TrialPacking) -> None:
        """Read the trainers of a finished packing into arrays."""
        rows = np.concatenate(packing.trainers())
        rows = rows[rows[:, 1].argsort(kind="stable")]
        asked = np.array([demand.shape for demand in packing.problem.demands], dtype=np.int64)
        self.packing = packing
        self.node, self.demand = rows[:, 0], rows[:, 1]
        self.is_alike = rows[:, 2] == asked[self.demand] if len(rows) else np.zeros(0, dtype=np.bool_)

    def holders(self, shape: int, resource: str) -> tuple[SurplusHolder, ...]:
        """The jobs with trainers above their minimum on nodes that a shape could use.

        The largest part comes first.
        """
        packing, problem = self.packing, self.packing.problem
        here = usable(packing, shape)
        near = np.bincount(self.demand[here[self.node]], minlength=len(problem.demands)).tolist()
        column = problem.names.index(resource)
        offered = max(1, int(problem.allocatable[here, column].sum()))
        found = []
        for j in packing.members:
            surplus = min(near[j], packing.count[j] - problem.demands[j].min_trainers)
            asked = int(problem.request[problem.demands[j].shape, column])
            if surplus > 0 and asked > 0:
                found.append(SurplusHolder(j, surplus, surplus * asked / offered))
        return tuple(sorted(found, key=lambda h: (-h.part, -h.surplus, problem.demands[h.demand].job.key)))

    def exchanges(self, shape: int, holders: Sequence[SurplusHolder]) -> tuple[Exchange, ...]:
        """For each of the best-off holders, the fewest deletions on one node that make one more pod of the shape fit.

        A holder is left out if its surplus frees capacity on no single node.
        """
        packing = self.packing
        best_off = sorted(
            holders, key=lambda h: (-packing.fulfilment(h.demand), packing.problem.demands[h.demand].job.key)
        )
        found = [Exchange(h.demand, self._fewest_deletions(shape, h)) for h in best_off[:HOLDERS_TRIED]]
        return tuple(one for one in found if one.deletions)

    def _fewest_deletions(self, shape: int, holder: SurplusHolder) -> int:
        """The fewest trainers of the holder to delete on one node; 0 if that helps on no node."""
        problem = self.packing.problem
        mine = slice(*np.searchsorted(self.demand, [holder.demand, holder.demand + 1]).tolist())
        node = self.node[mine]
        nodes, here = np.unique(node[self.is_alike[mine] & problem.opened[shape][node]], return_counts=True)
        freed = problem.request[problem.demands[holder.demand].shape]
        deletions = evictions_needed(shortfall(self.packing.free[nodes], problem.request[shape]), freed)
        possible = deletions[deletions <= np.minimum(here, holder.surplus)]
        return int(possible.min()) if len(possible) else 0


def slots_without_training(problem: Problem, shape: int, without: str = "") -> int:
    """How many pods of a shape fit on the nodes without any training.

    Args:
        problem: the arrays.
        shape: index of the shape.
        without: a resource of which they need nothing.
    """
    request = problem.request[shape].copy()
    if without:
        request[problem.names.index(without)] = 0
    return int((count_slots(problem.empty, request) * problem.opened[shape]).sum())


def scarce_of(problem: Problem, shape: int, names: Iterable[str]) -> list[str]:
    """Keep of the resources that a shape requests those of which more would let further pods fit.

    Of host ports that the same pods request, one has a column and is named for all; so is one of the resources that
    no node has.
    """
    slots, known = slots_without_training(problem, shape), set(problem.names)
    return [name for name in names if name in known and slots_without_training(problem, shape, without=name) > slots]
