"""What scripts do to losses and gradients, beside plain PyTorch; `make torch-test` runs these tests.

Each trains to the same result with any number of trainers, or it stops with a sentence that says what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from edl.errors import PermanentError
from tests.worker.torch_script import Script, network, plain, trained

LABELS = 4


def mse(model: Any, x: Any, y: Any) -> Any:
    return nn.functional.mse_loss(model(x), y)


async def equal_to_plain(
    folder: Path,
    body: Callable[[Any, Any, Any], object],
    count: int,
    build: Callable[[], Any] = network,
    **options: Any,
) -> None:
    """Some trainers learn what a loop without edl does."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    expected = await plain(folder / "plain", model, optimizer, lambda x, y: body(model, x, y))
    found = await trained(
        folder / "j",
        count,
        lambda script, x, y: body(script.model, x, y),
        make=lambda served, name: Script(served, name, first=count, model=build(), **options),
    )
    for script in found:
        assert script.elastic.is_complete
        assert torch.allclose(script.weights, expected, atol=1e-5)


def checkpointed(is_reentrant: bool) -> Callable[..., None]:
    def body(model: Any, x: Any, y: Any) -> None:
        hidden = checkpoint(model[0], x.requires_grad_(), use_reentrant=is_reentrant)
        nn.functional.mse_loss(model[3](torch.tanh(hidden)), y).backward()

    return body


def over_labels(model: Any, x: Any, y: Any) -> Any:
    """A mean over labels of which some are ignored, as many as a batch happens to have."""
    labels = torch.where(y[:, 0] > 0.3, -100, (y[:, 0] > -0.5).long() + (x[:, 0] > 1).long())
    return nn.functional.cross_entropy(model[0](x)[:, :LABELS], labels)


def by_the_function_of_torch(model: Any, x: Any, y: Any) -> None:
    torch.autograd.backward(over_labels(model, x, y))


def by_a_list_of_losses(model: Any, x: Any, y: Any) -> None:
    torch.autograd.backward([mse(model, x, y), model[0].weight.square().sum() * 0.01])


class Rounded(torch.autograd.Function):
    """Rounds, and passes the gradient straight through."""

    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return (x * 8).round() / 8

    @staticmethod
    def backward(_: Any, *gradient: Any) -> Any:
        return gradient[0]


def quantised(model: Any, x: Any, y: Any) -> None:
    apply: Any = Rounded.apply
    nn.functional.mse_loss(model[3](apply(torch.tanh(model[0](x)))), y).backward()


