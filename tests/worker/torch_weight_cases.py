"""The gradient of a step is that of one process, whatever the loss means; `make torch-test` runs these tests."""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edl.errors import ConfigError, PermanentError
from edl.worker import connect
from edl.worker_torch import Elastic
from edl.worker_torch.losses.kinds import DIVIDED, RECORDS, SUM, WEIGHT, kind_of
from tests.worker.test_worker import in_thread
from tests.worlds.master_server import TOKEN, Served, serving

COUNT, WORDS, WIDTH = 16, 11, 6
DRAW = torch.Generator().manual_seed(3)
LENGTHS = [1 + (n * 7) % WIDTH for n in range(COUNT)]
TEXTS = torch.randint(WORDS, (COUNT, WIDTH), generator=DRAW)
LABELS = torch.where(torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None], TEXTS, -100)
CLASS_WEIGHTS = torch.rand(WORDS, generator=DRAW) + 0.1


BUILT = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))


def model() -> Any:
    return copy.deepcopy(BUILT)  # trainers are threads here, and torch's random numbers are common to them


def over_tokens(net: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())


def over_smoothed_tokens(net: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), label_smoothing=0.1)


def over_weighted_classes(net: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), weight=CLASS_WEIGHTS)


def over_tokens_with_a_penalty(net: Any, x: Any, y: Any) -> Any:
    return over_tokens(net, x, y) + 0.01 * sum(p.square().sum() for p in net.parameters())


def over_tokens_by_a_mask(net: Any, x: Any, y: Any) -> Any:
    each = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="none")
    mask = (y.flatten() >= 0).float()
    return (each * mask).sum() / mask.sum()


def over_records(net: Any, x: Any, y: Any) -> Any:
    each = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
    return (each.sum(1) / (y >= 0).sum(1)).mean()


