"""A script for Hugging Face Accelerate whose import was changed; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from edl.errors import ConfigError, PermanentError
from edl.ledger.permutation import BLOCK, EpochOrder
from edl.worker_torch import Accelerator
from tests.worker.test_worker import ended_by_its_error, in_thread, trainer
from tests.worlds.master_server import TOKEN, Served, serving
from tests.worlds.waiting import PATIENCE

RECORDS, EPOCHS, BATCH = 96, 3, 8


def data(records: int = RECORDS) -> DataLoader[Any]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(records, 4, generator=draw)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=BATCH, shuffle=True)


def train(accelerator: Accelerator, norm: float = 0.0) -> dict[str, Any]:
    """The loop of such a script, and what it has seen."""
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 1)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, step_size=RECORDS // BATCH, gamma=0.5)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, data(), scheduler)
    seen: list[int] = []
    sizes: set[int] = set()
    losses: list[float] = []
    for _ in range(EPOCHS):
        count = 0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if norm:
                accelerator.clip_grad_norm_(model.parameters(), norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            count += len(x)
            sizes.add(accelerator.num_processes)
            losses.append(loss.item())
        seen.append(count)
    rate = scheduler.get_last_lr()[0]
    return {"model": model, "seen": seen, "sizes": sizes, "losses": losses, "rate": rate}


def run(served: Served, name: str, norm: float = 0.0, **options: Any) -> dict[str, Any]:
    with ended_by_its_error(trainer(served, name)) as job:
        return train(Accelerator(job, **options), norm)


async def test_a_script_for_one_process_trains_by_its_epochs_and_its_batch(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        found = await in_thread(lambda: run(served, "a", folder=tmp_path))
        status = served.master.status()
    assert found["seen"] == [RECORDS] * EPOCHS
    assert found["losses"][-1] < found["losses"][0] / 4
    assert found["rate"] == pytest.approx(0.1 * 0.5**EPOCHS), "the scheduler steps with the optimizer"
    assert (status["state"], status["quarantined"]) == ("finished", 0)
    assert status["group"]["position"] == RECORDS * EPOCHS
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=True)["weight"], found["model"].weight)


async def test_gradients_are_clipped_by_the_call_of_a_script_as_by_the_option(tmp_path: Path) -> None:
    weights = []
    for number, (norm, options) in enumerate([(0.5, {}), (0.0, {"max_grad_norm": 0.5}), (0.0, {})]):
        async with serving(tmp_path / str(number), f"index:{RECORDS}", epochs=EPOCHS) as served:
            found = await in_thread(functools.partial(run, served, "a", norm, **options))
        weights.append(found["model"].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.allclose(weights[0], weights[2])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (lambda model: ([model.weight], 1.0), r"it got 1 of the 2 parameters .*pass model.parameters\(\)"),
        (lambda model: (model.parameters(), 1.0, 1.0), r"norm_type=1.0; one norm of type 2"),
        (lambda model: (model.parameters(), 0.0), r"norm of a gradient is 0.0; give a number above 0"),
    ],
)
async def test_clipping_that_cannot_be_done_is_refused(tmp_path: Path, arguments: Any, says: str) -> None:
    def clip() -> None:
        model = nn.Linear(4, 1)
        with trainer(served, "a") as job:
            accelerator = Accelerator(job)
            accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data())
            accelerator.clip_grad_norm_(*arguments(model))

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(clip)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (lambda model, _: (model, data()), "it got 0 of optimizer; give exactly one optimizer"),
        (lambda model, optimizer: (model, optimizer), "the DataLoader of the training data"),
        (lambda model, optimizer: (model, optimizer, data(7)), r"has 7 records, and the job trains on 'index:96'"),
    ],
)
async def test_parts_that_do_not_fit_are_named(tmp_path: Path, parts: Any, says: str) -> None:
    def prepare() -> None:
        model = nn.Linear(4, 1)
        with trainer(served, "a") as job:
            Accelerator(job).prepare(*parts(model, torch.optim.SGD(model.parameters(), lr=0.1)))

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(prepare)


async def test_what_it_lacks_is_refused_by_name(tmp_path: Path) -> None:
    def ask() -> None:
        with trainer(served, "a") as job:
            _ = Accelerator(job).gather

    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(AttributeError, match=r"has no gather: .*the loop with edl.worker_torch.Elastic"):
            await in_thread(ask)


async def run_script(folder: Path, body: Any, count: int = 1, *, records: int = RECORDS, **options: Any) -> list[Any]:
    async with serving(folder, f"index:{records}", epochs=EPOCHS) as served:

        def one(name: str) -> Any:
            torch.set_num_threads(1)
            job = trainer(served, name)
            job._environment = {**job._environment, "TRAINERS": str(count)}
            with ended_by_its_error(job):
                return body(Accelerator(job, **options))

        found = await asyncio.gather(*(in_thread(functools.partial(one, f"t{n}")) for n in range(count)))
        assert served.master.status()["state"] == "finished"
    return list(found)


BUILT = nn.Linear(4, 1).state_dict()


def parts(rate: float = 0.1) -> tuple[Any, Any]:
    model = nn.Linear(4, 1)
    model.load_state_dict(BUILT)
    return model, torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def weights(model: Any) -> Any:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def by_hand(accelerator: Any) -> Any:
    """Steps after every third batch, as scripts do it without `accumulate`."""
    model, optimizer, loader = accelerator.prepare(*parts(), data())
    for _ in range(EPOCHS):
        for number, (x, y) in enumerate(loader, 1):
            accelerator.backward(nn.functional.mse_loss(model(x), y) / 3)
            if number % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
    return weights(model), accelerator.elastic.step


def by_accumulate(accelerator: Any) -> Any:
    model, optimizer, loader = accelerator.prepare(*parts(), data())
    for _ in range(EPOCHS):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
    return weights(model), accelerator.elastic.step


async def test_accumulated_gradients_mean_what_they_mean_in_one_process(tmp_path: Path) -> None:
    model, optimizer = parts()
    x, y = data().dataset.tensors
    for epoch in range(EPOCHS):
        numbers = list(EpochOrder(RECORDS, 0, epoch, BLOCK).records(0, RECORDS))
        for at in range(0, RECORDS, 3 * BATCH):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[numbers[at : at + 3 * BATCH]]), y[numbers[at : at + 3 * BATCH]]).backward()
            optimizer.step()
    for body, options in ((by_hand, {}), (by_accumulate, {"gradient_accumulation_steps": 3})):
        for count in (1, 2):
            for found, steps in await run_script(tmp_path / f"{body.__name__}{count}", body, count, **options):
                assert steps == RECORDS * EPOCHS // (3 * BATCH)
                assert torch.allclose(found, weights(model), atol=1e-5)


async def test_the_rest_of_an_epoch_that_accelerate_weighs_otherwise_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, "index:90", epochs=1) as served:
        accelerator = Accelerator(trainer(served, "a"), gradient_accumulation_steps=4)
        model: Any = nn.Linear(4, 1)
        await in_thread(lambda: accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data(90)))
    assert "the last step of each epoch has 26 records of 32" in caplog.text


async def test_a_scheduler_by_epoch_steps_once_an_epoch(tmp_path: Path) -> None:
    def body(accelerator: Any) -> list[float]:
        model, optimizer = parts()
        scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, data(), scheduler)
        rates = []
        for _ in range(EPOCHS):
            for x, y in loader:
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
        return rates

    for count in (1, 2):
        for rates in await run_script(tmp_path / str(count), body, count):
            assert rates == pytest.approx([0.1, 0.01, 0.001])


async def test_steps_without_zero_grad_and_too_many_epochs_are_named(tmp_path: Path) -> None:
    def never(accelerator: Any) -> None:
        model, optimizer, loader = accelerator.prepare(*parts(), data())
        for x, y in loader:
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()

    with pytest.raises(PermanentError, match=r"optimizer.step\(\) twice without zero_grad\(\)"):
        await run_script(tmp_path / "a", never)

    def more(accelerator: Any) -> None:
        model, optimizer, loader = accelerator.prepare(*parts(), data())
        for _ in range(EPOCHS + 1):
            for x, y in loader:
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()

    with pytest.raises(PermanentError, match=r"asks for epoch 4, but the job has 3 epochs"):
        await run_script(tmp_path / "b", more)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"log_with": "wandb"}, "Accelerator: log_with is not offered"),
        ({"mixed_precision": "fp16"}, "mixed_precision='fp16' is not offered"),
    ],
)
def test_options_that_are_not_offered_are_named(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Accelerator(**options)


async def test_a_sampler_of_the_script_is_refused(tmp_path: Path) -> None:
    def body(accelerator: Any) -> None:
        half = DataLoader(data().dataset, batch_size=BATCH, sampler=SubsetRandomSampler(range(RECORDS // 2)))
        accelerator.prepare(*parts(), half)

    with pytest.raises(ConfigError, match=r"the sampler SubsetRandomSampler, .*torch.utils.data.Subset"):
        await run_script(tmp_path, body)


# Scripts that end with an error.

FAILING = """
import os, sys, threading
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from edl.worker_torch import Accelerator

