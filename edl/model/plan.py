"""The plan: the decision for every job, and its quality.

A plan is data. `edl.planner.decide` makes it, `edl.planner.guard` checks it, `edl.lifecycle` turns it into actions,
and `edl.kube` carries them out. `edl replay` compares a recorded plan with a new one from the same input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from edl.errors import PlanFailure
from edl.model.headroom import KeptHeadroom
from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeAsk
from edl.model.resources import PodShape
from edl.model.status import Reason

GAP_ROUNDING = 1e-6  # bounds are rounded up by less
VOLUNTARY_SHRINKS = frozenset(
    {Reason.INSUFFICIENT_CAPACITY, Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT, Reason.LENDING_CLEARED}
)
"""The reasons of shrinks that give capacity to another job, and that can therefore wait."""


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
    """Counts of pending serving pods: all, those that this plan places, and those that no plan could place."""

    waiting: int = 0
    placed: int = 0
    short: int = 0


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """The patterns that one decision's programs used; the next decision begins with them.

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
    "admission", "sharing", "growth", "transfers", "raising the worst off", "sizes", "column generation",
    "preferences", "proof", "best effort", "sentences", "groups of serving pods", "owner order",
]  # fmt: skip
CUT_STAGES: tuple[CutStage, ...] = get_args(CutStage)
"""The stages of a decision that the deadline can cut short."""


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
        headroom: the learned capacity that the plan keeps for serving pods to come, by shape.
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
    headroom: tuple[KeptHeadroom, ...] = ()
    given: KeptColumns = NO_COLUMNS
    columns: KeptColumns = NO_COLUMNS

    def decision(self, key: JobKey) -> ScaleDecision | None:
        """The decision for that job; None if the plan has none."""
        return next((d for d in self.decisions if d.job == key), None)
