"""Large clusters: whole patterns are placed, nearly nothing is lost by it, and columns are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.worlds import carried_out, fleet, with_changes
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import KeptColumns, ScalePlan
from edl.observability.decision_records import DecisionRecord, decode_record, encode_record
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named

POLICY = policy_named("maxmin")


@pytest.fixture(scope="module")
def empty() -> ClusterSnapshot:
    return fleet(600, 120)


@pytest.fixture(scope="module")
def cold(empty: ClusterSnapshot) -> ScalePlan:
    return decide(empty, POLICY, Limits(deadline_s=60.0))


def test_little_is_lost_on_an_empty_cluster(empty: ClusterSnapshot, cold: ScalePlan) -> None:
    assert check(empty, cold) == ()
    assert all(d.admitted for d in cold.decisions)
    assert 0 <= cold.certificate.gap < 0.005
    assert cold.certificate.bound >= cold.certificate.achieved


def test_a_full_cluster_at_rest_stays_as_it_is(empty: ClusterSnapshot, cold: ScalePlan) -> None:
    full = carried_out(empty, cold)
    again = decide(full, POLICY, Limits(deadline_s=60.0), cold.columns)
    assert {d.job: d.target for d in again.decisions} == {d.job: d.target for d in cold.decisions}
    assert not any(d.victims or d.nodes for d in again.decisions)


def test_ten_changes_are_answered_by_a_plan_that_holds_with_columns_and_without(
    empty: ClusterSnapshot, cold: ScalePlan
) -> None:
    changed = with_changes(carried_out(empty, cold), 10)
    for columns in (cold.columns, KeptColumns()):
        plan = decide(changed, POLICY, Limits(deadline_s=60.0), columns)
        assert check(changed, plan) == ()
        assert plan.given == columns
        assert all(d.admitted for job, d in zip(changed.jobs, plan.decisions, strict=True) if job.is_schedulable)
        new = [d for d in plan.decisions if d.job.name.startswith("new")]
        assert new
        assert all(d.target >= d.min_trainers for d in new)


def test_equal_snapshots_and_columns_give_equal_plans_from_a_record_too(
    empty: ClusterSnapshot, cold: ScalePlan
) -> None:
    limits = Limits(deadline_s=60.0)
    changed = with_changes(carried_out(empty, cold), 4)
    plan = decide(changed, POLICY, limits, cold.columns)
    record = decode_record(encode_record(DecisionRecord("maxmin", limits, changed, plan)))
    again = decide(record.snapshot, POLICY, record.limits, record.plan.given)
    assert replace(again, seconds=0) == replace(plan, seconds=0)
    assert again.columns.patterns


def test_columns_of_another_cluster_do_no_harm(empty: ClusterSnapshot, cold: ScalePlan) -> None:
    """They name shapes that nobody asks for, rooms that no class has, and more pods than fit."""
    other = decide(fleet(200, 40, seed=9), POLICY, Limits(deadline_s=60.0)).columns
    wild = tuple((room, tuple((s, n * 50) for s, n in held)) for room, held in other.patterns)
    plan = decide(empty, POLICY, Limits(deadline_s=60.0), replace(other, patterns=wild))
    assert check(empty, plan) == ()
    assert abs(plan.certificate.achieved - cold.certificate.achieved) < 0.01 * cold.certificate.bound
