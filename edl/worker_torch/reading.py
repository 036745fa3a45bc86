"""Reads the pieces of a trainer that trains in step; processes of a DataLoader may read them ahead.

Which pieces come is known as long as the world and the batch stay: those are read ahead. If one changes, what was
read is dropped, and reading begins anew with the pieces that this trainer has then. The master hears nothing of it:
only what the loop has trained on counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from edl.errors import ConfigError
from edl.worker.data import Reader, good_records, read_records
from edl.worker.job import Job
from edl.worker.lease import BadRecord
from edl.worker.records import Remote
from edl.worker.step_settings import Piece
from edl.worker.steps import StepLoop
from edl.worker_torch.collating import OPTIONS, Collate, CollateGood, begun
from edl.worker_torch.seeds import piece_seed, reading_seed, seed_all

try:
    from torch.utils.data import DataLoader, Dataset
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error


class PieceReader:
    """Reads the batches of one trainer.

    Args:
        job: connected.
        read: turns a record into a sample.
        collate: turns a list of samples into a batch.
        num_workers: how many processes read ahead; 0 reads in this process when a batch is asked for.
        options: the options of the DataLoader, some of `OPTIONS`.

    Raises:
        ConfigError: an option is not known, or there are less than 0 processes.
    """

    def __init__(
        self,
        job: Job,
        read: Reader | None,
        collate: Collate,
        num_workers: int,
        options: Mapping[str, Any],
    ) -> None:
        unknown = sorted(set(options).difference(OPTIONS))
        if unknown or num_workers < 0:
            raise ConfigError(
                f"Elastic: num_workers={num_workers} with {', '.join(unknown) or 'no other option'} cannot be used;"
                f" give 0 or more processes, and of a DataLoader {', '.join(OPTIONS)}: the job decides the rest"
            )
        self._job, self._read, self._collate = job, read, collate
        self._num_workers, self._options = num_workers, dict(options)
        self._ahead: deque[Piece] = deque()  # that the processes have got, in their order
        self._coming: Iterator[list[int]] = iter(())
        self._loader: Any = None
        self._epoch, self._persists = -1, bool(self._options.pop("persistent_workers", False))
        self._batches: Iterator[Any] | None = None

    def batch(self, piece: Piece, loop: StepLoop, rank: int, size: int) -> Any:
        """Read the batch of a piece of a step.

        Args:
            piece: the piece that the loop has yielded.
            loop: in the step of the piece.
            rank: the rank of this trainer.
            size: how many trainers there are.

        Raises:
            PermanentError: a record cannot be read.
        """
        position, parts = loop.position or 0, loop.settings.logical_ranks
        if not self._num_workers:
            return self._read_here(piece, piece_seed(position, piece, parts) if parts else None)
        if not self._ahead or self._ahead[0] != piece:
            if piece.epoch != self._epoch and not self._persists:
                self._loader = None  # the script may have changed what reads, as a sampler or a data set of an epoch
            self._epoch = piece.epoch
            self._begin(_pieces_from(piece, position, loop, rank, size, is_endless=self._persists), parts)
        if self._batches is None:
            self._batches = begun(self._loader)
        found = next(self._batches)
        self._ahead.popleft()
        self._job.reached(piece)
        return good_records(found)

    def close(self) -> None:
        """End the processes."""
        self._batches = self._loader = None
        self._ahead.clear()

    def _read_here(self, piece: Piece, seed: int | None) -> Any:
        if seed is None:
            return self._collate(self._job.piece(piece, self._read))
        seed_all(reading_seed(seed))
        found = self._collate(self._job.piece(piece, self._read))
        seed_all(seed)  # the loop draws the same numbers, whoever has read
        return found

    def _begin(self, pieces: Iterator[tuple[int, Piece]], parts: int) -> None:
        if self._loader is None:
            self._loader = DataLoader(
                _Records(self._job.remote, self._read),
                batch_sampler=self,
                collate_fn=CollateGood(self._collate),
                num_workers=self._num_workers,
                persistent_workers=True,
                **self._options,
            )
        self._batches = None
        self._ahead.clear()
        self._coming = self._numbers(pieces, parts)

    def _numbers(self, pieces: Iterator[tuple[int, Piece]], parts: int) -> Iterator[list[int]]:
        """Yield the input of a reading process for each piece: a seed (-1 for none), then record numbers."""
        for position, piece in pieces:
            self._ahead.append(piece)
            seed = reading_seed(piece_seed(position, piece, parts)) if parts else -1
            yield [seed, *self._job.numbers_ahead(piece)]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the reading processes' input, as a DataLoader expects it of its batch sampler."""
        return self._coming


def _pieces_from(
    piece: Piece, position: int, loop: StepLoop, rank: int, size: int, *, is_endless: bool
) -> Iterator[tuple[int, Piece]]:
    """The pieces of a trainer from one of a step to the end of its epoch, each with the position of its step.

    That holds if the world and the batch stay; else what was read ahead is dropped.

    Args:
        piece: the first one.
        position: at which its step begins.
        loop: in that step.
        rank: the rank of this trainer.
        size: how many trainers there are.
        is_endless: go on with the pieces of the next epochs.
    """
    settings, batch = loop.settings, loop.batch
    mine = settings.pieces(position, rank, size, batch)
    mine = mine[mine.index(piece) :]
    while True:
        yield from ((position, one) for one in mine)
        position = settings.plan(position, size, batch).end
        if position >= settings.end or not (is_endless or position % settings.total):
            return
        mine = settings.pieces(position, rank, size, batch)


class _Records(Dataset):
    """Reads records by their numbers in a process of a DataLoader."""

    def __init__(self, remote: Remote, read: Reader | None) -> None:
        self._remote, self._read = remote, read

    def __getitems__(self, numbers: list[int]) -> list[Any] | BadRecord:
        seed, *rest = numbers
        if seed >= 0:
            seed_all(seed)
        return read_records(self._remote.source, rest, self._read)
