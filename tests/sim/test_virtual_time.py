"""A loop in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from edl.model.plan import Certificate, ScalePlan
from edl.sim.virtual_time import START_S, InlineRunner, LoopClock, VirtualLoop, run_virtual


def test_an_hour_passes_at_once() -> None:
    async def sleep() -> float:
        await LoopClock().sleep(3600)
        return LoopClock().now_s()

    assert run_virtual(sleep()) == START_S + 3600


def test_a_simulation_that_waits_for_nothing_fails_instead_of_hanging() -> None:
    async def wait() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.ignore_threads()
        try:
            await asyncio.Event().wait()
        finally:
            loop.watch_threads()

    loop = VirtualLoop()
    task = loop.create_task(wait())
    with pytest.raises(RuntimeError, match="no timer will wake it"):
        loop.run_until_complete(task)
    loop.watch_threads()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


def test_a_function_of_the_planner_runs_in_place() -> None:
    assert run_virtual(InlineRunner().run(lambda: 7, 0.0)) == 7


def test_a_plan_takes_the_virtual_time_and_not_that_of_this_machine() -> None:
    slow = ScalePlan((), Certificate("fulfilment", 1.0, 1.0), seconds=7.5)

    async def plan(took_s: float) -> tuple[float, float]:
        made = await InlineRunner(lambda: took_s).run(lambda: slow, 0.0)
        return made.seconds, LoopClock().now_s() - START_S

    assert run_virtual(plan(0.0)) == (0.0, 0.0)
    assert run_virtual(plan(2.0)) == (2.0, 2.0)
