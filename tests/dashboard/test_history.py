"""The history: every change while it is short, less detail as it grows, never more memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from edl.dashboard.history import History, Sample, sample_of
from edl.dashboard.job_counts import CAPACITY, JobCounts
from edl.model.cluster import ClusterSnapshot
from edl.model.names import Role
from edl.model.resources import Resources
from tests.worlds.builders import make_job, make_nodes, make_serving


def sample(time_s: float, waiting: int = 0) -> Sample:
    return Sample(time_s, waiting=waiting)


def test_a_sample_adds_up_what_the_nodes_offer_and_what_pods_on_nodes_request() -> None:
    up, closed = make_nodes(2)
    jobs = (make_job("a", trainers=2, on=("n000",)), make_job("b", trainers=5, on=("n001",)), make_job("idle"))
    pods = (make_serving("up", node="n000"), make_serving("waits"))
    system = replace(make_serving("proxy", node="n000"), namespace="kube-system")
    lent = jobs[0].live_trainers[0].requested
    lending = tuple(replace(pod, lent_cpu_milli=lent["cpu"] // 2) for pod in jobs[1].pods)
    world = ClusterSnapshot(
        9.0,
        nodes=(up, replace(closed, cordoned=True, reserved=Resources.of({"cpu": 100}))),
        pods=(*pods, system),
        jobs=(jobs[0], replace(jobs[1], pods=lending), jobs[2]),
    )
    body = sample_of(world).body
    serving = pods[0].requested
    assert body["capacity"]["cpu"] == up.allocatable["cpu"]
    assert body["used"]["serving"]["cpu"] == serving["cpu"]
    assert body["used"]["other"]["cpu"] == serving["cpu"] + 100
    assert body["used"]["jobs"]["cpu"] == 2 * lent["cpu"] + 5 * (lent["cpu"] - lent["cpu"] // 2)
    assert (body["time"], body["waiting"], body["pending"]) == (9.0, 1, 0)


def test_pods_without_a_node_use_nothing_and_are_counted_as_waiting() -> None:
    job = make_job("a", trainers=2, on=("n000",))
    pods = tuple(replace(pod, node="") for pod in job.pods)
    taken = sample_of(ClusterSnapshot(0.0, nodes=make_nodes(1), jobs=(replace(job, pods=pods),)))
    assert taken.pending == sum(pod.role is not None and pod.role in Role for pod in pods)
    assert taken.body["used"]["jobs"] == {}


def test_a_quiet_cluster_adds_few_samples_and_a_busy_one_at_most_one_a_second() -> None:
    history = History()
    assert [history.add(sample(t)) for t in (0.0, 5.0, 14.0, 15.0)] == [True, False, False, True]
    assert [history.add(sample(t, n)) for n, t in enumerate((15.5, 16.0, 16.9, 17.0), 1)] == [
        False,
        True,
        False,
        True,
    ]
    assert [history.wants(t) for t in (17.9, 18.0)] == [False, True]


def test_a_full_history_keeps_its_start_and_its_end_and_half_of_the_rest() -> None:
    history = History(capacity=100)
    for second in range(5000):
        history.add(sample(float(second), second))
    times = [one.time_s for one in history.samples]
    assert len(times) <= 100
    assert times[0] == 0.0
    assert times[-1] >= 5000 - 100
    gaps = [b - a for a, b in pairwise(times)]
    assert max(gaps) <= 2 * 5000 / 50


def counted(counts: JobCounts, time_s: float, **trainers: int) -> None:
    jobs = tuple(make_job(name, trainers=n, on=("n000",) if n else ()) for name, n in trainers.items())
    counts.take(ClusterSnapshot(time_s, nodes=make_nodes(1), jobs=jobs))


def test_the_count_of_a_job_is_noted_when_it_changes_and_forgotten_with_the_job() -> None:
    counts = JobCounts()
    for time_s, a, b in ((1.0, 2, 0), (2.0, 2, 1), (3.0, 3, 1)):
        counted(counts, time_s, a=a, b=b)
    assert counts.steps == {"default/a": [(1.0, 2), (3.0, 3)], "default/b": [(1.0, 0), (2.0, 1)]}
    counted(counts, 4.0, b=1)
    assert list(counts.steps) == ["default/b"]
    counted(counts, 5.0, a=4, b=1)
    assert counts.steps["default/a"] == [(5.0, 4)]


def test_the_counts_of_a_job_that_changes_without_end_keep_its_first_and_last() -> None:
    counts = JobCounts()
    for second in range(1000):
        counted(counts, float(second), a=second % 7)
        assert len(counts.steps["default/a"]) <= CAPACITY
    steps = counts.steps["default/a"]
    assert (steps[0], steps[-1]) == ((0.0, 0), (999.0, 999 % 7))
