"""What a plan knows about nodes on which trainers failed or hung, and the times that decide about them.

`node_troubles` and `broken_nodes` share it. Nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.cluster import AvoidedNode
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.status import NodeTrouble

LONGEST_S = 28_800.0
"""The longest time for which a node is avoided at once, unless the first time is longer."""
WINDOW, WELL, PROBE, TURN = 3.0, 0.1, 0.5, 0.1
"""Times as multiples of the first wait. Troubles within WINDOW count together; a trainer does well if it has run for
WELL. A trainer that runs for PROBE on an avoided node ends the avoidance; each job has TURN to start that trainer."""


@dataclass(frozen=True, slots=True)
class NodeWatch:
    """The nodes on which trainers failed or hung, and the settings for avoiding them.

    Attributes:
        first_s: the first wait, in seconds; 0 if edl avoids no nodes.
        avoided: the nodes, sorted by name.
        cleared: names of nodes on which a trainer has done well since the last trouble.
    """

    first_s: float = 0.0
    avoided: tuple[AvoidedNode, ...] = ()
    cleared: frozenset[str] = frozenset()


UNWATCHED = NodeWatch()
"""edl avoids no nodes."""


def wait_s(first_s: float, waits: int) -> float:
    """Return how long a node is avoided, in seconds, given how often it was avoided before."""
    return float(min(first_s * 2 ** min(waits, 20), max(LONGEST_S, first_s)))


def forgotten_s(trouble: NodeTrouble, first_s: float) -> float:
    """When a failure on a node no longer counts, in seconds since the epoch."""
    return trouble.time_s + wait_s(first_s, trouble.waits) + WINDOW * first_s


def does_well(pod: Pod, now_s: float, least_s: float) -> bool:
    """True if a trainer has run for `least_s` or has completed."""
    if pod.role is not Role.TRAINER or not pod.node or pod.terminating or pod.intent or pod.disruption:
        return False
    if pod.phase is PodPhase.SUCCEEDED:
        return True
    return pod.phase is PodPhase.RUNNING and pod.started_s is not None and now_s - pod.started_s >= least_s
