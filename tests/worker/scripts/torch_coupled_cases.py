"""Losses that need the whole batch of a step, and those that look so; `make torch-test` runs these tests.

Each kind trains to the same result with any number of trainers, or it stops with a sentence that says what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edl.errors import PermanentError
from tests.worker.scripts.torch_gradient_cases import equal_to_plain, mse
from tests.worker.torch_script import BATCH, Script, network, plain, trained

WIDTH, ITEMS = 16, 32
Loss = Callable[[Any, Any, Any], Any]


def embedding(model: Any, x: Any) -> Any:
    return functional.normalize(model[0](x), dim=1)


def two_views(x: Any) -> Any:
    return x * 0.9 + 0.1 * x.flip(1)


def labels_of(y: Any) -> Any:
    return (y[:, 0] > 0).long() + (y[:, 0] > 0.5).long()


# What is stopped: a record meets the others of its batch.


def in_batch_negatives(model: Any, x: Any, _: Any) -> Any:
    return functional.cross_entropy(
        embedding(model, x) @ embedding(model, two_views(x)).T / 0.2, torch.arange(len(x))
    )


def pairs_of_images_and_texts(model: Any, x: Any, _: Any) -> Any:
    found, own = embedding(model, x) @ embedding(model, two_views(x)).T * 5, torch.arange(len(x))
    return (functional.cross_entropy(found, own) + functional.cross_entropy(found.T, own)) / 2


def views_in_one_batch(model: Any, x: Any, _: Any) -> Any:
    both = embedding(model, torch.cat([x, two_views(x)]))
    near = (both @ both.T / 0.5).masked_fill(torch.eye(len(both), dtype=torch.bool), -1e9)
    return functional.cross_entropy(near, (torch.arange(len(both)) + len(x)) % len(both))


def supervised_contrast(model: Any, x: Any, y: Any) -> Any:
    near, label = embedding(model, x) @ embedding(model, x).T / 0.3, labels_of(y)
    same = (label[:, None] == label) & ~torch.eye(len(x), dtype=torch.bool)
    return -(functional.log_softmax(near, 1) * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


def hardest_triplets(model: Any, x: Any, y: Any) -> Any:
    far, label = torch.cdist(model[0](x), model[0](x)), labels_of(y)
    same = label[:, None] == label
    return functional.relu((far * same).max(1).values - (far + 1e3 * same).min(1).values + 0.5).mean()


def correlation_of_outputs(model: Any, x: Any, _: Any) -> Any:
    first, second = (model[0](one) for one in (x, two_views(x)))
    found = ((first - first.mean(0)) / first.std(0)).T @ ((second - second.mean(0)) / second.std(0)) / len(x)
    return (found - torch.eye(WIDTH)).square().sum()


def dice(model: Any, x: Any, _: Any) -> Any:
    found, mask = torch.sigmoid(model[0](x)[:, :8]), (x > 1).float()
    return 1 - (2 * (found * mask).sum() + 1) / (found.sum() + mask.sum() + 1)


def entropy_with_dice(model: Any, x: Any, y: Any) -> Any:
    return functional.binary_cross_entropy_with_logits(model[0](x)[:, :8], (x > 1).float()) + dice(model, x, y)


def partial_likelihood(model: Any, x: Any, y: Any) -> Any:
    risk = model(x)[:, 0][y[:, 0].argsort(descending=True)]
    return -(risk - risk.logcumsumexp(0)).mean()


def ranks(model: Any, x: Any, y: Any) -> Any:
    found = model(x)[:, 0]
    return functional.relu(1 - (found[:, None] - found))[y > y.T].mean()


def hardest_records(model: Any, x: Any, y: Any) -> Any:
    return functional.mse_loss(model(x), y, reduction="none").flatten().topk(len(x) // 4).values.mean()


def spread_of_outputs(model: Any, x: Any, y: Any) -> Any:
    return functional.relu(1 - (model[0](x).var(0) + 1e-4).sqrt()).mean() + mse(model, x, y)


def entropy_of_the_mean(model: Any, x: Any, y: Any) -> Any:
    mean = model[0](x).softmax(1).mean(0)
    return functional.cross_entropy(model[0](x), labels_of(y)) + (mean * mean.log()).sum()


def product_of_means(model: Any, x: Any, y: Any) -> Any:
    return mse(model, x, y) * model(x).square().mean()


def ratio_of_means(model: Any, x: Any, y: Any) -> Any:
    return mse(model, x, y) / (model(two_views(x)) - y).square().mean()


def correlation_with_labels(model: Any, x: Any, y: Any) -> Any:
    found = model(x) - model(x).mean()
    return 1 - (found * (y - y.mean())).sum() / (found.norm() * (y - y.mean()).norm())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "loss",
    [
        in_batch_negatives,
        pairs_of_images_and_texts,
        views_in_one_batch,
        supervised_contrast,
        hardest_triplets,
        correlation_of_outputs,
        dice,
        entropy_with_dice,
        partial_likelihood,
        ranks,
        hardest_records,
        spread_of_outputs,
        entropy_of_the_mean,
        product_of_means,
        ratio_of_means,
    ],
)
async def test_a_loss_in_which_records_meet_is_refused(tmp_path: Path, loss: Loss, count: int) -> None:
    with pytest.raises(PermanentError, match=r"depends on the other records of its batch.*for each record alone"):
        await trained(tmp_path, count, lambda script, x, y: loss(script.model, x, y).backward())


async def test_a_script_may_ask_for_the_mean_over_the_parts(tmp_path: Path) -> None:
    def body(script: Script, x: Any, y: Any) -> None:
        script.elastic.backward(in_batch_negatives(script.model, x, y), weight=len(x))

    one, other = await trained(tmp_path, 2, body)
    assert one.elastic.is_complete
    assert torch.equal(one.weights, other.weights)


def flooded(model: Any, x: Any, y: Any) -> Any:
    return (mse(model, x, y) - 0.4).abs() + 0.4


def worst_group(model: Any, x: Any, y: Any) -> Any:
    each, group = functional.mse_loss(model(x), y, reduction="none"), x[:, 0] > 1
    return torch.stack([each[group].mean(), each[~group].mean()]).max()


def both_groups(model: Any, x: Any, y: Any) -> Any:
    each, group = functional.mse_loss(model(x), y, reduction="none"), x[:, 0] > 1
    return each[group].mean() + each[~group].mean()


def sum_with_a_penalty(model: Any, x: Any, y: Any) -> Any:
    penalty = sum(p.abs().sum() for p in model.parameters())
    return 0.01 * functional.mse_loss(model(x), y, reduction="sum") + 0.01 * penalty


def two_divisors(model: Any, x: Any, y: Any) -> Any:
    return (model(x) - y).square().sum() / BATCH + model(x).abs().mean()


def part_of_a_step_with_a_penalty(model: Any, x: Any, y: Any) -> Any:
    return (model(x) - y).square().sum() / BATCH + 0.01 * sum(p.square().sum() for p in model.parameters())


def divided_by_its_value(model: Any, x: Any, y: Any) -> Any:
    return mse(model, x, y) / mse(model, x, y).detach() + model(x).abs().mean()


def divided_by_a_variance(model: Any, x: Any, y: Any) -> Any:
    return mse(model, x, y) / y.var()


def balanced_by_the_batch(model: Any, x: Any, y: Any) -> Any:
    label = (y > 0.4).float()
    balance = (label == 0).sum() / label.sum().clamp(min=1)
    return functional.binary_cross_entropy_with_logits(model(x), label, pos_weight=balance)


@pytest.mark.parametrize(
    ("loss", "count", "says"),
    [
        (flooded, 1, r"from a mean over the batch \(abs of it\)"),
        (correlation_with_labels, 1, r"from a mean over the batch \(\w+ of it\)"),
        (worst_group, 1, r"from a mean over the batch \(max of it\)"),
        (both_groups, 1, r"a mean over \d+ labels or other chosen numbers .*weight="),
        (sum_with_a_penalty, 1, r"plus a penalty on the weights.*len\(x\) / global_batch, reduction='sum'"),
        (part_of_a_step_with_a_penalty, 2, r"plus a penalty on the weights"),
        (two_divisors, 2, r"divided by 16, the records of a whole step, .* mean over this batch of 8; .*len\(x\)"),
        (divided_by_its_value, 2, r"a tensor that has another value in another batch of the same step"),
        (divided_by_a_variance, 2, r"a tensor that has another value"),
        (balanced_by_the_batch, 2, r"a tensor that has another value"),
    ],
)
async def test_what_counts_otherwise_in_a_part_is_refused(tmp_path: Path, loss: Loss, count: int, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        await trained(tmp_path, count, lambda script, x, y: loss(script.model, x, y).backward())


@pytest.mark.parametrize("count", [1, 2])
async def test_a_penalty_may_be_shared_among_the_parts_as_the_refusal_says(tmp_path: Path, count: int) -> None:
    def loss(model: Any, x: Any, y: Any) -> Any:
        penalty = sum(p.abs().sum() for p in model.parameters()) * len(x) / BATCH
        return 0.01 * functional.mse_loss(model(x), y, reduction="sum") + 0.01 * penalty

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    expected = await plain(tmp_path / "plain", model, optimizer, lambda x, y: loss(model, x, y).backward())
    body = lambda script, x, y: script.elastic.backward(loss(script.model, x, y), reduction="sum")  # noqa: E731
    for found in await trained(tmp_path / "j", count, body):
        assert torch.allclose(found.weights, expected, atol=1e-5)


# What looks so, and is equal.


def mean_of_some(model: Any, x: Any, y: Any) -> Any:
    return functional.mse_loss(model(x), y, reduction="none")[x[:, 0] > 1].mean()


def loss_of_some(model: Any, x: Any, y: Any) -> Any:
    return functional.mse_loss(model(x)[x[:, 0] > 1], y[x[:, 0] > 1])


def loss_of_selected(model: Any, x: Any, y: Any) -> Any:
    chosen = x[:, :1] > 1
    found, label = torch.masked_select(model(x), chosen), torch.masked_select((y > 0).float(), chosen)
    return functional.binary_cross_entropy_with_logits(found, label)


def one_place_of_each(model: Any, x: Any, y: Any) -> Any:
    return functional.mse_loss(model[0](x)[torch.arange(len(x)), labels_of(y)], y[:, 0]) + 0.1 * model(x).abs().mean()


def views_of_one_record(model: Any, x: Any, y: Any) -> Any:
    return functional.mse_loss(*model(torch.cat([x, two_views(x)])).chunk(2)) + mse(model, x, y)


def views_side_by_side(model: Any, x: Any, y: Any) -> Any:
    found = model(torch.stack([x, two_views(x)], 1).flatten(0, 1)).view(len(x), 2)
    return (found[:, 0] * found[:, 1]).square().mean() + mse(model, x, y)


def own_negatives(model: Any, x: Any, _: Any) -> Any:
    return functional.triplet_margin_loss(model[0](x), model[0](two_views(x)), model[0](x.flip(1)))


def penalty_of_gradients(model: Any, x: Any, y: Any) -> Any:
    at = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(at).sum(), at, create_graph=True)
    return mse(model, x, y) + 0.1 * (slope.norm(2, 1) - 1).square().mean()


def alignments(model: Any, x: Any, y: Any) -> Any:
    found = model[0](x).view(len(x), 4, 4).log_softmax(2).transpose(0, 1)
    labels = (labels_of(y)[:, None] + torch.arange(2)) % 3 + 1
    return functional.ctc_loss(found, labels, torch.full((len(x),), 4), labels_of(y).clamp(1, 2))


def learned_weights(model: Any, x: Any, y: Any) -> Any:
    return torch.exp(-model[0].bias[0]) * mse(model, x, y) + model[0].bias[0]


def constant_tensor(model: Any, x: Any, y: Any) -> Any:
    return torch.tensor(0.5) * mse(model, x, y)


def normalised_proxies(model: Any, x: Any, y: Any) -> Any:
    proxies = functional.normalize(model[0].weight[:3], dim=1)
    return functional.cross_entropy(functional.linear(functional.normalize(x, dim=1), proxies) * 5, labels_of(y))


class Catalogue(nn.Module):
    """Scores every item of a table."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.items, self.user = nn.Embedding(ITEMS, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.user(x) @ self.items(torch.arange(ITEMS)).T


