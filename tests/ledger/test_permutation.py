from __future__ import annotations

import tracemalloc

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


def test_a_huge_data_set_takes_no_memory() -> None:
    tracemalloc.start()
    order = EpochOrder(10**18, 1, 1)
    assert len(set(order.records(10**17, 10**17 + 1000))) == 1000
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()
