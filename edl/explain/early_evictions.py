"""Evictions ahead of a plan, as decisions with their sentences."""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.units import count
from edl.planner.admission.early_evictions import Yield, decision_of, early_evictions
from edl.planner.policies.base import Policy
from edl.planner.reading.kept import KeptReading


def early_decisions(
    snapshot: ClusterSnapshot, policy: Policy, limits: Limits, kept: KeptReading | None = None
) -> tuple[ScaleDecision, ...]:
    """Choose evictions for pending serving pods ahead of a plan; see `planner.admission.early_evictions`."""
    return tuple(_worded(found) for found in early_evictions(snapshot, policy.adapt, limits, kept))


def _worded(found: Yield) -> ScaleDecision:
    gone = len(found.victims)
    of = f"{len(found.job.live_trainers) - gone} of {found.job.max_trainers}"
    where = f"node {found.nodes[0]}" if len(found.nodes) == 1 else count(len(found.nodes), "node")
    return decision_of(found, f"{of}: yields {count(gone, 'trainer')} to serving on {where}")
