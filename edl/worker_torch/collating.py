"""What edl takes over from a DataLoader: how it makes batches of samples, in any process, and its processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edl.errors import ConfigError
from edl.worker.lease import BadRecord

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

Collate = Callable[[list[Any]], Any]
"""Turns a list of samples into a batch."""
OPTIONS = ("prefetch_factor", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
"""What of a DataLoader may be chosen; the rest is decided by the job."""


class CollateGood:
    """Collates samples, and passes a bad record on unchanged.

    Args:
        collate: turns samples into a batch.
    """

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, found: list[Any] | BadRecord) -> Any:
        """See the class."""
        return found if isinstance(found, BadRecord) else self._collate(found)


def options_of(data: Any) -> dict[str, Any]:
    """The options of `Elastic` that read as a DataLoader does."""
    found = {name: getattr(data, name, None) for name in OPTIONS if name != "pin_memory"}
    if data.pin_memory and torch.cuda.is_available():
        found["pin_memory"] = True
    if not data.num_workers:
        return {}
    return {"num_workers": data.num_workers, "reading": {name: one for name, one in found.items() if one is not None}}
