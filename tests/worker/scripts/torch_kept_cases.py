"""What a script changes beside the weights, while trainers come and go; `make torch-test` runs these tests.

It is copied to trainers that join, or it stops the job with a sentence that says what to write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from edl.errors import PermanentError
from edl.worker.steps import DivergedError
from tests.worker.torch_script import Script, joined, network, trained
from tests.worlds.master_server import Served


def mse(script: Any, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()


class Hooked(Script):
    """A script with a hook.

    Args:
        hook: is called with the script after each step.
        build: makes the model.
        options: as `Script` takes them.
    """

    def __init__(
        self,
        served: Served,
        name: str = "a",
        *,
        hook: Callable[[Any], object] = lambda _: None,
        build: Callable[[], Any] = network,
        **options: Any,
    ) -> None:
        super().__init__(served, name, model=build(), **options)
        self.batches, self.name = 0, name
        self.elastic.on_step_end(lambda: hook(self))


# Optimizers and schedulers that are made while the training is under way.


def another_optimizer(script: Any) -> None:
    if script.elastic.step == 4:
        script.optimizer = torch.optim.Adam(script.model.parameters())


def another_scheduler(script: Any) -> None:
    if script.elastic.step == 4:
        script.scheduler = lr_scheduler.ExponentialLR(script.optimizer, 0.5)


def on_plateau(script: Any) -> None:
    if script.elastic.step == 4:
        script.scheduler = lr_scheduler.ReduceLROnPlateau(script.optimizer)


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        (another_optimizer, r"makes another optimizer, a Adam of parameters of the model.*optimizer\.param_groups"),
        (another_scheduler, r"makes a scheduler, a ExponentialLR, while the training is under way.*SequentialLR"),
        (on_plateau, r"makes a scheduler, a ReduceLROnPlateau, while the training is under way.*state=\{"),
    ],
)
async def test_what_is_made_while_the_training_is_under_way_is_refused(
    tmp_path: Path, hook: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path / "hook", body=mse, make=functools.partial(Hooked, hook=hook))

    def body(script: Any, x: Any, y: Any) -> None:
        hook(script)
        mse(script, x, y)

    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path / "loop", body=body)


# What trains, and what is in training.


async def test_parameters_that_a_counter_of_the_loop_freezes_stop_the_job(tmp_path: Path) -> None:
    def body(script: Any, x: Any, y: Any) -> None:
        script.batches += 1
        script.model[0].requires_grad_(script.batches > 10)
        mse(script, x, y)

    with pytest.raises(DivergedError, match=r"requires_grad of 0\.weight is True in a, and it is False in b"):
        await joined(tmp_path, body, make=Hooked)


async def test_a_module_that_a_counter_of_the_loop_sets_to_evaluation_stops_the_job(tmp_path: Path) -> None:
    def body(script: Any, x: Any, y: Any) -> None:
        script.batches += 1
        script.model[1].train(script.batches < 10)
        mse(script, x, y)

    with pytest.raises(DivergedError, match=r"training of 1 is False in a, and it is True in b"):
        await joined(tmp_path, body, make=functools.partial(Hooked, build=lambda: network(nn.BatchNorm1d(16))))


class Counting(nn.Module):
    """Counts its calls, and keeps a centre of its outputs that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.centre, self.inner = 0, torch.zeros(1), network(nn.Dropout(0.5))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        found = self.inner(x)
        self.centre = self.centre * 0.9 + found.detach().mean(0) * 0.1
        return found


def frozen(script: Any) -> None:
    if script.elastic.step == 2:
        script.model.inner[1].eval()
        script.model.inner[1].p = 0.25


async def test_settings_of_modules_are_copied_to_trainers_that_join_and_saved(tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {}

    def body(script: Any, x: Any, y: Any) -> None:
        model = script.model
        now = [model.calls, float(model.centre), model.inner[1].training, model.inner[1].p]
        seen.setdefault(script.name, now)
        mse(script, x, y)

    a, b = await joined(tmp_path, body, make=functools.partial(Hooked, build=Counting, hook=frozen))
    assert a.elastic.is_complete
    assert b.elastic.is_complete
    first, second = seen.values()
    assert first == [0, 0.0, True, 0.5]
    assert second[0] > 2
    assert second[1] != 0
    assert second[2:] == [False, 0.25]


# A number that the loss is multiplied by.


async def test_a_loss_that_is_weighed_by_a_counter_of_the_loop_is_refused(tmp_path: Path) -> None:
    def body(script: Any, x: Any, y: Any) -> None:
        script.batches += 1
        found = script.model(x)
        penalty = found.square().mean() * min(1.0, script.batches / 100)
        (nn.functional.mse_loss(found, y) + penalty).backward()

    with pytest.raises(PermanentError, match=r"multiplied or divided by a number .*a count of the loop"):
        await joined(tmp_path, body, make=Hooked)


async def test_two_losses_whose_shares_add_up_to_one_may_be_mixed(tmp_path: Path) -> None:
    def body(script: Any, x: Any, y: Any) -> None:
        script.batches += 1
        share = 1 / (1 + script.batches + len(script.name))
        found = script.model(x)
        mixed = share * nn.functional.mse_loss(found, y) + (1 - share) * nn.functional.mse_loss(found, y.flip(0))
        mixed.backward()

    a, b = await joined(tmp_path, body, make=Hooked)
    assert a.elastic.is_complete
    assert b.elastic.is_complete
