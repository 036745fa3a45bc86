"""How far the training is in each source of a mixture: an account of its own, from the positions that are done."""

from __future__ import annotations

from collections.abc import Iterable

from edl.ledger.events import DatasetSet
from edl.ledger.permutation import WINDOW, EpochOrder
from edl.master.bodies import SourceAnswer, SourcesAnswer
from edl.worker.mix import Mixture


def sources_answer(
    mixture: Mixture, totals: list[int], dataset: DatasetSet, ranges: list[tuple[int, int]]
) -> SourcesAnswer:
    """The sources of a mixture, each with its number of done records.

    Args:
        mixture: the sources and weights of the data set.
        totals: how many records each source has.
        dataset: the dataset of the job.
        ranges: the done positions, as ranges.
    """
    rows = zip(
        mixture.parts, totals, mixture.counts(dataset.total), done_by_source(mixture, dataset, ranges), strict=True
    )
    return SourcesAnswer([SourceAnswer(part.source, part.weight / mixture.length, *rest) for part, *rest in rows])


def done_by_source(mixture: Mixture, dataset: DatasetSet, ranges: Iterable[tuple[int, int]]) -> list[int]:
    """How many records of each source are at some positions of the only epoch.

    Args:
        mixture: the sources and weights of the data set.
        dataset: whose blocks are whole patterns of the mixture.
        ranges: positions as half-open ranges that do not overlap.
    """
    order = EpochOrder(dataset.total, dataset.seed, 0, dataset.block)
    found = [0] * len(mixture.parts)
    for start, end in ranges:
        for part, (low, high) in enumerate(
            zip(_before(mixture, order, start), _before(mixture, order, end), strict=True)
        ):
            found[part] += high - low
    return found


def _before(mixture: Mixture, order: EpochOrder, position: int) -> list[int]:
    """Count the records of each source among the first positions.

    Whole blocks are alike, so only the last is read.
    """
    whole = position // WINDOW * WINDOW
    found = mixture.counts(whole)
    for record in order.records(whole, position):
        found[mixture.place(record)[0]] += 1
    return found
