"""The invariants of the ledger under faults of the network, of trainers and of the master."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.worlds.effort import examples
from tests.worlds.ledger.simulation import FORGERIES, World, run

NUMBER = st.integers(0, 3)
INDEX = st.integers(0, 99)


class LedgerMachine(RuleBasedStateMachine):
    @initialize(
        total=st.sampled_from([1, 7, 40]),
        shard_size=st.sampled_from([None, 1, 5]),
        bad=st.sets(st.integers(0, 6), max_size=1),
    )
    def begin(self, total: int, shard_size: int | None, bad: set[int]) -> None:
        self.world = World(total, shard_size=shard_size, trainers=4)
        self.world.bad = bad

    @rule(number=NUMBER, want=st.integers(0, 3))
    def ask(self, number: int, want: int) -> None:
        self.world.ask(number, want)

    @rule(index=INDEX, again=st.booleans())
    def deliver(self, index: int, again: bool) -> None:
        self.world.deliver(index, again=again)

    @rule(index=INDEX, again=st.booleans())
    def answer(self, index: int, again: bool) -> None:
        self.world.answer(index, again=again)

    @rule(count=st.sampled_from([None, 1]))
    def flush(self, count: int | None) -> None:
        self.world.flush(count)

    @rule(index=INDEX, reply=st.booleans())
    def lose(self, index: int, reply: bool) -> None:
        (self.world.lose_reply if reply else self.world.lose_request)(index)

    @rule(number=NUMBER, count=st.sampled_from([1, 3, 50]))
    def work(self, number: int, count: int) -> None:
        self.world.work(number, count)

    @rule(seconds=st.sampled_from([0.1, 1.0, 11.0, 29.5, 31.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(number=NUMBER)
    def give_back(self, number: int) -> None:
        self.world.give_back(number)

    @rule(number=NUMBER)
    def kill(self, number: int) -> None:
        self.world.kill(number)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule(number=NUMBER, change=st.sampled_from(FORGERIES))
    def forge(self, number: int, change: str) -> None:
        self.world.forge(number, change)

    @rule(number=NUMBER)
    def save(self, number: int) -> None:
        self.world.save(number)

    @rule(index=INDEX)
    def commit(self, index: int) -> None:
        self.world.commit(index)

    @rule()
    def restore(self) -> None:
        self.world.restore()

    @rule(numbers=st.sets(NUMBER))
    def list_pods(self, numbers: set[int]) -> None:
        self.world.list_pods(numbers)

    @invariant()
    def places_agree(self) -> None:
        if hasattr(self, "world"):
            self.world.check_places()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.finish()


LedgerMachine.TestCase.settings = examples(60, stateful_step_count=60)
TestLedger = LedgerMachine.TestCase


def test_a_thousand_faults_lose_no_position_and_count_none_twice() -> None:
    faults, seed = Counter[str](), 0
    while sum(faults.values()) < 1000:
        faults += run(seed).faults
        seed += 1
    assert set(faults) >= {
        "crash",
        "kill",
        "lost request",
        "lost reply",
        "repeated request",
        "restore",
        "roster",
        "forgery",
    }
