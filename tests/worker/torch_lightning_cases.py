"""PyTorch Lightning beside the strategy of edl, which is the only change; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from edl.errors import ConfigError
from edl.ledger.permutation import BLOCK, EpochOrder
from edl.worker_torch.lightning import ElasticStrategy
from tests.worker.test_worker import ended_by_its_error, in_thread, trainer
from tests.worlds.master_server import Served, serving
from tests.worlds.waiting import wait_until

RECORDS, EPOCHS, BATCH = 96, 3, 16
DRAW = torch.Generator().manual_seed(1)
X = torch.randn(RECORDS, 8, generator=DRAW)
DATA = TensorDataset(X, torch.sin(X.sum(1, keepdim=True)))
BUILT = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).state_dict()
pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):
    """A module as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.net.load_state_dict(BUILT)
        self.losses: list[float] = []
        self.checked: list[float] = []
        self.rates: list[float] = []

    def training_step(self, batch: Any, _: int) -> Any:
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.checked.append(float(self.trainer.callback_metrics["val"]))
            self.rates.append(self.optimizers().param_groups[0]["lr"])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)]


class Order(Sampler):
    """The order of the master."""

    epoch = 0

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Any:
        order = EpochOrder(RECORDS, 0, self.epoch, BLOCK)
        self.epoch += 1
        return iter(list(order.records(0, RECORDS)))


def fit(loader: Any, folder: Path, **options: Any) -> Module:
    torch.set_num_threads(1)
    module = Module()
    more = {
        "max_epochs": EPOCHS,
        "accelerator": "cpu",
        "gradient_clip_val": 0.5,
        "default_root_dir": folder,
        **options,
    }
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    made = lightning.Trainer(**more, **quiet, enable_checkpointing=False)
    made.fit(module, loader, DataLoader(DATA, batch_size=32))
    assert made.global_step == RECORDS * EPOCHS // BATCH or options.get("accumulate_grad_batches")
    return module


def elastic(served: Served, folder: Path, name: str, *, first: int = 1, batch: int = BATCH, **options: Any) -> Module:
    job = trainer(served, name)
    job._environment = {**job._environment, "TRAINERS": str(first)}
    strategy = ElasticStrategy(job=job, folder=folder)
    with ended_by_its_error(job):
        return fit(DataLoader(DATA, batch_size=batch, shuffle=True), folder, strategy=strategy, **options)


