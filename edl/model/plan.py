"""The plan: the decision for every job, its quality, and the limits that it respects.

A plan is data. `edl.planner.decide` makes it, `edl.planner.guard` checks it, `edl.lifecycle` turns it into actions,
and `edl.kube` carries them out. `edl replay` compares a recorded plan with a new one from the same input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from edl.errors import PlanFailure
from edl.model.headroom import KeptRoom
from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeAsk, NodeGroup
from edl.model.resources import PodShape
from edl.model.status import Reason
from edl.model.tenants import Tenants

GAP_ROUNDING = 1e-6  # bounds are rounded up by less
VOLUNTARY_SHRINKS = frozenset(
    {Reason.INSUFFICIENT_CAPACITY, Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT, Reason.LENDING_CLEARED}
)
"""Reasons of a job below its maximum: a shrink with one of them gives capacity to another job, and can wait."""

GROWTH_HOLD_S = 30.0
"""A job that shrank for serving does not grow for this long."""


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
    """

    queue: str
    amounts: tuple[tuple[str, int], ...]
    namespace: str = ""
    best_effort: bool = False
    others: tuple[tuple[str, int], ...] = ()


SERVING_GRACE_S = 2.0
"""How long a controller waits for kube-scheduler's own preemption before it deletes trainers for a serving pod."""

UNTRIED_S = 120.0
"""How long a controller keeps room for a waiting pod that no scheduler has tried."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows a plan to do.

    Attributes:
        max_load_desired: jobs stop growing when the total request of a resource exceeds this fraction of its total,
            in (0, 1].
        serving_headroom: for each shape of a waiting or running serving pod, keep free capacity for this many more.
        serving_slo: above 0, the headroom is learned, and one waiting pod-second counts as much as so many idle
            core-seconds; 0 learns none.
        serving_grace_s: how long a plan waits for kube-scheduler's own preemption, in seconds. A waiting pod that
            kube-scheduler has not tried yet reserves capacity, but no trainer is a victim for it until it is this
            old and no pod before it in the queue was tried since, or an equal pod was refused (`waits.refused`).
            Otherwise trainers would be deleted twice for one pod. 0 counts every waiting pod at once.
        untried_s: a waiting pod that no scheduler has tried for so long counts for nothing until one does: its
            scheduler may not exist. The time begins again whenever that scheduler finishes with a pod before it in
            the queue. 0 counts every waiting pod.
        serving_schedulers: only waiting pods of these schedulers count; empty for all.
        consolidate_after_s: pservers may move to other nodes, so that more trainers fit, and trainers into one
            domain, once nothing has changed for this long; 0 never moves them.
        surplus_cpu_request: trainers above the minimum of their job request this part of the CPU that they declare,
            in (0, 1], and lend the rest; 1 lends nothing.
        lend_running: trainers that run lower their CPU request too, and raise it once they may lend no more.
        clear_lending_after_s: trainers that lend CPU are deleted, or started elsewhere, once serving has used it for
            this long, in seconds; 0 lets them lend for ever.
        growth_hold_s: a job that shrank for serving does not grow for this long.
        head_wait_s: once the oldest job that does not fit has waited this long, no younger job is admitted before it.
        deadline_s: how long one decision may take.
        quotas: one for each queue that has limits, sorted by queue.
        tenants: which namespaces may use which priorities and queues; None if all may use all.
        expected_nodes: the groups of nodes that an autoscaler can add, sorted by name.
        drain_idle_s: a node of such a group that only surplus trainers have held for so long, in seconds, is emptied;
            0 empties none.
        avoid_nodes_after: new trainers avoid a node on which trainers of so many jobs failed or hung; 0 avoids none.
        avoid_nodes_for_s: how long at first, in seconds; each further time twice as long.
    """

    max_load_desired: float = 1.0
    serving_headroom: int = 0
    serving_slo: float = 0.0
    serving_grace_s: float = 0.0
    untried_s: float = 0.0
    serving_schedulers: tuple[str, ...] = ()
    consolidate_after_s: float = 0.0
    surplus_cpu_request: float = 1.0
    clear_lending_after_s: float = 0.0
    lend_running: bool = False
    growth_hold_s: float = GROWTH_HOLD_S
    head_wait_s: float = 600.0
    deadline_s: float = 10.0
    quotas: tuple[Quota, ...] = ()
    tenants: Tenants | None = None
    expected_nodes: tuple[NodeGroup, ...] = ()
    drain_idle_s: float = 0.0
    avoid_nodes_after: int = 0
    avoid_nodes_for_s: float = 600.0


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """The decision for one job.

    Attributes:
        current: live trainers in the snapshot.
        target: trainers the job should have; 0 if it is not admitted, unless edl leaves it alone: then `current`.
        min_trainers, max_trainers: the declared bounds.
        victims: names of the trainer pods to delete; every trainer if the job is not admitted, none if edl leaves it
            alone.
        nodes: (node, count) planned for the new trainers, sorted by node.
        fixed_nodes: (role, node) planned for missing masters and pservers.
        moves: names of the pservers to delete and start on another node, so that trainers can use their capacity.
        shrink_reason: why the victims are deleted: ServingNeedsRoom, Moved, or the reason of the decision; empty
            without victims.
        message: the short form, one line: why this count (`7 of 12: cpu is full on pool gpu-a`).
        lent_cpu_milli: CPU that its trainers declare and do not request.
        slowed: live trainers that lend CPU on a node whose pods declare more than it has.
        details: the full account, with the pods that hold the capacity and the cost of one more trainer; empty if it
            would only repeat the message.
        pending: trainers of the target that fit on no node; 0 except in a comparison plan.
        asks: the nodes that the job asks an autoscaler for; None if it asks for none.
    """

    job: JobKey
    generation: int
    current: int
    target: int
    min_trainers: int
    max_trainers: int
    admitted: bool
    reason: Reason
    message: str
    victims: tuple[str, ...] = ()
    nodes: tuple[tuple[str, int], ...] = ()
    fixed_nodes: tuple[tuple[Role, str], ...] = ()
    shrink_reason: str = ""
    pending: int = 0
    moves: tuple[str, ...] = ()
    details: str = ""
    lent_cpu_milli: int = 0
    slowed: int = 0
    asks: NodeAsk | None = None

    @property
    def is_refused(self) -> bool:
        """True if the job gets nothing because the API server rejects its pods, or was not asked about them."""
        return not self.admitted and self.reason is Reason.PODS_REFUSED

    @property
    def account(self) -> str:
        """The full account: `details`, or the message if there are none."""
        return self.details or self.message


