"""Processes that read batches ahead for trainers in step; `make torch-test` runs these tests."""

from __future__ import annotations

import functools
import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from edl.errors import ConfigError, PermanentError
from edl.worker import connect
from edl.worker_torch import Accelerator
from edl.worker_torch.seeds import seed_all
from tests.worker.test_forks import Library, check_no_lock_is_inherited
from tests.worker.test_worker import ended_by_its_error, in_thread
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y, joined, network, trained
from tests.worlds.master_server import TOKEN, serving

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def where(number: int) -> tuple[Any, Any, int, int]:
    return X[number], Y[number], number, os.getpid()


def augmented(number: int) -> tuple[Any, Any]:
    noise = torch.rand(8) + random.random() + float(np.random.rand())  # noqa: S311 - what scripts do
    return X[number] + noise / 10, Y[number]


def torn(number: int) -> tuple[Any, Any]:
    if number == 42:
        raise ValueError("torn")
    return X[number], Y[number]


class Noting(Script):
    """Notes which records the loop got, and who has read them."""

    def run(self, body: Any = None) -> Script:
        self.seen: list[int] = []
        self.readers: set[int] = set()
        self.epochs: list[tuple[int, int]] = []
        torch.set_num_threads(1)
        with self.job:
            for x, y, numbers, pids in self.elastic.batches():
                self.seen += numbers.tolist()
                self.readers |= set(pids.tolist())
                self.epochs.append((self.job.epoch, self.elastic.step * BATCH // RECORDS))
                nn.functional.mse_loss(self.model(x), y).backward()
                if body is not None:
                    body(self)
        return self


@pytest.mark.parametrize("count", [1, 2])
async def test_processes_read_every_record_once_in_each_epoch(tmp_path: Path, count: int) -> None:
    found: list[Any] = await trained(
        tmp_path,
        count,
        make=lambda served, name: Noting(served, name, first=count, read=where, num_workers=2, micro_batch=5),
    )
    assert sorted(n for script in found for n in script.seen) == sorted([*range(RECORDS)] * EPOCHS)
    for script in found:
        assert os.getpid() not in script.readers
        assert len(script.readers) == 2 * EPOCHS, "each epoch has its own processes, as with a DataLoader"
        assert all(epoch == of_step for epoch, of_step in script.epochs), "an epoch begins with its first batch"


async def test_what_was_read_ahead_is_dropped_when_a_trainer_joins_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    plain = [script.weights for script in await trained(tmp_path / "0", 1, deterministic=4)]

    def body(script: Script, x: Any, y: Any) -> None:
        nn.functional.mse_loss(script.model(x), y).backward()

    a, b = await joined(tmp_path / "j", body, num_workers=2, deterministic=4, reading={"prefetch_factor": 4})
    assert a.elastic.loop.counts.worlds >= 2
    assert a.elastic.is_complete
    assert torch.equal(a.weights, b.weights)
    (alone,) = await trained(tmp_path / "1", 1, num_workers=2, deterministic=4)
    assert torch.equal(alone.weights, plain[0])


async def test_augmentation_does_not_depend_on_who_reads(tmp_path: Path) -> None:
    weights = []
    for count, workers in ((1, 0), (1, 1), (1, 2), (2, 1)):
        make = functools.partial(Script, first=count, read=augmented, num_workers=workers, deterministic=4)
        weights += [one.weights for one in await trained(tmp_path / f"{count}-{workers}", count, make=make)]
    assert all(torch.equal(one, weights[0]) for one in weights)


async def test_a_record_that_cannot_be_read_ends_the_job_also_if_a_process_reads_it(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="record 42: ValueError: torn; trainers that train in step cannot leave"):
        await trained(tmp_path, 1, read=torn, num_workers=2)


@pytest.mark.parametrize(("workers", "options"), [(2, {"batch_size": 3}), (0, {"shuffle": True}), (-1, {})])
async def test_options_that_the_job_decides_are_refused(tmp_path: Path, workers: int, options: Any) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=r"prefetch_factor, pin_memory.* the job decides the rest"):
            await in_thread(lambda: Script(served, num_workers=workers, reading=options))


class Records(Dataset):
    """Says which process has read."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Any, Any, int, int]:
        return where(number)


def read_by_a_script(accelerator: Accelerator) -> tuple[set[int], list[int]]:
    """The processes that read, and the records that the script got."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = DataLoader(Records(), batch_size=BATCH, shuffle=True, num_workers=2, prefetch_factor=3)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    readers: set[int] = set()
    seen: list[int] = []
    for x, y, numbers, pids in data:
        readers |= set(pids.tolist())
        seen += numbers.tolist()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    return readers, seen


async def test_the_processes_of_the_loader_of_a_script_with_accelerate_read(tmp_path: Path) -> None:
    def run() -> tuple[set[int], list[int]]:
        job = connect(served.url, token=TOKEN, environment={"POD_NAME": "a", "POD_UID": "uid-a"})
        with ended_by_its_error(job):
            return read_by_a_script(Accelerator(job, cpu=True))

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        readers, seen = await in_thread(run)
    assert os.getpid() not in readers
    assert len(readers) == 2
    assert sorted(seen) == list(range(RECORDS))


@pytest.mark.parametrize(("module", "function"), [(torch, "manual_seed"), (np.random, "seed")])
def test_a_fork_waits_for_a_thread_that_seeds(monkeypatch: pytest.MonkeyPatch, module: object, function: str) -> None:
    library = Library()

    def work() -> None:
        with pytest.raises(OSError, match="the library has ended"):
            seed_all(1)

    monkeypatch.setattr(module, function, library.call)
    check_no_lock_is_inherited(library, work)


def test_processes_that_begin_while_another_thread_seeds_do_not_hang() -> None:
    ends = threading.Event()

    def work() -> None:
        while not ends.is_set():
            seed_all(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            assert len([*DataLoader(Records(), batch_size=BATCH, num_workers=2, timeout=60)]) == RECORDS // BATCH
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
async def test_processes_that_begin_without_a_fork_read_the_same(tmp_path: Path, method: str) -> None:
    def make(served: Any, name: str) -> Script:
        return Noting(
            served,
            name,
            read=where,
            num_workers=2,
            reading={"multiprocessing_context": method, "persistent_workers": True},
        )

    (script,) = await trained(tmp_path, make=make)
    assert isinstance(script, Noting)
    assert sorted(script.seen) == sorted([*range(RECORDS)] * EPOCHS)
    assert os.getpid() not in script.readers


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("dataset", {"read": lambda number: (X[number], number)}),
        ("collate_fn", {"read": where, "collate": lambda samples: default_collate(samples[::-1])}),
    ],
)
async def test_what_cannot_be_pickled_is_named_with_the_remedy(tmp_path: Path, part: str, options: Any) -> None:
    said = rf"num_workers=2.* 'spawn', and its {part} cannot be pickled: .*lambda.* multiprocessing_context='fork'"
    with pytest.raises(ConfigError, match=said):
        await trained(tmp_path, num_workers=2, reading={"multiprocessing_context": "spawn"}, **options)
