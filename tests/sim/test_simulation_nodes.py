"""Nodes that come when a job asks and leave when only surplus holds them, with the real controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edl.model.limits import Limits, NodeLimits
from edl.model.node_groups import ScaleUp
from tests.sim.autoscaled import COME_S, LEAVE_S, SPOT, Autoscaled, job

ASKING = Limits(nodes=NodeLimits(expected=(SPOT,), drain_idle_s=60.0))


def test_a_waiting_minimum_brings_a_node_and_runs_and_the_node_leaves() -> None:
    seen: dict[str, Any] = {}

    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("old", 8, 8))
        await asyncio.sleep(30)
        cluster.submit(job("new", 3, 3, ScaleUp.MINIMUM))
        await asyncio.sleep(30)
        seen["said"] = cluster.explanation("new")
        seen["early"] = cluster.trainers("new"), len(cluster.world.asks)
        await asyncio.sleep(COME_S)
        seen["late"] = cluster.trainers("new"), len(cluster.world.asks)
        cluster.remove("new")
        await asyncio.sleep(LEAVE_S + 60)

    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert seen["early"] == (0, 1)
    assert seen["late"] == (3, 0)
    assert "asks for 1 node of group spot" in seen["said"]
    assert len(cluster.arrivals) == len(cluster.departures) == 1


def test_a_minimum_of_two_nodes_waits_for_both_and_holds_the_first() -> None:
    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("old", 4, 12))
        await asyncio.sleep(30)
        cluster.submit(job("new", 12, 12, ScaleUp.MINIMUM))
        await asyncio.sleep(COME_S + 90)
        assert cluster.trainers("new") == 12
        assert cluster.trainers("old") >= 4

    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert cluster.nodes_there() == 2  # the least that admits it: the old job yields its surplus for the rest


@pytest.mark.parametrize("scale_up", [ScaleUp.NEVER, ScaleUp.MINIMUM])
def test_a_job_that_does_not_ask_for_growth_gets_no_node_for_it(scale_up: ScaleUp) -> None:
    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("a", 2, 20, scale_up))
        await asyncio.sleep(300)
        assert cluster.trainers("a") == 8

    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert cluster.arrivals == []
    assert cluster.most_requests == 0


def test_a_job_that_asks_for_all_its_trainers_grows_to_the_limit_of_the_group_and_keeps_its_nodes() -> None:
    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("a", 2, 40, ScaleUp.FULL))
        await asyncio.sleep(3000)
        assert cluster.trainers("a") == 8 + 4 * SPOT.limit

    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert len(cluster.arrivals) == SPOT.limit
    assert cluster.departures == []


def test_a_node_that_only_surplus_holds_is_emptied_and_leaves() -> None:
    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("surplus", 2, 40))
        await asyncio.sleep(10)
        cluster.submit(job("new", 7, 7, ScaleUp.MINIMUM))
        await asyncio.sleep(COME_S + 60)
        assert cluster.nodes_there() == 1
        cluster.remove("new")
        await asyncio.sleep(30)
        assert cluster.trainers("surplus") == 12
        await asyncio.sleep(LEAVE_S + 120)
        assert cluster.trainers("surplus") == 8

    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert len(cluster.departures) == 1


def test_a_group_that_brings_no_node_rests_and_is_asked_again_later() -> None:
    seen: list[str] = []

    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("old", 8, 8))
        await asyncio.sleep(10)
        cluster.submit(job("new", 3, 3, ScaleUp.MINIMUM))
        await asyncio.sleep(SPOT.give_up_s + 30)
        assert cluster.world.asks == {}
        seen.append(cluster.explanation("new"))
        await asyncio.sleep(SPOT.give_up_s + 10)
        assert len(cluster.world.asks) == 1

    cluster = Autoscaled(ASKING, comes=False)
    cluster.run(play)
    assert "group spot brought no node in time" in seen[0]


def test_a_request_is_withdrawn_when_room_is_found_elsewhere() -> None:
    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("old", 8, 8))
        await asyncio.sleep(10)
        cluster.submit(job("new", 3, 3, ScaleUp.MINIMUM))
        await asyncio.sleep(20)
        assert len(cluster.world.asks) == 1
        cluster.remove("old")
        await asyncio.sleep(20)
        assert cluster.world.asks == {}
        assert cluster.trainers("new") == 3

    cluster = Autoscaled(ASKING, comes=False)
    cluster.run(play)


def test_two_hours_of_a_load_that_comes_and_goes_bring_no_more_nodes_than_the_load_needs() -> None:
    waves = 6

    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("surplus", 2, 40))
        for number in range(waves):
            cluster.submit(job(f"wave-{number}", 9, 9, ScaleUp.MINIMUM))
            await asyncio.sleep(600)
            assert cluster.trainers(f"wave-{number}") == 9
            cluster.remove(f"wave-{number}")
            await asyncio.sleep(600)
            assert cluster.nodes_there() == 0

    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert len(cluster.arrivals) == len(cluster.departures) == waves


def test_a_job_that_asks_for_all_and_one_that_takes_what_is_left_do_not_swing() -> None:
    async def play(cluster: Autoscaled) -> None:
        cluster.submit(job("surplus", 2, 12))
        cluster.submit(job("full", 2, 8, ScaleUp.FULL))
        await asyncio.sleep(1800)
        seen.append(len(cluster.arrivals))
        assert cluster.trainers("full") == 8
        await asyncio.sleep(1800)
        seen.append(len(cluster.arrivals))

    seen: list[int] = []
    cluster = Autoscaled(ASKING)
    cluster.run(play)
    assert seen[0] == seen[1] <= SPOT.limit
    assert cluster.departures == []
