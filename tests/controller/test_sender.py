"""Writes are sent beside each other, each action after the one before it, and only with the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from edl.controller.core import Core
from edl.controller.pending_writes import Lane, Write
from edl.controller.sender import JOBS_IN_A_SLICE, Sender
from edl.model.actions import Action, CreatePod, EmitEvent, EventKind, MarkPod, Outcome, Result
from edl.model.names import JobKey, Role
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.fakes import FakeLease, FakeRecorder

A = JobKey("default", "a")


def create(index: int) -> CreatePod:
    return CreatePod(A, "uid", Role.TRAINER, index)


def event(reason: str = "Why") -> EmitEvent:
    return EmitEvent(A, "uid", EventKind.NORMAL, reason, "so")


@dataclass
class Offers:
    """What the state machine offers, and what it is told."""

    writes: list[Write] = field(default_factory=list)
    told: list[tuple[Write, list[Outcome]]] = field(default_factory=list)
    background: list[bool] = field(default_factory=list)
    looked_at: int = 0
    looks: int = 0

    def take(self, *, background: bool = True) -> Write | None:
        self.background.append(background)
        self.looked_at += self.looks
        return self.writes.pop(0) if self.writes else None

    def ended(self, write: Write, outcomes: list[Outcome]) -> None:
        self.told.append((write, outcomes))

    def has_urgent(self) -> bool:
        return False


@dataclass
class Server:
    """Carries out each action within a second."""

    answer: Callable[[Action], Outcome] = lambda action: Outcome(action, Result.DONE)
    begun: list[Action] = field(default_factory=list)

    async def apply(self, action: Action) -> Outcome:
        self.begun.append(action)
        await asyncio.sleep(1.0)
        return self.answer(action)


class Bench:
    """A sender between the two."""

    def __init__(self, *writes: Write, places: int = 4) -> None:
        self.offers, self.server, self.lease, self.recorder = Offers([*writes]), Server(), FakeLease(), FakeRecorder()
        self.woken = 0
        self.sender = Sender(
            cast("Core", self.offers),
            cast("Any", self.server),
            LoopClock(),
            self.lease,
            self.recorder,
            writes=places,
            wake=self.wake,
        )

    def wake(self) -> None:
        self.woken += 1

    async def until_idle(self) -> None:
        self.sender.send()
        while not self.sender.is_idle:
            await self.sender.wait()
            self.sender.end()
            self.sender.send()


def test_as_many_writes_are_under_way_as_there_are_places() -> None:
    bench = Bench(*(Write((create(n),), Lane.SURPLUS) for n in range(6)))

    async def main() -> None:
        bench.sender.send()
        await asyncio.sleep(0.5)
        assert len(bench.server.begun) == 4
        assert bench.sender.is_full
        assert not bench.offers.told
        await asyncio.sleep(1.0)
        assert bench.sender.has_ended
        assert bench.woken == 4
        await bench.until_idle()
        assert bench.sender.last_write_s == pytest.approx(1002.5)

    run_virtual(main())
    assert len(bench.offers.told) == 6


def test_writes_for_which_many_jobs_are_looked_at_are_sent_in_parts() -> None:
    async def parts() -> list[tuple[int, bool]]:
        bench = Bench(*(Write((create(index),), Lane.SURPLUS) for index in range(6)), places=4)
        bench.offers.looks, found = JOBS_IN_A_SLICE * 2 // 3, []
        for _ in range(3):
            bench.sender.send()
            found.append((len(bench.sender._tasks), bench.sender.is_cut))
        bench.sender.cancel()
        return found

    assert run_virtual(parts()) == [(2, True), (4, True), (4, False)]


def test_each_action_of_a_write_follows_the_one_before_it() -> None:
    bench = Bench(Write((create(0), event("First"), event("Second")), Lane.STATUS))

    async def main() -> None:
        bench.sender.send()
        await asyncio.sleep(1.5)
        assert bench.server.begun == [create(0), event("First")]
        await bench.until_idle()

    run_virtual(main())
    assert [outcome.action for outcome in bench.offers.told[0][1]] == [create(0), event("First"), event("Second")]


@pytest.mark.parametrize("result", [Result.FAILED, Result.CONFLICT, Result.REFUSED])
def test_nothing_of_a_write_follows_a_failure_but_after_an_event_that_failed(result: Result) -> None:
    bench = Bench(Write((create(0), event()), Lane.STATUS), Write((event("First"), event("Second")), Lane.STATUS))
    bench.server.answer = lambda action: Outcome(action, result)
    run_virtual(bench.until_idle())
    assert [len(outcomes) for _, outcomes in bench.offers.told] == [1, 2]
    assert bench.sender.failures == (3 if result is Result.FAILED else 0)


def test_without_the_lease_nothing_is_taken_and_the_rest_of_a_write_is_not_sent() -> None:
    bench = Bench(Write((create(0), event()), Lane.STATUS), places=1)

    async def main() -> None:
        bench.lease.held = False
        bench.sender.send()
        assert not bench.offers.background
        bench.lease.held = True
        bench.sender.send()
        await asyncio.sleep(0.5)
        bench.lease.held = False
        await bench.until_idle()

    run_virtual(main())
    assert bench.server.begun == [create(0)]
    assert [outcome.result for outcome in bench.offers.told[0][1]] == [Result.DONE, Result.NOT_LEADER]


def test_an_error_of_the_adapter_is_a_failed_write_and_stops_no_other() -> None:
    bench = Bench(Write((create(0),), Lane.BASE), Write((create(1),), Lane.BASE))

    def answer(action: Action) -> Outcome:
        if action == create(0):
            raise RuntimeError("broken")
        return Outcome(action, Result.DONE)

    bench.server.answer = answer
    run_virtual(bench.until_idle())
    assert {o.result for _, outcomes in bench.offers.told for o in outcomes} == {Result.FAILED, Result.DONE}
    assert bench.recorder.failures == ["CreatePod for job default/a: broken"]


def test_a_write_whose_outcome_cannot_be_recorded_goes_on_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Write((create(0), create(1)), Lane.BASE))

    def breaks(_: Outcome) -> None:
        raise ValueError("a label is none")

    monkeypatch.setattr(bench.recorder, "acted", breaks)
    run_virtual(bench.until_idle())
    assert [outcome.action for _, outcomes in bench.offers.told for outcome in outcomes] == [create(0), create(1)]
    assert bench.recorder.failures == 2 * ["CreatePod for job default/a cannot be recorded: a label is none"]


def test_each_outcome_says_how_long_it_took_and_is_recorded() -> None:
    bench = Bench(Write((MarkPod(A, "uid", "p", "u", "Hung"),), Lane.END))
    run_virtual(bench.until_idle())
    assert [outcome.seconds for outcome in bench.recorder.outcomes] == pytest.approx([1.0])


def test_a_busy_server_gets_no_further_request_until_it_has_rested() -> None:
    bench = Bench(Write((create(0),), Lane.BASE), Write((create(1),), Lane.BASE), places=1)
    bench.server.answer = lambda action: Outcome(action, Result.FAILED, "TooManyRequests", "429", retry_after_s=3.0)

    async def main() -> None:
        bench.sender.send()
        await asyncio.sleep(1.1)
        bench.sender.end()
        bench.sender.send()
        assert not bench.sender.is_idle
        assert len(bench.server.begun) == 1
        await bench.sender.wait()
        assert asyncio.get_running_loop().time() == pytest.approx(1004.0)
        bench.sender.send()
        await asyncio.sleep(0)
        assert len(bench.server.begun) == 2
        await bench.sender.close()

    run_virtual(main())
