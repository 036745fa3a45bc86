"""Batches: a batch is acknowledged as a whole when the loop asks for the next one, even if a pipeline reads ahead."""

from __future__ import annotations

import asyncio
import contextlib
import functools
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
from edl.worker.data import IndexSource, Reader, read_records
from edl.worker.session import MasterSession
from tests.ledger.test_ledger import A, B
from tests.ledger.test_ledger_truncate import slow_trainer
from tests.worker.test_worker import apply_reply, in_thread, offline_session, trainer
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
    """A pipeline like a DataLoader with processes: it reads `depth` batches ahead, and yields them in order."""

    def __init__(self, depth: int, read: Reader | None = None) -> None:
        self.depth, self.read, self.begun = depth, read, 0

    def __call__(self, numbers: Iterable[list[int]]) -> Iterator[Any]:
        under_way: deque[Any] = deque()
        with ThreadPoolExecutor(2) as pool:
            for some in numbers:
                self.begun += 1
                under_way.append(pool.submit(read_records, IndexSource(), some, self.read))
                if len(under_way) > self.depth:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()


def consume(
    served: Served, size: int, name: str = "a", depth: int = 0, read: Reader | None = None
) -> list[list[int]]:
    """Every batch until the job has ended."""
    with trainer(served, name) as job:
        return list(job.batches(size, read, pipeline=Ahead(depth, read) if depth else None))


@pytest.mark.parametrize("depth", [0, 3, 50])
async def test_every_record_of_every_epoch_is_in_one_batch(tmp_path: Path, depth: int) -> None:
    async with serving(tmp_path, "index:500", epochs=2, shard_size=30) as served:
        batches = await in_thread(lambda: consume(served, 16, depth=depth))
        assert served.master.status()["state"] == "finished"
    assert max(map(len, batches)) == 16
    assert sorted(n for batch in batches for n in batch) == sorted([*range(500)] * 2)


@pytest.mark.parametrize("depth", [0, 4])
async def test_trainers_share_batches_and_none_waits_with_an_incomplete_batch(tmp_path: Path, depth: int) -> None:
    def loop(name: str) -> list[int]:
        with trainer(served, name) as job:
            found = []
            for batch in job.batches(8, pipeline=Ahead(depth) if depth else None):
                time.sleep(0.002)
                found += batch
            return found

    async with serving(tmp_path, "index:900", shard_size=15) as served:
        parts = await asyncio.gather(*(in_thread(functools.partial(loop, name)) for name in "abc"))
    assert sorted(n for part in parts for n in part) == list(range(900))


@pytest.mark.parametrize("depth", [0, 5])
async def test_only_consumed_batches_are_acknowledged(tmp_path: Path, depth: int) -> None:
    def loop() -> int:
        through = Ahead(depth)
        with trainer(served) as job:
            for number, _ in enumerate(job.batches(4, pipeline=through)):
                if number == 2:  # the loop has the third batch
                    return through.begun
        return 0

    async with serving(tmp_path, shard_size=10) as served:
        assert await in_thread(loop) >= min(depth, 3)
        status = served.master.status()
        assert (status["done"], status["leased"], status["todo"]) == (8, 0, 92)
        assert served.master._ledger.state.suspects == {}


@pytest.mark.parametrize("depth", [0, 5])
async def test_an_error_in_the_loop_blames_the_current_batch_but_not_what_was_read_ahead(
    tmp_path: Path, depth: int
) -> None:
    def loop() -> None:
        with trainer(served) as job:
            for number, _ in enumerate(job.batches(4, pipeline=Ahead(depth))):
                if number == 1:
                    raise ZeroDivisionError("a bad batch")

    async with serving(tmp_path, shard_size=10) as served:
        with pytest.raises(ZeroDivisionError):
            await in_thread(loop)
        state = served.master._ledger.state
        assert state.done_ranges().size == 4
        assert {(start, end) for start, (end, _) in state.suspects.items()} == {(4, 7), (7, 10)}


async def test_a_record_that_makes_trainers_fail_within_a_batch_is_quarantined_alone(tmp_path: Path) -> None:
    """Each failure ends a trainer: one for each halving of the batch, and three for the record itself."""

    def train_once(number: int) -> bool:
        with trainer(served, f"t{number}") as job:
            for batch in job.batches(32):
                assert 17 not in batch, "a bad record"
        return True

    def train_until_done() -> int:
        for number in range(20):
            with contextlib.suppress(AssertionError):
                train_once(number)
                return number
        raise TimeoutError

    async with serving(tmp_path, "index:3000", max_quarantined_fraction=0.5) as served:
        assert await in_thread(train_until_done) <= 5 + 3
        status = served.master.status()
    assert (status["state"], status["quarantined_records"]) == ("finished", [17])


