"""Waits at their edges: suspended jobs, pods with gates, nominated pods."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.pods import Pod
from edl.observability.metric_groups.waits import WaitMetrics
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot


def watch(*snapshots: ClusterSnapshot) -> CollectorRegistry:
    registry = CollectorRegistry()
    metrics = WaitMetrics(registry)
    for snapshot in snapshots:
        metrics.observed(snapshot, leader=True)
    return registry


def at(second: float, *jobs: Job, pods: tuple[Pod, ...] = ()) -> ClusterSnapshot:
    return make_snapshot(make_nodes(1), jobs, pods, now_s=1000.0 + second)


def count(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"{name}_count", labels) or 0.0


def test_a_job_that_was_suspended_does_not_count() -> None:
    ran = make_job("a", trainers=3, max_trainers=3, on=("n000",))
    registry = watch(at(0), at(1, replace(make_job("a"), suspended=True)), at(60, ran))
    assert count(registry, "edl_job_wait_seconds", reached="first") == 0
    assert registry.get_sample_value("edl_oldest_waiting_job_seconds") == 0


def test_a_job_that_has_its_minimum_is_not_at_its_maximum() -> None:
    registry = watch(at(0), at(60, make_job("a", trainers=3, min_trainers=2, max_trainers=4, on=("n000",))))
    reached = [count(registry, "edl_job_wait_seconds", reached=r) for r in ("first", "minimum", "maximum")]
    assert reached == [1, 1, 0]
    assert registry.get_sample_value("edl_job_wait_seconds_sum", {"reached": "minimum"}) == 60


def test_a_trainer_that_is_not_ready_ends_no_wait() -> None:
    job = make_job("a", trainers=1, on=("n000",))
    starting = replace(job, pods=tuple(replace(pod, ready=False) for pod in job.pods))
    registry = watch(at(0), at(60, starting))
    assert count(registry, "edl_job_wait_seconds", reached="first") == 0
    assert registry.get_sample_value("edl_oldest_waiting_job_seconds") == 60


def test_a_pod_that_kube_scheduler_preempts_for_waits_behind_training() -> None:
    waiting = make_serving("web")
    registry = watch(
        at(0),
        at(1, pods=(waiting,)),
        at(2, pods=(replace(waiting, nominated="n000"),)),
        at(9, pods=(make_serving("web", node="n000"),)),
    )
    assert count(registry, "edl_serving_wait_seconds", behind="training") == 1
    assert registry.get_sample_value("edl_serving_wait_seconds_sum", {"behind": "training"}) == 19


def test_a_pod_for_which_trainers_go_ahead_of_a_plan_waits_behind_training() -> None:
    registry = CollectorRegistry()
    metrics = WaitMetrics(registry)
    waiting = at(1, pods=(make_serving("web"),))
    for seen in (at(0), waiting):
        metrics.observed(seen, leader=True)
    metrics.evicted_early(waiting)
    metrics.observed(at(9, pods=(make_serving("web", node="n000"),)), leader=True)
    assert count(registry, "edl_serving_wait_seconds", behind="training") == 1


def test_the_wait_of_a_pod_ends_when_its_node_was_found() -> None:
    registry = watch(at(0), at(60, pods=(replace(make_serving("web", node="n000"), answered_s=992.0),)))
    assert registry.get_sample_value("edl_serving_wait_seconds_sum", {"behind": "other"}) == 2


def test_a_pod_that_had_a_gate_does_not_count() -> None:
    gated = replace(make_serving("web"), gated=True)
    registry = watch(at(0), at(1, pods=(gated,)), at(5, pods=(replace(gated, gated=False),)))
    assert count(registry, "edl_serving_wait_seconds", behind="other") == 0
    registry = watch(at(0), at(1, pods=(gated,)), at(5, pods=(make_serving("web", node="n000"),)))
    assert count(registry, "edl_serving_wait_seconds", behind="other") == 0


def test_daemons_and_pods_of_low_priority_are_no_serving() -> None:
    daemon = replace(make_serving("log", node="n000"), daemon=True)
    registry = watch(at(0), at(1, pods=(daemon, make_serving("batch", node="n000", priority=-1))))
    assert count(registry, "edl_serving_wait_seconds", behind="other") == 0
