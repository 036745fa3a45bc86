"""A decision that begins with the patterns of the last one is worth what a decision from nothing is worth."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from benchmarks.worlds import carried_out, fleet, with_changes
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import NO_COLUMNS, KeptColumns
from edl.planner.decide import Study, study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named

LIMITS = Limits(deadline_s=600.0)


def decided(snapshot: ClusterSnapshot, columns: KeptColumns) -> Study:
    made = study(snapshot, policy_named("maxmin"), LIMITS, columns)
    assert not made.plan.cut
    assert check(snapshot, made.plan) == ()
    assert made.plan.certificate.bound >= made.plan.certificate.achieved
    return made


def smaller(snapshot: ClusterSnapshot, random: Random) -> ClusterSnapshot:
    """The cluster after some of its nodes, with all that is on them, have gone; what was kept of them is stale."""
    lost = {node.name for node in random.sample(snapshot.nodes, len(snapshot.nodes) // 10)}
    jobs = (replace(job, pods=tuple(pod for pod in job.pods if pod.node not in lost)) for job in snapshot.jobs)
    return replace(
        snapshot,
        nodes=tuple(node for node in snapshot.nodes if node.name not in lost),
        pods=tuple(pod for pod in snapshot.pods if pod.node not in lost),
        jobs=tuple(jobs),
    )


@settings(derandomize=True, deadline=None, max_examples=3, phases=[Phase.generate])  # shrinking takes minutes
@given(st.integers(0, 9999))
def test_kept_patterns_change_neither_the_shares_nor_the_bound(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    snapshot = fleet(90, 16, seed)
    last = decided(snapshot, NO_COLUMNS)
    assert last.plan.columns.patterns
    for step in range(2):
        snapshot = carried_out(snapshot, last.plan)
        snapshot = with_changes(snapshot, 3, seed + step) if random.random() < 0.5 else smaller(snapshot, random)
        last, cold = decided(snapshot, last.plan.columns), decided(snapshot, NO_COLUMNS)

        levels = [np.array(sorted(made.context.shared.level.items())) for made in (last, cold)]
        np.testing.assert_allclose(levels[0], levels[1], atol=1e-3)
        assert last.plan.certificate.bound == pytest.approx(cold.plan.certificate.bound, rel=0.02)
        assert last.plan.certificate.achieved >= 0.95 * cold.plan.certificate.achieved
