"""Which slices of a job stay, and where the others start: decided before a plan, which counts single trainers.

A job with slices gets seats: on each node a number of trainers, which is a resource of the node that trainers of this
job alone request. The seats are those of whole slices. So in a plan that gives a job all its seats every slice is
whole, whatever stage of the plan placed the trainers. In a plan that gives it fewer, slices may be broken; then
`whole` lays out fewer slices and decides again.

A slice keeps its domain: that of most of its pods. If the domain has no capacity for what a slice lacks, its other
trainers are of no use there, and they go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import PodShape, Resources
from edl.model.topology import SEATS, Path, Topology, home_of, path_of, slice_of
from edl.planner.problem import IntArray, JobDemand, Problem
from edl.planner.topology.domain_capacity import DomainCapacities
from edl.planner.topology.fill_order import fill_order


class Layout(NamedTuple):
    """The places of the slices of one job.

    Attributes:
        slices: how many there are.
        seats: (node, trainers) of each node with any, sorted; they add up to whole slices.
        going: names of the live trainers of slices that do not stay, sorted.
    """

    slices: int
    seats: tuple[tuple[str, int], ...]
    going: tuple[str, ...] = ()


@dataclass(slots=True)
class _Slice:
    """A slice that exists.

    Attributes:
        members: its live trainers.
        home: its domain; empty if that cannot be said.
        rank: the smaller, the sooner it stays: whether trainers of it have no node; how many of them the last plan
            evicts; minus how many have a node; its number.
    """

    members: list[Pod]
    home: Path
    rank: tuple[bool, int, int, int]


class SlicePlanner:
    """Lays out the slices of one job after the other; what is used for one is not offered to the next."""

    def __init__(self, problem: Problem, capacities: DomainCapacities) -> None:
        """Read the nodes; `capacities` says what is free on them."""
        self._problem, self._capacities = problem, capacities

    def layout(
        self,
        demand: JobDemand,
        domain: Path,
        most: int,
        evicted: frozenset[str] = frozenset(),
    ) -> Layout:
        """Assign at most a number of slices of a job to domains and nodes; existing slices come first.

        Slices above the minimum of the job start where capacity is free, or is that of trainers above the minimum of
        their job. The others may also start where other jobs have their minimum: admission decides who runs.

        Args:
            demand: a job with slices.
            domain: new trainers must be in it; empty for anywhere.
            most: slices.
            evicted: trainers that the last plan evicts: slices without any stay first.
        """
        return _Draft(self._problem, self._capacities, demand, domain, evicted).made(most)

    def reserve(self, demand: JobDemand, layout: Layout) -> None:
        """Reserve the slots of a job's new trainers, so that no other job gets them."""
        index, seats = self._problem.node_index, np.zeros(len(self._problem.empty), dtype=np.int64)
        for name, count in layout.seats:
            seats[index[name]] += count
        for pod in demand.job.live_trainers:
            if pod.node in index:
                seats[index[pod.node]] -= 1
        self._capacities.take(demand, seats)


