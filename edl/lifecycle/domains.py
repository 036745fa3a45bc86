"""Where new pods of a job that stay together go, and which numbers its trainers get.

Trainers and pservers that must stay together require the labels of their planned node. kube-scheduler may bind a pod
elsewhere than planned, but only to a node of the same domain. Of a job with slices, a trainer requires the domain of
its slice.

The trainer with index i belongs to slice i // size. What a slice lacks is created in its domain. A new slice starts
whole, and only under numbers that no pod of the job has, terminating ones included: a slice never mixes two domains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edl.model.actions import Action, CreatePod
from edl.model.cluster import Node
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod
from edl.model.topology import TOGETHER, Labels, Path, Slices, home_of, path_of, slice_of


def require_domains(actions: Iterable[Action], job: Job, nodes: Sequence[Node]) -> tuple[Action, ...]:
    """Let new pods of a job that must stay in a topology domain require the domain of their planned node.

    Args:
        actions: the actions from the life cycle.
        job: the job.
        nodes: the nodes of the cluster.
    """
    topology = job.topology
    if topology is None or not topology.pinned_depth:
        return tuple(actions)
    labels = {node.name: node.labels for node in nodes}

    def required(action: Action) -> Action:
        if not isinstance(action, CreatePod) or action.role not in TOGETHER:
            return action
        of_role = topology if action.role is Role.TRAINER else topology.of_pservers
        keys = topology.keys[: of_role.pinned_depth]
        path = path_of(labels.get(action.node or "", ()), keys)
        return replace(action, labels=tuple(zip(keys, path, strict=True))) if path else action

    return tuple(map(required, actions))


def places_of_slices(
    job: Job, slices: Slices, nodes: Sequence[str], labels: Mapping[str, Labels], most: int
) -> list[tuple[int, str]]:
    """Choose the index and the node of each new trainer, existing slices first; the others wait for a later plan.

    Args:
        job: the job.
        slices: its `spec.topology.slice`.
        nodes: the planned node of each trainer that fits now.
        labels: those of each node.
        most: so many trainers may be created.
    """
    keys = job.topology.keys[: slices.depth] if job.topology is not None else ()
    left: dict[Path, list[str]] = defaultdict(list)
    for node in nodes:
        left[path_of(labels.get(node, ()), keys)].append(node)
    left.pop((), None)
    used = {pod.index for pod in job.pods if pod.role is Role.TRAINER}
    if not job.fault_tolerant:
        used |= job.completed_indexes
    members: dict[int, list[Pod]] = defaultdict(list)
    for pod in job.live_trainers:
        members[slice_of(pod.index, slices.size)].append(pod)
    found: list[tuple[int, str]] = []
    for number, pods in sorted(members.items()):
        home = home_of(pods, labels, keys) or max(sorted(left), key=lambda path: len(left[path]), default=())
        free = [index for index in _indexes(number, slices.size) if index not in used]
        found += zip(free, _taken(left, home, len(free)), strict=False)
    number = 0
    for home in sorted(left, key=lambda path: (-len(left[path]), path)):
        while len(left[home]) >= slices.size:
            while not used.isdisjoint(_indexes(number, slices.size)):
                number += 1
            found += zip(_indexes(number, slices.size), _taken(left, home, slices.size), strict=True)
            number += 1
    return found[:most]


def _indexes(number: int, size: int) -> range:
    """The indexes of a slice."""
    return range(number * size, (number + 1) * size)


def _taken(left: dict[Path, list[str]], home: Path, count: int) -> list[str]:
    """Take at most `count` nodes of a domain out of `left`, and return them."""
    nodes = left.get(home, [])
    taken, nodes[:count] = nodes[:count], []
    return taken
