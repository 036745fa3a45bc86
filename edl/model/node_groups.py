"""Nodes that an autoscaler can add: the groups of the operator's file, and what a plan asks of them.

Pods are created only where a slot is planned, so a job that waits shows an autoscaler nothing to add a node for. A
job may ask for that: then one pod without a node stands for each node that the planner wants, a request pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from edl.model.resources import Resources, Taint


class ScaleUp(StrEnum):
    """What a job may ask an autoscaler for: nothing, nodes for its minimum, or nodes for all its trainers."""

    NEVER = "Never"
    MINIMUM = "Minimum"
    FULL = "Full"


class NoNode(StrEnum):
    """The reasons for which a job that may ask for nodes asks for none."""

    DOES_NOT_FIT = "does_not_fit"  # no group has nodes that its pods fit on
    LIMIT = "limit"  # the groups that fit have as many nodes as they may have
    RESTS = "rests"  # the groups that fit brought no node in time
    NO_GAIN = "no_gain"  # with the nodes the job would have no more trainers
    NO_TIME = "no_time"  # the decision had no time for the second plan


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group of equal nodes that an autoscaler adds and removes.

    Attributes:
        allocatable: what pods of jobs may use of one node, DaemonSets not counted in.
        labels: sorted (label, value); a node with all of them belongs to the group. Never empty.
        taints: the taints of a new node.
        price_per_hour: of one node, in any unit, >= 0; only comparisons count.
        limit: the most nodes of the group, >= 1, existing ones counted in.
        keep: so many nodes are never emptied, >= 0: an autoscaler would not remove them.
        come_s: how long a node usually takes to come, in seconds, > 0.
    """

    name: str
    allocatable: Resources
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...] = ()
    price_per_hour: float = 0.0
    limit: int = 1
    keep: int = 0
    come_s: float = 120.0

    @property
    def give_up_s(self) -> float:
        """Seconds after which a request without a node is withdrawn: twice the usual time and a minute."""
        return 2 * self.come_s + 60.0

    def has(self, labels: Mapping[str, str]) -> bool:
        """True if a node with these labels belongs to the group."""
        return all(labels.get(key) == value for key, value in self.labels)


@dataclass(frozen=True, slots=True)
class NodeAsk:
    """The nodes of one group that a job asks an autoscaler for.

    Attributes:
        group: its name.
        kept: names of the request pods that stay; every other request pod of the job is withdrawn.
        new: for each further node, what the pods that are meant for it request together.
        price_per_hour: the price per hour of all nodes of the ask together, in the unit of the group.
        gain: the trainers that the job gains by these nodes: its minimum, or those beyond this plan; 0 if an earlier
            plan knew the latter.
        obstacle: why it asks for no node; None if it asks.
    """

    group: str
    kept: tuple[str, ...] = ()
    new: tuple[Resources, ...] = ()
    price_per_hour: float = 0.0
    gain: int = 0
    obstacle: NoNode | None = None

    @property
    def nodes(self) -> int:
        """How many nodes are asked for."""
        return len(self.kept) + len(self.new)