class _Draft:
    """The places of one job's slices while they are chosen; capacity is counted in its trainers."""

    def __init__(
        self,
        problem: Problem,
        capacities: DomainCapacities,
        demand: JobDemand,
        domain: Path,
        evicted: frozenset[str],
    ) -> None:
        topology = demand.job.topology
        if topology is None or topology.slices is None:
            raise ValueError(f"job {demand.job.key} has no slices")
        self._job, self._topology, self._evicted, self._domain = demand.job, topology, evicted, domain
        self._size, self._keys = topology.slices.size, topology.keys[: topology.slices.depth]
        self._index, self._names = problem.node_index, [node.name for node in problem.snapshot.nodes]
        self._labels = {node.name: node.labels for node in problem.snapshot.nodes}
        self._least = -(-demand.min_trainers // self._size)
        inside = capacities.nodes_of(self._keys)
        self._nodes = {p: nodes for p, nodes in inside.items() if p[: len(domain)] == domain[: len(p)]}
        self._tiers = self._read_tiers(problem, capacities, demand, topology)
        self._seats, self._going = np.zeros(len(self._names), dtype=np.int64), list[str]()
        self._leaves = self._leaf_numbers(capacities)

    def _read_tiers(
        self, problem: Problem, capacities: DomainCapacities, demand: JobDemand, topology: Topology
    ) -> tuple[IntArray, IntArray, IntArray]:
        """(nodes,) trainers that fit now, without surplus trainers, and alone, if those of the job stay."""
        tiers = capacities.slots(demand, topology)
        for i in demand.live_trainers:
            trainer = problem.live_trainers[i]
            if trainer.node >= 0:
                goes = trainer.pod.name in self._evicted
                tiers.free[trainer.node] -= goes
                tiers.surplus[trainer.node] -= goes or not trainer.is_base
                tiers.alone[trainer.node] -= 1
        return tiers

    def made(self, most: int) -> Layout:
        """Assign at most a number of slices to domains and nodes; existing slices come first."""
        slices = self._existing()
        for one in slices[most:]:
            self._release(one)
        kept = self._completed(slices[:most])
        count = len(kept) + (self._start(most - len(kept), kept) if self._may_start(kept) else 0)
        seats = tuple(sorted((self._names[n], int(self._seats[n])) for n in np.flatnonzero(self._seats).tolist()))
        return Layout(count, seats, tuple(sorted(self._going)))

    def _may_start(self, kept: list[_Slice]) -> bool:
        """False if all that stays is outside of the domain of the job, as after a change of labels."""
        nodes = [pod.node for one in kept for pod in one.members if pod.node]
        keys = self._topology.keys[: len(self._domain)]
        return not nodes or any(path_of(self._labels.get(node, ()), keys) == self._domain for node in nodes)

    def _leaf_numbers(self, capacities: DomainCapacities) -> IntArray:
        """(nodes,) the number of the domain of the narrowest level, so that a slice uses few of them."""
        numbers = np.full(len(self._names), -1, dtype=np.int64)
        for number, nodes in enumerate(capacities.nodes_of(self._topology.keys).values()):
            numbers[nodes] = number
        return numbers

    def _existing(self) -> list[_Slice]:
        """The slices with live trainers, those that stay first in front."""
        members: dict[int, list[Pod]] = defaultdict(list)
        for pod in self._job.live_trainers:
            members[slice_of(pod.index, self._size)].append(pod)
        found = []
        for number, pods in members.items():
            bound, evicted = sum(bool(p.node) for p in pods), sum(p.name in self._evicted for p in pods)
            rank = (bound < self._size, evicted, -bound, number)
            found.append(_Slice(pods, home_of(pods, self._labels, self._keys), rank))
        return sorted(found, key=lambda one: one.rank)

    def _release(self, one: _Slice) -> None:
        """Let the trainers of a slice go; their capacity can be used again."""
        for pod in one.members:
            self._going.append(pod.name)
            if (node := self._index.get(pod.node, -1)) >= 0:
                for tier in self._tiers:
                    tier[node] += 1

    def _completed(self, slices: list[_Slice]) -> list[_Slice]:
        """Return the slices that can be completed in their domains while capacity lasts; releases the others."""
        left, kept = list(slices), list[_Slice]()
        while left:
            done = [one for one in left if self._complete(one, may_displace=len(kept) < self._least)]
            kept += done
            left = [one for one in left if one not in done]
            if left and not done:
                self._release(left.pop())
        return kept

    def _complete(self, one: _Slice, *, may_displace: bool) -> bool:
        """Give a slice a slot for each trainer that it has or lacks; False if there are not enough slots."""
        seats = [
            n for pod in one.members if (n := self._index.get(pod.node or pod.nominated or pod.planned, -1)) >= 0
        ]
        lacking = self._size - len(seats)
        if lacking > 0:
            homes = [one.home] if one.home else sorted(self._nodes)
            tiers = self._tiers if may_displace else self._tiers[:2]
            home = next((h for h in homes if any(self._fits(h, t, lacking) for t in tiers)), None)
            if home is None:
                return False
            tier = next(tier for tier in tiers if self._fits(home, tier, lacking))
            self._take(home, tier, lacking)
        np.add.at(self._seats, np.array(seats, dtype=np.int64), 1)
        return True

    def _fits(self, path: Path, tier: IntArray, count: int) -> bool:
        nodes = self._nodes.get(path)
        return nodes is not None and int(tier[nodes].clip(min=0).sum()) >= count

    def _start(self, most: int, kept: Iterable[_Slice]) -> int:
        """Give new slices their seats; return how many there are."""
        started, held = 0, Counter(one.home for one in kept)
        already = sum(held.values())
        for number, tier in enumerate(self._tiers):
            want = (most if number < 2 else min(most, self._least - already)) - started
            if want <= 0:
                continue
            fit = {path: int(tier[nodes].clip(min=0).sum()) // self._size for path, nodes in self._nodes.items()}
            for path in fill_order(fit, want, held):
                count = min(fit[path], want)
                self._take(path, tier, count * self._size)
                started, want, held[path] = started + count, want - count, held[path] + count
        return started

    def _take(self, path: Path, tier: IntArray, count: int) -> None:
        """Use a number of slots of a domain: free ones first, in few of its narrower domains, on few nodes."""
        nodes = self._nodes[path].tolist()
        for slots in (np.minimum(self._tiers[0], tier), tier):
            fit = {n: max(0, int(slots[n])) for n in nodes}
            of_leaf = Counter[int]()
            for n in nodes:
                of_leaf[int(self._leaves[n])] += fit[n]
            for n in sorted(nodes, key=lambda n: (-of_leaf[int(self._leaves[n])], int(self._leaves[n]), -fit[n], n)):
                used = min(count, fit[n])
                count -= used
                self._seats[n] += used
                for one in self._tiers:
                    one[n] -= used


def with_layouts(snapshot: ClusterSnapshot, layouts: Mapping[JobKey, Layout]) -> ClusterSnapshot:
    """The snapshot in which these jobs have their seats; trainers of slices that do not stay are terminating."""
    if not layouts:
        return snapshot
    jobs = [_seated(job, layouts[job.key]) if job.key in layouts else job for job in snapshot.jobs]
    extra: dict[str, dict[str, int]] = defaultdict(dict)
    for job in snapshot.jobs:
        if job.key in layouts:
            for node, count in layouts[job.key].seats:
                extra[node][_name_of(job)] = count
    seen = replace(snapshot, nodes=tuple(_with_seats(node, extra.get(node.name)) for node in snapshot.nodes))
    return seen.with_changed(jobs) if any(one.going for one in layouts.values()) else replace(seen, jobs=tuple(jobs))


def _with_seats(node: Node, seats: Mapping[str, int] | None) -> Node:
    return replace(node, allocatable=node.allocatable + Resources.of(seats)) if seats else node


def _name_of(job: Job) -> str:
    """The resource that stands for the seats of a job."""
    topology = job.topology
    if topology is None or topology.slices is None:
        raise ValueError(f"job {job.key} has no slices")
    return f"{SEATS}{topology.slices.size} trainers of {job.key}, each in one {topology.slice_word}"


def _seated(job: Job, layout: Layout) -> Job:
    """Let each trainer of the job request a seat on its node; trainers that have to go are terminating."""
    seat, going = Resources.of({_name_of(job): 1}), set(layout.going)
    trainer = PodShape(job.trainer.request + seat, job.trainer.placement)

    def seated(pod: Pod) -> Pod:
        if pod.role is not Role.TRAINER or not pod.is_live:
            return pod
        if pod.name in going:
            return replace(pod, terminating=True)
        if pod.node and pod.shape.request == job.trainer.request:
            return replace(pod, shape=trainer)
        return replace(pod, shape=PodShape(pod.shape.request + seat, pod.shape.placement))

    return replace(job, trainer=trainer, pods=tuple(map(seated, job.pods)))
