"""The page that Prometheus scrapes from a controller."""

from __future__ import annotations

import re
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.model.actions import EnsureService, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Certificate, ScaleDecision, ScalePlan, ServingReport
from edl.model.status import Reason
from edl.observability.metrics import Metrics
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot

KEY = JobKey("default", "a")


def decision(current: int, target: int, victims: tuple[str, ...] = ()) -> ScaleDecision:
    reason = "ServingNeedsRoom" if victims else ""
    return ScaleDecision(
        KEY, 1, current, target, 1, 8, target > 0, Reason.AT_MAX, "", victims=victims, shrink_reason=reason
    )


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample, by name and labels."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def world(**jobs: int) -> ClusterSnapshot:
    made = tuple(make_job(name, trainers=count, on=("n000",)) for name, count in jobs.items())
    return make_snapshot(make_nodes(2), made, (make_serving("web"), make_serving("db", node="n001")))


def test_a_snapshot_sets_jobs_capacity_and_waiting_pods() -> None:
    metrics = Metrics()
    metrics.observed(world(a=3), leader=True)
    found = samples(metrics)
    assert found["edl_job_trainers{job=a,namespace=default,state=current}"] == 3
    assert found["edl_job_trainers{job=a,namespace=default,state=max}"] == 10
    assert found["edl_serving_waiting_pods"] == 1
    assert found["edl_cluster_allocatable{resource=cpu}"] == 16
    assert found["edl_cluster_requested{resource=cpu}"] == 6
    assert found["edl_leader"] == 1
    assert found["edl_jobs{phase=Pending}"] == 1


def test_a_plan_sets_targets_gap_and_duration() -> None:
    metrics = Metrics()
    plan = ScalePlan(
        (decision(3, 5),),
        Certificate("fulfilment", 0.9, 1.0),
        serving=ServingReport(3, 1, 2),
        seconds=0.02,
        cut=("admission",),
    )
    metrics.planned(world(a=3), plan)
    moving = replace(decision(3, 3), moves=("a-pserver-0", "a-pserver-1"))
    for changed in (decision(3, 5), decision(5, 3, ("a-trainer-3", "a-trainer-4")), moving):
        metrics.decided(changed)
    found = samples(metrics)
    assert found["edl_job_trainers{job=a,namespace=default,state=target}"] == 5
    assert abs(found["edl_plan_gap_ratio"] - 0.1) < 1e-9
    assert found["edl_decision_seconds_count"] == 1
    assert found["edl_serving_short_pods"] == 2
    assert found["edl_plans_cut_short_total{stage=admission}"] == 1
    assert found["edl_plans_cut_short_total{stage=proof}"] == 0
    assert found["edl_resizes_total{direction=up,job=a,namespace=default,reason=AtMax}"] == 1
    assert found["edl_resizes_total{direction=down,job=a,namespace=default,reason=ServingNeedsRoom}"] == 1
    assert found["edl_victims_total{reason=ServingNeedsRoom}"] == 2
    assert found["edl_moved_pservers_total"] == 2


def test_one_series_names_the_costliest_job_of_the_last_decision() -> None:
    metrics = Metrics()
    for name, seconds in (("a", 0.5), ("b", 0.25)):
        plan = ScalePlan((), Certificate("fulfilment", 1, 1), costliest=(JobKey("default", name), seconds))
        metrics.planned(world(a=3, b=1), plan)
    found = {name: value for name, value in samples(metrics).items() if name.startswith("edl_planner_costliest")}
    assert found == {"edl_planner_costliest_job_seconds{job=b,namespace=default}": 0.25}


def test_serving_pods_that_did_not_use_free_capacity_are_counted() -> None:
    metrics = Metrics()
    waiting = make_snapshot((), (), (replace(make_serving("web"), unplaceable=True), make_serving("db")))
    metrics.planned(waiting, ScalePlan((), Certificate("fulfilment", 1, 1)))
    assert samples(metrics)["edl_serving_unplaceable_pods"] == 1


def test_the_series_of_a_job_end_with_it() -> None:
    metrics = Metrics()
    metrics.observed(world(a=3, b=1), leader=True)
    metrics.planned(world(a=3, b=1), ScalePlan((decision(3, 5),), Certificate("fulfilment", 1, 1)))
    metrics.decided(decision(3, 5))
    metrics.observed(world(b=1), leader=True)
    assert not [name for name in samples(metrics) if "job=a" in name]
    assert [name for name in samples(metrics) if "job=b" in name]


def test_a_plan_for_a_job_that_is_gone_a_round_later_leaves_no_series() -> None:
    metrics = Metrics()
    metrics.planned(world(a=3), ScalePlan((decision(3, 5),), Certificate("fulfilment", 1, 1)))
    metrics.observed(world(), leader=True)
    assert not [name for name in samples(metrics) if "job=a" in name]


def test_rounds_writes_and_failures_are_counted() -> None:
    metrics = Metrics()
    metrics.ended(RoundResult.ACTED, 0.1)
    metrics.ended(RoundResult.SKIPPED, 0.1)
    metrics.not_planned(PlanFailure.REFUSED)
    metrics.not_planned(PlanFailure.LATE_SOLVER)
    metrics.acted(Outcome(EnsureService(KEY, "u"), Result.REFUSED))
    found = samples(metrics)
    assert found["edl_rounds_total{result=acted}"] == 1
    assert found["edl_plans_refused_total"] == 1
    assert found["edl_decision_failures_total{failure=late_solver}"] == 1
    assert found["edl_decision_failures_total{failure=infeasible}"] == 0, "an alert needs the series from the start"
    assert found["edl_actions_total{action=EnsureService,result=Refused}"] == 1


def test_names_and_labels_follow_the_conventions() -> None:
    metrics = Metrics()
    metrics.observed(world(a=3), leader=False)
    metrics.planned(world(a=3), ScalePlan((decision(3, 5),), Certificate("fulfilment", 1, 1)))
    for family in text_string_to_metric_families(metrics.render().decode()):
        assert re.fullmatch(r"edl_[a-z_]+", family.name)
        for sample in family.samples:
            assert not set(sample.labels) & {"pod", "uid", "message", "node"}


def test_a_name_adds_no_series_and_ends_no_label() -> None:
    metrics, hostile = Metrics(), 'a"} 1\nedl_leader 7\n# HELP \\ {job="b'
    metrics.observed(world(**{hostile: 3}), leader=False)
    found = samples(metrics)
    assert found["edl_leader"] == 0
    assert found[f"edl_job_trainers{{job={hostile},namespace=default,state=current}}"] == 3


def test_two_controllers_in_one_process_do_not_share_series() -> None:
    one, other = Metrics(), Metrics()
    one.led(leads=True)
    assert samples(other)["edl_leader"] == 0


def test_a_node_that_is_not_ready_adds_no_capacity() -> None:
    metrics = Metrics()
    snapshot = world(a=1)
    broken = tuple(replace(node, ready=False) for node in snapshot.nodes[:1]) + snapshot.nodes[1:]
    metrics.observed(replace(snapshot, nodes=broken), leader=True)
    assert samples(metrics)["edl_cluster_allocatable{resource=cpu}"] == 8
