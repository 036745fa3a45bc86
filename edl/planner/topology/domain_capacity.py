"""How many trainers of a job each domain has capacity for: now, without surplus trainers, and without any training.

They are counted beside all pservers of the job, because these belong into the same domain. With `mode: Preferred` the
pservers of a domain without capacity for them are left out: they may be elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from edl.model.resources import PodShape
from edl.model.topology import Topology, domain_of, in_any_domain
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

    domain: str
    free: int
    surplus: int
    alone: int


class DomainCapacities:
    """The free capacity of the nodes by domain; what is reserved for one job is not offered to the next one."""

    def __init__(self, problem: Problem, packing: TrialPacking | None = None) -> None:
        """Read the free capacity of each node: that of the cluster now, or what a packing leaves."""
        self._problem, self._judge = problem, Eligibility(problem.snapshot.nodes)
        self._domains: dict[str, dict[str, IntArray]] = {}
        self._number = {shape: index for index, shape in enumerate(problem.shapes)}
        node_of = problem.trainer_node if packing is None else packing.node_of
        self._free = problem.now + problem.leaving + _terminating(problem) if packing is None else packing.free.copy()
        spare = np.array([not trainer.is_base for trainer in problem.live_trainers], dtype=np.bool_) & (node_of >= 0)
        nodes, shapes = node_of[spare], problem.trainer_shape[spare]
        self._surplus = self._free + sum_requests(len(problem.empty), problem.request, nodes, shapes)

    def offers(self, demand: JobDemand, topology: Topology) -> list[Offer]:
        """Return how many trainers of a job fit in each domain, sorted by name; the job may have a domain already."""
        capacities = (self._free, self._surplus, self._problem.empty)
        count = self._counter(demand, topology)
        return [
            Offer(name, *(count(capacity[nodes], nodes) for capacity in capacities))
            for name, nodes in sorted(self._nodes_of(topology.key).items())
        ]

    def larger(self, demand: JobDemand, topology: Topology, count: int) -> Offer | None:
        """The other domain with most free capacity for a job; None if none has more than so many trainers."""
        others = [offer for offer in self.offers(demand, topology) if offer.domain != topology.domain]
        best = max(others, key=lambda offer: (offer.free, offer.domain), default=None)
        return best if best is not None and best.free > count else None

    def takes(self, shape: PodShape, topology: Topology) -> bool:
        """True if some node of some domain accepts pods of a shape of the problem, whatever is free there."""
        is_open = self._kind(shape, topology).is_open
        return any(bool(is_open[nodes].any()) for nodes in self._nodes_of(topology.key).values())

    def _counter(self, demand: JobDemand, topology: Topology) -> Callable[[IntArray, IntArray], int]:
        """How many trainers of a job fit into free capacity, given as rows of these nodes."""
        trainer = self._kind(demand.job.trainer, topology)
        if not demand.job.companions:
            return lambda free, nodes: int(trainer.on(nodes).slots(free).sum())
        (fixed,) = demand.job.companions
        pserver = self._kind(fixed.shape, topology)

        def count(free: IntArray, nodes: IntArray) -> int:
            found = count_beside(free, trainer.on(nodes), pserver.on(nodes), fixed.count)
            if found is not None:
                return found
            return 0 if topology.is_required else int(trainer.on(nodes).slots(free).sum())

        return count

    def _kind(self, shape: PodShape, topology: Topology) -> Kind:
        """A shape of the problem, if its pods may be in any domain."""
        request = self._problem.request[self._number[shape]]
        return Kind(request, self._judge.takes(in_any_domain(shape, topology).placement))

    def reserve(self, demand: JobDemand, topology: Topology, domain: str) -> None:
        """Reserve the minimum and the pservers of a job in a domain, first on nodes with most free capacity."""
        nodes = self._nodes_of(topology.key).get(domain, np.zeros(0, dtype=np.int64))
        self._reserve(self._problem.request[demand.shape], nodes, demand.min_trainers)
        for fixed in demand.job.companions:
            self._reserve(self._problem.request[self._number[fixed.shape]], nodes, fixed.count)

    def _reserve(self, request: IntArray, nodes: IntArray, count: int) -> None:
        slots = count_slots(self._surplus[nodes], request)
        for at in np.argsort(-slots, kind="stable").tolist():
            taken = min(count, int(slots[at]))
            count -= taken
            self._free[nodes[at]] -= taken * request
            self._surplus[nodes[at]] -= taken * request

    def _nodes_of(self, key: str) -> dict[str, IntArray]:
        """By domain, the indices of its nodes."""
        if key not in self._domains:
            groups: dict[str, list[int]] = {}
            for index, node in enumerate(self._problem.snapshot.nodes):
                if domain := domain_of(node.labels, key):
                    groups.setdefault(domain, []).append(index)
            self._domains[key] = {name: np.array(group, dtype=np.int64) for name, group in groups.items()}
        return self._domains[key]


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
