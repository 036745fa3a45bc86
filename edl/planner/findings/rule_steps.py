"""Jobs that a rule lets grow step by step: how many more trainers it allows is known once the new ones run."""

from __future__ import annotations

from edl.model.names import Role
from edl.model.resources import SKEW, grows_by_steps
from edl.planner.findings.context import DecisionContext
from edl.planner.problem import JobDemand


def is_by_steps(demand: JobDemand, context: DecisionContext) -> bool:
    """True if a rule that allows trainers step by step is among what keeps the job from one more trainer."""
    return any(grows_by_steps(one.resource) for one in context.scarce(demand.shape).shortages)


def has_next_step(demand: JobDemand, context: DecisionContext) -> bool:
    """True if the rule may allow the job more trainers once the trainers of this plan run.

    A spread counts pods everywhere. Of two sides that avoid each other, a node is of the one that runs there.
    """
    packing = context.shared.packing
    is_growing = packing.count[demand.index] > sum(bool(pod.node) for pod in demand.job.live_trainers)
    new = {place.node for place in context.placed(demand.index) if place.role is Role.TRAINER}
    for one in context.scarce(demand.shape).shortages:
        if grows_by_steps(one.resource) and (is_growing if SKEW in one.resource else not new.isdisjoint(one.nodes)):
            return True
    return False
