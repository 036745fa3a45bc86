"""What the adapters for scripts with a DataLoader share: the replacement for the loader, and checks of it."""

from __future__ import annotations

import atexit
import logging
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

from edl.errors import ConfigError
from edl.termination_log import write_termination_log
from edl.worker.job import Job, connect
from edl.worker_torch.elastic import Elastic
from edl.worker_torch.stepper import Stepper

try:
    import torch
    from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error


_log = logging.getLogger(__name__)


class Epochs:
    """Stands in for a DataLoader: the batches of this trainer, one epoch per iteration, with the loader's length.

    Args:
        stepper: whose batches.
        elastic: knows the steps of an epoch.
        data: the loader of the script.
        device: to which tensors go; None leaves them where they are.
    """

    def __init__(self, stepper: Stepper, elastic: Elastic, data: Any, device: Any) -> None:
        self._stepper, self._elastic, self._data, self._device = stepper, elastic, data, device
        self.dataset, self.batch_size = data.dataset, data.batch_size

    def __iter__(self) -> Iterator[Any]:
        for batch in self._stepper.epoch():
            yield batch if self._device is None or self._device.type == "cpu" else _moved(batch, self._device)

    def __len__(self) -> int:
        """The number of batches per epoch that a single trainer would have."""
        settings = self._elastic.loop.settings
        step = settings.global_batch or settings.micro_batch or 1
        steps, rest = divmod(settings.total, step)
        micro = settings.micro_batch or step
        return steps * math.ceil(step / micro) + math.ceil(rest / micro)


def check_loader(job: Job, data: Any, batch: int, place: str) -> None:
    """Refuse a DataLoader whose records or order are not those of the job.

    Args:
        job: connected.
        data: the DataLoader of the training data.
        batch: records of a step.
        place: what the message begins with.

    Raises:
        ConfigError: they are others.
    """
    if isinstance(data.dataset, IterableDataset):
        raise ConfigError(
            f"{place}: the data of the DataLoader are a stream, a {type(data.dataset).__name__}, and the master hands"
            " out records by their numbers; give a data set with __len__ and __getitem__, or read a job's files as"
            " spec.dataset.source lines:GLOB or parquet:GLOB in a loop of Elastic"
        )
    source, total = job.dataset["source"], job.dataset["total"]
    length = len(data.dataset) if hasattr(data.dataset, "__len__") else None
    if not str(source).startswith("index:") or length != total:
        raise ConfigError(
            f"{place}: the data of the DataLoader has {length} records, and the job trains on {source!r} with"
            f" {total}; set spec.dataset.source to index:N with the length of the data, and give the loader of the"
            " training data first"
        )
    is_plain = type(data.sampler) in {RandomSampler, SequentialSampler}
    is_plain = is_plain and not getattr(data.sampler, "replacement", False)
    if not is_plain or data.batch_size is None or len(data.sampler) != total:
        raise ConfigError(
            f"{place}: the DataLoader has the sampler {type(data.sampler).__name__}"
            f"{'' if data.batch_size else ' and a batch sampler of its own'}, and the master decides the order: each"
            " record once in an epoch, shuffled; for a part of the data give a DataLoader of"
            " torch.utils.data.Subset, with spec.dataset.source index:N for its length"
        )
    if data.drop_last and total % batch:
        raise ConfigError(
            f"{place}: the DataLoader has drop_last=True, and {total} records are no multiple of the batch of"
            f" {batch}: edl trains on every record; leave drop_last away"
        )


def say_rest(data: Any, batch: int, steps: int) -> None:
    """Say that the last step of an epoch is another one than that of Accelerate, if it is.

    Args:
        data: the DataLoader of the training data.
        batch: records of a step.
        steps: how many batches Accelerate would accumulate.
    """
    if (rest := len(data.dataset) % batch) and steps > 1:
        _log.warning(
            "Accelerator: the last step of each epoch has %d records of %d. Its gradient is the mean over them; in"
            " Accelerate it is the sum of the means of its batches, divided by gradient_accumulation_steps=%d",
            rest,
            batch,
            steps,
        )


def connected() -> Job:
    """Connect a script without a `with` block to its job; an error that ends the script closes the connection."""
    job, before = connect(), sys.excepthook

    def close(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        job.__exit__(kind, error, trace)

    sys.excepthook = close
    return job


def fail_at_exit(stepper: Stepper) -> None:
    """Fail with an explanation if the script ends without an error before its job has ended."""

    def check() -> None:
        text = stepper.left_early()
        if text and not hasattr(sys, "last_value"):
            write_termination_log(text, os.environ)
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(1)  # the only way to change the exit code at this point

    atexit.register(check)


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return type(value)({key: _moved(item, device) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value