def linger():  # as threads of trackers do
    threading.main_thread().join()
    print("children:", Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

if sys.argv[1] != "exit":
    threading.Thread(target=linger).start()
x = torch.randn(96, 4)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for number, (x, y) in enumerate(loader):
    accelerator.backward(nn.functional.mse_loss(model(x), y))
    optimizer.step()
    if number == 3:
        raise SystemExit("enough") if sys.argv[1] == "exit" else ZeroDivisionError("a defect of the script")
    if sys.argv[1] != "twice":
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("how", "says", "written"),
    [
        ("own", "ZeroDivisionError: a defect of the script\n", ""),
        ("twice", r"PermanentError: steps: the script calls optimizer.step() twice", "steps: the script calls"),
        ("exit", "enough\nsteps: the script has ended after 0 of the 3 epochs", "steps: the script has ended"),
    ],
)
async def test_an_error_of_a_script_ends_its_job_with_its_words_and_no_others(
    tmp_path: Path, how: str, says: str, written: str
) -> None:
    (tmp_path / "log").touch()
    (tmp_path / "token").write_text(TOKEN)
    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        place = {"EDL_MASTER": served.url, "EDL_TOKEN_FILE": str(tmp_path / "token"), "POD_NAME": "a"}
        place |= {"EDL_TERMINATION_LOG": str(tmp_path / "log"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", FAILING, how]
        run_it = functools.partial(
            subprocess.run, command, capture_output=True, text=True, env={**os.environ, **place}
        )
        done = await in_thread(run_it, 60 * PATIENCE)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("steps: the script has ended") == int(how == "exit")
    assert done.stdout == ("" if how == "exit" else "children: []\n"), (
        "a process goes on to say that the trainer lives"
    )
    assert (tmp_path / "log").read_text().startswith(written)
    assert bool((tmp_path / "log").read_text()) == bool(written)


# Copies of a model that was prepared.


async def test_a_copy_of_a_prepared_model_computes_with_its_own_weights(tmp_path: Path) -> None:
    def body(accelerator: Any) -> None:
        model, optimizer, loader = accelerator.prepare(*parts(), data())
        other = copy.deepcopy(model)
        torch.save(model, tmp_path / "whole.pt")
        with torch.no_grad():
            other.weight.fill_(2.0)
            other.bias.fill_(1.0)
        for _ in range(EPOCHS):
            for x, y in loader:
                assert torch.equal(other(torch.ones(1, 4)), torch.tensor([[9.0]]))
                other.zero_grad()
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()

    await run_script(tmp_path / "j", body, mixed_precision="bf16", cpu=True)
    saved = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert torch.equal(saved.weight, BUILT["weight"])


async def test_an_average_of_torch_is_as_without_edl(tmp_path: Path) -> None:
    def body(accelerator: Any) -> Any:
        model, optimizer = parts()
        average = AveragedModel(model)
        accelerator.register_for_checkpointing(average)
        model, optimizer, loader = accelerator.prepare(model, optimizer, data())
        for _ in range(EPOCHS):
            for x, y in loader:
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                average.update_parameters(model)
                optimizer.zero_grad()
        return weights(average.module)

    model, optimizer = parts()
    average, tensors = AveragedModel(model), data().dataset.tensors
    for epoch in range(EPOCHS):
        numbers = list(EpochOrder(RECORDS, 0, epoch, BLOCK).records(0, RECORDS))
        for at in range(0, RECORDS, BATCH):
            x, y = (tensor[numbers[at : at + BATCH]] for tensor in tensors)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            average.update_parameters(model)
    for count in (1, 2):
        for found in await run_script(tmp_path / str(count), body, count):
            assert torch.allclose(found, weights(average.module), atol=1e-5)


async def test_a_stream_is_refused_by_name(tmp_path: Path) -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(RECORDS))

    def body(accelerator: Any) -> None:
        accelerator.prepare(*parts(), DataLoader(Stream(), batch_size=BATCH))

    with pytest.raises(ConfigError, match=r"are a stream, a Stream, .*with __len__ and __getitem__"):
        await run_script(tmp_path, body)
