"""What the operator allows: the limits of every plan, in groups by what they are about."""

from __future__ import annotations

from dataclasses import dataclass, field

from edl.model.names import JobKey
from edl.model.node_groups import NodeGroup
from edl.model.tenants import Tenants

GROWTH_HOLD_S = 30.0
"""A job that shrank for serving does not grow for this long."""

SERVING_GRACE_S = 2.0
"""How long a controller waits for kube-scheduler's own preemption before it deletes trainers for a serving pod."""

UNTRIED_S = 120.0
"""How long a controller keeps capacity for a waiting pod that no scheduler has tried."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What the jobs of a queue, or of a namespace, may request together.

    Attributes:
        queue: the name of the queue, as in `spec.queue`; of the ResourceQuota if there is a namespace.
        amounts: (resource, amount) sorted by resource, in the units of `Resources`; 0 allows none; a resource that is
            not listed has no limit. Limits of a namespace also have resources such as `limits.cpu`.
        namespace: the quota limits the jobs of this namespace, whatever their queue; empty for the quota of a queue.
        best_effort: jobs of the queue may have trainers that request neither cpu nor memory.
        others: (resource, amount) sorted by resource: what pods that no plan changes use of it; not in `amounts`.
        exempt: sorted: the jobs of the namespace that the quota does not limit.
    """

    queue: str
    amounts: tuple[tuple[str, int], ...]
    namespace: str = ""
    best_effort: bool = False
    others: tuple[tuple[str, int], ...] = ()
    exempt: tuple[JobKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """What plans keep and wait for on behalf of serving.

    Attributes:
        headroom: for each shape of a waiting or running serving pod, keep free capacity for this many more.
        slo: above 0, the headroom is learned, and one waiting pod-second counts as much as so many idle
            core-seconds; 0 learns none.
        grace_s: how long a plan waits for kube-scheduler's own preemption, in seconds. A waiting pod that
            kube-scheduler has not tried yet reserves capacity, but no trainer is a victim for it until it is this
            old and no pod before it in the queue was tried since, or an equal pod was refused (`waits.refused`).
            Otherwise trainers would be deleted twice for one pod. 0 counts every waiting pod at once.
        untried_s: a waiting pod that no scheduler has tried for so long counts for nothing until one does: its
            scheduler may not exist. The time begins again whenever that scheduler finishes with a pod before it in
            the queue. 0 counts every waiting pod.
        schedulers: only waiting pods of these schedulers count; empty for all.
    """

    headroom: int = 0
    slo: float = 0.0
    grace_s: float = 0.0
    untried_s: float = 0.0
    schedulers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharingLimits:
    """How far and how soon jobs take capacity from what is free and from each other.

    Attributes:
        max_load_desired: jobs stop growing when the total request of a resource exceeds this fraction of its total,
            in (0, 1].
        growth_hold_s: a job that shrank for serving does not grow for this long.
        head_wait_s: once the oldest job that does not fit has waited this long, no younger job is admitted before it.
        consolidate_after_s: pservers may move to other nodes, so that more trainers fit, and trainers into one
            domain, once nothing has changed for this long; 0 never moves them.
    """

    max_load_desired: float = 1.0
    growth_hold_s: float = GROWTH_HOLD_S
    head_wait_s: float = 600.0
    consolidate_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LendingLimits:
    """Which trainers lend CPU to serving, and for how long.

    Attributes:
        surplus_cpu_request: trainers above the minimum of their job request this part of the CPU that they declare,
            in (0, 1], and lend the rest; 1 lends nothing.
        running: trainers that run lower their CPU request too, and raise it once they may lend no more.
        clear_after_s: trainers that lend CPU are deleted, or started elsewhere, once serving has used it for this
            long, in seconds; 0 lets them lend for ever.
    """

    surplus_cpu_request: float = 1.0
    running: bool = False
    clear_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Nodes that an autoscaler may add or take, and nodes that trainers avoid.

    Attributes:
        expected: the groups of nodes that an autoscaler can add, sorted by name.
        drain_idle_s: a node of such a group that only surplus trainers have held for so long, in seconds, is emptied;
            0 empties none.
        avoid_after: new trainers avoid a node on which trainers of so many jobs failed or hung; 0 avoids none.
        avoid_for_s: how long at first, in seconds; each further time twice as long.
    """

    expected: tuple[NodeGroup, ...] = ()
    drain_idle_s: float = 0.0
    avoid_after: int = 0
    avoid_for_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's limits for every plan.

    Attributes:
        deadline_s: how long one decision may take.
        quotas: one for each queue that has limits, sorted by queue.
        tenants: which namespaces may use which priorities and queues; None if all may use all.
    """

    serving: ServingLimits = field(default_factory=ServingLimits)
    sharing: SharingLimits = field(default_factory=SharingLimits)
    lending: LendingLimits = field(default_factory=LendingLimits)
    nodes: NodeLimits = field(default_factory=NodeLimits)
    deadline_s: float = 10.0
    quotas: tuple[Quota, ...] = ()
    tenants: Tenants | None = None
