"""The snapshot of a cluster that one decision is made from: its nodes, the pods of others, and every TrainingJob."""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.model.resources import Resources, Taint


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it.

    Attributes:
        allocatable: what pods may use in all (`status.allocatable`), pods included.
        reserved: kept for DaemonSet pods that have not reached the node yet.
        labels: sorted (label, value).
        taints: as given, unschedulable and not-ready taints included.
    """

    name: str
    allocatable: Resources
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    reserved: Resources = Resources()


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The whole world of one decision.

    Attributes:
        observed_at_s: when it was taken; all waiting times are counted to here.
        nodes: every node, sorted by name, also those that are no capacity now.
        pods: every foreign pod that is not finished: serving, system, daemon; bound or waiting; sorted by
            (namespace, name).
        jobs: every TrainingJob, sorted by key.
        missing_priority_classes: those of ours that the cluster lacks.
        unread_nodes: names of nodes that are there and could not be read: no capacity, but not gone either.
    """

    observed_at_s: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    missing_priority_classes: tuple[str, ...] = ()
    unread_nodes: tuple[str, ...] = ()
