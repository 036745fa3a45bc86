"""Lines that practitioners leave in their scripts, beside plain PyTorch; `make torch-test` runs these tests.

Each trains to the same result with any number of trainers, or it stops with a sentence that says what to write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from edl.errors import PermanentError
from tests.worker.torch_script import BATCH, EPOCHS, RECORDS, Script, X, Y, network, order_of, plain, trained


def clipped(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()
    clip_grad_norm_(script.model.parameters(), 0.1)


def clipped_by_value(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()
    nn.utils.clip_grad_value_(script.model.parameters(), 0.1)


def accumulated(script: Script, x: Any, y: Any) -> None:
    (nn.functional.mse_loss(script.model(x), y) / 4).backward()
    script.optimizer.step()


def alternating(script: Any, x: Any, y: Any) -> None:
    first, second = script.optimizer
    nn.functional.mse_loss(script.model(x), y).backward()
    first.step()
    second.zero_grad()


def two(model: Any) -> list[Any]:
    return [torch.optim.SGD(model[0].parameters(), lr=0.05), torch.optim.SGD(model[3].parameters(), lr=0.05)]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("body", "options", "says"),
    [
        (clipped, {}, r"the loop calls torch\.nn\.utils\.clip_grad_norm_\(\).*max_grad_norm="),
        (clipped_by_value, {}, r"the loop calls torch\.nn\.utils\.clip_grad_value_\(\).*max_grad_norm="),
        (
            accumulated,
            {},
            r"optimizer\.step\(\).*divides its loss by the number of batches that it accumulates must not",
        ),
        (alternating, {"optimizer": two}, r"as those of a GAN do, take turns by the step: if elastic\.step % 2"),
    ],
)
async def test_what_would_train_otherwise_is_refused_with_what_to_write(
    tmp_path: Path, body: Any, options: Any, says: str, count: int
) -> None:
    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path, count, body, **options)


async def test_a_norm_that_is_only_looked_at_is_not_refused(tmp_path: Path) -> None:
    norms: list[float] = []

    def body(script: Script, x: Any, y: Any) -> None:
        nn.functional.mse_loss(script.model(x), y).backward()
        norms.append(float(clip_grad_norm_(script.model.parameters(), float("inf"))))

    (script,) = await trained(tmp_path, 1, body)
    assert script.elastic.is_complete
    assert all(norm > 0 for norm in norms)


@pytest.mark.parametrize("count", [1, 2])
async def test_losses_by_turns_as_the_refusal_advises_train_as_without_edl(tmp_path: Path, count: int) -> None:
    def losses(model: Any, x: Any, y: Any, step: int) -> None:
        part = model[0] if step % 2 == 0 else model[3]
        loss = nn.functional.mse_loss(model(x), y) * (1 if step % 2 == 0 else -0.1)
        loss.backward(inputs=list(part.parameters()))

    model = network()
    optimizers = two(model)
    for step, numbers in enumerate(await order_of(tmp_path / "order")):
        for one in optimizers:
            one.zero_grad()
        losses(model, X[numbers], Y[numbers], step)
        optimizers[step % 2].step()
    found = await trained(
        tmp_path / "j", count, lambda script, x, y: losses(script.model, x, y, script.elastic.step), optimizer=two
    )
    expected = torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])
    for script in found:
        assert torch.allclose(script.weights, expected, atol=1e-6)


async def test_a_loop_over_epochs_around_the_batches_is_refused_with_what_to_write(tmp_path: Path) -> None:
    class Looping(Script):
        def run(self, body: Any = None) -> Script:
            for _ in range(EPOCHS):
                super().run(body)
            return self

    with pytest.raises(PermanentError, match=r"had all those of the 3 epochs .*hook of on_step_end.*is_epoch_end"):
        await trained(tmp_path, make=Looping)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_scheduler_that_steps_at_the_end_of_an_epoch_is_as_without_edl(tmp_path: Path, count: int) -> None:
    class Scheduled(Script):
        def __init__(self, served: Any, name: str, **options: Any) -> None:
            model = network()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            state = {"scheduler": scheduler}
            super().__init__(served, name, model=model, optimizer=lambda _: optimizer, state=state, **options)
            self.elastic.on_step_end(lambda: scheduler.step() if self.elastic.is_epoch_end else None)

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for number, numbers in enumerate(await order_of(tmp_path / "order"), 1):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X[numbers]), Y[numbers]).backward()
        optimizer.step()
        if number % (RECORDS // BATCH) == 0:
            scheduler.step()
    found = await trained(tmp_path / "j", count, make=functools.partial(Scheduled, first=count))
    expected = torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])
    for script in found:
        assert script.optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * 0.5**EPOCHS)
        assert torch.allclose(script.weights, expected, atol=1e-6)


# Losses over numbers of Python's.


def over_positives(model: Any, x: Any, y: Any) -> Any:
    """As detectors do: a sum over the anchors that hit, divided by their number."""
    hits = int((x[:, :4] > 1).sum())
    return nn.functional.mse_loss(model(x), y, reduction="none").sum() / max(1, hits)


def over_the_step(model: Any, x: Any, y: Any) -> Any:
    return nn.functional.mse_loss(model(x), y, reduction="sum") / BATCH


@pytest.mark.parametrize("loss", [over_positives, over_the_step])
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_sum_divided_by_a_number_counts_as_without_edl_whatever_the_number_is(
    tmp_path: Path, loss: Callable[..., Any], count: int
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    expected = await plain(tmp_path / "plain", model, optimizer, lambda x, y: loss(model, x, y).backward())
    found = await trained(
        tmp_path / "j", count, lambda script, x, y: loss(script.model, x, y).backward(), micro_batch=9
    )
    for script in found:
        assert torch.allclose(script.weights, expected, atol=1e-5)


async def test_some_batches_hit_as_often_as_a_step_has_records(tmp_path: Path) -> None:
    """Else the test above shows nothing: their divisor looks like that of a sum over the step."""
    steps = await order_of(tmp_path)
    parts = [numbers[at : at + 8] for numbers in steps for at in (0, 8)]
    hits = [int((X[part][:, :4] > 1).sum()) for part in parts]
    assert 0 < hits.count(BATCH) < len(hits)


def penalised(script: Script, x: Any, y: Any) -> None:
    nn.functional.mse_loss(script.model(x), y).backward()
    script.model[0].weight.square().sum().mul(0.01).backward()


def ignoring(script: Script, x: Any, y: Any) -> None:
    labels = torch.where(y[:, 0] > 0.5, -100, (y[:, 0] > 0).long())
    hidden = script.model[0](x)
    nn.functional.cross_entropy(hidden[:, :2], labels).backward(retain_graph=True)
    nn.functional.mse_loss(hidden, torch.zeros_like(hidden)).backward()


async def test_losses_of_one_batch_that_count_differently_are_refused_also_in_calls_of_their_own(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        PermanentError, match=r"two losses of one batch count differently: a mean over \d, and a mean over records"
    ):
        await trained(tmp_path, 2, ignoring)


async def test_a_penalty_in_a_call_of_its_own_counts_as_without_edl(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def both(x: Any, y: Any) -> None:
        nn.functional.mse_loss(model(x), y).backward()
        model[0].weight.square().sum().mul(0.01).backward()

    expected = await plain(tmp_path / "plain", model, optimizer, both)
    for script in await trained(tmp_path / "j", 2, penalised):
        assert torch.allclose(script.weights, expected, atol=1e-6)
