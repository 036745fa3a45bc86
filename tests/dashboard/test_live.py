"""What the open pages are sent: changes only, at a bounded rate, and nothing is computed while nobody looks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from edl.dashboard.feed import Client, Feed
from edl.dashboard.history import Sample, sample_of
from edl.dashboard.live import Live
from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Certificate, ScalePlan
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.fake_api import FakeClock, eventually

PLAN = ScalePlan((), Certificate("fulfilment", 0.0, 0.0))


def snapshot(trainers: int = 0, time_s: float = 1000.0) -> ClusterSnapshot:
    return ClusterSnapshot(time_s, nodes=make_nodes(2), jobs=(make_job("a", trainers=trainers, on=("n000",)),))


class Planner:
    """Counts what it is asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self.error = error

    async def __call__(self, _: ClusterSnapshot) -> ScalePlan:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return PLAN


async def received(client: Client) -> tuple[str, Any]:
    message = await client.next(5.0)
    assert message
    event, data, *_ = message.decode().split("\n")
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@asynccontextmanager
async def running(live: Live) -> AsyncIterator[None]:
    task = asyncio.create_task(live.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_only_what_changed_is_sent() -> None:
    feed = Feed()
    live = Live(FakeClock(), feed, Planner())
    live.observed(snapshot(), leader=True)
    await live.refresh()
    with feed.opened() as client:
        live.observed(snapshot(trainers=2, time_s=1002.0), leader=True)
        await live.refresh()
        event, change = await received(client)
        assert (event, change["time"]) == ("change", 1002.0)
        assert list(change["nodes"]["set"]) == ["n000"]
        assert change["jobs"]["set"]["default/a"]["trainers"] == 2
        assert "cluster" not in change


async def test_nothing_is_planned_while_no_page_is_open_but_the_history_goes_on() -> None:
    feed, planner = Feed(), Planner()
    live = Live(FakeClock(), feed, planner)

    def has_samples(count: int) -> bool:
        return len(live.state()["history"]) == count

    async with running(live):
        for second in range(5):
            live.observed(snapshot(trainers=second, time_s=1000.0 + second), leader=False)
            # The loop takes the sample: a second taker would see the clock move while the loop sleeps, and skip it.
            await eventually(partial(has_samples, second + 1))
        assert planner.asked == 0
        assert live.state()["counts"] == {"default/a": [(1000.0 + n, n) for n in range(5)]}


async def test_the_pods_of_an_unchanged_cluster_are_not_counted_again_and_its_samples_have_their_own_times() -> None:
    live = Live(FakeClock(), Feed(), Planner())
    first = snapshot(trainers=2)
    live.observed(first, leader=True)
    await live.sample()
    with patch("edl.dashboard.live.sample_of") as counted:
        live.observed(replace(first, observed_at_s=1100.0), leader=True)
        await live.sample()
    assert not counted.called
    history = live.state()["history"]
    requested = sum(pod.requested["cpu"] for pod in first.jobs[0].pods)
    assert [(sample["time"], sample["used"]["jobs"]["cpu"]) for sample in history] == [
        (1000.0, requested),
        (1100.0, requested),
    ]


async def test_a_watched_page_without_a_leader_gets_a_plan_of_its_own() -> None:
    feed, planner = Feed(), Planner()
    live = Live(FakeClock(), feed, planner)
    async with running(live):
        with feed.opened() as client:
            live.observed(snapshot(), leader=False)
            events = [(await received(client)) for _ in range(2)]
            assert [name for name, _ in events] == ["sample", "change"]
            assert events[1][1]["cluster"]["certificate"]["objective"] == "fulfilment"
            assert planner.asked == 1


async def test_the_plans_of_a_leader_are_shown_and_none_is_computed() -> None:
    feed, planner = Feed(), Planner()
    live = Live(FakeClock(), feed, planner)
    async with running(live):
        with feed.opened() as client:
            made = snapshot()
            live.observed(made, leader=True)
            live.planned(made, PLAN)
            assert (await received(client))[0] == "sample"
            _, change = await received(client)
            assert change["cluster"]["certificate"] is not None
            live.observed(snapshot(trainers=1, time_s=1002.0), leader=True)
            assert [(await received(client))[0] for _ in range(2)] == ["sample", "change"]
    assert planner.asked == 0


async def test_a_failed_plan_is_said_until_the_next_one() -> None:
    feed = Feed()
    live = Live(FakeClock(), feed, Planner(PlanError("no program was solved in time")))
    async with running(live):
        with feed.opened() as client:
            live.observed(snapshot(), leader=False)
            assert (await received(client))[0] == "sample"
            assert await received(client) == ("problem", "no plan was made: no program was solved in time")
    assert live.state()["problem"].startswith("no plan was made")
    live.planned(snapshot(), PLAN)
    assert live.state()["problem"] == ""


async def test_a_cluster_that_cannot_be_watched_is_said_until_it_can() -> None:
    live = Live(FakeClock(), Feed(), Planner())
    live.note_problem("edl cannot watch pods")
    assert live.state()["problem"] == "edl cannot watch pods"
    live.observed(snapshot(), leader=False)
    assert live.state()["problem"] == ""


async def test_what_a_snapshot_lacks_is_said_until_it_is_there() -> None:
    live = Live(FakeClock(), Feed(), Planner())
    for problem in ("queues cannot be read (403): no quota is counted", ""):
        live.observed(snapshot(), leader=False, problem=problem)
        assert live.state()["problem"] == problem


async def test_adding_up_the_pods_of_a_huge_cluster_takes_a_fiftieth_of_the_time() -> None:
    clock = FakeClock()
    live = Live(clock, Feed(), Planner())

    def slow(snapshot: ClusterSnapshot) -> Sample:
        clock.time_s += 2.0
        return sample_of(snapshot)

    with patch("edl.dashboard.live.sample_of", side_effect=slow) as counted:
        for second in range(0, 240, 3):
            clock.time_s = max(clock.time_s, 1000.0 + second)
            live.observed(snapshot(trainers=second, time_s=clock.time_s), leader=True)
            await live.sample()
    assert counted.call_count == 3
    assert len(live.state()["history"]) == 3
