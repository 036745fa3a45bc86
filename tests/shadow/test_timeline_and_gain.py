"""What is used minute by minute, what would be, and the gain with its uncertainty."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from edl.controller.planning import plan_snapshot
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.shadow.document import Interval
from edl.shadow.gain import gain_of
from edl.shadow.timeline import LONGEST_HOLD_S, Sample, Timeline, sample
from tests.shadow.objects import Times
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot


def of(view: ClusterSnapshot) -> Sample:
    return sample(view, plan_snapshot(view, "", Limits()))


def interval(used: float, with_edl: float, *, seconds: float = 60.0, waiting: float = 0.0) -> Interval:
    return Interval(
        start="2026-01-01T00:00:00Z",
        seconds=seconds,
        capacity={"cpu": 100.0},
        used={"cpu": used},
        training={},
        with_edl={"cpu": with_edl},
        training_with_edl={},
        waiting=waiting,
        waiting_with_edl=0.0,
        jobs_waiting=0.0,
        jobs_waiting_with_edl=0.0,
    )


def test_a_job_that_may_grow_fills_the_node_in_the_line_with_edl() -> None:
    job = make_job("ctr", trainers=2, min_trainers=2, max_trainers=20, on=("n1",))
    seen = of(make_snapshot((make_node("n1"),), (job,)))
    assert (seen.capacity["cpu"], seen.used["cpu"], seen.training["cpu"], seen.with_edl["cpu"]) == (
        8000,
        2000,
        2000,
        8000,
    )
    assert seen.training_with_edl["cpu"] == 8000
    assert seen.jobs_waiting == 0


def test_serving_that_the_plan_places_counts_and_its_victims_do_not() -> None:
    job = make_job("ctr", trainers=8, min_trainers=2, max_trainers=8, on=("n1",))
    seen = of(make_snapshot((make_node("n1"),), (job,), (replace(make_serving("web"), tried=True),)))
    assert (seen.used["cpu"], seen.with_edl["cpu"], seen.waiting, seen.waiting_with_edl) == (8000, 8000, 1, 0)
    assert (seen.training["cpu"], seen.training_with_edl["cpu"]) == (8000, 5000)


def test_a_job_that_waits_and_would_be_admitted_is_counted() -> None:
    seen = of(make_snapshot((make_node("n1"),), (make_job("ctr", min_trainers=2),)))
    assert (seen.jobs_waiting, seen.jobs_waiting_with_edl) == (1, 0)


def test_devices_are_shown_and_ports_and_pod_counts_are_not() -> None:
    seen = of(make_snapshot((make_node("n1", gpu=4),)))
    assert set(seen.capacity) == {"cpu", "memory", "gpu"}


def test_nodes_that_take_no_pods_are_no_capacity() -> None:
    nodes = (make_node("n1"), make_node("n2", ready=False), make_node("n3", cordoned=True))
    assert of(make_snapshot(nodes)).capacity["cpu"] == 8000


def test_a_sample_holds_until_the_next_and_no_longer_than_half_a_minute() -> None:
    times = Times(0.0)
    timeline = Timeline(times.now_s, times.monotonic_s)
    idle = make_snapshot((make_node("n1"),))
    busy = make_snapshot((make_node("n1"),), pods=(make_serving("web", cpu=4, node="n1"),))
    timeline.planned(idle, plan_snapshot(idle, "", Limits()))
    times.s = 10.0
    timeline.planned(busy, plan_snapshot(busy, "", Limits()))
    times.s = 20.0
    timeline.hold()
    times.s = 20.0 + 10 * LONGEST_HOLD_S
    timeline.hold()
    first, second = timeline.intervals
    assert (first.seconds, first.used["cpu"], first.capacity["cpu"]) == (20.0, 2000.0, 8000.0)
    assert (second.seconds, second.used["cpu"]) == (LONGEST_HOLD_S, 4000.0)
    assert timeline.observed_s == 20.0 + LONGEST_HOLD_S


def test_the_gain_is_a_mean_weighted_by_the_time_observed() -> None:
    gain = gain_of([interval(50, 80), interval(50, 60, seconds=30.0)])
    (cpu,) = gain.resources
    assert cpu.gain.mean == pytest.approx((0.3 * 60 + 0.1 * 30) / 90)
    assert (cpu.used, cpu.capacity) == (0.5, 100.0)
    assert cpu.gain.low is None, "two minutes say nothing about the others"


def test_equal_minutes_have_no_uncertainty_and_unlike_ones_have_some() -> None:
    same = gain_of([interval(50, 70)] * 20).resources[0].gain
    assert same.low == pytest.approx(0.2)
    assert same.high == pytest.approx(0.2)
    chance = random.Random(1)  # noqa: S311 - a seed
    mixed = gain_of([interval(50, 50 + 40 * chance.random()) for _ in range(50)]).resources[0].gain
    assert mixed.low is not None
    assert mixed.high is not None
    assert mixed.low < mixed.mean < mixed.high
    assert mixed.high - mixed.low > 0.02


def test_minutes_that_resemble_their_neighbours_are_less_certain() -> None:
    chance = random.Random(2)  # noqa: S311 - a seed
    values = [50 + 40 * chance.random() for _ in range(60)]
    shuffled = gain_of([interval(50, value) for value in values]).resources[0].gain
    in_order = gain_of([interval(50, value) for value in sorted(values)]).resources[0].gain
    assert shuffled.mean == pytest.approx(in_order.mean)
    assert shuffled.high is not None
    assert shuffled.low is not None
    assert in_order.high is not None
    assert in_order.low is not None
    assert in_order.high - in_order.low > 1.3 * (shuffled.high - shuffled.low)


def test_the_interval_covers_the_mean_about_as_often_as_it_says() -> None:
    chance = random.Random(3)  # noqa: S311 - a seed
    covered = 0
    for _ in range(40):
        gain = gain_of([interval(50, 50 + 20 * chance.random()) for _ in range(60)]).resources[0].gain
        assert gain.low is not None
        assert gain.high is not None
        covered += gain.low <= 0.1 <= gain.high
    assert 30 <= covered <= 40, "36 of 40 would be 90 %"


def test_nothing_observed_is_no_gain() -> None:
    gain = gain_of([])
    assert (gain.intervals, gain.resources, gain.serving_waiting) == (0, [], None)


def test_serving_that_waits_is_gained_in_pods() -> None:
    gain = gain_of([interval(50, 50, waiting=2.0)] * 6)
    assert gain.serving_waiting is not None
    assert gain.serving_waiting.mean == 2.0
