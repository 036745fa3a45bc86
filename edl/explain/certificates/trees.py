"""The most trainers that the domains of a job could hold, as a stranger can compute it from the Kubernetes objects.

A job with a Required level has no more than its best domain holds if nothing else ran there. A job with slices has no
more than whole slices, each in one domain. The bound then needs no choice of domains: the tree is in it. Trainers
that a change of labels has divided between domains stay where they are, so such a job has no limit here.
`tools/verify_certificate.py` computes the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.model.resources import PodShape, without_rules
from edl.model.topology import Path, Topology, path_of, slice_of
from edl.planner.eligibility import takes, takes_each

Homes = tuple[Path, Path]


class Tree:
    """Knows how many trainers of a job the topology domains of a cluster can hold."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        """Prepare to count; the nodes are read when the first job is asked for."""
        self._snapshot = snapshot
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._capacity: Mapping[str, Counter[str]] | None = None

    def most(self, job: Job, trainer: PodShape, high: int) -> int:
        """The most trainers of a job, at most `high`.

        Args:
            job: the job.
            trainer: the shape of its new trainers, in any domain.
            high: the most without a tree.
        """
        topology = job.topology
        if topology is None or not topology.pinned_depth:
            return high
        homes = {pod.name: _homes(self._nodes.get(pod.node or pod.nominated), topology) for pod in job.live_trainers}
        if _straddles(job.live_trainers, homes, topology):
            return high
        fit = self._slots(trainer, topology)
        for pod in job.live_trainers:
            node = self._nodes.get(pod.node or pod.nominated)
            has_slot = node is not None and takes(node, trainer.placement)
            fit[homes[pod.name]] += without_rules(pod.shape).request != trainer.request or not has_slot
        size, most = topology.slices.size if topology.slices else 1, Counter[Path]()
        for (domain, _), slots in fit.items():
            most[domain] += slots // size * size
        return min(high, max(most.values(), default=high))

    def _slots(self, trainer: PodShape, topology: Topology) -> Counter[Homes]:
        """How many trainers fit in each domain if nothing else of any job runs there."""
        self._capacity = self._capacity or _capacity(self._snapshot)
        fit = Counter[Homes]()
        taken = takes_each(self._snapshot.nodes, [trainer.placement])[trainer.placement].tolist()
        for node, is_open in zip(self._snapshot.nodes, taken, strict=True):
            if is_open:
                have = self._capacity[node.name]
                fit[_homes(node, topology)] += min(max(0, have[r]) // n for r, n in trainer.request.amounts)
        return fit


def _capacity(snapshot: ClusterSnapshot) -> dict[str, Counter[str]]:
    """By node and resource, how much pods of jobs could use together; at least what they use now."""
    free = {node.name: Counter(node.allocatable.as_dict()) for node in snapshot.nodes}
    held = {node.name: Counter[str]() for node in snapshot.nodes}
    for pod in snapshot.pods:
        if not pod.is_finished and (name := pod.node or pod.nominated) in free:
            free[name].subtract(pod.shape.request.as_dict())
    for job in snapshot.jobs:
        for pod in job.pods:
            if pod.is_live and (name := pod.node or pod.nominated) in held:
                held[name].update(pod.shape.request.as_dict())
    return {name: free[name] | held[name] for name in free}


def _homes(node: Node | None, topology: Topology) -> Homes:
    """Return the domain of a node for a whole job and for a slice of it; an empty path where neither needs one."""
    labels = node.labels if node is not None else ()
    depth = topology.slices.depth if topology.slices else 0
    return path_of(labels, topology.keys[: topology.depth]), path_of(labels, topology.keys[:depth])


def _straddles(trainers: Sequence[Pod], homes: Mapping[str, Homes], topology: Topology) -> bool:
    """Return True if trainers that must share a domain are in two domains, or in none."""
    groups = defaultdict[int, set[Path]](set)
    for pod in trainers:
        whole, part = homes[pod.name]
        if topology.is_required:
            groups[-1].add(whole)
        if topology.slices is not None:
            groups[slice_of(pod.index, topology.slices.size)].add(part)
    return any(len(found) > 1 or () in found for found in groups.values())
