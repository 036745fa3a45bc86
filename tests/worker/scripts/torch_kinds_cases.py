"""Optimizers, schedulers and wrappers of models as scripts use them, each beside plain PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import lr_scheduler

from edl.errors import ConfigError
from tests.worker.test_worker import in_thread
from tests.worker.torch_script import RECORDS, Script, X, Y, network, order_of, trained
from tests.worlds.master_server import Served, serving

STEPS = 18


@pytest.fixture
def own_group() -> Iterator[None]:
    """A group of processes that the script has made, of this one alone."""
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


async def beside_plain(
    folder: Path,
    build: Callable[[], Any] = network,
    optimizer: Callable[[Any], Any] = sgd,
    scheduler: Callable[[Any], Any] | None = None,
    body: Callable[[Any, Any, Any], Any] = lambda model, x, y: nn.functional.mse_loss(model(x), y).backward(),
) -> None:
    """One trainer, and two of them, learn what the loop learns without edl."""
    model = build()
    own = optimizer(model)
    schedule = scheduler(own) if scheduler is not None else None
    for numbers in await order_of(folder / "order"):
        own.zero_grad()
        body(model, X[numbers], Y[numbers])
        own.step()
        if schedule is not None:
            schedule.step()
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    more: dict[str, Any] = {"optimizer": optimizer, **({"scheduler": scheduler} if scheduler is not None else {})}
    for count in (1, 2):
        make = functools.partial(_script, build, first=count, **more)
        scripts = await trained(folder / str(count), count, lambda one, x, y: body(one.model, x, y), make=make)
        for script in scripts:
            found = torch.cat([p.detach().flatten() for p in script.model.parameters()])
            assert torch.allclose(found, expected, atol=1e-5, equal_nan=True)


def _script(build: Callable[[], Any], served: Served, name: str, **more: Any) -> Script:
    return Script(served, name, model=build(), **more)


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def rate_of_numpy(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=np.float64(0.05))


@pytest.mark.parametrize("optimizer", [adamw, rate_of_numpy])
async def test_optimizers(tmp_path: Path, optimizer: Any) -> None:
    await beside_plain(tmp_path, optimizer=optimizer)


def sequential(optimizer: Any) -> Any:
    parts = [lr_scheduler.LinearLR(optimizer, total_iters=5), lr_scheduler.CosineAnnealingLR(optimizer, 13)]
    return lr_scheduler.SequentialLR(optimizer, parts, [5])


def powers_of_numpy(optimizer: Any) -> Any:
    return lr_scheduler.LambdaLR(optimizer, lambda n: np.float64(0.99) ** n)


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS + 1),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [5, 10]),
        sequential,
        powers_of_numpy,
    ],
)
async def test_schedulers(tmp_path: Path, scheduler: Any) -> None:
    await beside_plain(tmp_path, scheduler=scheduler)


def tied() -> Any:
    model = network()
    first, last = nn.Linear(16, 16), nn.Linear(16, 16)
    last.weight = first.weight
    return nn.Sequential(model[0], first, nn.Tanh(), last, model[3])


class Dated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.day = network(), "2026-01-01"

    def forward(self, x: Any) -> Any:
        return self.inner(x)

    def get_extra_state(self) -> str:
        return self.day

    def set_extra_state(self, value: str) -> None:
        self.day = value


def compiled() -> Any:
    return torch.compile(network(), backend="eager")


@pytest.mark.parametrize("build", [tied, Dated, compiled])
async def test_models(tmp_path: Path, build: Any) -> None:
    await beside_plain(tmp_path, build)


def of_two_losses(model: Any, x: Any, y: Any) -> None:
    nn.functional.mse_loss(model(x), y).backward()
    nn.functional.l1_loss(model(x), y).backward()


def mixed_precision(model: Any, x: Any, y: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), y)
    loss.backward()


def not_a_number(model: Any, x: Any, y: Any) -> None:
    nn.functional.mse_loss(model(x), y * float("nan")).backward()


@pytest.mark.parametrize("body", [of_two_losses, not_a_number])
async def test_losses(tmp_path: Path, body: Any) -> None:
    await beside_plain(tmp_path, body=body)


async def test_mixed_precision(tmp_path: Path) -> None:
    script = (await trained(tmp_path, 1, lambda one, x, y: mixed_precision(one.model, x, y)))[0]
    assert script.elastic.is_complete
    assert torch.isfinite(script.weights).all()
    assert nn.functional.mse_loss(script.model(X), Y) < nn.functional.mse_loss(network()(X), Y)


@pytest.mark.usefixtures("own_group")
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
async def test_wrappers_of_one_process(tmp_path: Path, kind: str) -> None:
    def build() -> Any:
        model = network()
        if kind == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        return model

    plain_model = network()
    optimizer = sgd(plain_model)
    for numbers in await order_of(tmp_path / "order"):
        optimizer.zero_grad()
        nn.functional.mse_loss(plain_model(X[numbers]), Y[numbers]).backward()
        optimizer.step()
    make = functools.partial(_script, build, folder=tmp_path / "models")
    (script,) = await trained(tmp_path / "j", 1, make=make)
    saved = torch.load(tmp_path / "models" / "model.pt", weights_only=True)
    for (name, found), value in zip(saved.items(), plain_model.state_dict().values(), strict=True):
        assert torch.allclose(found, value, atol=1e-6), name
    assert script.elastic.is_complete


def first_fsdp(served: Served) -> Script:
    here = {"sharding_strategy": ShardingStrategy.NO_SHARD, "device_id": torch.device("cpu")}
    return Script(served, model=FullyShardedDataParallel(network(), **here))


def zero(served: Served) -> Script:
    return Script(
        served,
        optimizer=lambda model: ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.05),
    )


@pytest.mark.usefixtures("own_group")
@pytest.mark.parametrize(
    ("build", "says"),
    [
        (first_fsdp, r"FullyShardedDataParallel, whose flat parameters .* fully_shard\(model, mesh=mesh\)"),
        (zero, r"ZeroRedundancyOptimizer keeps a part of its state in each process"),
    ],
)
async def test_wrappers_that_cannot_be_copied_are_refused_by_name(tmp_path: Path, build: Any, says: str) -> None:
    async with serving(tmp_path, f"index:{RECORDS}") as served:
        with pytest.raises(ConfigError, match=says):
            await in_thread(lambda: build(served))
