"""How many trainers of a job each domain has capacity for: now, without surplus trainers, and without any training.

They are counted beside all pservers of the job, because these belong into the same domain. With `mode: Preferred` the
pservers of a domain without capacity for them are left out: they may be elsewhere. Of a job with slices, only the
trainers of whole slices count, and its pservers take no capacity from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from edl.model.resources import PodShape
from edl.model.topology import SEATS, Path, Topology, TopologyMode, in_any_domain, path_of
from edl.planner.eligibility import Eligibility
from edl.planner.problem import IntArray, JobDemand, Problem, count_slots, sum_requests
from edl.planner.topology.beside import Kind, count_beside
from edl.planner.trial_packing import TrialPacking


class Offer(NamedTuple):
    """The number of a job's trainers that fit in one domain.

    Attributes:
        free: in capacity that is free, or will be once terminating pods are gone.
        surplus: also in the capacity of trainers above the minimum of their jobs.
        alone: if no other training ran.
    """

    domain: Path
    free: int
    surplus: int
    alone: int


class NodeSlots(NamedTuple):
    """(nodes,) the number of a job's trainers that fit on each node; the fields are those of `Offer`."""

    free: IntArray
    surplus: IntArray
    alone: IntArray


class DomainCapacities:
    """The free capacity of the nodes by domain; what is reserved for one job is not offered to the next one."""

    def __init__(self, problem: Problem, packing: TrialPacking | None = None) -> None:
        """Read the free capacity of each node: that of the cluster now, or what a packing leaves."""
        self._problem, self._judge = problem, Eligibility(problem.snapshot.nodes)
        self._domains: dict[tuple[str, ...], dict[Path, IntArray]] = {}
        self._number = {shape: index for index, shape in enumerate(problem.shapes)}
        self._request = problem.request * ~np.array(
            [name.startswith(SEATS) for name in problem.names], dtype=np.bool_
        )
        node_of = problem.trainer_node if packing is None else packing.node_of
        self._free = problem.now + problem.leaving + _terminating(problem) if packing is None else packing.free.copy()
        spare = np.array([not trainer.is_base for trainer in problem.live_trainers], dtype=np.bool_) & (node_of >= 0)
        nodes, shapes = node_of[spare], problem.trainer_shape[spare]
        self._surplus = self._free + sum_requests(len(problem.empty), problem.request, nodes, shapes)

    def offers(self, demand: JobDemand, topology: Topology) -> list[Offer]:
        """Return how many trainers of a job fit in each domain that all its pods may share, sorted by name.

        With a Required level these are its domains, else those of the widest level; the job may have one already.
        """
        return self._offers(demand, topology, topology.keys[: topology.depth or 1])

    def narrowest(self, demand: JobDemand, topology: Topology) -> list[Offer]:
        """The capacity of each domain of the narrowest level; pservers may be in other domains there."""
        levels = tuple(level._replace(mode=TopologyMode.PREFERRED) for level in topology.levels)
        return self._offers(demand, replace(topology, levels=levels), topology.keys)

    def _offers(self, demand: JobDemand, topology: Topology, keys: tuple[str, ...]) -> list[Offer]:
        """How many trainers of a job fit in each domain of a level; at once where each node counts for itself."""
        domains = sorted(self.nodes_of(keys).items())
        if not domains:
            return []
        if demand.job.companions or topology.slices is not None:
            count = self._counter(demand, topology)
            return [Offer(path, *(count(free[nodes], nodes) for free in self._capacities)) for path, nodes in domains]
        ends = np.cumsum([len(nodes) for _, nodes in domains])[:-1]
        order = np.concatenate([nodes for _, nodes in domains])
        sums = (np.add.reduceat(slots[order], [0, *ends.tolist()]) for slots in self.slots(demand, topology))
        each = zip(*(tier.tolist() for tier in sums), strict=True)
        return [Offer(path, *counts) for (path, _), counts in zip(domains, each, strict=True)]

    @property
    def _capacities(self) -> tuple[IntArray, IntArray, IntArray]:
        return self._free, self._surplus, self._problem.empty

    def larger(self, demand: JobDemand, topology: Topology, count: int) -> Offer | None:
        """The other domain with the most free capacity for a job; None if none holds more than `count` trainers."""
        others = [offer for offer in self.offers(demand, topology) if offer.domain != topology.domain]
        best = max(others, key=lambda offer: (offer.free, offer.domain), default=None)
        return best if best is not None and best.free > count else None

    def takes(self, shape: PodShape, topology: Topology) -> bool:
        """True if some node of some domain accepts pods of a shape of the problem, whatever is free there."""
        is_open = self._kind(shape, topology.of_pservers).is_open
        return any(bool(is_open[nodes].any()) for nodes in self.nodes_of(topology.keys[: topology.depth]).values())

    def slots(self, demand: JobDemand, topology: Topology) -> NodeSlots:
        """Return how many trainers of a job fit on each node; its pservers do not count."""
        kind = self._kind(demand.job.trainer, topology)
        return NodeSlots(*(kind.slots(free) for free in self._capacities))

    def _counter(self, demand: JobDemand, topology: Topology) -> Callable[[IntArray, IntArray], int]:
        """How many trainers of a job fit into free capacity, given as rows of these nodes."""
        trainer = self._kind(demand.job.trainer, topology)
        if topology.slices is not None:
            return self._counter_of_slices(trainer, topology)
        (fixed,) = demand.job.companions
        pserver = self._kind(fixed.shape, topology.of_pservers)

        def count(free: IntArray, nodes: IntArray) -> int:
            found = count_beside(free, trainer.on(nodes), pserver.on(nodes), fixed.count)
            if found is not None:
                return found
            return 0 if topology.is_required else int(trainer.on(nodes).slots(free).sum())

        return count

    def _counter_of_slices(self, trainer: Kind, topology: Topology) -> Callable[[IntArray, IntArray], int]:
        """Count trainers in whole slices, for a job whose slices each stay in one domain."""
        size, depth = topology.slices or (1, 0)
        keys = topology.keys[:depth]
        number = np.full(len(self._problem.empty), -1, dtype=np.int64)
        for index, nodes in enumerate(self.nodes_of(keys).values()):
            number[nodes] = index

        def count(free: IntArray, nodes: IntArray) -> int:
            slots, inside = trainer.on(nodes).slots(free), number[nodes] >= 0
            sums = np.bincount(number[nodes][inside], slots[inside])
            return int((sums.astype(np.int64) // size).sum()) * size

        return count

    def _kind(self, shape: PodShape, topology: Topology) -> Kind:
        """Make the `Kind` of a shape of the problem, for pods that may be in any domain."""
        request = self._request[self._number[shape]]
        return Kind(request, self._judge.takes(in_any_domain(shape, topology).placement))

    def reserve(self, demand: JobDemand, topology: Topology, domains: Sequence[Path]) -> None:
        """Reserve the minimum and the pservers of a job in domains of one level, first on nodes with most free.

        What is free for it beyond that is not offered as free to the next job, which may share it if it must.
        """
        keys = topology.keys[: len(domains[0])] if domains else ()
        found = [self.nodes_of(keys).get(path, np.zeros(0, dtype=np.int64)) for path in domains if path]
        nodes = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
        self._reserve(self._request[demand.shape], nodes, demand.min_trainers)
        for fixed in demand.job.companions:
            self._reserve(self._request[self._number[fixed.shape]], nodes, fixed.count)
        more, request = demand.max_trainers - demand.min_trainers, self._request[demand.shape]
        slots = count_slots(self._free[nodes], request)
        taken = np.diff(np.minimum(np.cumsum(slots), more), prepend=0)
        self._free[nodes] -= taken[:, None] * request

    def take(self, demand: JobDemand, used: IntArray) -> None:
        """Reserve capacity for trainers of a job, (nodes,) numbers; negative numbers release it."""
        amounts = used[:, None] * self._request[demand.shape]
        self._free -= amounts
        self._surplus -= amounts

    def _reserve(self, request: IntArray, nodes: IntArray, count: int) -> None:
        slots = count_slots(self._surplus[nodes], request)
        for at in np.argsort(-slots, kind="stable").tolist():
            taken = min(count, int(slots[at]))
            count -= taken
            self._free[nodes[at]] -= taken * request
            self._surplus[nodes[at]] -= taken * request

    def nodes_of(self, keys: tuple[str, ...]) -> dict[Path, IntArray]:
        """By domain, the indices of its nodes; without keys, one domain of all nodes."""
        if keys not in self._domains:
            groups: dict[Path, list[int]] = {}
            for index, node in enumerate(self._problem.snapshot.nodes):
                path = path_of(node.labels, keys)
                if path or not keys:
                    groups.setdefault(path, []).append(index)
            self._domains[keys] = {path: np.array(group, dtype=np.int64) for path, group in groups.items()}
        return self._domains[keys]


def _terminating(problem: Problem) -> IntArray:
    """(nodes, resources) what terminating pods of jobs still use, apart from those that linger."""
    now_s = problem.snapshot.observed_at_s
    number = {shape: index for index, shape in enumerate(problem.shapes)}
    nodes, shapes = [], []
    for job in problem.snapshot.jobs:
        for pod in () if job.is_left_alone else job.pods:
            is_going = pod.terminating and not pod.is_finished and not pod.lingers(now_s)
            if is_going and pod.node in problem.node_index:
                nodes.append(problem.node_index[pod.node])
                shapes.append(number[pod.shape])
    return sum_requests(len(problem.empty), problem.request, nodes, shapes)
