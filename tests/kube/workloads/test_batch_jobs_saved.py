"""`batch/v1` Jobs in saved files: planned and explained beside TrainingJobs, by the names that kubectl uses."""

from __future__ import annotations

import json

import pytest

from edl.controller.planning import plan_snapshot, report_snapshot
from edl.explain.job_text import find_job
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from tests.worlds.raw_objects import Object, batch_job, batch_pod, job, node


def saved(*objects: Object) -> ClusterSnapshot:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", **one} for one in objects]})
    snapshot, unread = read_snapshot_texts([("now.json", text)]).snapshot()
    assert not unread
    return snapshot


@pytest.fixture
def cluster() -> ClusterSnapshot:
    wrong = batch_job("wrong", annotations={"paddlepaddle.org/max-instance": "1"})
    asks_nothing = batch_job("quiet", annotations={"paddlepaddle.org/elastic": ""})
    return saved(node("n1"), job(), batch_job(), batch_pod("a", ready_at=1), wrong, asks_nothing)


def test_a_plan_has_a_line_for_each_job_that_asks(cluster: ClusterSnapshot) -> None:
    plan = plan_snapshot(cluster, "", Limits())
    assert [str(d.job) for d in plan.decisions] == ["ads/ctr", "ads/job.batch/train", "ads/job.batch/wrong"]
    train, wrong = plan.decisions[1:]
    assert train.admitted
    assert (train.current, train.target > 1) == (1, True)
    assert (wrong.reason, wrong.target) == ("NotResized", 0)
    assert wrong.message.endswith("lower paddlepaddle.org/min-instance")


@pytest.mark.parametrize(
    ("name", "namespace"), [("job.batch/train", ""), ("job.batch/train", "ads"), ("ads/job.batch/train", "")]
)
def test_a_job_is_found_by_kind_and_name(cluster: ClusterSnapshot, name: str, namespace: str) -> None:
    assert str(find_job(cluster, name, namespace)) == "ads/job.batch/train"


def test_a_job_is_explained(cluster: ClusterSnapshot) -> None:
    report = report_snapshot(cluster, find_job(cluster, "job.batch/wrong", "ads"), "", Limits())
    assert report.decision.reason == "NotResized"


def test_without_a_job_that_asks_the_plan_is_what_it_was() -> None:
    quiet = batch_job("quiet", annotations={"paddlepaddle.org/elastic": ""})
    pods = tuple(batch_pod(name, job="quiet", ready_at=1) for name in "abc")
    with_quiet, without = saved(node("n1"), job(), quiet, *pods), saved(node("n1"), job(), *pods)
    assert with_quiet == without
