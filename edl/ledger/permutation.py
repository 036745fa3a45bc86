"""The order in which an epoch reads a data set: position -> record. It depends on the seed and the epoch alone.

A keyed bijection permutes blocks of neighbouring records, so the order of 10^18 records takes no memory. The records
within a window of positions are then shuffled, which separates neighbours. Trainers compute the order themselves: the
number of trainers, failures and restarts cannot change it.

The bijection is a Feistel network of four rounds (Luby and Rackoff, 1988) on the next power of four. It is applied
again until the result is in range (cycle walking, Black and Rogaway, 2002).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from itertools import islice

BLOCK = 1024
"""Neighbouring records that are permuted together: a trainer reads them from a file at once."""
WINDOW = 8 * BLOCK
_ROUNDS = 4


class BlockPermutation:
    """A bijection of `[0, size)` that depends on a key.

    Args:
        size: at least 1.
        key: at most 64 bytes.
    """

    def __init__(self, size: int, key: bytes) -> None:
        self._size, self._key = size, key
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1

    def image(self, index: int) -> int:
        """The number that `index` is mapped to."""
        return self._walk(index, range(_ROUNDS))

    def preimage(self, image: int) -> int:
        """The number that is mapped to `image`."""
        return self._walk(image, range(_ROUNDS - 1, -1, -1))

    def _walk(self, value: int, rounds: range) -> int:
        backwards = rounds.step < 0
        while True:
            high, low = value >> self._half, value & self._mask
            for number in rounds:
                if backwards:
                    high, low = low ^ self._mix(number, high), high
                else:
                    high, low = low, high ^ self._mix(number, low)
            value = high << self._half | low
            if value < self._size:
                return value

    def _mix(self, number: int, half: int) -> int:
        digest = hashlib.blake2b(half.to_bytes(16, "big"), key=self._key, person=bytes([number]), digest_size=8)
        return int.from_bytes(digest.digest(), "big") & self._mask


class EpochOrder:
    """The order of one epoch.

    Args:
        total: records of the data set, at least 1.
        seed: the seed of the data set.
        epoch: counted from 0.
        block: neighbouring records that are permuted together, at least 1. It is larger if records are read in large
            pieces, so that a window of the shuffle needs few pieces.
    """

    def __init__(self, total: int, seed: int, epoch: int, block: int = BLOCK) -> None:
        self._total, self._block = total, block
        self._name = f"edl order {seed} {epoch}"
        self._blocks = BlockPermutation(-(-total // block), hashlib.sha256(self._name.encode()).digest())
        last = -(-total // block) - 1
        self._tail_place = self._blocks.preimage(last)  # the last block, which may be short
        self._tail = total - last * block
        self._window: tuple[int, list[int]] = (-1, [])  # the number of a window, and its records

    def record(self, position: int) -> int:
        """The record at a position.

        Args:
            position: in `[0, total)`.
        """
        number, offset = divmod(position, WINDOW)
        return self._records_of(number)[offset]

    def records(self, start: int, end: int) -> Iterator[int]:
        """The records at the positions `[start, end)`, in that order.

        Raises:
            IndexError: the epoch has fewer positions.
        """
        if end > self._total:
            raise IndexError(f"position {end - 1}: the epoch has {self._total} positions")
        while start < end:
            number, offset = divmod(start, WINDOW)
            count = min(end - start, WINDOW - offset)
            yield from self._records_of(number)[offset : offset + count]
            start += count

    def records_at(self, ranges: Iterable[tuple[int, int]], limit: int) -> list[int]:
        """The records at the first `limit` positions of some ranges, in ascending order."""
        positions = (position for start, end in ranges for position in range(start, end))
        return sorted(map(self.record, islice(positions, limit)))

    def _records_of(self, number: int) -> list[int]:
        """The records of a window, sorted by `random()`: Python may change `shuffle`, but not `random`.

        A trainer needs them one after the other in each step, so all of them are looked up at once.
        """
        if self._window[0] != number:
            start = number * WINDOW
            unshuffled = self._unshuffled(start, min(start + WINDOW, self._total))
            draw = random.Random(f"{self._name} {number}").random  # noqa: S311 - an order, not a secret
            keys = [draw() for _ in unshuffled]
            offsets = sorted(range(len(keys)), key=keys.__getitem__)
            self._window = (number, [unshuffled[offset] for offset in offsets])
        return self._window[1]

    def _unshuffled(self, start: int, end: int) -> list[int]:
        """The records at the positions `[start, end)` before the shuffle within windows."""
        edge = self._tail_place * self._block
        found: list[int] = []
        while start < end:
            length = self._block
            if start < edge:
                place, offset = divmod(start, length)
            elif start < edge + self._tail:
                place, offset, length = self._tail_place, start - edge, self._tail
            else:
                place, offset = divmod(start - edge - self._tail, length)
                place += self._tail_place + 1
            first = self._blocks.image(place) * self._block + offset
            count = min(length - offset, end - start)
            found.extend(range(first, first + count))
            start += count
        return found
