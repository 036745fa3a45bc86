"""What a pinned job has while the API server was not asked about more of its pods, or rejects them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.lifecycle.allowance import as_allowed, as_unasked
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job, Refusal
from edl.model.status import Reason
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for, targets, with_jobs, with_status

ON = tuple(f"n{i % 4:03d}" for i in range(26))


def pinned(count: int, *, trainers: int = 26) -> Job:
    job = make_job("scaled", trainers=trainers, min_trainers=2, max_trainers=40, on=ON[:trainers], age_s=90)
    return replace(with_status(job, admitted=True), pinned=count)


def beside(job: Job) -> ClusterSnapshot:
    """Four nodes of 8 cpus, and another job that has less than its share."""
    other = make_job("other", trainers=5, min_trainers=4, max_trainers=20, on=(*ON[:2], "n002", "n003", "n003"))
    return make_snapshot(make_nodes(4, 8), (with_status(other, admitted=True), job), (), now_s=1000.0)


def refused(live: int) -> Refusal:
    return Refusal(live, is_tried=False, reason=Reason.PODS_REFUSED, message="no", details="")


def test_a_pinned_job_whose_new_count_is_unasked_keeps_what_it_has() -> None:
    """Its share of the cluster is 18 trainers; so many it had until the API server had answered."""
    job = pinned(34)
    assert targets(plan_for(beside(job)))["scaled"] > 26
    plan = plan_for(beside(as_unasked(job)))
    assert (decision_of(plan, "scaled").target, decision_of(plan, "scaled").victims) == (26, ())


@pytest.mark.parametrize("count", [27, 34, 40])
def test_a_pinned_job_whose_pods_are_rejected_keeps_what_it_has(count: int) -> None:
    plan = plan_for(beside(as_allowed(pinned(count), refused(26))))
    assert (decision_of(plan, "scaled").target, decision_of(plan, "scaled").victims) == (26, ())


def test_a_smaller_count_needs_no_answer() -> None:
    job = pinned(10)
    assert as_unasked(job) is job
    assert targets(plan_for(beside(as_unasked(job))))["scaled"] == 10


def test_beside_it_a_pinned_count_that_does_not_fit_takes_nothing_from_it() -> None:
    """Further plans for the other job leave its floor as it is."""
    world = beside(as_unasked(pinned(34)))
    other = next(job for job in world.jobs if job.key.name == "other")
    world = with_jobs(world, replace(other, pinned=20))
    assert targets(plan_for(world))["scaled"] == 26
