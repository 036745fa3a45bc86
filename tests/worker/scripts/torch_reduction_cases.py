"""Losses whose mean or sum is not the last thing that is computed; `make torch-test` runs these tests.

The gradient of a batch is that of its parts by their weights, or the loss is refused with what to write.
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
from edl.worker.step_settings import Piece
from edl.worker_torch.losses.book import LossBook, check_factors, common
from edl.worker_torch.losses.kinds import UNIT
from tests.worker.scripts.torch_gradient_cases import equal_to_plain
from tests.worker.torch_script import trained

COUNT, WIDTH, CUTS = 24, 5, (11, 13)
DRAW = torch.Generator().manual_seed(1)
X, Y = torch.randn(COUNT, 8, generator=DRAW), torch.randn(COUNT, WIDTH, generator=DRAW)
LABELS = torch.randint(0, WIDTH, (COUNT,), generator=DRAW)
TASKS, SHARES = torch.rand(WIDTH, generator=DRAW), torch.randint(1, 4, (COUNT,), generator=DRAW).float()
Loss = Callable[[Any, list[int]], Any]


def squares(model: Any, some: list[int]) -> Any:
    return (model(X[some]) - Y[some]).square()


def of_each(model: Any, some: list[int]) -> list[Any]:
    return [functional.mse_loss(model(X[one : one + 1]), Y[one : one + 1]) for one in some]


def of_tasks(model: Any, some: list[int]) -> Any:
    found = model(X[some])
    return torch.stack([functional.mse_loss(found[:, task], Y[some, task]) for task in range(WIDTH)])


def gradient(model: Any, loss: Any) -> Any:
    return torch.cat(
        [one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)]
    )


def by_parts(loss: Loss) -> tuple[Any, Any]:
    """The gradient of all records, and the one that two trainers would make of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, WIDTH))
    every = list(range(COUNT))
    total: Any = 0
    books = []
    for part in (every[: CUTS[0]], every[CUTS[0] :]):
        book, piece = LossBook(0), Piece(0, part[0], part[-1] + 1, 0, len(part) / COUNT)
        book.global_batch = COUNT
        book.begin_step()
        book.begin_piece(piece)
        found = loss(model, part)
        book.note(found)
        total = total + gradient(model, found) * book.end_piece(piece, has_gradient=True)
        books.append(book)
    common({book.kind for book in books})
    check_factors({book.factors for book in books})
    return gradient(model, loss(model, every)), total / (sum(book.weight for book in books) / UNIT or 1.0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, some: squares(model, some).mean(0).sum(),
        lambda model, some: (squares(model, some).mean(0) * TASKS).sum(),
        lambda model, some: squares(model, some).mean(0, keepdim=True).sum(),
        lambda model, some: squares(model, some).sum(0).mean(),
        lambda model, some: squares(model, some).mean(1).sum(),
        lambda model, some: functional.mse_loss(model(X[some])[:, :1], Y[some, :1]),
        lambda model, some: (squares(model, some) / len(some)).sum(),
        lambda model, some: (squares(model, some).mean(1) * torch.full((len(some),), 1 / len(some))).sum(),
        lambda model, some: (squares(model, some).mean(1) * SHARES[some]).sum(),
        lambda model, some: 0.5 * squares(model, some).sum(),
        lambda model, some: (of_tasks(model, some) * TASKS).sum(),
        lambda model, some: sum(of_each(model, some)),
        lambda model, some: sum(of_each(model, some)) / len(some),
        lambda model, some: torch.stack(of_each(model, some)).sum(),
        lambda model, some: torch.stack(of_each(model, some)).mean(),
        lambda model, some: functional.mse_loss(*[of[LABELS[some] < 3] for of in (model(X[some]), Y[some])]),
        lambda model, some: squares(model, [one for one in some if LABELS[one] < 3]).mean(),
        lambda model, some: squares(model, some).mean() + 1e-3 * sum(p.exp().mean() for p in model.parameters()),
    ],
)
def test_parts_add_up_to_the_whole(loss: Loss) -> None:
    expected, found = by_parts(loss)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)


def balanced(model: Any, some: list[int]) -> Any:
    counts = torch.bincount(LABELS[some], minlength=WIDTH).float().clamp(min=1)
    return functional.cross_entropy(model(X[some]), LABELS[some], weight=1 / counts)


def two_halves(model: Any, some: list[int]) -> Any:
    half = len(some) // 2
    return squares(model, some[:half]).mean() + squares(model, some[half:]).abs().sqrt().mean()


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda m, s: (squares(m, s).mean(1) * (SHARES[s] / SHARES[s].sum())).sum(), "divided by their sum or mean"),
        (
            lambda m, s: (squares(m, s).mean(1) * (SHARES[s] / SHARES[s].mean())).mean(),
            "divided by their sum or mean",
        ),
        (lambda m, s: squares(m, s).sum() * (1 / SHARES[s].sum()), "a sum that is multiplied by a tensor"),
        (lambda m, s: squares(m, s).mean() + 0.01 * m[0](X[s]).abs().sum(), "a sum over records, and one a mean"),
        (lambda m, s: squares(m, s).sum() * (1.0 / len(s)), "a number that may be one divided by how many records"),
        (two_halves, r"a mean over \d+ labels or other chosen numbers .*weight="),
        (balanced, "a number or a tensor that has another value in another batch"),
    ],
)
def test_what_no_weight_can_express_is_refused(loss: Loss, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        by_parts(loss)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_mean_over_records_before_a_sum_trains_as_without_edl(tmp_path: Path, count: int) -> None:
    await equal_to_plain(tmp_path, lambda model, x, y: (model[0](x) - y).square().mean(0).sum().backward(), count)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_factor_of_a_sum_stays_one_in_a_batch_of_as_many_records(tmp_path: Path, count: int) -> None:
    await equal_to_plain(
        tmp_path, lambda model, x, y: (0.5 * (0.2 * (model(x) - y)).square().sum()).backward(), count, micro_batch=7
    )


async def test_a_loss_of_several_numbers_is_refused_with_what_to_write(tmp_path: Path) -> None:
    def vector(script: Any, x: Any, y: Any) -> None:
        loss = (script.model(x) - y).square().flatten()
        loss.backward(torch.ones_like(loss))

    def given(script: Any, x: Any, y: Any) -> None:
        (script.model(x) - y).square().sum().backward(torch.tensor(1 / len(x)))

    for body in (vector, given):
        with pytest.raises(PermanentError, match=r"a loss of several numbers, or a gradient for it.*mean\(\)"):
            await trained(tmp_path / body.__name__, 1, body)


async def test_a_sum_that_is_always_divided_by_one_number_is_refused(tmp_path: Path) -> None:
    def half(script: Any, x: Any, y: Any) -> None:
        ((script.model(x) - y).square().sum() / 3.5).backward()

    with pytest.raises(PermanentError, match=r"divided by 3.5, in 4 batches one after the other.*reduction='sum'"):
        await trained(tmp_path, 2, half)
