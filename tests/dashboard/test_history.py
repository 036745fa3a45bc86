"""The history: every change while it is short, less detail as it grows, never more memory."""

from __future__ import annotations

from itertools import pairwise

from edl.dashboard.history import MAX_JOBS_OF_A_SAMPLE, History, Sample, sample_of
from edl.model.cluster import ClusterSnapshot
from tests.worlds.builders import make_job, make_serving


def sample(time_s: float, serving: int = 0) -> Sample:
    return Sample(time_s, serving, 0, ())


def test_a_sample_counts_live_trainers_by_job_and_serving_pods_on_nodes() -> None:
    jobs = (make_job("a", trainers=2, on=("n",)), make_job("b", trainers=5, on=("n",)), make_job("idle"))
    pods = (make_serving("up", node="n"), make_serving("waits"))
    assert sample_of(ClusterSnapshot(9.0, pods=pods, jobs=jobs)).body == {
        "time": 9.0,
        "serving": 1,
        "waiting": 1,
        "trainers": {"default/b": 5, "default/a": 2},
        "others": 0,
    }


def test_the_smallest_of_very_many_jobs_are_counted_together() -> None:
    jobs = tuple(make_job(f"j{i:03d}", trainers=2 if i else 1, on=("n",)) for i in range(MAX_JOBS_OF_A_SAMPLE + 2))
    taken = sample_of(ClusterSnapshot(0.0, jobs=jobs))
    assert len(taken.trainers) == MAX_JOBS_OF_A_SAMPLE
    assert taken.others == 3


def test_a_quiet_cluster_adds_few_samples_and_a_busy_one_at_most_one_a_second() -> None:
    history = History()
    assert [history.add(sample(t)) for t in (0.0, 5.0, 14.0, 15.0)] == [True, False, False, True]
    assert [history.add(sample(t, n)) for n, t in enumerate((15.5, 16.0, 16.9, 17.0), 1)] == [
        False,
        True,
        False,
        True,
    ]


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
