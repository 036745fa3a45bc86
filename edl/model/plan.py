"""The plan: what one decision says about every job, how good it is, and the limits it had to keep.

A plan is data. `policy` makes it, `guard` checks it, `lifecycle` turns it into actions and the adapters carry those
out; a recorded plan can be compared with one made again.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.errors import PlanFailure
from edl.model.names import JobKey, Role
from edl.model.resources import PodShape
from edl.model.status import Reason

VOLUNTARY_SHRINKS = frozenset({Reason.INSUFFICIENT_CAPACITY, Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT})
"""Reasons of a job that is short of its maximum: trainers that die of one of them die for another job's share."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What the jobs of a queue may ask for together.

    Attributes:
        queue: its name, as in `spec.queue`.
        amounts: (resource, amount) sorted by resource, in the units of `Resources`; 0 allows none; a resource that is
            not named has no limit.
    """

    queue: str
    amounts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows a plan to do.

    Attributes:
        max_load_desired: growth stops where a resource's total request passes this part of the total, in (0, 1].
        serving_headroom: extra serving pods (of each waiting or running serving shape) to keep room for.
        serving_grace_s: a waiting pod that kube-scheduler has not tried yet keeps its room reserved, but no trainer
            dies for it, until it is this old and no pod before it in the queue was answered since: kube-scheduler's
            own preemption goes first, so that nobody is killed for it twice. 0 counts every waiting pod at once.
        consolidate_after_s: once nothing has changed for so long, pservers may move so that more trainers find room;
            0 never.
        growth_hold_s: a job that was shrunk for serving does not grow for this long.
        head_wait_s: once the oldest job that does not fit has waited this long, nothing younger passes it.
        deadline_s: time that one decision may take.
        quotas: one for each queue that has limits, sorted by queue.
    """

    max_load_desired: float = 1.0
    serving_headroom: int = 0
    serving_grace_s: float = 0.0
    consolidate_after_s: float = 0.0
    growth_hold_s: float = 30.0
    head_wait_s: float = 600.0
    deadline_s: float = 10.0
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """What one job gets.

    Attributes:
        current: live trainers when the snapshot was taken.
        target: trainers it should have; 0 where it is not admitted.
        min_trainers, max_trainers: the declared bounds.
        victims: names of the trainer pods to delete; all of them where it is not admitted.
        nodes: (node, count) where the new trainers are meant to go, sorted by node.
        fixed_nodes: (role, node) where missing masters and pservers are meant to go.
        moves: names of the pservers that end so that they start elsewhere and leave room for trainers.
        shrink_reason: why victims die: ServingNeedsRoom, Moved, or the reason of the plan; empty without victims.
        message: the short form, one line: why this count (`7 of 12: cpu is full on pool gpu-a`).
        details: the full account, with who holds the room and what one more trainer would cost; empty if the message
            says it all.
        pending: trainers of the target that have no room; only a plan to compare with leaves any.
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

    @property
    def account(self) -> str:
        """The full account: `details`, or the message if that says it all."""
        return self.details or self.message


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good the plan is: `bound >= achieved` always."""

    objective: str
    achieved: float
    bound: float

    @property
    def gap(self) -> float:
        """The part of the bound that the plan may have missed, never negative."""
        return max(0.0, (self.bound - self.achieved) / max(self.bound, 1e-9))


@dataclass(frozen=True, slots=True)
class Price:
    """What one more unit of something scarce would be worth to the objective; kind is shape|class|serving|quota."""

    kind: str
    name: str
    resource: str
    price: float


@dataclass(frozen=True, slots=True)
class ServingReport:
    """Waiting serving pods: all, those that get room by this plan, and those that no plan could place."""

    waiting: int = 0
    placed: int = 0
    short: int = 0


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """The patterns that a decision's programs used: the next decision begins with them. They cannot change its rules.

    Patterns are kept for classes of nodes by their usable room and name pods by shape, so that they hold whatever
    jobs and nodes come and go; what no longer fits is passed over.

    Attributes:
        shapes: of the pods.
        rooms: (resource, amount) of the classes, sorted by resource.
        patterns: (index of a room, (index of a shape, pods) sorted), sorted.
    """

    shapes: tuple[PodShape, ...] = ()
    rooms: tuple[tuple[tuple[str, int], ...], ...] = ()
    patterns: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()


NO_COLUMNS = KeptColumns()


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """One decision about the whole cluster; decisions are sorted by job key.

    Attributes:
        cut: the stages that the deadline cut short; the plan keeps every rule, but may give less than it could.
        is_comparison: it may break our rules and is never carried out.
        fallback: how making a plan failed, where this is what stands of the last one; its certificate and its prices
            are then that one's.
        given: the columns that this decision began with: with snapshot and limits, all that it was made from.
        columns: what the next decision begins with; it changes how fast that is made, and how ties are broken.
    """

    decisions: tuple[ScaleDecision, ...]
    certificate: Certificate
    prices: tuple[Price, ...] = ()
    serving: ServingReport = ServingReport()
    seconds: float = 0.0
    policy: str = "maxmin"
    is_comparison: bool = False
    fallback: PlanFailure | None = None
    cut: tuple[str, ...] = ()
    given: KeptColumns = NO_COLUMNS
    columns: KeptColumns = NO_COLUMNS

    def decision(self, key: JobKey) -> ScaleDecision | None:
        """The decision for that job, where the plan has one."""
        return next((d for d in self.decisions if d.job == key), None)
