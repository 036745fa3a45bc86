"""What the page shows of a snapshot: blocks of equal pods, bounded lists, shortened texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.dashboard import view
from edl.dashboard.view import MAX_WAITING, kind_of, pods_of_node, view_of
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from tests.browser.page_cluster import HOSTILE
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving


def cluster() -> ClusterSnapshot:
    return ClusterSnapshot(
        observed_at_s=1000.0,
        nodes=(make_node("n000"), make_node("n001", ready=False), make_node("n002", cordoned=True)),
        pods=(make_serving("api", node="n000"), make_serving("waits")),
        jobs=(make_job("ctr", trainers=3, on=("n000",)),),
    )


def test_equal_pods_of_a_node_are_one_block_and_what_is_free_is_what_nobody_requests() -> None:
    node = view_of(cluster(), None).nodes["n000"]
    assert [(b["kind"], b.get("job"), b["n"]) for b in node["blocks"]] == [
        ("serving", None, 1),
        ("trainer", "default/ctr", 3),
    ]
    assert node["has"]["cpu"] == 8000
    assert node["free"]["cpu"] == 8000 - 3000 - 3 * 1000
    assert node["pods"] == 4


def test_a_node_that_takes_no_pods_says_so() -> None:
    nodes = view_of(cluster(), None).nodes
    assert {name: node["state"] for name, node in nodes.items()} == {
        "n000": "ready",
        "n001": "not ready",
        "n002": "cordoned",
    }


def test_a_pod_that_is_being_deleted_is_a_block_of_its_own() -> None:
    made = cluster()
    (job,) = made.jobs
    leaving = replace(job, pods=(replace(job.pods[0], terminating=True), *job.pods[1:]))
    blocks = view_of(replace(made, jobs=(leaving,)), None).nodes["n000"]["blocks"]
    assert [(b["n"], b.get("leaving", False)) for b in blocks if b["kind"] == "trainer"] == [(2, False), (1, True)]


def test_system_pods_and_daemons_are_not_serving() -> None:
    pod = make_serving("api", node="n000")
    assert kind_of(pod) == "serving"
    for other in (
        replace(pod, daemon=True),
        replace(pod, namespace="kube-system"),
        replace(pod, priority=-1),
        replace(pod, priority=2_000_000_000),
    ):
        assert kind_of(other) == "other"


def test_a_job_shows_its_decision_with_reason_account_and_the_plan_its_certificate() -> None:
    made = cluster()
    plan = plan_snapshot(made, "", Limits())
    shown = view_of(made, plan)
    (decision,) = plan.decisions
    job = shown.jobs["default/ctr"]
    assert (job["trainers"], job["min"], job["max"]) == (3, 1, 10)
    assert job["decision"]["target"] == decision.target
    assert job["decision"]["reason"] == decision.reason.value
    assert job["decision"]["account"] == decision.account
    assert shown.cluster["certificate"]["bound"] >= shown.cluster["certificate"]["achieved"] > 0
    assert shown.cluster["serving"] == {"running": 1, "waiting": 1}
    (waiting,) = shown.cluster["waitingPods"]
    assert waiting["why"] == "its scheduler has not tried it yet"


def test_texts_are_shortened_and_otherwise_unchanged() -> None:
    job = make_job("ctr")
    body = view_of(ClusterSnapshot(0.0, jobs=(replace(job, problem=HOSTILE),)), None).jobs["default/ctr"]
    assert body["problem"] == HOSTILE
    long = view_of(ClusterSnapshot(0.0, jobs=(replace(job, problem="x" * 100_000),)), None).jobs["default/ctr"]
    assert len(long["problem"]) == view.MAX_TEXT


def test_a_larger_cluster_than_the_page_shows_is_counted() -> None:
    jobs = tuple(make_job(f"j{i:04d}") for i in range(view.MAX_JOBS + 3))
    shown = view_of(ClusterSnapshot(0.0, nodes=make_nodes(view.MAX_NODES + 2), jobs=jobs), None)
    assert (len(shown.nodes), shown.cluster["hiddenNodes"]) == (view.MAX_NODES, 2)
    assert (len(shown.jobs), shown.cluster["hiddenJobs"]) == (view.MAX_JOBS, 3)


def test_the_pods_of_a_node_are_listed_by_name() -> None:
    pods = pods_of_node(cluster(), "n000")
    assert [(p["namespace"], p["name"], p["kind"], p["phase"]) for p in pods] == [
        ("default", "ctr-trainer-0", "trainer", "Running"),
        ("default", "ctr-trainer-1", "trainer", "Running"),
        ("default", "ctr-trainer-2", "trainer", "Running"),
        ("serving", "api", "serving", "Running"),
    ]
    assert pods_of_node(cluster(), "unknown") == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tried": True, "unscheduled": "0/4 nodes are available"}, "0/4 nodes are available"),
        ({"tried": True, "blocked": "rule: one a node", "unscheduled": "0/4"}, "rule: one a node"),
        ({"tried": True}, ""),
    ],
)
def test_a_serving_pod_that_waits_says_why(changes: dict[str, Any], why: str) -> None:
    pod = replace(make_serving("w"), **changes)
    (waiting,) = view_of(ClusterSnapshot(0.0, pods=(pod,)), None).cluster["waitingPods"]
    assert (waiting["name"], waiting["why"], waiting["each"]["cpu"]) == ("serving/w", why, pod.shape.request["cpu"])


def test_many_waiting_pods_are_counted_and_a_part_of_them_named() -> None:
    pods = tuple(make_serving(f"w{i:03d}") for i in range(MAX_WAITING + 5))
    cluster = view_of(ClusterSnapshot(0.0, pods=pods), None).cluster
    assert (cluster["serving"]["waiting"], len(cluster["waitingPods"])) == (MAX_WAITING + 5, MAX_WAITING)
