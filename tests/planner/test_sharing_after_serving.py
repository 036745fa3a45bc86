"""Room that serving gave back is left, for seconds, to the jobs that gave way and may not grow yet."""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.status import Reason, Resize
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, targets, with_status


def after_a_wave(age_s: float) -> ClusterSnapshot:
    """Sixteen slots, nine taken; `gave` gave way to serving so long ago, `spared` did not."""
    shrunk = Resize(1000.0 - age_s, 8, 1, Reason.SERVING_NEEDS_ROOM)
    gave = make_job("gave", trainers=1, min_trainers=1, max_trainers=16, on=("n000",))
    spared = make_job("spared", trainers=6, min_trainers=1, max_trainers=16, on=("n000", "n001"))
    jobs = (with_status(gave, resize=shrunk, admitted=True), with_status(spared, admitted=True))
    return make_snapshot(make_nodes(2), jobs)


def test_a_job_that_was_spared_takes_no_more_than_its_share_while_another_may_not_grow() -> None:
    plan = plan_for(after_a_wave(10))
    assert targets(plan) == {"gave": 1, "spared": 8}
    spared = decision_of(plan, "spared")
    assert spared.reason is Reason.COOLDOWN
    assert "free capacity is reserved for default/gave" in spared.account
    assert "1970-01-01T00:17:00Z" in spared.account


def test_both_have_their_share_and_nobody_dies_for_it_once_it_may_grow() -> None:
    plan = plan_for(after_a_wave(31))
    assert targets(plan) == {"gave": 8, "spared": 8}
    assert not any(decision.victims for decision in plan.decisions)
