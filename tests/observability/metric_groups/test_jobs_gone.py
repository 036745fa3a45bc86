"""A plan is reported in parts, and a snapshot in between may show that its jobs are gone: no series of them stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from edl.model.names import JobKey
from edl.observability.metric_groups.events import PART_OF_JOBS
from edl.observability.metric_groups.jobs import JobMetrics
from tests.observability.test_decision_records import plan, snapshot

(DECISION,) = plan(5).decisions
DECISIONS = tuple(
    replace(DECISION, job=JobKey("gone", f"job-{number:03}"), current=3, target=5)
    for number in range(PART_OF_JOBS + 1)
)


@pytest.mark.parametrize("parts_before", [0, 1, 2])
@pytest.mark.parametrize("is_changed", [False, True])
def test_the_series_of_a_job_that_goes_while_its_plan_is_reported_end(parts_before: int, is_changed: bool) -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry)
    (job,) = snapshot().jobs
    before, gone = snapshot(), replace(snapshot(), jobs=())
    before = replace(before, jobs=tuple(replace(job, key=decision.job) for decision in DECISIONS))
    metrics.observed(before, leader=True)
    planning = metrics.planning(before, replace(plan(5), decisions=DECISIONS))
    for _ in range(parts_before):
        next(planning)
    metrics.observed(gone, leader=True)
    for _ in planning:
        pass
    for decision in DECISIONS if is_changed else ():
        metrics.decided(decision)
    metrics.observed(gone, leader=True)
    assert b'namespace="gone"' not in generate_latest(registry)
