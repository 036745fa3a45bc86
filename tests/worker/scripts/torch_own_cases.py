"""Optimizers and modules that scripts write themselves; `make torch-test` runs these tests."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.worker.torch_script import Script, network, plain, trained


def mse(model: Any, x: Any, y: Any) -> None:
    nn.functional.mse_loss(model(x), y).backward()


class Extrapolating(torch.optim.Optimizer):
    """Keeps the gradient of the last step itself, and no copy."""

    def __init__(self, parameters: Any, lr: float = 0.05) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, _: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                before = self.state[parameter].get("before", parameter.grad)
                parameter.add_(parameter.grad + 0.5 * (parameter.grad - before), alpha=-group["lr"])
                self.state[parameter]["before"] = parameter.grad


@pytest.mark.parametrize(("count", "deterministic"), [(1, 0), (2, 0), (2, 4)])
async def test_an_optimizer_may_keep_the_gradient_of_a_step(tmp_path: Path, count: int, deterministic: int) -> None:
    model = network()
    expected = await plain(
        tmp_path / "plain", model, Extrapolating(model.parameters()), lambda x, y: mse(model, x, y)
    )
    make = functools.partial(
        Script,
        first=count,
        optimizer=lambda model: Extrapolating(model.parameters()),
        deterministic=deterministic,
    )
    for script in await trained(tmp_path / "j", count, lambda script, x, y: mse(script.model, x, y), make=make):
        assert torch.allclose(script.weights, expected, atol=1e-5)
