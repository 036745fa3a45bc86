"""The page that Prometheus scrapes from a controller."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace
from unittest.mock import patch

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edl.controller.ports import RoundResult
from edl.errors import PlanFailure
from edl.model.actions import EnsureService, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Certificate, ScaleDecision, ScalePlan, ServingReport
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, JobStatus, Reason, Resize
from edl.observability.metric_groups.capacity import CapacityMetrics
from edl.observability.metric_groups.events import PART_OF_JOBS, PART_OF_PODS
from edl.observability.metric_groups.jobs import JobMetrics
from edl.observability.metric_groups.progress import ProgressMetrics
from edl.observability.metric_groups.waits import WaitMetrics
from edl.observability.metrics import CONTROLLER_GROUPS, Metrics
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
    assert found["edl_cluster_requested{resource=cpu,use=training}"] == 3
    assert found["edl_cluster_requested{resource=cpu,use=serving}"] == 3
    assert found["edl_cluster_requested{resource=cpu,use=other}"] == 0
    assert found["edl_leader"] == 1
    assert found["edl_jobs{phase=Pending}"] == 1


def test_gauges_of_an_unchanged_cluster_are_not_set_again_and_waits_grow_longer() -> None:
    metrics = Metrics()
    first = world(a=0)
    metrics.observed(first, leader=True)
    age_s = samples(metrics)["edl_oldest_waiting_job_seconds"]
    with patch.object(CapacityMetrics, "observed", autospec=True) as counted:
        metrics.observed(replace(first, observed_at_s=first.observed_at_s + 7.0), leader=False)
    assert not counted.called
    found = samples(metrics)
    assert found["edl_oldest_waiting_job_seconds"] == age_s + 7.0
    assert found["edl_leader"] == 0


def test_only_the_job_that_has_changed_gets_new_counts() -> None:
    metrics = Metrics()
    first = world(a=3, b=1)
    metrics.observed(first, leader=True)
    with patch.object(JobMetrics, "_set_counts", autospec=True) as counted:
        metrics.observed(replace(first, jobs=(first.jobs[0], world(b=2).jobs[0])), leader=True)
    assert [call.args[1].key.name for call in counted.call_args_list] == ["b"]
    metrics.observed(replace(first, jobs=(first.jobs[0], world(b=4).jobs[0])), leader=True)
    found = samples(metrics)
    assert found["edl_job_trainers{job=a,namespace=default,state=current}"] == 3
    assert found["edl_job_trainers{job=b,namespace=default,state=current}"] == 4


def test_a_job_that_comes_back_with_the_same_object_has_its_series_again() -> None:
    metrics = Metrics()
    first = world(a=3)
    for jobs in (first.jobs, (), first.jobs):
        metrics.observed(replace(first, jobs=jobs), leader=True)
    assert samples(metrics)["edl_job_trainers{job=a,namespace=default,state=current}"] == 3


def test_requests_that_many_pods_share_are_added_once_for_each_pod() -> None:
    shared = make_serving("db", node="n001")
    pods = (shared, replace(shared, name="db-2", uid="db-2"), make_serving("web", cpu=3, node="n000"))
    metrics = Metrics()
    metrics.observed(make_snapshot(make_nodes(2), (), pods), leader=True)
    each = sum(pod.shape.request["cpu"] for pod in pods) / 1000
    assert samples(metrics)["edl_cluster_requested{resource=cpu,use=serving}"] == each


def test_a_serving_pod_waits_also_while_kube_scheduler_preempts_trainers_for_it() -> None:
    metrics = Metrics()
    preempting = replace(make_serving("web"), nominated="n000")
    metrics.observed(make_snapshot(make_nodes(2), (), (preempting, make_serving("db", node="n001"))), leader=True)
    assert samples(metrics)["edl_serving_waiting_pods"] == 1


def test_the_first_resize_of_a_job_adds_to_a_series_that_is_there() -> None:
    metrics = Metrics()
    metrics.observed(world(a=3), leader=True)
    before = samples(metrics)
    metrics.decided(decision(5, 3, ("a-trainer-3", "a-trainer-4")))
    after = samples(metrics)
    changed = {name for name in after if name.endswith("}") and "_total{" in name and after[name] != before.get(name)}
    assert changed == {
        "edl_resizes_total{direction=down,job=a,namespace=default}",
        "edl_resize_decisions_total{direction=down,reason=ServingNeedsRoom}",
        "edl_victims_total{reason=ServingNeedsRoom}",
    }
    assert {before[name] for name in changed} == {0.0}


def test_the_last_resize_of_a_job_is_one_series_with_its_time_and_its_reason() -> None:
    metrics = Metrics()
    for to_count, reason in ((3, "ServingNeedsRoom"), (6, "AtMax")):
        status = JobStatus(last_resize=Resize(1000.0 + to_count, 5, to_count, reason))
        metrics.observed(make_snapshot(make_nodes(1), (replace(make_job("a"), status=status),)), leader=False)
        (found,) = [(name, value) for name, value in samples(metrics).items() if "last_resize" in name]
        direction = "up" if to_count > 5 else "down"
        labels = f"{{direction={direction},job=a,namespace=default,reason={reason}}}"
        assert found == (f"edl_job_last_resize_timestamp_seconds{labels}", 1000.0 + to_count)


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
    assert found["edl_resizes_total{direction=up,job=a,namespace=default}"] == 1
    assert found["edl_resizes_total{direction=down,job=a,namespace=default}"] == 1
    assert found["edl_resize_decisions_total{direction=up,reason=AtMax}"] == 1
    assert found["edl_resize_decisions_total{direction=down,reason=ServingNeedsRoom}"] == 1
    assert found["edl_victims_total{reason=ServingNeedsRoom}"] == 2
    assert found["edl_moved_pservers_total"] == 2


def test_leadership_admission_and_objects_left_out_follow_what_happens() -> None:
    metrics = Metrics()
    admitted = "edl_job_admitted{job=a,namespace=default}"
    for leads, target, left_out in ((True, 5, 0), (False, 0, 2), (True, 3, 1)):
        metrics.led(leads=leads)
        metrics.left_out(left_out)
        metrics.rejected_files(left_out > 0)
        metrics.planned(world(a=3), ScalePlan((decision(3, target),), Certificate("fulfilment", 1.0, 1.0)))
        found = samples(metrics)
        assert (found["edl_leader"], found[admitted]) == (leads, target > 0)
        assert (found["edl_quarantined_objects"], found["edl_rejected_files"]) == (left_out, left_out > 0)


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


def test_pods_that_do_not_end_are_counted() -> None:
    metrics = Metrics()
    foreign = replace(make_serving("web", node="n0"), terminating=True)
    job = make_job("a", trainers=3, on=("n0",))
    held = [replace(pod, terminating=True, ends_by_s=0.0) for pod in job.pods]
    pods = (held[0], replace(held[1], ends_by_s=1010.0), replace(held[2], phase=PodPhase.FAILED))
    ends = (None, 0.0, 1010.0, 1e9)
    serving = tuple(replace(foreign, name=f"web-{n}", ends_by_s=end) for n, end in enumerate(ends))
    metrics.observed(make_snapshot((), (replace(job, pods=pods),), serving), leader=True)
    assert samples(metrics)["edl_lingering_pods"] == 3
    metrics.observed(make_snapshot((), (job,), (make_serving("web", node="n0"),)), leader=True)
    assert samples(metrics)["edl_lingering_pods"] == 0


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


def test_sums_over_all_pods_are_made_of_the_last_snapshot_when_a_page_is_asked_for() -> None:
    metrics, gauge = Metrics(), "edl_cluster_requested"
    labels = {"resource": "cpu", "use": "training"}
    metrics.observed(world(a=3), leader=True)
    metrics.observed(world(a=5), leader=True)
    assert metrics.registry.get_sample_value(gauge, labels) in {None, 0}  # nobody has asked
    assert samples(metrics)["edl_cluster_requested{resource=cpu,use=training}"] == 5
    metrics.observed(world(a=4), leader=True)
    assert asyncio.run(metrics.page()) == metrics.render()
    assert metrics.registry.get_sample_value(gauge, labels) == 4


def test_pages_that_are_asked_for_at_once_show_the_same_sums() -> None:
    metrics = Metrics()
    metrics.observed(world(a=5), leader=True)

    async def ask() -> tuple[bytes, bytes]:
        return await asyncio.gather(metrics.page(), metrics.page())

    one, other = asyncio.run(ask())
    assert b'edl_cluster_requested{resource="cpu",use="training"} 5.0' in one
    assert one == other


def test_the_event_loop_goes_on_while_a_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 15,000 nodes it takes half a second, each time that Prometheus asks."""
    metrics, goes_on = Metrics(), threading.Event()
    metrics.observed(world(a=5), leader=True)

    def waits(_: CapacityMetrics, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        del snapshot, leader
        assert goes_on.wait(60.0), "the event loop waits for the page"

    monkeypatch.setattr(CapacityMetrics, "observed", waits)

    async def ask() -> None:
        asking = asyncio.ensure_future(metrics.page())
        await asyncio.sleep(0)
        goes_on.set()
        await asking

    asyncio.run(ask())


def test_a_node_that_is_not_ready_adds_no_capacity() -> None:
    metrics = Metrics()
    snapshot = world(a=1)
    broken = tuple(replace(node, ready=False) for node in snapshot.nodes[:1]) + snapshot.nodes[1:]
    metrics.observed(replace(snapshot, nodes=broken), leader=True)
    assert samples(metrics)["edl_cluster_allocatable{resource=cpu}"] == 8


def test_no_part_of_a_report_looks_at_all_jobs_or_all_pods() -> None:
    """On a large cluster the event loop renews the lease between two parts."""
    count = 4 * PART_OF_JOBS
    decisions = tuple(replace(decision(3, 5), job=JobKey("default", f"j{number}")) for number in range(count))
    jobs = tuple(replace(make_job("a"), uid=d.job.name, key=d.job) for d in decisions)
    pods = tuple(make_serving(f"s{number}", node="n000") for number in range(3 * PART_OF_PODS))
    snapshot, metrics = replace(world(), jobs=jobs, pods=pods), Metrics()
    parts = dict.fromkeys(CONTROLLER_GROUPS, 1)
    planning = metrics.planning(snapshot, ScalePlan(decisions, Certificate("fulfilment", 1, 1)))
    assert sum(1 for _ in planning) == sum((parts | {JobMetrics: 4}).values())
    prompt = {group: 1 for group in CONTROLLER_GROUPS if not group.is_sum}
    in_parts = {JobMetrics: 1 + 4, ProgressMetrics: 4, WaitMetrics: 4 + 3}
    assert sum(1 for _ in metrics.observing(snapshot, leader=True)) == sum((prompt | in_parts).values())
    assert samples(metrics)["edl_job_trainers{job=j9,namespace=default,state=target}"] == 5


def test_the_last_resize_of_a_job_has_one_series_as_long_as_the_job_is_there() -> None:
    metrics, name = Metrics(), "edl_job_last_resize_timestamp_seconds"

    def series() -> list[str]:
        return [one for one in samples(metrics) if one.startswith(name)]

    first = world(a=3)
    (job,) = first.jobs
    for number, resize in enumerate(
        (Resize(9.0, 2, 3, Reason.AT_MAX), Resize(19.0, 3, 2, Reason.SERVING_NEEDS_ROOM))
    ):
        now = replace(job, status=JobStatus(JobPhase.RUNNING, last_resize=resize))
        metrics.observed(replace(first, jobs=(now,), observed_at_s=number), leader=True)
        (one,) = series()
        assert f"reason={resize.reason}" in one
    metrics.observed(replace(first, jobs=(job,)), leader=True)
    assert series() == []
    metrics.observed(replace(first, jobs=(now,)), leader=True)
    assert len(series()) == 1
    metrics.observed(replace(first, jobs=()), leader=True)
    assert series() == []
