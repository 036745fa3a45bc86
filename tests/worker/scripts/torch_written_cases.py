"""What a loop writes past torch's own bookkeeping, and errors that it catches; `make torch-test` runs these tests."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edl.errors import ConfigError, EdlError, PermanentError, TemporaryError
from edl.worker.steps import PeerLostError
from edl.worker_torch.watches.step_guard import StepGuard
from tests.worker.scripts.torch_coupled_cases import in_batch_negatives
from tests.worker.scripts.torch_gradient_cases import equal_to_plain, mse
from tests.worker.torch_script import Script, network, trained


def limited_through_data(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    for parameter in model.parameters():
        parameter.data.clamp_(-0.15, 0.15)


def sharpness_through_data(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    before = [parameter.data.clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data.add_(0.01 * parameter.grad)
    model.zero_grad()
    mse(model, x, y).backward()
    for parameter, value in zip(model.parameters(), before, strict=True):
        parameter.data = value


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("body", [limited_through_data, sharpness_through_data])
async def test_weights_that_are_written_through_data_are_refused(tmp_path: Path, body: Any, count: int) -> None:
    with pytest.raises(PermanentError, match=r"the loop changes 0.weight after it computed a gradient"):
        await trained(tmp_path, count, lambda script, x, y: body(script.model, x, y))


def with_late_hook(hook: Any) -> Any:
    def build() -> Any:
        model = network()
        model[0].weight.register_post_accumulate_grad_hook(hook)
        return model

    return build


def clamps(parameter: Any) -> None:
    parameter.grad.clamp_(-0.01, 0.01)


def halves(parameter: Any) -> None:
    parameter.grad.mul_(0.5)


async def test_a_hook_that_limits_a_gradient_once_it_is_there_is_refused(tmp_path: Path) -> None:
    build = with_late_hook(clamps)
    with pytest.raises(PermanentError, match=r"a hook of the parameter 0.weight .* more to its gradient"):
        await trained(
            tmp_path,
            2,
            lambda script, x, y: mse(script.model, x, y).backward(),
            make=lambda served, name: Script(served, name, first=2, model=build()),
        )


@pytest.mark.parametrize("count", [1, 2])
async def test_a_hook_that_scales_a_gradient_once_it_is_there_is_as_without_edl(tmp_path: Path, count: int) -> None:
    body = lambda model, x, y: mse(model, x, y).backward()  # noqa: E731 - of one line
    await equal_to_plain(tmp_path, body, count, with_late_hook(halves))


class Empty(nn.Module):
    """Has a parameter without numbers, with a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.none = network(), nn.Parameter(torch.zeros(0, 3))
        self.none.register_hook(lambda gradient: gradient * 2)

    def forward(self, x: Any) -> Any:
        return self.inner(x) + self.none.sum()


@pytest.mark.parametrize("count", [1, 2])
async def test_a_hook_of_a_parameter_without_numbers(tmp_path: Path, count: int) -> None:
    await equal_to_plain(tmp_path, lambda model, x, y: mse(model, x, y).backward(), count, Empty)


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        (lambda script, x, y: in_batch_negatives(script.model, x, y).backward(), "depends on the other records"),
        (lambda script, _, __: script.optimizer.step(), r"the loop calls optimizer.step\(\)"),
        (lambda script, _, __: script.optimizer.zero_grad(), r"the loop calls optimizer.zero_grad\(\)"),
        (lambda script, _, __: nn.utils.clip_grad_norm_(script.model.parameters(), 1.0), "calls torch.nn.utils.clip"),
    ],
)
async def test_a_loop_that_catches_a_refusal_does_not_go_on(tmp_path: Path, refused: Any, says: str) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        mse(script.model, x, y).backward()
        with contextlib.suppress(Exception):
            refused(script, x, y)

    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path, 1, body)


def test_a_lost_peer_is_no_refusal() -> None:
    guard = StepGuard([], [], None, owns=bool, keeps=bool, on_loss=lambda *_, **__: None)
    for error in (PeerLostError("gone"), TemporaryError("late")):
        with contextlib.suppress(EdlError), guard.hearing():
            raise error
        assert guard.refused is None
    refusal = ConfigError("wrong")
    with contextlib.suppress(ConfigError), guard.hearing():
        raise refusal
    assert guard.refused is refusal


class Rated(torch.optim.SGD):
    """Chooses its rate itself, so that its group has none."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.05)
        self.param_groups[0]["lr"] = None

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["lr"] = 0.05
        try:
            return super().step(closure)
        finally:
            self.param_groups[0]["lr"] = None


async def test_an_optimizer_without_a_rate_trains(tmp_path: Path) -> None:
    (found,) = await trained(
        tmp_path,
        1,
        make=lambda served, name: Script(served, name, optimizer=lambda model: Rated(model.parameters())),
    )
    assert found.elastic.is_complete
