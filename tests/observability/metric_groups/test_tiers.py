"""QoS classes of trainers and overcommitted limits as metrics."""

from __future__ import annotations

from dataclasses import replace

from edl.model.resources import QosClass
from edl.observability.metrics import Metrics
from tests.worlds.builders import make_job, make_node, make_resources, make_snapshot


def test_trainers_are_counted_by_class_and_limits_against_capacity() -> None:
    metrics = Metrics()
    job = make_job("a", trainers=3, on=("n1",))
    pods = tuple(replace(pod, limits=make_resources(cpu=4)) for pod in job.pods)
    free = replace(make_job("b", trainers=2, on=("n2",), cpu=0, memory_gib=0), qos=QosClass.BEST_EFFORT)
    snapshot = make_snapshot((make_node("n1"), make_node("n2")), (replace(job, pods=pods), free))
    metrics.observed(snapshot, leader=True)
    page = metrics.render().decode()
    assert {
        'edl_trainers_by_qos{qos="Burstable"} 3.0',
        'edl_trainers_by_qos{qos="BestEffort"} 2.0',
        'edl_trainers_by_qos{qos="Guaranteed"} 0.0',
        'edl_overcommit_ratio{place="cluster",resource="cpu"} 0.75',
        'edl_overcommit_ratio{place="worst node",resource="cpu"} 1.5',
        'edl_pods_without_limit{resource="cpu"} 2.0',
        'edl_pods_without_limit{resource="memory"} 5.0',
    } <= set(page.splitlines())
