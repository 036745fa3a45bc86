"""A script for Hugging Face Accelerate whose import was changed; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from edl.errors import ConfigError, PermanentError
from edl.ledger.permutation import BLOCK, EpochOrder
from edl.worker_torch import Accelerator
from tests.worker.test_worker import in_thread, trainer
from tests.worlds.master_server import Served, serving

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
    return train(Accelerator(trainer(served, name), **options), norm)


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
