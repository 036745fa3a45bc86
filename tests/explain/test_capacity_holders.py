"""Who else holds room: pods that are not of training, and trainers that request what their job asked for once."""

from __future__ import annotations

from dataclasses import replace

from edl.explain.capacity_holders import held_by_others, older_trainers
from edl.explain.job_report import report_on_job
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.resources import CPU, MEMORY
from edl.planner.decide import study
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape, make_snapshot

NODES = make_nodes(2, cpu=4)


def world() -> ClusterSnapshot:
    """Two trainers of 3 cores each, whose job asks for 1 core by now, beside a job that has no room to grow."""
    before = make_job("a", trainers=2, min_trainers=1, max_trainers=2, cpu=3, on=("n000", "n001"))
    other = make_job("b", trainers=1, min_trainers=1, max_trainers=4, cpu=1, on=("n000",))
    serving = make_serving("web", cpu=1, memory_gib=1, node="n001")
    return make_snapshot(NODES, (replace(before, trainer=make_shape(1, 1)), other), (serving,))


def test_trainers_with_older_requests_are_named_with_what_restarts_them() -> None:
    (older,) = older_trainers(world(), CPU)
    assert str(older) == "2 trainers of default/a still request 3 cores each; new ones request 1 core"
    assert "scale tj a --replicas 1; once they are gone, --replicas 0" in older.remedy
    assert not older_trainers(world(), MEMORY), "they hold no more memory than new ones would"


def test_pods_that_are_not_of_training_are_counted_on_the_full_nodes_alone() -> None:
    assert held_by_others(world(), CPU, frozenset({"n000", "n001"})) == (1, "1 core")
    assert held_by_others(world(), CPU, frozenset({"n000"}))[0] == 0


def test_the_report_names_both() -> None:
    limits = Limits()
    made = study(world(), policy_named("maxmin"), limits)
    report = report_on_job(made, next(j.key for j in world().jobs if j.key.name == "b"), 10.0)
    assert [older.trainers for older in report.older] == [2]
    assert report.older[0].remedy in report.remedies
    assert [(full.others, full.by_others) for full in report.full] == [(1, "1 core")]
