"""Several sources in one data set, by weight: `mix:RECORDS;WEIGHT SOURCE;WEIGHT SOURCE`.

    mix:1000000;0.7 lines:/data/text/*.txt;0.3 parquet:/data/code/*.parquet

Record n of the mixture belongs to one source, and is the next record of it: a pattern says which, again and again. A
source begins anew when it has no more records. So each source has exactly its share, and each of its records comes
equally often, up to one. The blocks of the epoch's order are whole patterns: how many records of a source the first n
positions hold is known without looking at them.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import gcd
from typing import NamedTuple

from edl.errors import ConfigError

MIX = "mix"
_LONGEST_PATTERN = 10_000
_MOST_RECORDS = 10**18
_FORM = "give mix:RECORDS;WEIGHT SOURCE;WEIGHT SOURCE, such as mix:1000000;0.7 lines:/a/*.txt;0.3 index:5000"


class Part(NamedTuple):
    """One source of a mixture.

    Attributes:
        weight: how many records of a pattern are its own, at least 1.
        source: such as lines:GLOB.
    """

    weight: int
    source: str


class Mixed(NamedTuple):
    """A record of a mixture.

    Attributes:
        source: the number of the source in the mixture, from 0.
        record: the record of that source.
    """

    source: int
    record: object


class Mixture:
    """Which source each record of a mixture belongs to.

    Args:
        source: as above.

    Raises:
        ConfigError: the text has another form, or its weights need too long a pattern.

    Attributes:
        parts: in the order of the text.
        records: how many the text asks for.
        length: the length of the pattern.
    """

    def __init__(self, source: str) -> None:
        first, *rest = source.partition(":")[2].split(";")
        if not first.strip().isdecimal() or not 0 < int(first) <= _MOST_RECORDS or len(rest) < 2:
            raise ConfigError(f"dataset {source!r}: it is no mixture of two or more sources; {_FORM}")
        self.records = int(first)
        shares = [_share(text, source) for text in rest]
        least = reduce(lambda a, b: a * b // gcd(a, b), (share.denominator for share, _ in shares))
        whole = [int(share * least) for share, _ in shares]
        divisor = reduce(gcd, whole)
        self.parts = tuple(Part(w // divisor, text) for w, (_, text) in zip(whole, shares, strict=True))
        self.length = sum(part.weight for part in self.parts)
        if self.length > _LONGEST_PATTERN:
            raise ConfigError(
                f"dataset {source!r}: its weights are {' to '.join(str(part.weight) for part in self.parts)}, so they"
                f" repeat after {self.length} records, more than {_LONGEST_PATTERN}; round the weights"
            )
        self._pattern: list[int] = []
        self._before: list[tuple[int, ...]] = []  # place -> records of each part before it
        self._arrange()

    def _arrange(self) -> None:
        """Each place goes to the part that is most behind its share."""
        behind, counts = [0] * len(self.parts), [0] * len(self.parts)
        for _ in range(self.length):
            self._before.append(tuple(counts))
            behind = [gap + part.weight for gap, part in zip(behind, self.parts, strict=True)]
            chosen = max(range(len(behind)), key=behind.__getitem__)
            behind[chosen] -= self.length
            counts[chosen] += 1
            self._pattern.append(chosen)

    def place(self, record: int) -> tuple[int, int]:
        """The number of the part to which a record belongs, and how many records of that part come before it."""
        cycle, at = divmod(record, self.length)
        part = self._pattern[at]
        return part, cycle * self.parts[part].weight + self._before[at][part]

    def counts(self, records: int) -> list[int]:
        """How many of the first records belong to each part."""
        cycle, at = divmod(records, self.length)
        return [cycle * part.weight + before for part, before in zip(self.parts, self._before[at], strict=True)]

    def blocks(self, wanted: int) -> tuple[int, int]:
        """How many neighbouring records the order permutes together, and how many records there are then.

        The records are rounded up to whole blocks, and a block is whole patterns.

        Args:
            wanted: neighbouring records that should stay together, at least 1.
        """
        block = self.length * max(1, min(-(-wanted // self.length), self.records // self.length // 8))
        return block, -(-self.records // block) * block


def _share(text: str, source: str) -> tuple[Fraction, str]:
    weight, _, inner = text.strip().partition(" ")
    try:
        share = Fraction(weight)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if share <= 0 or not inner.strip() or inner.strip().startswith(f"{MIX}:"):
        raise ConfigError(
            f"dataset {source!r}: {text.strip()!r} is no weight above 0 with a source other than a mixture; {_FORM}"
        )
    return share, inner.strip()