async def run(folder: Path, count: int, **options: Any) -> list[Module]:
    async with serving(folder / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        found = []
        build = functools.partial(elastic, served, folder, first=count, **options)
        found = await asyncio.gather(*(in_thread(functools.partial(build, f"t{n}"), 120) for n in range(count)))
        status = served.master.status()
    assert (status["state"], status["quarantined"]) == ("finished", 0)
    assert status["group"]["position"] == RECORDS * EPOCHS
    return list(found)


def same(one: Module, other: Module) -> bool:
    return all(torch.allclose(*pair, atol=1e-5) for pair in zip(one.parameters(), other.parameters(), strict=True))


async def test_one_trainer_learns_what_the_unmodified_one_does(tmp_path: Path) -> None:
    expected = fit(DataLoader(DATA, batch_size=BATCH, sampler=Order()), tmp_path)
    (found,) = await run(tmp_path, 1)
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    assert found.checked == pytest.approx(expected.checked, rel=1e-4)
    assert found.rates == pytest.approx(expected.rates)
    assert same(found, expected)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert torch.equal(saved["net.0.weight"], found.net[0].weight)


async def test_batches_are_accumulated_as_by_the_unmodified_one(tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": None}
    expected = fit(DataLoader(DATA, batch_size=8, sampler=Order()), tmp_path, **options)
    (found,) = await run(tmp_path, 1, batch=8, **options)
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    assert same(found, expected)


async def test_two_trainers_learn_what_one_does(tmp_path: Path) -> None:
    (one,) = await run(tmp_path / "1", 1)
    two = await run(tmp_path / "2", 2)
    for found in two:
        assert same(found, one)
        assert found.checked == pytest.approx(one.checked, rel=1e-4)


class Stopping(lightning.Callback):
    """Ends the training after two epochs, as `EarlyStopping` does."""

    def on_validation_end(self, trainer: Any, _: Any) -> None:
        trainer.should_stop = trainer.current_epoch == 1 and not trainer.sanity_checking


@pytest.mark.parametrize("count", [1, 2])
async def test_a_callback_that_stops_the_training_ends_the_job_with_its_model(tmp_path: Path, count: int) -> None:
    def fit_until(served: Served, name: str) -> Module:
        job = trainer(served, name)
        job._environment = {**job._environment, "TRAINERS": str(count)}
        module, quiet = Module(), {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        strategy = ElasticStrategy(job=job, folder=tmp_path)
        made = lightning.Trainer(
            max_epochs=EPOCHS,
            accelerator="cpu",
            strategy=strategy,
            callbacks=[Stopping()],
            min_epochs=1,
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            **quiet,
        )
        torch.set_num_threads(1)
        with ended_by_its_error(job):
            made.fit(module, DataLoader(DATA, batch_size=BATCH, shuffle=True), DataLoader(DATA, batch_size=32))
        assert strategy.elastic is not None
        assert strategy.elastic.is_complete
        return module

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        names = [f"t{n}" for n in range(count)]
        found = await asyncio.gather(*(in_thread(functools.partial(fit_until, served, name), 120) for name in names))
        status = served.master.status()
    assert (status["state"], status["group"]["position"]) == ("finished", 2 * RECORDS)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert all(torch.equal(saved["net.0.weight"], module.net[0].weight) for module in found)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_epochs": 5}, "max_epochs=5 .* the job has 3 epochs; set max_epochs=3"),
        ({"max_steps": 5}, "max_steps=5"),
        ({"gradient_clip_algorithm": "value"}, "gradient_clip_algorithm"),
        ({"limit_train_batches": 2}, "limit_train_batches=2 is not offered: the job trains on every record"),
        ({"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs=1 is not offered"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_the_first_step(
    tmp_path: Path, options: Any, says: str
) -> None:
    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(lambda: elastic(served, tmp_path, "a", **options), 60)
        assert served.master.status()["done"] == 0


class Changing(lightning.Callback):
    """Waits after some step until another trainer waits to join, and leaves after another one."""

    def __init__(self, job: Any, joins_after: int, leaves_after: int) -> None:
        self._job, self._joins_after, self._leaves_after = job, joins_after, leaves_after

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self._joins_after:
            wait_until(lambda: self._job._group.must_change, "another trainer waits", 60)
        if trainer.global_step == self._leaves_after:
            self._job.leave()


class LostError(Exception):
    """Ends a trainer in the middle of a step."""


class Losing(lightning.Callback):
    """Ends its trainer before it has the gradients of a step."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self._after:
            trainer.strategy.elastic.replica.disconnect()  # as the sockets of a process that is killed
            raise LostError


class Worse(Module):
    """A module that is best after its first epoch."""

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.log("worse", float(self.trainer.global_step))


async def test_a_trainer_that_joins_stops_as_early_as_the_one_that_it_took_over_from(tmp_path: Path) -> None:
    steps = RECORDS // BATCH

    def stopping(served: Served, name: str) -> tuple[Module, Any]:
        job = trainer(served, name)
        if name == "b":
            wait_until(
                lambda: (served.master.status()["group"] or {"position": 0})["position"] > RECORDS, "steps", 60
            )
        stop = EarlyStopping("worse", patience=3)
        callbacks = [stop, *([Changing(job, steps + 2, 2 * steps + 3)] if name == "a" else [])]
        module = Worse()
        made = lightning.Trainer(
            max_epochs=7,
            accelerator="cpu",
            strategy=ElasticStrategy(job=job, folder=tmp_path),
            callbacks=callbacks,
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        torch.set_num_threads(1)
        with contextlib.suppress(SystemExit), ended_by_its_error(job):
            made.fit(module, DataLoader(DATA, batch_size=BATCH, shuffle=True), DataLoader(DATA, batch_size=32))
        return module, stop

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=7) as served:
        found = await asyncio.gather(*(in_thread(functools.partial(stopping, served, name), 120) for name in "ab"))
        status = served.master.status()
    (left, _), (stopped, stop) = found
    assert (status["state"], status["group"]["position"]) == ("finished", 4 * RECORDS)
    assert float(stop.best_score) == steps
    assert len(left.checked) == 2
    assert len(stopped.checked) == 4, "its own, with those that the list had when it joined"


@pytest.mark.parametrize("after", [8, 11])
async def test_a_step_that_is_lost_with_a_trainer_is_no_batch_of_the_script(tmp_path: Path, after: int) -> None:
    assert 2 * RECORDS // BATCH == 11 + 1, "the last step of an epoch"
    (expected,) = await run(tmp_path / "1", 1, val_check_interval=2)

    def losing(served: Served, name: str) -> Module | None:
        callbacks = [Losing(after)] if name == "t1" else []
        with contextlib.suppress(LostError):
            return elastic(served, tmp_path / "2", name, first=2, callbacks=callbacks, val_check_interval=2)
        return None

    async with serving(tmp_path / "j", f"index:{RECORDS}", epochs=EPOCHS) as served:
        names = ("t0", "t1")
        found, nobody = await asyncio.gather(*(in_thread(functools.partial(losing, served, n), 120) for n in names))
        status = served.master.status()
    assert nobody is None
    assert found is not None
    assert (status["state"], status["group"]["position"]) == ("finished", EPOCHS * RECORDS)
    assert found.checked == pytest.approx(expected.checked, rel=1e-4)
    assert found.rates == pytest.approx(expected.rates)
    assert same(found, expected)
