"""A script for Hugging Face Accelerate whose import was changed; `make torch-test` runs these tests."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from edl.errors import ConfigError
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
