"""Compares two plans for the same moment: which jobs get another count, and what each gains or loses by it."""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan


@dataclass(frozen=True, slots=True)
class JobChange:
    """What two plans decide differently about one job; None for a plan that does not contain the job."""

    job: JobKey
    before: ScaleDecision | None
    after: ScaleDecision | None

    @property
    def trainers(self) -> int:
        """How many more trainers the second plan gives the job; negative if fewer."""
        return _target(self.after) - _target(self.before)

    @property
    def fulfilment(self) -> float:
        """How much more fulfilment the second plan gives the job; negative if less."""
        return fulfilment_of(self.after) - fulfilment_of(self.before)


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two plans.

    Attributes:
        against: a name for the input of the first plan.
        jobs: those with a different count, sorted by key.
        same: how many jobs get the same in both plans.
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
    """(n - min) / (max - min) by the declared bounds, 1 if they are equal; 0 for a job that does not run."""
    if decision is None or not decision.admitted:
        return 0.0
    span = decision.max_trainers - decision.min_trainers
    return 1.0 if span <= 0 else (decision.target - decision.min_trainers) / span


def _target(decision: ScaleDecision | None) -> int:
    return decision.target if decision is not None else 0


def _gets(decision: ScaleDecision | None) -> tuple[int, bool] | None:
    return (decision.target, decision.admitted) if decision is not None else None
