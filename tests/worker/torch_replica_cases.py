"""The connections of PyTorch trainers in step, in one process; `make torch-test` runs these tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn

from edl.worker.group import World
from edl.worker.model_folder import ModelFolder
from edl.worker.step_settings import Piece, StepPlan, StepSettings
from edl.worker.steps import Flags, PeerLostError
from edl.worker_torch.replica import TorchReplica
from edl.worker_torch.state import TrainState
from example.fit_flights.local import free_ports

LONG_S = 600.0


def replica() -> TorchReplica:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = TorchReplica(TrainState(model, [optimizer], [], {}), folder=ModelFolder(None), timeout_s=LONG_S)
    found.watch.tuner.begin(StepSettings(100, 1, 2))
    return found


def world(generation: int, rank: int, *endpoints: str) -> World:
    return World(
        generation, rank, len(endpoints), 0, 0, must_copy=True, checkpoint=None, endpoints=endpoints, has_state=True
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_trainer_that_is_lost_while_a_world_forms_costs_no_timeout(rank: int) -> None:
    mine, looks = replica(), count()
    (port,) = free_ports(1)
    endpoints = [mine.endpoint, f"127.0.0.1:{port}"] if rank == 0 else [f"127.0.0.1:{port}", mine.endpoint]
    with pytest.raises(PeerLostError):
        mine.connect(world(1, rank, *endpoints), lambda: next(looks) > 3)
    mine.disconnect()
    other = replica()
    both = [mine.endpoint, other.endpoint]
    with ThreadPoolExecutor() as pool:
        pairs = enumerate((mine, other))
        for done in [pool.submit(one.connect, world(2, place, *both), lambda: False) for place, one in pairs]:
            done.result()
        worlds = [world(2, place, *both) for place in range(2)]
        for done in [pool.submit(one.copy_state, its) for one, its in zip((mine, other), worlds, strict=True)]:
            done.result()


def gradients_of(model: torch.nn.Module, value: float) -> None:
    """As if the loop had computed this gradient for every weight."""
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def both_step(replicas: list[TorchReplica], values: list[float], flags: list[Flags]) -> list[Flags]:
    def step(rank: int) -> Flags:
        one = replicas[rank]
        one.begin_step(StepPlan(0, 2, 2, 2))
        piece = Piece(0, rank, rank + 1, rank, 0.5)
        one.begin_piece(0, piece)
        gradients_of(one.state.model, values[rank])
        one.end_piece(piece)
        return one.end_step(flags[rank])

    with ThreadPoolExecutor() as pool:
        return list(pool.map(step, range(2)))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("logical_ranks", [0, 2])
def test_a_step_sums_gradients_and_flags_and_leaves_nothing_to_the_next_one(logical_ranks: int) -> None:
    pair = [replica(), replica()]
    endpoints = [one.endpoint for one in pair]
    for one in pair:
        one.logical_ranks = logical_ranks
        for parameter in one.parameters:
            parameter.data.zero_()
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(one.connect, world(1, rank, *endpoints), bool) for rank, one in enumerate(pair)]:
            done.result()
    assert both_step(pair, [1.0, 3.0], [Flags(1.0, 0.0), Flags(1.0, 1.0)]) == [Flags(2.0, 1.0)] * 2
    for one in pair:
        assert all(torch.equal(p, torch.full_like(p, -0.2)) for p in one.parameters), (
            "lr 0.1 times the mean of 1 and 3"
        )
    assert both_step(pair, [0.0, 0.0], [Flags(0.0, 0.0)] * 2) == [Flags(0.0, 0.0)] * 2
    for one in pair:
        assert all(torch.equal(p, torch.full_like(p, -0.2)) for p in one.parameters)
        assert all(p.grad is None for p in one.parameters)
        one.disconnect()


@pytest.mark.parametrize("logical_ranks", [0, 3])
def test_a_trainer_that_is_alone_sums_its_pieces(logical_ranks: int) -> None:
    alone = replica()
    alone.logical_ranks = logical_ranks
    weight, bias = alone.parameters
    for parameter in (weight, bias):
        parameter.data.zero_()
    alone.connect(world(1, 0, alone.endpoint), bool)
    for _ in range(2):
        alone.begin_step(StepPlan(0, 4, 4, 1))
        for slot, value in enumerate((1.0, 2.0, 6.0)):
            piece = Piece(0, slot, slot + 1, slot if logical_ranks else 0, 0.25)
            alone.begin_piece(0, piece)
            weight.grad = torch.full_like(weight, value)  # the bias has none
            alone.end_piece(piece)
        assert alone.end_step(Flags(0.0, 1.0)) == Flags(0.0, 1.0)
    assert torch.allclose(weight, torch.full_like(weight, -0.45))
    assert torch.equal(bias, torch.zeros_like(bias))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("logical_ranks", [0, 2])
def test_the_gradient_is_clipped_after_it_is_summed_as_the_trainer_with_the_last_records_says(
    logical_ranks: int,
) -> None:
    pair = [replica(), replica()]
    endpoints = [one.endpoint for one in pair]
    for one in pair:
        one.logical_ranks = logical_ranks
        for parameter in one.parameters:
            parameter.data.zero_()
    pair[1].max_norm = 0.5  # the other one has had no records, so its loop has not said so
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(one.connect, world(1, rank, *endpoints), bool) for rank, one in enumerate(pair)]:
            done.result()
    both_step(pair, [1.0, 3.0], [Flags(0.0, 0.0)] * 2)
    for one in pair:
        assert float(one.norm) == pytest.approx(2 * 3**0.5), "three weights, each with the mean of 1 and 3"
        taken = torch.cat([p.detach().flatten() for p in one.parameters])
        assert float(taken.norm()) == pytest.approx(0.1 * 0.5, rel=1e-4), "lr times the limit"
        one.disconnect()
    if logical_ranks:
        alone = replica()
        alone.logical_ranks, alone.max_norm = logical_ranks, 0.5
        for parameter in alone.parameters:
            parameter.data.zero_()
        alone.connect(world(1, 0, alone.endpoint), bool)
        alone.begin_step(StepPlan(0, 2, 2, 1))
        for slot, value in enumerate((1.0, 3.0)):
            gradients_of(alone.state.model, value)
            alone.end_piece(Piece(0, slot, slot + 1, slot, 0.5))
        alone.end_step(Flags(0.0, 0.0))
        assert all(torch.equal(*both) for both in zip(alone.parameters, pair[0].parameters, strict=True))


def test_a_model_without_buffers_is_not_described_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = nn.Linear(2, 1), list[object]()
    describe = model.state_dict

    def described(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return describe(*args, **options)

    monkeypatch.setattr(model, "state_dict", described)
    state = TrainState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], {})
    assert state.buffers == {}
    assert not asked
    model.register_buffer("seen", torch.zeros(1))
    assert list(state.buffers) == ["seen"]
    assert len(asked) == 1
