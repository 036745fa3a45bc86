"""Batches: acknowledged as a whole when the loop asks for the next one, however far something reads ahead of it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.worker.data import Numbers, Reader, read_all
from edl.worker.session import MasterSession
from edl.worker.wire import Wire
from tests.ledger.test_ledger import A, B, straggler
from tests.worker.test_worker import beside, hear, trainer
from tests.worlds.master_server import Served, serving

NOTHING: dict[str, Any] = {
    "results": [],
    "truncate": [],
    "revoked": [],
    "leases": [],
    "epoch": 0,
    "status": "run",
}


class Ahead:
    """A pipeline like a DataLoader with processes: so many batches are read ahead, and yielded in their order."""

    def __init__(self, depth: int, read: Reader | None = None) -> None:
        self.depth, self.read, self.begun = depth, read, 0

    def __call__(self, numbers: Iterable[list[int]]) -> Iterator[Any]:
        under_way: deque[Any] = deque()
        with ThreadPoolExecutor(2) as pool:
            for some in numbers:
                self.begun += 1
                under_way.append(pool.submit(read_all, Numbers(), some, self.read))
                if len(under_way) > self.depth:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()


def consume(
    served: Served, size: int, name: str = "a", depth: int = 0, read: Reader | None = None
) -> list[list[int]]:
    """A whole job's batches."""
    with trainer(served, name) as job:
        return list(job.batches(size, read, pipeline=Ahead(depth, read) if depth else None))


@pytest.mark.parametrize("depth", [0, 3, 50])
async def test_every_record_of_every_epoch_is_in_one_batch(tmp_path: Path, depth: int) -> None:
    async with serving(tmp_path, "index:500", epochs=2, shard_size=30) as served:
        batches = await beside(lambda: consume(served, 16, depth=depth))
        assert served.master.status()["state"] == "finished"
    assert max(map(len, batches)) == 16
    assert sorted(n for batch in batches for n in batch) == sorted([*range(500)] * 2)


@pytest.mark.parametrize("depth", [0, 4])
async def test_trainers_share_batches_and_nobody_waits_with_a_part_of_one(tmp_path: Path, depth: int) -> None:
    def loop(name: str) -> list[int]:
        with trainer(served, name) as job:
            found = []
            for batch in job.batches(8, pipeline=Ahead(depth) if depth else None):
                time.sleep(0.002)
                found += batch
            return found

    async with serving(tmp_path, "index:900", shard_size=15) as served:
        parts = await asyncio.gather(*(beside(lambda name=name: loop(name)) for name in "abc"))  # type: ignore[misc]
    assert sorted(n for part in parts for n in part) == list(range(900))


@pytest.mark.parametrize("depth", [0, 5])
async def test_only_batches_that_the_loop_has_consumed_are_acknowledged(tmp_path: Path, depth: int) -> None:
    def loop() -> int:
        through = Ahead(depth)
        with trainer(served) as job:
            for number, _ in enumerate(job.batches(4, pipeline=through)):
                if number == 2:  # the third batch is in hand
                    return through.begun
        return 0

    async with serving(tmp_path, shard_size=10) as served:
        assert await beside(loop) >= min(depth, 3)
        status = served.master.status()
        assert (status["done"], status["leased"], status["todo"]) == (8, 0, 92)
        assert served.master._ledger.state.suspects == {}


@pytest.mark.parametrize("depth", [0, 5])
async def test_a_batch_that_breaks_the_loop_is_blamed_and_what_was_read_ahead_is_not(
    tmp_path: Path, depth: int
) -> None:
    def loop() -> None:
        with trainer(served) as job:
            for number, _ in enumerate(job.batches(4, pipeline=Ahead(depth))):
                if number == 1:
                    raise ZeroDivisionError("a bad batch")

    async with serving(tmp_path, shard_size=10) as served:
        with pytest.raises(ZeroDivisionError):
            await beside(loop)
        state = served.master._ledger.state
        assert state.done_ranges().size == 4
        assert {(start, end) for start, (end, _) in state.suspects.items()} == {(4, 7), (7, 10)}


async def test_a_record_that_ends_trainers_in_mid_batch_is_left_out_alone(tmp_path: Path) -> None:
    """Each end costs a trainer: one for each halving of what was in hand, and three for the record itself."""

    def life(number: int) -> bool:
        with trainer(served, f"t{number}") as job:
            for batch in job.batches(32):
                assert 17 not in batch, "a bad record"
        return True

    def lives() -> int:
        for number in range(20):
            with contextlib.suppress(AssertionError):
                life(number)
                return number
        raise TimeoutError

    async with serving(tmp_path, "index:3000", max_quarantined_fraction=0.5) as served:
        assert await beside(lives) <= 5 + 3
        status = served.master.status()
    assert (status["state"], status["quarantined_records"]) == ("finished", [17])


