"""Jobs that may change their batch: which one they take, how fast they are with it, and what policies know of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from edl.sim.batches.phases import phases_of
from edl.sim.scenario import JobGroup
from edl.sim.simulation import simulate
from edl.worker.goodput.rates import efficiency
from tests.sim.scenarios import make_group, make_scenario

SPEEDS: list[Any] = [[100, [[1, 100.0], [4, 200.0]]], [400, [[1, 120.0], [4, 400.0]]]]
BATCH: dict[str, Any] = {"base": 100, "speeds": SPEEDS, "noise": [[0.0, [0.0, 0.0]], [0.5, [0.0, 1100.0]]]}


def group_of(**fields: Any) -> JobGroup:
    return JobGroup.model_validate(make_group(max=4, work=1000.0, batch=BATCH) | fields)


def test_efficiency_is_one_for_the_base_batch_and_falls_with_less_noise() -> None:
    assert efficiency(0.0, 100, 400) == 0.25
    assert efficiency(1100.0, 100, 400) == 0.8
    assert efficiency(0.0, 100, 100) == efficiency(1e9, 100, 100) == 1.0


def test_a_job_takes_the_batch_with_the_most_goodput_for_its_trainers() -> None:
    """Without noise a sample of 400 teaches a quarter, with 1100 it teaches 0.8."""
    early, late = phases_of(group_of())
    assert (early.until, late.until) == (500.0, float("inf"))
    assert dict(early.known) == {1: 100.0, 4: 200.0}
    assert dict(late.known) == {1: 100.0, 4: 320.0}
    assert dict(late.processed) == {1: 100.0, 4: 400.0}, "which are the samples that it processes for that"


@pytest.mark.parametrize("policy", ["static-2017", "maxmin"])
def test_the_work_takes_as_long_as_its_phases(policy: str) -> None:
    """500 samples at 200 a second, and 500 at 320."""
    four = make_group(min=4, max=4, work=1000.0, batch=BATCH)
    done = simulate(make_scenario(jobs=[four]), policy, 0)
    assert done.figures["jct_mean_s"] == pytest.approx(2.5 + 500 / 320, abs=5)
    longer = make_group(min=4, max=4, work=100_000.0, batch=BATCH)
    done = simulate(make_scenario(jobs=[longer], duration_s=1000.0), policy, 0)
    assert done.figures["jct_mean_s"] == pytest.approx(250 + 50_000 / 320, abs=5)


def test_a_job_with_one_batch_has_one_phase() -> None:
    (only,) = phases_of(JobGroup.model_validate(make_group(throughput=[[1, 5.0]])))
    assert only.until == float("inf")
    assert only.known == only.processed == ((1, 5.0),)


def test_policies_may_know_speeds_wrong_by_a_part() -> None:
    (true, _), (wrong, _) = phases_of(group_of()), phases_of(group_of(misjudged=0.3))
    assert wrong.truth == true.truth
    parts = [seen / speed for (_, seen), (_, speed) in zip(wrong.known, true.known, strict=True)]
    assert all(0.7 <= part <= 1.3 and part != 1.0 for part in parts)
    assert len(set(parts)) == len(parts)
    assert phases_of(group_of(misjudged=0.3)) == phases_of(group_of(misjudged=0.3))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch": BATCH | {"base": 50}}, "do not ascend from base 50"),
        (
            {"batch": BATCH | {"noise": [[0.5, [0.0, 0.0]]]}},
            "parts of the work in noise must begin with 0 and ascend",
        ),
        ({"batch": BATCH | {"noise": [[0.0, [0.0]]]}}, "does not list 2 scales"),
        ({"throughput": [[1, 1.0]]}, "remove throughput"),
        ({"work": None}, "set work"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        group_of(**fields)
