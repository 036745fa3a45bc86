"""A trainer's share of the data for a PyTorch loop.

    from edl.worker import connect
    from edl.worker_torch import loader
    with connect() as job:
        for batch in loader(job, batch_size=256, num_workers=4):
            step(batch)

Only what the loop of this process has consumed is acknowledged, batch by batch. The processes of a DataLoader read
the records that this process names; they never talk to the master about leases. However many there are, no record is
doubled or lost. A batch that was read ahead is dropped if its lease was lost in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from edl.errors import ConfigError
from edl.worker.data import Reader, read_records
from edl.worker.job import Job
from edl.worker.lease import BadRecord
from edl.worker.records import Remote
from edl.worker_torch.collating import Collate, CollateGood, begun

try:
    from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error


class Batches(IterableDataset):
    """The batches of a trainer. In a DataLoader use it only as `DataLoader(Batches(...), batch_size=None)`.

    Args:
        job: connected.
        batch_size: the most records of a batch; a batch is smaller if fewer are available.
        read: turns a number, a line or a row into a sample; by default the record is unchanged.
        collate: turns a list of samples into a batch.
    """

    def __init__(
        self, job: Job, batch_size: int, read: Reader | None = None, collate: Collate = default_collate
    ) -> None:
        self._job, self._size, self._read, self._collate = job, batch_size, read, collate

    def __iter__(self) -> Iterator[Any]:
        """Iterate over batches of records until the job has ended.

        Raises:
            ConfigError: this is a process of a DataLoader; only the trainer's own process may hold leases.
        """
        if get_worker_info() is not None:
            raise ConfigError(
                "Batches: a process of a DataLoader cannot hold a trainer's leases; set num_workers=0, or use"
                " edl.worker_torch.loader(job, num_workers=N)"
            )
        return map(self._collate, self._job.batches(self._size, self._read))


def loader(
    job: Job,
    batch_size: int,
    read: Reader | None = None,
    *,
    collate: Collate = default_collate,
    num_workers: int = 0,
    **options: Any,
) -> Iterator[Any]:
    """Iterate over batches until the job has ended; processes of a DataLoader read the records.

    Args:
        job: connected.
        batch_size: the most records of a batch; a batch is smaller if fewer are available.
        read: turns a number, a line or a row into a sample, in those processes; by default the record is unchanged.
        collate: turns a list of samples into a batch, in those processes too.
        num_workers: how many processes; 0 reads in this process.
        options: the options of the DataLoader, such as pin_memory or prefetch_factor.
    """
    dataset = _RecordDataset(job.remote if num_workers else job, read)
    sampler = _BatchSampler()
    if num_workers:
        options.setdefault("persistent_workers", True)
    data = DataLoader(
        dataset, batch_sampler=sampler, collate_fn=CollateGood(collate), num_workers=num_workers, **options
    )

    def through(numbers: Iterable[list[int]]) -> Iterator[Any]:
        sampler.numbers = iter(numbers)
        return begun(data)

    return job.batches(batch_size, pipeline=through)


class _BatchSampler:
    """Yields the batches of record numbers that the job has taken."""

    def __init__(self) -> None:
        self.numbers: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.numbers


class _RecordDataset(Dataset):
    """Reads records by their numbers, in any process."""

    def __init__(self, records: Job | Remote, read: Reader | None) -> None:
        self._records, self._read = records, read

    def __getitems__(self, numbers: list[int]) -> list[Any] | BadRecord:
        return read_records(self._records.source, numbers, self._read)
