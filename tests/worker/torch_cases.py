"""The PyTorch adapter with a real DataLoader; `test_batches` collects these tests if torch is installed."""

from __future__ import annotations

import asyncio
import functools
import os
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from torch.utils.data import DataLoader

from edl.errors import ConfigError
from edl.worker_torch import Batches, loader
from tests.worker.test_worker import in_thread, trainer
from tests.worlds.master_server import Served, serving
from tests.worlds.waiting import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def whole(line: str) -> int:
    return int(line)


def torn(record: int) -> int:
    if record == 42:
        raise ValueError("torn")
    return record


def where(record: int) -> tuple[int, int]:
    return record, os.getpid()


def numbers(batches: list[Any]) -> list[int]:
    assert all(isinstance(batch, Tensor) for batch in batches)
    return sorted(int(n) for batch in batches for n in batch)


def run(served: Served, name: str = "a", **options: Any) -> list[Any]:
    with trainer(served, name) as job:
        return list(loader(job, 16, **options))


async def test_a_plain_loop_gets_every_record_as_tensors(tmp_path: Path) -> None:
    def loop() -> list[Any]:
        with trainer(served) as job:
            return list(DataLoader(Batches(job, 16), batch_size=None))

    async with serving(tmp_path, "index:300", epochs=2, shard_size=40) as served:
        assert numbers(await in_thread(loop)) == sorted([*range(300)] * 2)
        assert served.master.status()["state"] == "finished"


@pytest.mark.parametrize("workers", [0, 2])
async def test_processes_of_a_loader_lose_no_record_and_double_none(tmp_path: Path, workers: int) -> None:
    async with serving(tmp_path, "index:2000", epochs=2, shard_size=100) as served:
        names = ("a", "b")
        parts = await asyncio.gather(
            *(in_thread(functools.partial(run, served, name, num_workers=workers), 120 * PATIENCE) for name in names)
        )
        assert served.master.status()["state"] == "finished"
    assert numbers([*parts[0], *parts[1]]) == sorted([*range(2000)] * 2)


async def test_records_are_read_in_the_processes_of_the_loader(tmp_path: Path) -> None:
    async with serving(tmp_path, "index:500") as served:
        batches = await in_thread(lambda: run(served, read=where, num_workers=2), 60 * PATIENCE)
    pids = {int(pid) for _, pids in batches for pid in pids}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert numbers([records for records, _ in batches]) == list(range(500))


async def test_lines_of_files_are_read_in_the_processes_of_the_loader(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(700)))
    async with serving(tmp_path / "j", f"lines:{tmp_path}/a.txt") as served:
        assert numbers(await in_thread(lambda: run(served, read=whole, num_workers=2), 60 * PATIENCE)) == list(
            range(700)
        )


async def test_only_consumed_records_are_acknowledged_however_far_the_processes_read_ahead(tmp_path: Path) -> None:
    def loop() -> None:
        with trainer(served) as job:
            for number, _ in enumerate(loader(job, 10, num_workers=2, prefetch_factor=4)):
                if number == 3:  # the loop has the fourth batch
                    break

    async with serving(tmp_path, "index:500", shard_size=50) as served:
        await in_thread(loop, 60 * PATIENCE)
        status = served.master.status()
        assert (status["done"], status["todo"]) == (30, 470)


@pytest.mark.parametrize("workers", [0, 2])
async def test_a_bad_record_alone_is_quarantined(tmp_path: Path, workers: int) -> None:
    async with serving(tmp_path, "index:100", shard_size=20) as served:
        batches = await in_thread(lambda: run(served, read=torn, num_workers=workers), 60 * PATIENCE)
        assert served.master.status()["quarantined"] == 1
    assert numbers(batches) == [n for n in range(100) if n != 42]


async def test_a_process_that_would_hold_leases_is_refused(tmp_path: Path) -> None:
    def loop() -> None:
        with trainer(served) as job:
            list(DataLoader(Batches(job, 4), batch_size=None, num_workers=1))

    async with serving(tmp_path) as served:
        with pytest.raises(ConfigError, match="num_workers=0, or use"):
            await in_thread(loop, 60 * PATIENCE)
        assert served.master.status()["done"] == 0
