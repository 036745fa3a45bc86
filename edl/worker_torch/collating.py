"""What edl takes over from a DataLoader: how it makes batches of samples, in any process, and its processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

from edl.errors import ConfigError
from edl.worker.lease import BadRecord

try:
    import torch
    from torch.utils.data import DataLoader
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

Collate = Callable[[list[Any]], Any]
"""Turns a list of samples into a batch."""
OPTIONS = (
    "prefetch_factor",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "persistent_workers",
)
"""The options of a DataLoader that a script may choose; the job decides all others."""


class CollateGood:
    """Collates samples, and passes a bad record on unchanged.

    Args:
        collate: turns samples into a batch.
    """

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, found: list[Any] | BadRecord) -> Any:
        """Make a batch of some records, as the class describes."""
        return found if isinstance(found, BadRecord) else self._collate(found)


def options_of(data: Any) -> dict[str, Any]:
    """Return the options that let `Elastic` read as a given DataLoader does: processes, pinned memory and so on."""
    found = {name: getattr(data, name, None) for name in OPTIONS if name != "pin_memory"}
    if data.pin_memory and torch.cuda.is_available():
        found["pin_memory"] = True
    if not data.num_workers:
        return {}
    return {"num_workers": data.num_workers, "reading": {name: one for name, one in found.items() if one is not None}}


def begun(data: DataLoader[Any]) -> Iterator[Any]:
    """Start the reading processes of a DataLoader, unless they run, and return its batches.

    Raises:
        ConfigError: they begin by `spawn` or `forkserver`, and what they need cannot be pickled.
    """
    method = _start_method(data)
    try:
        return iter(data)
    except Exception as error:
        if method == "fork" or not data.num_workers:
            raise
        for name in ("dataset", "collate_fn", "worker_init_fn"):
            cause = _pickling_error(getattr(data, name))
            if cause is not None:
                raise ConfigError(
                    f"DataLoader: its processes (num_workers={data.num_workers}) begin by {method!r}, and its {name}"
                    f" cannot be pickled: {cause}; define what reads and collates records at the top of a module, not"
                    " as a lambda or within a function, or begin the processes by fork:"
                    " multiprocessing_context='fork'"
                ) from error
        raise


def _start_method(data: DataLoader[Any]) -> str:
    context = data.multiprocessing_context
    return str((torch.multiprocessing if context is None else context).get_start_method())


def _pickling_error(value: Any) -> Exception | None:
    try:
        ForkingPickler.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return error
    return None