class Recurrent(nn.Module):
    """Has time in the first axis, as many steps as a step has records."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.last = nn.LSTM(1, 8), nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.cell(torch.cat([x, x], 1).T[:, :, None])[0]).logsumexp(0)


class Words(nn.Module):
    """As many words as a step has records, in rows of tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.last = nn.Embedding(BATCH, 8), nn.Linear(8, BATCH, bias=False)
        self.last.weight = self.words.weight

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.words(tokens(x)[:, :-1]))).flatten(0, 1)


def tokens(x: Any) -> Any:
    return ((x + 5).abs() * 3).long() % BATCH


def of_items(model: Any, x: Any, _: Any) -> Any:
    return functional.cross_entropy(model(x), tokens(x)[:, 0])


def of_words(model: Any, x: Any, _: Any) -> Any:
    return functional.cross_entropy(model(x), tokens(x)[:, 1:].flatten())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("build", "loss"),
    [
        (network, mean_of_some),
        (network, loss_of_some),
        (network, loss_of_selected),
        (network, one_place_of_each),
        (network, views_of_one_record),
        (network, views_side_by_side),
        (network, own_negatives),
        (network, penalty_of_gradients),
        (network, alignments),
        (network, learned_weights),
        (network, constant_tensor),
        (network, normalised_proxies),
        (Catalogue, of_items),
        (Recurrent, mse),
        (Words, of_words),
    ],
)
async def test_a_loss_of_single_records_is_as_without_edl(tmp_path: Path, build: Any, loss: Loss, count: int) -> None:
    await equal_to_plain(tmp_path, lambda model, x, y: loss(model, x, y).backward(), count, build)