def summed_tokens(net: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum")


def summed_by_hand(net: Any, x: Any, _: Any) -> Any:
    return 0.1 * net(x).square().sum()


def over_the_whole_step(net: Any, x: Any, y: Any) -> Any:
    return summed_tokens(net, x, y) / COUNT


def hidden(loss: Any) -> Any:
    """The same loss, computed in a way that says nothing of what it is."""
    return torch.where(torch.tensor([True]), loss, loss).prod()


def alone(loss: Any) -> Any:
    net = model()
    loss(net, TEXTS, LABELS).backward()
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def gradient(
    served: Served, name: str, count: int, body: Callable[[Elastic, Any, Any, Any], object], **more: Any
) -> Any:
    """Of the one step of a job, by a step of SGD with the rate 1."""
    torch.set_num_threads(1)  # of this thread; more of them may add up in another order
    net = model()
    before = torch.cat([parameter.detach().flatten().clone() for parameter in net.parameters()])
    environment = {"POD_NAME": name, "POD_UID": f"uid-{name}", "TRAINERS": str(count)}
    with connect(served.url, token=TOKEN, environment=environment) as job:
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        options = {"read": lambda n: (TEXTS[n], LABELS[n]), "global_batch": COUNT, **more}
        elastic = Elastic(job, net, optimizer, **options)
        for x, y in elastic.batches():
            body(elastic, net, x, y)
    return before - torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


async def gradients(folder: Path, count: int, body: Any, **more: Any) -> list[Any]:
    async with serving(folder, f"index:{COUNT}") as served:
        make = functools.partial(gradient, served, count=count, body=body, **more)
        return await asyncio.gather(*(in_thread(functools.partial(make, f"t{n}")) for n in range(count)))


@pytest.mark.parametrize("more", [{}, {"micro_batch": 3}, {"deterministic": 4}], ids=["whole", "micro", "parts"])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(
    "loss",
    [
        over_tokens,
        over_smoothed_tokens,
        over_weighted_classes,
        over_tokens_with_a_penalty,
        over_tokens_by_a_mask,
        over_records,
        summed_tokens,
        summed_by_hand,
        over_the_whole_step,
    ],
)
async def test_the_gradient_is_that_of_one_process(tmp_path: Path, loss: Any, count: int, more: Any) -> None:
    expected = alone(loss)
    for found in await gradients(tmp_path, count, lambda _, net, x, y: loss(net, x, y).backward(), **more):
        assert torch.allclose(found, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_a_script_may_say_what_its_loss_is(tmp_path: Path, count: int) -> None:
    def body(elastic: Elastic, net: Any, x: Any, y: Any) -> None:
        elastic.backward(hidden(over_tokens(net, x, y)), weight=int((y >= 0).sum()))

    for found in await gradients(tmp_path / "w", count, body):
        assert torch.allclose(found, alone(over_tokens), rtol=1e-4, atol=2e-6)

    def total(elastic: Elastic, net: Any, x: Any, y: Any) -> None:
        elastic.backward(hidden(summed_tokens(net, x, y)), reduction="sum")

    for found in await gradients(tmp_path / "s", count, total):
        assert torch.allclose(found, alone(summed_tokens), rtol=1e-4, atol=2e-6)


async def test_with_logical_ranks_weighted_gradients_have_the_same_bits_for_any_number_of_trainers(
    tmp_path: Path,
) -> None:
    found = []
    for count in (1, 2, 3, 4):
        body = lambda _, net, x, y: over_weighted_classes(net, x, y).backward()  # noqa: E731 - of one line
        found += await gradients(tmp_path / str(count), count, body, deterministic=4)
    assert all(torch.equal(one, found[0]) for one in found)


async def test_what_no_one_weight_can_express_is_refused(tmp_path: Path) -> None:
    def body(_: Elastic, net: Any, x: Any, y: Any) -> None:
        (over_tokens(net, x, y) + net(x).square().mean()).backward()

    with pytest.raises(PermanentError, match=r"a sum of terms, of which one is a mean over \d+ labels.*weight="):
        await gradients(tmp_path / "a", 1, body)

    def differently(elastic: Elastic, net: Any, x: Any, y: Any) -> None:
        elastic.backward(over_tokens(net, x, y), weight=3)
        elastic.backward(over_tokens(net, x, y), weight=5)

    with pytest.raises(
        PermanentError, match=r"two losses of one batch count differently: a mean over 3, and .* over 5"
    ):
        await gradients(tmp_path / "b", 1, differently)

    turns: Iterator[dict[str, Any]] = itertools.cycle([{"weight": 2}, {"reduction": "sum"}])

    def mixed(elastic: Elastic, net: Any, x: Any, y: Any) -> None:
        elastic.backward(over_tokens(net, x, y), **next(turns))

    def nothing(elastic: Elastic, net: Any, x: Any, _: Any) -> None:
        elastic.backward(net(x).sum(), weight=0)

    with pytest.raises(PermanentError, match="the losses of one step are of different kinds"):
        await gradients(tmp_path / "c", 1, mixed, micro_batch=4)
    with pytest.raises(ConfigError, match=r"weight=0 and reduction='mean' cannot be used; give a weight above 0"):
        await gradients(tmp_path / "d", 1, nothing)


@pytest.mark.parametrize(
    ("loss", "kind", "weight"),
    [
        (lambda x: nn.functional.mse_loss(x, x.detach() + 1), RECORDS, 1),
        (lambda x: nn.functional.l1_loss(x, x.detach() + 1, reduction="sum"), SUM, 1),
        (lambda x: x.square().mean() / 4, RECORDS, 1),
        (lambda x: -x.square().sum(), SUM, 1),
        (lambda x: x.square().sum() / 7, WEIGHT, 7),
        (lambda x: torch.stack([x.square().mean(), x.mean()]).sum(), RECORDS, 1),
        (lambda x: nn.functional.cross_entropy(x, torch.tensor([0, 1, -100])) / 8, WEIGHT, 2),
        (lambda x: nn.functional.cross_entropy(x, torch.tensor([0, 1, -100])).to(torch.float64), WEIGHT, 2),
        (lambda x: x.square().sum() / 6, DIVIDED, 6),
        (lambda x: x.prod(), RECORDS, 1),
    ],
)
def test_losses_are_recognised(loss: Any, kind: int, weight: float) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found = kind_of(loss(x), 3, {6})
    assert (found.kind, found.weight) == (kind, weight)
