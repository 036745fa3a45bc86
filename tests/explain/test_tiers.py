"""What `edl explain` says about QoS classes and overcommit."""

from __future__ import annotations

from dataclasses import replace

from edl.explain.tiers import of_trainers, overcommit_json, qos_of
from edl.model.resources import QosClass
from tests.worlds.builders import make_job, make_node, make_resources, make_serving, make_snapshot


def test_an_overcommitted_node_is_named_with_its_sum() -> None:
    job = make_job("a", trainers=3, on=("n1",))
    job = replace(job, pods=tuple(replace(pod, limits=make_resources(cpu=4)) for pod in job.pods))
    nodes = (make_node("n1"), make_node("n2"))
    snapshot = make_snapshot(nodes, (job,), (make_serving("s", node="n1"),))
    assert list(of_trainers(job, snapshot, ["n1", "n2", "gone"])) == [
        "  QoS class Burstable",
        "  pods on n1 may use 150 % of its cpu by their limits (12 cores of 8 cores, and 1 pod without a limit);"
        " in the cluster 75 %",
    ]
    assert list(of_trainers(job, snapshot, ["n2"])) == ["  QoS class Burstable"]
    cpu, memory = overcommit_json(snapshot, ["n1"])
    assert cpu == {"resource": "cpu", "cluster": 0.75, "withoutLimit": 1, "node": "n1", "worst": 1.5}
    assert (memory["withoutLimit"], memory["worst"]) == (4, 0.0)
    assert overcommit_json(snapshot, [])[0]["node"] is None


def test_trainers_without_requests_are_called_by_what_becomes_of_them() -> None:
    job = replace(make_job("a"), qos=QosClass.BEST_EFFORT)
    (line,) = of_trainers(job, make_snapshot((make_node("n1"),), (job,)), [])
    assert line == (
        "  QoS class BestEffort: each counts as one pod and is evicted before any trainer that requests cpu or memory"
    )
    assert (qos_of(job), qos_of(replace(job, problem="bad")), qos_of(None)) == ("BestEffort", None, None)
