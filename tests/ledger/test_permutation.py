from __future__ import annotations

import json
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.ledger.permutation import BLOCK, WINDOW, BlockPermutation, EpochOrder


@given(st.integers(1, 300), st.binary(min_size=1, max_size=32))
def test_a_block_permutation_is_a_bijection_with_an_inverse(size: int, key: bytes) -> None:
    permutation = BlockPermutation(size, key)
    images = [permutation.image(i) for i in range(size)]
    assert sorted(images) == list(range(size))
    assert [permutation.preimage(image) for image in images] == list(range(size))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3 * WINDOW), st.integers(0, 2**53), st.integers(0, 50))
def test_every_record_has_exactly_one_position(total: int, seed: int, epoch: int) -> None:
    assert sorted(EpochOrder(total, seed, epoch).records(0, total)) == list(range(total))


@pytest.mark.parametrize("total", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, WINDOW, WINDOW + 1, 5 * WINDOW - 7])
def test_odd_sizes_lose_no_record(total: int) -> None:
    assert sorted(EpochOrder(total, 1, 0).records(0, total)) == list(range(total))


def test_the_order_depends_on_the_seed_and_the_epoch_alone() -> None:
    total = 3 * WINDOW + 5
    order = list(EpochOrder(total, 7, 2).records(0, total))
    again = EpochOrder(total, 7, 2)
    jumps = [*range(total - 1, 0, -997), 0]
    assert [again.record(p) for p in jumps] == [order[p] for p in jumps]
    assert order != list(EpochOrder(total, 8, 2).records(0, total))
    assert order != list(EpochOrder(total, 7, 3).records(0, total))


def test_the_order_of_old_journals_does_not_change() -> None:
    """A different order would change the meaning of every position in every existing journal."""
    assert list(EpochOrder(10, 0, 0).records(0, 10)) == [1, 2, 9, 0, 3, 5, 4, 8, 7, 6]
    assert [EpochOrder(10**18, 3, 1).record(p) for p in (0, 5 * 10**17)] == [
        49258546771428005,
        127878210038063822,
    ]
    orders = [
        list(EpochOrder(total, 7, 2, block).records(0, total)) for total, block in ((24_581, BLOCK), (50_000, 20_000))
    ]
    assert [zlib.crc32(json.dumps(order).encode()) for order in orders] == [3855989165, 918475775]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_neighbouring_positions_have_the_same_records_as_one_at_a_time(data: st.DataObject) -> None:
    total = data.draw(st.integers(1, 3 * WINDOW))
    order = EpochOrder(total, 5, 1, data.draw(st.sampled_from([BLOCK, 3000, 2 * WINDOW])))
    start = data.draw(st.integers(0, total - 1))
    end = data.draw(st.integers(start, min(total, start + WINDOW + 100)))
    assert list(order.records(start, end)) == [order.record(position) for position in range(start, end)]


def test_positions_beyond_the_end_of_an_epoch_are_refused() -> None:
    order = EpochOrder(100, 0, 0)
    assert len(list(order.records(90, 100))) == 10
    with pytest.raises(IndexError, match="100 positions"):
        list(order.records(90, 101))


def test_a_huge_data_set_takes_no_memory() -> None:
    tracemalloc.start()
    order = EpochOrder(10**18, 1, 1)
    assert len(set(order.records(10**17, 10**17 + 1000))) == 1000
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()
