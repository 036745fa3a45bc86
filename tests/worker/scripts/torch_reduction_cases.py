"""Losses whose mean or sum is not the last thing that is computed; `make torch-test` runs these tests.

The gradient of a batch is that of its parts by their weights, or the loss is refused with what to write.
"""

from __future__ import annotations

import sys
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
from edl.worker_torch.losses.kinds import RECORDS, UNIT, kind_of
from tests.worker.scripts.torch_gradient_cases import equal_to_plain
from tests.worker.torch_script import trained

COUNT, WIDTH, CUTS = 24, 5, (11, 13)
DRAW = torch.Generator().manual_seed(1)
X, Y = torch.randn(COUNT, 8, generator=DRAW), torch.randn(COUNT, WIDTH, generator=DRAW)
LABELS = torch.randint(0, WIDTH, (COUNT,), generator=DRAW)
WEIGHTS = torch.rand(COUNT, generator=DRAW)
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


def by_parts(loss: Loss, cuts: tuple[int, ...] = CUTS, steps: int = 1) -> tuple[Any, Any]:
    """The gradients of all records, and the ones that trainers would make of them, in steps of one order each.

    Args:
        loss: of a model and the places of records.
        cuts: the records of each trainer.
        steps: how many.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, WIDTH))
    books, expected, found = [LossBook(0) for _ in cuts], [], []
    for step in range(steps):
        every = [(5 * place + step) % COUNT for place in range(COUNT)] if step else list(range(COUNT))
        total: Any = 0
        for place, book in enumerate(books):
            begin = sum(cuts[:place])
            part, book.global_batch = every[begin : begin + cuts[place]], COUNT
            piece = Piece(0, begin, begin + len(part), 0, len(part) / COUNT)
            book.begin_step()
            book.begin_piece(piece)
            own = loss(model, part)
            book.note(own)
            total = total + gradient(model, own) * book.end_piece(piece, has_gradient=True)
        common({book.kind for book in books})
        check_factors({book.factors for book in books})
        expected.append(gradient(model, loss(model, every)))
        found.append(total / (sum(book.weight for book in books) / UNIT or 1.0))
    return torch.stack(expected), torch.stack(found)


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, some: squares(model, some).mean(0).sum(),
        lambda model, some: (squares(model, some).mean(0) * TASKS).sum(),
        lambda model, some: squares(model, some).mean(0, keepdim=True).sum(),
        lambda model, some: squares(model, some).sum(0).mean(),
        lambda model, some: squares(model, some).mean(1).sum(),
        lambda model, some: functional.mse_loss(model(X[some])[:, :1], Y[some, :1]),
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


SCALER = torch.amp.GradScaler("cpu", init_scale=1024.0)
TOKENS, LENGTHS = torch.rand(COUNT, 6, WIDTH, generator=DRAW), torch.tensor([2, 3, 6]).repeat(COUNT // 3)
MASK = (torch.arange(6) < LENGTHS[:, None]).float()


def of_tokens(model: Any, some: list[int]) -> Any:
    return ((squares(model, some)[:, None] * TOKENS[some]).mean(2) * MASK[some]).sum(1)


def penalised(penalty: Callable[[Any], Any]) -> Loss:
    return lambda model, some: functional.mse_loss(model(X[some]), Y[some]) + 0.01 * penalty(model[0].weight)


@pytest.mark.parametrize("cuts", [(12, 12), (8, 16), (4,) * 6])
@pytest.mark.parametrize(
    "loss",
    [
        lambda model, some: (squares(model, some).sum(1) / torch.full((len(some),), 4.0)).sum(),
        lambda model, some: (squares(model, some).sum(1) * torch.full((len(some),), 0.25)).sum(),
        lambda model, some: (squares(model, some) / 4).sum(),
        lambda model, some: (of_tokens(model, some) / MASK[some].sum(1)).mean(),
        lambda model, some: (of_tokens(model, some) * (1 / MASK[some].sum(1))).mean(),
        lambda model, some: SCALER.scale(squares(model, some).sum()),
        lambda model, some: SCALER.scale(squares(model, some).sum() / len(some)),
        lambda model, some: squares(model, some).sum() * torch.tensor(5.0),
        lambda model, some: (squares(model, some) * torch.tensor(0.5)).sum(),
        lambda model, some: sum(one * share for one, share in zip(of_each(model, some), SHARES[some], strict=True)),
        lambda model, some: squares(model, some).sum() / (2 * len(some)),
        lambda model, some: squares(model, some).sum() / len(some) / 2,
        lambda model, some: squares(model, some).sum() * (1 / COUNT),
        lambda model, some: squares(model, some).sum() * 0.25,
        lambda model, some: squares(model, some).mean() + 0.0 * model(X[some]).sum(),
        lambda model, some: (
            squares(model, some).mean() + (squares(model, some).half() * MASK[some, 0, None].half()).mean()
        ),
        penalised(lambda weight: ((weight @ weight.T - torch.eye(16)) ** 2).sum()),
        penalised(lambda weight: functional.mse_loss(weight, torch.zeros(16, 8), reduction="sum")),
        penalised(lambda weight: torch.linalg.matrix_norm(weight, "nuc")),
        penalised(lambda weight: functional.softmax(weight, 1).square().sum()),
        penalised(lambda weight: functional.normalize(weight).square().sum()),
    ],
)
def test_what_was_right_in_any_layout_stays_so(loss: Loss, cuts: tuple[int, ...]) -> None:
    expected, found = by_parts(loss, cuts, steps=9)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("cuts", [(12, 12), (8, 8, 8)])
def test_equal_parts_of_a_sum_that_is_divided_twice(cuts: tuple[int, ...]) -> None:
    expected, found = by_parts(lambda model, some: squares(model, some).sum() / 2 / len(some), cuts, steps=70)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_data_that_meet_a_parameter_before_a_product_of_matrices_are_no_penalty() -> None:
    def loss(model: Any, some: list[int]) -> Any:
        first, last = model[0].weight, model[2].weight
        return (torch.relu((X[some] * first[0] + first[1]) @ first.T) @ last.T - Y[some]).square().mean() + sum(
            0.01 * p.square().sum() for p in model.parameters()
        )

    expected, found = by_parts(loss, steps=3)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_a_long_chain_of_penalties_is_read_once() -> None:
    weights = [nn.Parameter(torch.randn(3)) for _ in range(60)]
    model, calls = nn.Linear(8, WIDTH), 0
    loss = (model(X) - Y).square().mean()
    for one in weights:
        loss = (loss + one.square().sum()) * 1.0

    def count(_: Any, event: str, of: Any) -> None:
        nonlocal calls
        calls += event == "c_call" and of.__name__ == "name"

    sys.setprofile(count)
    try:
        assert kind_of(loss, COUNT, set()).kind == RECORDS
    finally:
        sys.setprofile(None)
    assert 60 < calls < 2500


def balanced(model: Any, some: list[int]) -> Any:
    counts = torch.bincount(LABELS[some], minlength=WIDTH).float().clamp(min=1)
    return functional.cross_entropy(model(X[some]), LABELS[some], weight=1 / counts)


def two_halves(model: Any, some: list[int]) -> Any:
    half = len(some) // 2
    return squares(model, some[:half]).mean() + squares(model, some[half:]).abs().sqrt().mean()


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda m, s: squares(m, s).sum() * (1 / SHARES[s].sum()), "each.sum.. / len"),
        (lambda m, s: (squares(m, s) / len(s)).sum(), "each.sum.. / len"),
        (lambda m, s: squares(m, s).mean() + 0.01 * m[0](X[s]).abs().sum(), "a sum over records, and one a mean"),
        (lambda m, s: squares(m, s).sum() * (1.0 / len(s)), "each.sum.. / len"),
        (two_halves, r"a mean over \d+ labels or other chosen numbers .*weight="),
        (balanced, "a number or a tensor that has another value in another batch"),
    ],
)
def test_what_no_weight_can_express_is_refused(loss: Loss, says: str) -> None:
    with pytest.raises(PermanentError, match=says):
        by_parts(loss)


@pytest.mark.parametrize(
    "loss",
    [
        lambda m, s: (squares(m, s).mean(1) * (WEIGHTS[s] / WEIGHTS[s].sum())).sum(),
        lambda m, s: (squares(m, s).mean(1) * (WEIGHTS[s] / WEIGHTS[s].mean())).mean(),
    ],
)
def test_weights_that_always_add_up_to_one_or_to_the_records_are_refused(loss: Loss) -> None:
    by_parts(loss, steps=7)
    with pytest.raises(PermanentError, match="divided by their sum or mean"):
        by_parts(loss, steps=8)


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


def test_a_sum_that_is_always_divided_by_one_number_is_refused() -> None:
    def half(model: Any, some: list[int]) -> Any:
        return squares(model, some).sum() / 3.5

    by_parts(half, steps=63)
    with pytest.raises(PermanentError, match=r"divided by 3.5, in 64 batches one after the other.*reduction='sum'"):
        by_parts(half, steps=64)
