"""A trainer's share of the data for a plain PyTorch loop.

    from edl.worker import connect
    from edl.worker_torch import loader
    with connect() as job:
        for batch in loader(job, batch_size=256, num_workers=4):
            step(batch)

What this process's loop has consumed is acknowledged, batch by batch, and nothing else: a DataLoader's processes read
what they are told to read and never speak for the trainer. So no number of them doubles or loses a record, and what
was read ahead for a lease that is lost is dropped before the loop sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edl.errors import ConfigError
from edl.worker.data import Reader, read_all
from edl.worker.job import Job, Remote
from edl.worker.lease import Fault

try:
    from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info
except ImportError as error:
    raise ConfigError("edl.worker_torch needs torch, which is not installed: pip install 'edl[torch]'") from error

Collate = Callable[[list[Any]], Any]


class Batches(IterableDataset):
    """The batches of a trainer; of a DataLoader only as `DataLoader(Batches(...), batch_size=None)`.

    Args:
        job: connected.
        batch_size: records of a batch; fewer at the ends of what is at hand.
        read: turns a number, a line or a row into a sample; by default it stays what it is.
        collate: makes a batch of samples.
    """

    def __init__(
        self, job: Job, batch_size: int, read: Reader | None = None, collate: Collate = default_collate
    ) -> None:
        self._job, self._size, self._read, self._collate = job, batch_size, read, collate

    def __iter__(self) -> Iterator[Any]:
        """Batches until the job has ended.

        Raises:
            ConfigError: this is a process of a DataLoader: none but the trainer itself may hold leases.
        """
        if get_worker_info() is not None:
            raise ConfigError(
                "Batches: a process of a DataLoader cannot hold a trainer's leases; give num_workers=0, or use"
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
    **options: Any,  # noqa: ANN401 whatever a DataLoader takes
) -> Iterator[Any]:
    """Batches until the job has ended, read by processes of a DataLoader.

    Args:
        job: connected.
        batch_size: records of a batch; fewer at the ends of what is at hand.
        read: turns a number, a line or a row into a sample, in those processes; by default it stays what it is.
        collate: makes a batch of samples, there, too.
        num_workers: how many processes; 0 reads in this one.
        options: for the DataLoader, such as pin_memory or prefetch_factor.
    """
    samples = _Samples(job.remote if num_workers else job, read)
    sampler = _Told()
    if num_workers:
        options.setdefault("persistent_workers", True)
    data = DataLoader(
        samples, batch_sampler=sampler, collate_fn=_Collate(collate), num_workers=num_workers, **options
    )

    def through(numbers: Iterable[list[int]]) -> Iterator[Any]:
        sampler.numbers = iter(numbers)
        return iter(data)

    return job.batches(batch_size, pipeline=through)


class _Told:
    """The sampler: batches of numbers that the job has said."""

    def __init__(self) -> None:
        self.numbers: Iterator[list[int]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return self.numbers


class _Samples(Dataset):
    """Reads records by their numbers, in whatever process it is."""

    def __init__(self, records: Job | Remote, read: Reader | None) -> None:
        self._records, self._read = records, read

    def __getitems__(self, numbers: list[int]) -> list[Any] | Fault:
        return read_all(self._records.source, numbers, self._read)


class _Collate:
    """Leaves a fault as it is."""

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, found: list[Any] | Fault) -> Any:  # noqa: ANN401 whatever a batch is
        return found if isinstance(found, Fault) else self._collate(found)
