"""How states are copied, compared and summed in an order; `make torch-test` runs these tests."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from edl.worker.group import World
from edl.worker.step_settings import parts_of
from edl.worker_torch import copying
from edl.worker_torch.copying import chain, copy_state
from edl.worker_torch.part_tree import RunningSum, cover, total
from edl.worker_torch.portable import Packed, Unpacked, bits_of, plain
from edl.worker_torch.wire import Wire


def connected(count: int, holders: tuple[int, ...]) -> tuple[list[Wire], list[World]]:
    wires = [Wire("", 60.0) for _ in range(count)]
    endpoints = tuple(wire.endpoint for wire in wires)
    names = tuple(f"t{rank}" for rank in range(count))
    place: dict[str, Any] = {"must_copy": True, "checkpoint": None, "endpoints": endpoints, "has_state": True}
    worlds = [World(1, rank, count, 0, holders[0], **place, names=names, holders=holders) for rank in range(count)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: pair[0].connect(pair[1], bool), zip(wires, worlds, strict=True)))
    return wires, worlds


def a_state() -> Any:
    torch.manual_seed(1)
    shared = torch.randn(5, 7)
    return plain(
        {
            "model": {"a": shared, "tied": shared, "empty": torch.zeros(0, 3), "scalar": torch.tensor(3.5)},
            "odd": [torch.randn(3, 4).t(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
            "kinds": (torch.arange(5), torch.tensor([True, False]), torch.randn(3).bfloat16(), torch.randn(4)[::2]),
            "plain": {"lr": 0.1, "betas": (0.9, 0.99), "name": None, 3: "x"},
            "large": torch.randn(700_001),
        }
    )


def same(one: Any, other: Any) -> Any:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return one is other or one == other


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("count", "holders"), [(2, (0,)), (2, (1,)), (3, (0, 2)), (4, (1,)), (5, (0, 1)), (5, (0, 1, 2, 3))]
)
def test_a_state_comes_to_every_trainer_that_lacks_it(
    count: int, holders: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK", 50_000)  # 57 chunks, more than are under way at once
    wires, worlds = connected(count, holders)
    state = a_state()
    with ThreadPoolExecutor() as pool:
        found = list(
            pool.map(
                lambda rank: copy_state(wires[rank], worlds[rank], state if rank in holders else None), range(count)
            )
        )
    for one in found:
        assert same(one, state)
    assert found[holders[0]]["large"] is state["large"], "a holder keeps its own"
    tied = next(one for rank, one in enumerate(found) if rank not in holders)["model"]
    assert tied["a"].data_ptr() == tied["tied"].data_ptr()


def test_every_trainer_sends_its_part_of_the_state() -> None:
    sent = Counter[int]()
    for number in range(120):
        ranks = chain(number, (0, 3), [1, 2, 4])
        assert ranks[0] in {0, 3}
        assert sorted(ranks[1:]) == [1, 2, 4]
        sent.update(ranks[:-1])
    assert sent == {0: 60, 3: 60, 1: 80, 2: 80, 4: 80}


def test_a_packed_state_holds_no_copy_of_its_tensors() -> None:
    state = a_state()
    packed = Packed(state)
    assert state["large"].data_ptr() in {one.data_ptr() for one in packed.tensors}
    assert len(packed.header) < 5000
    unpacked = Unpacked(packed.header)
    for mine, its in zip(unpacked.tensors, packed.tensors, strict=True):
        mine.copy_(its)
    assert same(unpacked.state, state)


def test_bits_differ_if_a_tensor_does() -> None:
    for kind in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool):
        for count in (0, 1, 7, 16, 1001):
            one = torch.ones(count).to(kind)
            assert bits_of(one) == bits_of(one.clone())
            if count:
                other = one.clone()
                other[-1] = 0
                assert bits_of(one) != bits_of(other)
    assert bits_of(torch.tensor([0.0])) != bits_of(torch.tensor([-0.0]))
    assert bits_of(torch.ones(9)[1:]) == bits_of(torch.ones(8)), "memory that does not begin at a word"


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 7, 8, 12])
def test_the_order_of_a_sum_does_not_depend_on_who_adds(parts: int) -> None:
    def add(left: str, right: str) -> str:
        return f"({left}+{right})"

    whole = total(parts, {(n, n + 1): str(n) for n in range(parts)}, add)
    for size in range(1, parts + 3):
        values = {}
        for rank in range(size):
            own = parts_of(parts, rank, size)
            running: RunningSum[str] = RunningSum(parts, add)
            for part in own:
                running.push(part, str(part))
            mine = running.take()
            assert sorted(mine) == cover(parts, own)
            values.update(mine)
        assert total(parts, values, add) == whole


@pytest.mark.timeout(120)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_vectors_are_summed_in_an_order_by_segments(count: int) -> None:
    wires, _ = connected(count, (0,))
    rows = [[torch.full((wires[0].width_of(17),), 10.0**rank + n) for n in range(rank)] for rank in range(count)]

    def run(rank: int) -> Any:
        whole = torch.zeros(wires[rank].width_of(17))
        counts = list(range(count))  # rank 0 has none
        return wires[rank].sum_in_order(rows[rank], whole, counts, lambda its: sum(row for one in its for row in one))

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(run, range(count)))
    expected = sum(row for one in rows for row in one)
    assert all(torch.equal(one, expected) for one in found)


def test_a_model_with_strides_of_its_own_keeps_them() -> None:
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    unpacked = Unpacked(Packed(plain(conv.state_dict())).header)
    assert unpacked.state["weight"].stride() == conv.weight.stride()