@pytest.mark.parametrize("depth", [0, 4])
async def test_an_unreadable_record_of_a_batch_is_quarantined_alone(tmp_path: Path, depth: int) -> None:
    def read(record: int) -> int:
        if record == 42:
            raise ValueError("torn")
        return record

    async with serving(tmp_path, shard_size=20) as served:
        batches = await in_thread(lambda: consume(served, 7, depth=depth, read=read))
        status = served.master.status()
        assert (status["state"], status["done"], status["quarantined"]) == ("finished", 99, 1)
    assert sorted(n for batch in batches for n in batch) == [n for n in range(100) if n != 42]


async def test_a_second_loop_gets_what_the_first_one_did_not_consume(tmp_path: Path) -> None:
    def loop() -> list[int]:
        with trainer(served) as job:
            first = job.batches(10, pipeline=Ahead(3))
            found = list(next(first))
            next(first)  # not consumed
            first.close()
            return found + [n for batch in job.batches(10) for n in batch]

    async with serving(tmp_path, "index:100", shard_size=20) as served:
        assert sorted(await in_thread(loop)) == list(range(100))


async def test_a_batch_size_of_zero_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        with pytest.raises(ConfigError, match="size 0 is less than 1"):
            await in_thread(lambda: consume(served, 0))


def session(*leases: tuple[int, int, int]) -> MasterSession:
    made = offline_session()
    given = [{"epoch": 0, "start": a, "end": b, "fence": fence, "ttl_s": 60.0} for a, b, fence in leases]
    apply_reply(made, {**NOTHING, "leases": given})
    return made


def test_a_batch_of_a_lost_lease_never_reaches_the_loop() -> None:
    made = session((0, 10, 7), (10, 20, 8), (20, 30, 9))
    one, two, three, four = (made.take(8, waits=False) for _ in range(4))
    assert one is not None
    assert two is not None
    assert three is not None
    assert four is not None
    assert [len(x.parts) for x in (one, two, three, four)] == [1, 2, 2, 1]
    assert made.deliver(one)
    apply_reply(made, {**NOTHING, "revoked": [8]})
    made.consumed(one)
    assert [made.deliver(x) for x in (two, three)] == [False, False]
    body, _ = made._build_request()
    # The rest of the partly consumed lease is given back, and so is the lease that was only read ahead.
    assert [(item["fence"], item["error"]) for item in body["failed"]] == [(7, ""), (9, "")]
    assert not made.deliver(four)
    assert [item["cursor"] for item in body["progress"]] == [8, 20]


def test_a_truncate_takes_what_was_read_ahead_but_not_the_current_batch() -> None:
    made = session((0, 40, 7))
    one, two = made.take(8, waits=False), made.take(8, waits=False)
    assert one is not None
    assert two is not None
    assert made.deliver(one)
    apply_reply(made, {**NOTHING, "truncate": [{"fence": 7, "end": 3}]})
    body, _ = made._build_request()
    assert body["progress"] == [{"epoch": 0, "start": 0, "end": 8, "fence": 7, "cursor": 0, "hand": 8}]
    made.consumed(one)
    assert not made.deliver(two)
    assert made._build_request()[0]["done"] == [{"epoch": 0, "start": 0, "end": 8, "fence": 7}]


def test_a_lease_that_is_truncated_to_what_is_consumed_is_reported() -> None:
    made = session((0, 40, 7))
    one = made.take(8, waits=False)
    assert one is not None
    assert made.deliver(one)
    made.consumed(one)
    apply_reply(made, {**NOTHING, "truncate": [{"fence": 7, "end": 5}]})
    assert made.take(8, waits=False) is None
    assert made._build_request()[0]["done"] == [{"epoch": 0, "start": 0, "end": 8, "fence": 7}]


def test_a_slow_trainer_keeps_the_last_batch_that_its_loop_already_has() -> None:
    driver, item, reply = slow_trainer()
    assert reply.truncate == [[item.fence, 34]]
    assert item.end > 34
    driver.sync(A, progress=[replace(item, cursor=5, hand=item.end)])
    assert driver.sync(B, 1).leases == []
    assert driver.sync(A, done=[item]).results == ["accepted"]


if importlib.util.find_spec("torch") is not None:
    from tests.worker.torch_cases import *  # noqa: F403 - the same with a real DataLoader
