"""Plans, reports and comparisons for the page: those of the production planner, and only a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event

import pytest

from edl.controller.planning import plan_snapshot
from edl.dashboard.calculator import BusyError, Calculator
from edl.errors import ConfigError
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from tests.browser.page_cluster import HOSTILE, PASTED
from tests.worlds.builders import make_job, make_nodes

JOBS = (
    make_job("ctr", trainers=8, on=("n000",), max_trainers=8),
    make_job("v", trainers=8, on=("n001",), max_trainers=8),
)
CLUSTER = ClusterSnapshot(1000.0, nodes=make_nodes(2), jobs=JOBS)


@pytest.fixture
def calculator() -> Iterator[Calculator]:
    made = Calculator("", Limits)
    yield made
    made.close()


async def test_the_plan_is_that_of_edl_plan(calculator: Calculator) -> None:
    assert (await calculator.plan(CLUSTER)).decisions == plan_snapshot(CLUSTER, "", Limits()).decisions


async def test_what_if_says_which_jobs_would_give_trainers_to_the_pasted_one(calculator: Calculator) -> None:
    found = await calculator.what_if(CLUSTER, PASTED)
    then = {f"{job['namespace']}/{job['name']}": job["after"]["target"] for job in found["jobs"]}
    assert then["ads/new"] >= 2
    after = [then.get(str(job.key), 8) for job in JOBS]
    assert min(after) < 8
    assert sum(after) + then["ads/new"] <= 16
    assert all(job["message"] for job in found["jobs"])
    assert found["certificates"]["after"]["bound"] >= found["certificates"]["after"]["achieved"]


async def test_a_job_that_breaks_a_rule_is_shown_with_the_rule(calculator: Calculator) -> None:
    found = await calculator.what_if(CLUSTER, PASTED.replace("min-instance: 2", "min-instance: 9"))
    (change,) = [job for job in found["jobs"] if job["name"] == "new"]
    assert change["after"] == {"target": 0, "admitted": False, "reason": "InvalidSpec"}
    assert "min-instance 9 exceeds max-instance 4" in change["message"]


async def test_the_report_is_that_of_edl_explain(calculator: Calculator) -> None:
    report = await calculator.report(CLUSTER, "default", "ctr")
    assert (report["name"], report["current"], report["reason"]) == ("ctr", 8, "AtMax")
    assert report["remedies"] == ["raise spec.trainer.max-instance"]
    with pytest.raises(ConfigError, match="does not exist"):
        await calculator.report(CLUSTER, "default", HOSTILE)


async def test_who_asks_too_often_has_to_wait_and_is_later_served_again() -> None:
    calculator, release = Calculator("", Limits, waiting=2), Event()
    running = [asyncio.ensure_future(calculator._run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="try again in a few seconds"):
        await calculator.plan(CLUSTER)
    release.set()
    await asyncio.gather(*running)
    await calculator.plan(CLUSTER)
    calculator.close()


async def test_a_caller_that_leaves_does_not_free_the_thread_that_works_for_it() -> None:
    calculator, release = Calculator("", Limits, waiting=1), Event()
    task = asyncio.ensure_future(calculator._run(release.wait))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(BusyError):
        await calculator.plan(CLUSTER)
    release.set()
    calculator.close()