@pytest.mark.parametrize("depth", [0, 4])
async def test_a_record_of_a_batch_that_cannot_be_read_is_left_out_alone(tmp_path: Path, depth: int) -> None:
    def read(record: int) -> int:
        if record == 42:
            raise ValueError("torn")
        return record

    async with serving(tmp_path, shard_size=20) as served:
        batches = await beside(lambda: consume(served, 7, depth=depth, read=read))
        status = served.master.status()
        assert (status["state"], status["done"], status["quarantined"]) == ("finished", 99, 1)
    assert sorted(n for batch in batches for n in batch) == [n for n in range(100) if n != 42]


async def test_a_loop_that_begins_again_is_handed_what_it_had_not_consumed(tmp_path: Path) -> None:
    def loop() -> list[int]:
        with trainer(served) as job:
            first = job.batches(10, pipeline=Ahead(3))
            found = list(next(first))
            next(first)  # not consumed
            first.close()
            return found + [n for batch in job.batches(10) for n in batch]

    async with serving(tmp_path, "index:100", shard_size=20) as served:
        assert sorted(await beside(loop)) == list(range(100))


async def test_a_batch_of_nothing_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        with pytest.raises(ConfigError, match="size 0 is less than 1"):
            await beside(lambda: consume(served, 0))


def session(*leases: tuple[int, int, int]) -> MasterSession:
    made = MasterSession(Wire("http://localhost:1", "token"), {"pod_uid": "u", "incarnation": 1, "name": "n"})
    given = [{"epoch": 0, "start": a, "end": b, "fence": fence, "ttl_s": 60.0} for a, b, fence in leases]
    hear(made, {**NOTHING, "leases": given})
    return made


def test_what_was_read_ahead_for_a_lease_that_is_lost_never_reaches_the_loop() -> None:
    made = session((0, 10, 7), (10, 20, 8), (20, 30, 9))
    one, two, three, four = (made.take(8, waits=False) for _ in range(4))
    assert one is not None
    assert two is not None
    assert three is not None
    assert four is not None
    assert [len(x.parts) for x in (one, two, three, four)] == [1, 2, 2, 1]
    assert made.show(one)
    hear(made, {**NOTHING, "revoked": [8]})
    made.consumed(one)
    assert [made.show(x) for x in (two, three)] == [False, False]
    body, _, _ = made._compose()
    # What is left of the lease with a consumed batch goes back, and so does the lease that was only read ahead.
    assert [(item["fence"], item["error"]) for item in body["failed"]] == [(7, ""), (9, "")]
    assert not made.show(four)
    assert [item["cursor"] for item in body["progress"]] == [8, 20]


def test_a_cut_takes_what_was_read_ahead_and_leaves_what_is_in_hand() -> None:
    made = session((0, 40, 7))
    one, two = made.take(8, waits=False), made.take(8, waits=False)
    assert one is not None
    assert two is not None
    assert made.show(one)
    hear(made, {**NOTHING, "truncate": [{"fence": 7, "end": 3}]})
    body, _, _ = made._compose()
    assert body["progress"] == [{"epoch": 0, "start": 0, "end": 8, "fence": 7, "cursor": 0, "hand": 8}]
    made.consumed(one)
    assert not made.show(two)
    assert made._compose()[0]["done"] == [{"epoch": 0, "start": 0, "end": 8, "fence": 7}]


def test_a_lease_that_is_cut_to_what_is_consumed_is_reported() -> None:
    made = session((0, 40, 7))
    one = made.take(8, waits=False)
    assert one is not None
    assert made.show(one)
    made.consumed(one)
    hear(made, {**NOTHING, "truncate": [{"fence": 7, "end": 5}]})
    assert made.take(8, waits=False) is None
    assert made._compose()[0]["done"] == [{"epoch": 0, "start": 0, "end": 8, "fence": 7}]


def test_a_straggler_with_its_last_batch_in_hand_keeps_it() -> None:
    desk, item, reply = straggler()
    assert reply.truncate == [[item.fence, 34]]
    assert item.end > 34
    desk.sync(A, progress=[replace(item, cursor=5, hand=item.end)])
    assert desk.sync(B, 1).leases == []
    assert desk.sync(A, done=[item]).results == ["accepted"]


if importlib.util.find_spec("torch") is not None:
    from tests.worker.torch_cases import *  # noqa: F403 - the same with a real DataLoader, where torch is installed
