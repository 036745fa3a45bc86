"""Two plans side by side: which jobs get something else, and what that is worth to them.

The first plan is that of a cluster as it is, the second that of the same cluster with something more in it, or made
anew by another edl; both are about the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan


@dataclass(frozen=True, slots=True)
class JobChange:
    """What two plans say of one job, where they differ; None where a plan does not know it."""

    job: JobKey
    before: ScaleDecision | None
    after: ScaleDecision | None

    @property
    def trainers(self) -> int:
        """How many trainers more the second plan gives it."""
        return _target(self.after) - _target(self.before)

    @property
    def fulfilment(self) -> float:
        """How much more of its span between the declared bounds the second plan gives it; below 0 where it loses."""
        return fulfilment_of(self.after) - fulfilment_of(self.before)


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two plans.

    Attributes:
        against: what the first plan was made from, as a person would call it.
        jobs: those that get something else, sorted by key.
        same: how many jobs get the same in both.
    """

    against: str
    before: ScalePlan
    after: ScalePlan
    jobs: tuple[JobChange, ...]
    same: int


def compare(before: ScalePlan, after: ScalePlan, against: str) -> Changes:
    """Compare two plans by what each job gets."""
    first = {d.job: d for d in before.decisions}
    second = {d.job: d for d in after.decisions}
    pairs = [JobChange(key, first.get(key), second.get(key)) for key in sorted({*first, *second})]
    changed = tuple(pair for pair in pairs if _gets(pair.before) != _gets(pair.after))
    return Changes(against, before, after, changed, len(pairs) - len(changed))


def fulfilment_of(decision: ScaleDecision | None) -> float:
    """(n - min) / (max - min) by the declared bounds, 1 where they are one; 0 for a job that does not run."""
    if decision is None or not decision.admitted:
        return 0.0
    span = decision.max_trainers - decision.min_trainers
    return 1.0 if span <= 0 else (decision.target - decision.min_trainers) / span


def _target(decision: ScaleDecision | None) -> int:
    return decision.target if decision is not None else 0


def _gets(decision: ScaleDecision | None) -> tuple[int, bool] | None:
    return (decision.target, decision.admitted) if decision is not None else None
