"""What each baseline makes of the same jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.model.names import JobKey
from edl.planner.speedup import curve_of
from edl.sim.baselines.afs import Afs
from edl.sim.baselines.base import JobFacts
from edl.sim.baselines.optimus import Optimus
from edl.sim.baselines.sia import Sia
from edl.sim.baselines.tiresias import THRESHOLD_S, Tiresias
from edl.sim.policies import SHARERS

SLOTS = 16
LINEAR = curve_of([(1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0), (16, 16.0)])
POOR = curve_of([(1, 1.0), (2, 1.2), (4, 1.3), (8, 1.35), (16, 1.36)])


def facts(name: str, **fields: Any) -> JobFacts:
    usual = JobFacts(
        key=JobKey("ns", name),
        min_trainers=1,
        max_trainers=16,
        fixed=8,
        current=0,
        age_s=100.0,
        remaining=1000.0,
        attained_s=0.0,
        curve=LINEAR,
        slots=SLOTS,
        resize_s=30.0,
    )
    return replace(usual, **fields)


def share(baseline: str, *jobs: JobFacts) -> dict[str, int]:
    shares = SHARERS[baseline]().share(jobs, 1.0)
    return {key.name: count for key, count in shares.items() if count}


@pytest.mark.parametrize("baseline", SHARERS)
def test_no_baseline_gives_more_than_there_is_or_than_a_job_may_have(baseline: str) -> None:
    jobs = [facts(f"j{i}", curve=POOR if i % 2 else LINEAR, max_trainers=4 + i, fixed=3, age_s=i) for i in range(9)]
    shares = share(baseline, *jobs)
    assert 0 < sum(shares.values()) <= SLOTS
    assert all(shares.get(job.key.name, 0) <= job.max_trainers for job in jobs)


@pytest.mark.parametrize("baseline", ["optimus", "afs", "sia"])
def test_a_job_that_scales_gets_more_than_one_that_does_not(baseline: str) -> None:
    shares = share(baseline, facts("linear"), facts("poor", curve=POOR))
    assert shares["linear"] > shares.get("poor", 0)


def test_optimus_favours_the_longer_of_two_equal_jobs() -> None:
    shares = Optimus().share([facts("a-short", remaining=1000.0), facts("b-long", remaining=9000.0)], 1.0)
    assert shares[JobKey("ns", "b-long")] > shares[JobKey("ns", "a-short")]


def test_afs_shares_equally_between_jobs_that_scale_alike_whatever_their_length() -> None:
    shares = Afs().share([facts("long", remaining=9000.0), facts("short", remaining=1000.0)], 1.0)
    assert shares == {JobKey("ns", "long"): 8, JobKey("ns", "short"): 8}


def test_tiresias_runs_those_with_little_service_first_and_whole() -> None:
    old = facts("old", age_s=900.0, attained_s=THRESHOLD_S, fixed=12)
    shares = Tiresias().share([facts("new", fixed=12), old], 1.0)
    assert shares == {JobKey("ns", "new"): 12}


def test_sia_does_not_restart_a_young_job_for_a_small_gain() -> None:
    job = facts("job", current=8, age_s=31.0, max_trainers=9)
    assert Sia().share([job], 1.0) == {job.key: 8}
    old = replace(job, age_s=100_000.0)
    assert Sia().share([old], 1.0) == {job.key: 9}


def test_pollux_gives_a_job_at_most_twice_what_it_has_had() -> None:
    baseline = SHARERS["pollux"]()
    counts, current = [], 0
    for age_s in (1000.0, 2000.0, 3000.0, 4000.0):
        current = baseline.share([facts("a", current=current, age_s=age_s)], 1.0)[JobKey("ns", "a")]
        counts.append(current)
    assert counts == [2, 4, 8, 16]


def test_pollux_restarts_no_job_that_it_has_restarted_too_often() -> None:
    baseline = SHARERS["pollux"]()
    for current in (1, 2, 1, 2, 1, 2, 1, 2):
        baseline.share([facts("a", current=current, age_s=1000.0), facts("b", current=8, age_s=1000.0)], 1.0)
    shares = baseline.share([facts("a", current=2, age_s=150.0)], 1.0)
    assert shares[JobKey("ns", "a")] == 2
    assert SHARERS["pollux"]().share([facts("a", current=2, age_s=150.0)], 1.0)[JobKey("ns", "a")] == 4
