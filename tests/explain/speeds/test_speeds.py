"""What `edl explain` says of a job's speed: what is known, what a change costs, and why not the next count."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from edl.controller.planning import plan_snapshot, report_snapshot
from edl.explain.job_text import job_report_json, print_job_report
from edl.explain.speeds.curve import Source, SpeedReport
from edl.explain.speeds.lines import MOST_LISTED
from edl.explain.speeds.steps import next_step, percent
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision
from edl.model.progress import Goodput, Measured
from edl.model.status import JobStatus, Reason, Resize
from edl.model.times import text_of
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import apply_plan, decision_of, later, plan_for, with_jobs

LEARNS = (
    Goodput(1, 100.0, 64, 1.0, is_measured=True),
    Goodput(2, 190.0, 128, 0.95, is_measured=True),
    Goodput(4, 300.0, 256, 0.75, is_measured=True),
    Goodput(6, 310.0, 512, 0.5),
    Goodput(8, 315.0, 512, 0.5),
)
"""A job that had up to four trainers, and predicts the goodput of up to eight."""


def learning(goodputs: tuple[Goodput, ...] = LEARNS, **fields: Any) -> Job:
    job = make_job("a", max_trainers=fields.pop("max_trainers", 12))
    return replace(job, status=JobStatus(measured=Measured(goodputs=goodputs, batch=256)), **fields)


def running(job: Job, cpu: int, most: int) -> ClusterSnapshot:
    """The job after long training with at most so many trainers; it may have more now."""
    world = make_snapshot(make_nodes(1, cpu=cpu), (replace(job, max_trainers=most),))
    world = later(apply_plan(world, plan_for(world, Limits(), "goodput")), 1000)
    (now,) = world.jobs
    assert now.status is not None
    status = replace(now.status, measured=job.status.measured if job.status is not None else Measured())
    return with_jobs(world, replace(now, max_trainers=job.max_trainers, status=status))


def planned(world: ClusterSnapshot) -> ScaleDecision:
    return decision_of(plan_snapshot(world, "goodput", Limits()), "a")


def speeds_in(world: ClusterSnapshot, policy: str = "goodput") -> SpeedReport:
    found = report_snapshot(world, JobKey("default", "a"), policy, Limits()).speeds
    assert found is not None
    return found


def printed(world: ClusterSnapshot, policy: str = "goodput") -> str:
    out = io.StringIO()
    report = report_snapshot(world, JobKey("default", "a"), policy, Limits())
    print_job_report(report, world, Console(file=out, width=100))
    return out.getvalue()


def in_json(world: ClusterSnapshot, policy: str = "goodput") -> Any:
    report = report_snapshot(world, JobKey("default", "a"), policy, Limits())
    return json.loads(job_report_json(report, world))["speeds"]


def test_each_count_says_what_is_known_of_it() -> None:
    found = speeds_in(running(learning(), 4, 4))
    counts = {one.trainers: one for one in found.counts}
    assert (found.is_goodput, found.batch, found.flat_from) == (True, 256, 8)
    assert [counts[n].source for n in (1, 4, 6)] == [Source.MEASURED, Source.MEASURED, Source.PREDICTED]
    assert counts[5].source is Source.BETWEEN
    assert counts[12].source is Source.FLAT
    assert counts[12].per_s == counts[8].per_s
    four = counts[4]
    assert (four.per_s, four.efficiency, four.batch) == (300.0, 0.75, 256)
    assert four.samples_per_s == pytest.approx(400.0)
    assert counts[5].batch is None


def test_a_prediction_is_not_extrapolated_from() -> None:
    """The largest count that the job had is four, so nothing is known beyond eight, whatever it predicts."""
    bold = (*LEARNS, Goodput(10, 5000.0, 512, 0.5))
    found = speeds_in(running(learning(bold), 12, 4))
    assert found.flat_from == 8
    assert {one.trainers: one.per_s for one in found.counts}[12] == 315.0
    assert planned(running(learning(bold), 12, 8)).target <= 8


def test_speeds_that_are_declared_measured_or_unknown_are_told_apart() -> None:
    declared = replace(make_job("a", max_trainers=9), throughput=((2, 10.0), (4, 18.0)))
    sources = {one.trainers: one.source for one in speeds_in(running(declared, 4, 4)).counts}
    assert (sources[1], sources[2], sources[5]) == (Source.BEYOND, Source.DECLARED, Source.BEYOND)
    assert {one.source for one in speeds_in(running(make_job("a", max_trainers=9), 4, 4)).counts} == {Source.UNKNOWN}


@pytest.mark.parametrize("policy", ["maxmin", "static-min"])
def test_a_policy_that_looks_at_no_speeds_shows_none(policy: str) -> None:
    world = running(learning(), 4, 4)
    assert in_json(world, policy) is None
    assert "Speed, in" not in printed(world, policy)


def test_under_utility_the_speed_counts_and_changes_have_no_charge() -> None:
    found = in_json(running(replace(learning(), throughput=((1, 5.0), (4, 9.0))), 4, 4), "utility")
    assert (found["unit"], found["change"], found["globalBatch"]) == ("samples", None, None)


def test_the_cost_of_a_change_and_when_the_next_one_may_be_are_said() -> None:
    world = running(learning(resize_cost_s=50.0), 12, 4)
    (job,) = world.jobs
    assert job.status is not None
    at_s = world.observed_at_s - 40.0
    resize = Resize(at_s, 2, 4, Reason.INSUFFICIENT_CAPACITY, lost_s=47.0)
    world = with_jobs(world, replace(job, status=replace(job.status, last_resize=resize)))
    change = in_json(world)["change"]
    assert (change["costSeconds"], change["measured"], change["restSeconds"]) == (50.0, True, 100.0)
    assert change["leastGain"] == pytest.approx(2.718281828 ** (50 / 600) - 1)
    assert change["growsFrom"] == text_of(at_s + 100.0)
    assert change["last"] == {"from": 2, "to": 4, "time": text_of(at_s), "costSeconds": 47.0}
    text = printed(world)
    assert "a change of the count costs 50 s of training, so it must add 8.7 % to make up for that in 600 s" in text
    assert f"its last change was from 2 to 4 at {text_of(at_s)}, which cost 47 s" in text
    assert f"after a change it does not grow for 100 s, so not before {text_of(at_s + 100.0)}" in text


def test_a_usual_cost_is_called_that() -> None:
    text = printed(running(learning(), 4, 4))
    assert "a change of the count costs 30 s of training (the usual cost, as none was measured)" in text


def test_a_job_that_rests_after_a_resize_says_until_when_and_not_that_more_would_not_pay() -> None:
    world = running(learning(resize_cost_s=20.0), 12, 2)
    (job,) = world.jobs
    assert job.status is not None
    resize = Resize(world.observed_at_s - 10.0, 1, 2, Reason.INSUFFICIENT_CAPACITY)
    world = with_jobs(world, replace(job, status=replace(job.status, last_resize=resize)))
    found = planned(world)
    assert (found.target, found.reason) == (2, Reason.COOLDOWN)
    assert found.message == "2 of 12: was resized a moment ago"
    end = text_of(world.observed_at_s + 30.0)
    assert f"does not grow before {end}; then 3 trainers would add" in found.details
    assert speeds_in(world).why_not.endswith(f"it does not grow before {text_of(world.observed_at_s + 30.0)}")


def test_a_job_that_leaves_capacity_says_what_the_next_count_adds_and_would_have_to_add() -> None:
    world = running(learning(resize_cost_s=60.0), 12, 6)
    found = planned(world)
    assert (found.target, found.reason) == (6, Reason.RESIZE_NOT_WORTH_IT)
    assert found.message == "6 of 12: more trainers would not pay: 8 add 1.6 %, and a resize must add 11 %"
    assert speeds_in(world).why_not == "8 trainers would add 1.6 %, less than the 11 % that a change must add"
    assert "1.6 %, less than" not in printed(world), "its account has said so"


def test_beyond_what_is_known_the_job_says_where_that_ends() -> None:
    found = planned(running(learning(), 12, 8))
    known, twice = "nothing is known beyond 8", "which is twice the largest count that was seen"
    assert found.message == f"8 of 12: more trainers would not pay: {known}"
    assert found.details == f"8 of 12: more trainers would not pay: {known}, {twice}"


def test_a_job_that_gains_by_no_count_says_so() -> None:
    equal = tuple(Goodput(n, 50.0, 64, 1.0, is_measured=True) for n in (1, 2, 4, 12))
    world = running(learning(equal), 12, 7)
    assert speeds_in(world).why_not == "more trainers would not pay: by the speeds that are known, none adds anything"


def test_a_count_that_would_pay_and_has_no_capacity_says_that() -> None:
    scales = replace(make_job("a", max_trainers=8), throughput=((1, 10.0), (8, 80.0)), resize_cost_s=10.0)
    world = running(scales, 4, 8)
    assert speeds_in(world).why_not == (
        "5 trainers would add 25 %, more than the 1.7 % that a change must add; but it lacks capacity for them"
    )
    assert speeds_in(world).why_not in printed(world)


def test_a_job_without_trainers_pays_for_no_change() -> None:
    world = make_snapshot(make_nodes(1, cpu=4), (learning(resize_cost_s=60.0),))
    found = in_json(world)
    assert found["change"]["leastGain"] == 0.0
    assert (
        found["whyNot"] == "5 trainers would add 1.7 %, and no change has to be paid; but it lacks capacity for them"
    )
    assert "costs 60 s of training, which is not charged while the job starts" in printed(world)


def test_a_job_that_waits_shows_its_curve_and_no_next_count() -> None:
    world = make_snapshot(make_nodes(1, cpu=1), (replace(learning(), min_trainers=3),))
    found = in_json(world)
    assert [one["instances"] for one in found["counts"]][:3] == [1, 2, 3]
    assert found["whyNot"] is None


def test_a_long_curve_is_cut_in_the_text_alone() -> None:
    many = tuple((n, 10.0 * n) for n in range(1, 60))
    world = running(replace(make_job("a", max_trainers=200), throughput=many), 30, 30)
    text = printed(world)
    rows = [line for line in text.splitlines() if "declared" in line or "extrapolated" in line]
    assert len(rows) == MOST_LISTED
    assert "more counts (-o json has them)" in text
    assert len(in_json(world)["counts"]) > 60


odd = st.lists(
    st.tuples(st.integers(1, 10_000), st.sampled_from([1e-12, 1e-9, 0.5, 3.0, 3.0, 1e14, 9.9e14])),
    max_size=6,
    unique_by=lambda one: one[0],
)


@given(odd, st.sampled_from([None, 0.0, 1e-6, 30.0, 1e9, 1e15]), st.integers(1, 9), st.booleans())
@examples(100)
def test_odd_curves_and_costs_are_explained_in_finite_numbers(
    points: list[tuple[int, float]], cost_s: float | None, most: int, reports: bool
) -> None:
    goodputs = tuple(Goodput(n, per_s, 2**31 - 1, 1e-9, n % 2 > 0) for n, per_s in sorted(points))
    job = learning(goodputs if reports else (), max_trainers=most, resize_cost_s=cost_s)
    job = job if reports else replace(job, throughput=tuple(sorted(points)))
    world = running(job, 5, most)
    assert "nan" not in printed(world)
    assert "inf" not in printed(world)
    found = in_json(world)
    assert all(one["perSecond"] > 0 for one in found["counts"])
    assert {1, most} <= {one["instances"] for one in found["counts"]}


@given(odd, st.integers(1, 12))
@examples(60)
def test_the_next_count_is_faster(points: list[tuple[int, float]], have: int) -> None:
    job = replace(make_job("a", max_trainers=16), throughput=tuple(points))
    step = next_step(job, have, 0.0)
    assert step is None or (step.trainers > have and step.gain > 0)


@pytest.mark.parametrize(
    ("part", "text"), [(0.0734, "7.3 %"), (0.5, "50 %"), (1.5, "150 %"), (1e15, "more than 10000 %")]
)
def test_a_part_is_said_in_percent(part: float, text: str) -> None:
    assert percent(part) == text