@dataclass(frozen=True, slots=True)
class Certificate:
    """The quality of the plan: the achieved objective and an upper bound; `bound >= achieved` always."""

    objective: str
    achieved: float
    bound: float

    @property
    def gap(self) -> float:
        """The fraction of the bound that the plan may have missed; 0 if the two differ by rounding only."""
        missed = self.bound - self.achieved
        return missed / self.bound if missed > GAP_ROUNDING and self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Price:
    """How much one more unit of a scarce resource would add to the objective; kind is shape|class|serving|quota."""

    kind: str
    name: str
    resource: str
    price: float


@dataclass(frozen=True, slots=True)
class ServingReport:
    """Waiting serving pods: all of them, those that this plan places, and those that no plan could place."""

    waiting: int = 0
    placed: int = 0
    short: int = 0


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """The patterns that the programs of one decision used; the next decision starts from them.

    They make the next decision faster and never change its rules. A pattern refers to a class of nodes by its usable
    capacity and to pods by their shape, so it stays valid when jobs and nodes change. A pattern that no longer fits
    is skipped.

    Attributes:
        shapes: the shapes of the pods.
        rooms: the usable capacity of each node class: (resource, amount) sorted by resource.
        patterns: (index into `rooms`, (index into `shapes`, pods) sorted), sorted.
    """

    shapes: tuple[PodShape, ...] = ()
    rooms: tuple[tuple[tuple[str, int], ...], ...] = ()
    patterns: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()


NO_COLUMNS = KeptColumns()

CutStage = Literal[
    "admission", "sharing", "growth", "transfers", "raising the worst off", "column generation",
    "preferences", "proof", "best effort", "sentences",
]  # fmt: skip
CUT_STAGES: tuple[CutStage, ...] = get_args(CutStage)
"""What the deadline can cut short."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """The decisions for all jobs of a cluster, sorted by job key.

    Attributes:
        stages: seconds of each stage, in their order; they do not count when plans are compared.
        costliest: the job whose own lists took the decision longest (its pods, affinity, tolerations), and the
            CPU seconds; None without jobs. It does not count when plans are compared.
        cut: the stages that the deadline cut short; the plan keeps every rule, but may give less than it could.
        is_comparison: the plan of a policy that is only shown for comparison: it may break the rules of edl and is
            never carried out.
        fallback: how the planner failed, if this plan is the last plan without its growth; certificate and prices
            are then those of the last plan. None for a new plan.
        headroom: the learned room that the plan keeps for serving pods to come, by shape.
        given: the columns that this decision started from; with snapshot and limits they are its whole input.
        columns: the columns for the next decision; they change how fast it is made and how it breaks ties.
    """

    decisions: tuple[ScaleDecision, ...]
    certificate: Certificate
    prices: tuple[Price, ...] = ()
    serving: ServingReport = ServingReport()
    seconds: float = 0.0
    policy: str = "maxmin"
    is_comparison: bool = False
    fallback: PlanFailure | None = None
    stages: tuple[tuple[str, float], ...] = field(default=(), compare=False)
    costliest: tuple[JobKey, float] | None = field(default=None, compare=False)
    cut: tuple[CutStage, ...] = ()
    headroom: tuple[KeptRoom, ...] = ()
    given: KeptColumns = NO_COLUMNS
    columns: KeptColumns = NO_COLUMNS

    def decision(self, key: JobKey) -> ScaleDecision | None:
        """The decision for that job; None if the plan has none."""
        return next((d for d in self.decisions if d.job == key), None)