def scaled(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    model[0].weight.grad.mul_(0.1)
    model[3].bias.grad = None
    model[0].weight.grad[:4] = 0


def with_its_own_optimizer_in_each_batch(model: Any, x: Any, y: Any) -> None:
    """Trains against noise that makes the loss of the batch worse."""
    noise = torch.zeros_like(x).requires_grad_()
    own = torch.optim.SGD([noise], lr=0.1, maximize=True)
    (noise.grad,) = torch.autograd.grad(mse(model, x + noise, y) * len(x), [noise])
    own.step()
    mse(model, x + noise.detach(), y).backward()


def root_of_each(model: Any, x: Any, y: Any) -> None:
    (model(x) - y).square().mean(1).add(1e-6).sqrt().mean().backward()


@pytest.mark.parametrize(
    "body",
    [
        checkpointed(True),
        checkpointed(False),
        by_the_function_of_torch,
        by_a_list_of_losses,
        quantised,
        scaled,
        with_its_own_optimizer_in_each_batch,
        root_of_each,
    ],
)
@pytest.mark.parametrize("count", [1, 2])
async def test_gradients_as_without_edl(tmp_path: Path, body: Any, count: int) -> None:
    await equal_to_plain(tmp_path, body, count)


class Mixed(nn.Module):
    """Has parameters of two types."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.first(x)).double())


def hooked() -> Any:
    model = network()
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    model[3].weight.register_hook(lambda gradient: gradient * (torch.arange(16) % 2))
    model[3].bias.register_hook(lambda _: None)
    return model


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("build", [Mixed, hooked])
async def test_models_as_without_edl(tmp_path: Path, build: Any, count: int) -> None:
    await equal_to_plain(tmp_path, lambda model, x, y: mse(model, x, y.to(model(x).dtype)).backward(), count, build)


# What is stopped.


def limited(limit: Callable[[Any], object]) -> Any:
    def build() -> Any:
        model = network()
        model[0].weight.register_hook(limit)
        return model

    return build


def clamped(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    for parameter in model.parameters():
        parameter.grad.data.clamp_(-0.01, 0.01)


def root(model: Any, x: Any, y: Any) -> None:
    torch.sqrt(mse(model, x, y)).backward()


def focal(model: Any, x: Any, y: Any) -> None:
    each = over_labels(model, x, y)
    ((1 - torch.exp(-each)) ** 2 * each).backward()


def largest_of(gradient: Any) -> Any:
    least = gradient.abs().flatten().topk(max(1, gradient.numel() // 4)).values[-1]
    return gradient * (gradient.abs() >= least)


def norm_limited_by_hand(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(min(1.0, 0.1 / (float(norm) + 1e-6)))


def norm_of_each_limited(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    for parameter in model.parameters():
        parameter.grad.data = parameter.grad.data / parameter.grad.data.norm()


def largest(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    for parameter in model.parameters():
        parameter.grad.copy_(largest_of(parameter.grad))


def noisy(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    for parameter in model.parameters():
        parameter.grad.add_(torch.randn_like(parameter.grad), alpha=0.01)


def signs(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    for parameter in model.parameters():
        parameter.grad.sign_()


def weights_limited(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    with torch.no_grad():
        model[0].weight.clamp_(-0.1, 0.1)


def sharpness_aware(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    moves = [0.05 * parameter.grad for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.add_(move)
    mse(model, x, y).backward()


def own_optimizer(model: Any, x: Any, y: Any) -> None:
    mse(model, x, y).backward()
    torch.optim.Adam(model.parameters()).step()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (clamped, r"limits the gradient of 0\.weight to values from -0\.01 to 0\.01\..*max_grad_norm=1\.0"),
        (root, r"from a mean over the batch \(sqrt of it\).*the mean squared error and not its root"),
        (focal, r"from a mean over the batch \(exp of it\)"),
        (norm_limited_by_hand, r"in 3 batches they had norms from \S+ to \S+, and 0\.1 when.*max_grad_norm=0\.1"),
        (norm_of_each_limited, r"in 3 batches they had norms from \S+ to \S+, and 2 when"),
        (largest, r"keeps the largest numbers of the gradient of 0\.weight.*register_step_pre_hook"),
        (noisy, r"the gradient of 0\.weight .* random numbers.*register_step_pre_hook.*manual_seed\(elastic\.step\)"),
        (signs, r"keeps of the gradient of 0\.weight the signs only"),
        (weights_limited, r"changes 0\.weight after it computed a gradient.*on_step_end"),
        (sharpness_aware, r"changes 0\.weight after it computed a gradient.*SAM"),
        (own_optimizer, r"another optimizer, a Adam of parameters of the model"),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
async def test_what_would_depend_on_the_number_of_trainers_is_refused(
    tmp_path: Path, body: Any, says: str, count: int
) -> None:
    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path, count, lambda script, x, y: body(script.model, x, y))


def limits_in_place(gradient: Any) -> None:
    gradient.clamp_(-0.01, 0.01)


@pytest.mark.parametrize(
    "limit",
    [
        lambda gradient: gradient.clamp(-0.01, 0.01),
        torch.sign,
        torch.ones_like,
        largest_of,
        lambda gradient: gradient / gradient.norm(),
        lambda gradient: gradient + torch.randn_like(gradient),
        limits_in_place,
    ],
)
async def test_hooks_that_do_more_than_to_scale_or_mask_are_refused(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(PermanentError, match=r"a hook of the parameter 0\.weight \(register_hook\) does more"):
        await trained(
            tmp_path,
            body=lambda script, x, y: mse(script.model, x, y).backward(),
            make=lambda served, name: Script(served, name, model=limited(limit)()),
        )


@pytest.mark.parametrize("count", [1, 2])
async def test_the_gradient_of_a_step_may_be_changed_in_a_hook_before_the_step(tmp_path: Path, count: int) -> None:
    """As the refusals say: in each trainer, once gradients are summed."""
    steps = [0]

    def hooked_optimizer(model: Any, step_of: Callable[[], int]) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def change(_: Any, *__: Any) -> None:
            draw = torch.Generator().manual_seed(step_of())
            for parameter in model.parameters():
                parameter.grad.copy_(largest_of(parameter.grad / parameter.grad.norm()))
                parameter.grad.add_(torch.randn(parameter.shape, generator=draw), alpha=0.01)

        optimizer.register_step_pre_hook(change)
        return optimizer

    def body(x: Any, y: Any) -> None:
        mse(model, x, y).backward()
        steps[0] += 1

    model = network()
    expected = await plain(tmp_path / "plain", model, hooked_optimizer(model, lambda: steps[0] - 1), body)

    def make(served: Any, name: str) -> Script:
        its: list[Script] = []
        its.append(
            Script(
                served,
                name,
                first=count,
                optimizer=lambda model: hooked_optimizer(model, lambda: its[0].elastic.step),
            )
        )
        return its[0]

    for found in await trained(tmp_path / "j", count, make=make):
        assert found.elastic.is_complete
        assert torch.allclose(found.weights, expected, atol=1e-5)


async def test_gradients_that_are_set_without_backward_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def body(model: Any, x: Any, y: Any) -> None:
        parameters = list(model.parameters())
        for parameter, found in zip(parameters, torch.autograd.grad(mse(model, x, y), parameters), strict=True):
            parameter.grad = found

    await equal_to_plain(tmp_path, body, 2)
    assert (
        len([line for line in caplog.messages if "sets gradients that it computed without backward()" in line]) == 2
    )


async def test_a_batch_that_is_left_out_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def body(script: Script, x: Any, y: Any) -> None:
        seen.append(len(x))
        if len(seen) == 1 or len(seen) % 2:
            mse(script.model, x, y).backward()

    await trained(tmp_path, body=body, micro_batch=8)
    assert len([line for line in caplog.messages if "has left out a batch" in line]) == 1


class Opaque(torch.autograd.Function):
    """A loss of which nobody can see over what it is a mean."""

    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        context.save_for_backward(x)
        return x.square().mean()

    @staticmethod
    def backward(context: Any, *gradient: Any) -> Any:
        (x,) = context.saved_tensors
        return gradient[0] * 2 * x / x.numel()


def opaque(model: Any, x: Any, y: Any) -> None:
    apply: Any = Opaque.apply
    apply(model(x) - y).backward()


async def test_a_loss_that_nobody_can_read_counts_by_its_records_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await equal_to_plain(tmp_path, opaque, 2)
    said = [line for line in caplog.messages if "over what the loss (OpaqueBackward) is a mean" in line]
    assert len(said) == 2, "once in each trainer"
    assert all("elastic.backward(loss, weight=n)" in line for line in said)
