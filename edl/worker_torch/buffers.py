"""Keeps the buffers of a model, such as the averages of batch normalisation, equal in all trainers.

After each step all trainers have the buffers of the one with the last records of the step, or their mean over the
records. With logical ranks each part of a step begins with the buffers of the step's beginning, so what comes out
does not depend on the number of trainers.
"""

from __future__ import annotations

from typing import Any

from edl.errors import ConfigError
from edl.worker_torch.state import TrainState
from edl.worker_torch.wire import Wire

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

LAST, MEAN = "last", "mean"
_SMALL = 65_536  # numbers; a larger buffer counts as constant while nobody writes to it through torch


class SyncedBuffers:
    """The buffers of one trainer.

    Args:
        state: whose model has them.
        wire: to the other trainers.
        how: `last` or `mean`.

    Raises:
        ConfigError: another word.
    """

    def __init__(self, state: TrainState, wire: Wire, how: str) -> None:
        if how not in {LAST, MEAN}:
            raise ConfigError(f"Elastic: buffers={how!r} is not known; give {LAST!r} or {MEAN!r}")
        self._state, self._wire, self._is_mean = state, wire, how == MEAN
        self._buffers: list[Any] = []
        self._versions: list[int] = []
        self._before: list[Any] = []
        self._large: dict[int, tuple[Any, int, Any]] = {}  # id -> a large buffer, its version, its copy
        self._sum: Any = None
        self._slot: int | None = None
        self._weight = 0.0
        self.parts = 0

    def begin_step(self) -> None:
        """Save a copy of each buffer, to which `restore` and `begin_piece` return."""
        self._buffers = list(self._state.buffers.values())
        self._versions = [buffer._version for buffer in self._buffers]  # noqa: SLF001 - torch's count of writes
        self._before = self._copies() if self.parts or not self._wire.is_alone else []
        self._sum, self._slot, self._weight = None, None, 0.0

    def _copies(self) -> list[Any]:
        """A copy of each buffer; that of a large one is made anew only if it was written to."""
        found = []
        for buffer, version in zip(self._buffers, self._versions, strict=True):
            kept = self._large.get(id(buffer))
            if kept is None or kept[0] is not buffer or kept[1] != version:
                kept = buffer, version, buffer.clone()
            if buffer.numel() > _SMALL:
                self._large[id(buffer)] = kept
            found.append(kept[2])
        return found

    def restore(self) -> None:
        """Return the buffers to where the step began, because a trainer was lost and the step is not made."""
        changed = self.changed
        with torch.no_grad():
            for index, (buffer, before) in enumerate(zip(self._buffers, self._before, strict=False)):
                if changed >> index & 1:
                    buffer.copy_(before)

    def begin_piece(self, slot: int) -> None:
        """Prepare the buffers for a batch: a logical rank's first one sees them as they were before the step."""
        if self.parts and slot != self._slot:
            for buffer, before in zip(self._buffers, self._before, strict=True):
                buffer.copy_(before)
        self._slot = slot

    def end_piece(self, weight: float) -> None:
        """Add the buffers after a batch to their weighted mean.

        `weight` is the part of the step's records in the batch.
        """
        self._weight += weight
        if self.parts and self._is_mean and self._buffers:
            row = self._row() * weight
            self._sum = row if self._sum is None else self._sum + row

    @property
    def changed(self) -> int:
        """A bit mask: bit i is set if buffer i may have changed in this step."""
        pairs = enumerate(zip(self._buffers, self._versions, strict=True))
        return sum(1 << i for i, (one, v) in pairs if one.numel() <= _SMALL or one._version != v)  # noqa: SLF001

    def sync(self, changed: int, *, is_last: bool) -> None:
        """Exchange the buffers.

        Args:
            changed: the union of `changed` over all trainers.
            is_last: this trainer has the last records of the step.

        Raises:
            PeerLostError: a trainer is gone; nothing has changed.
        """
        if not changed or (self._wire.is_alone and not (self._is_mean and self.parts)):
            return
        chosen = [one for index, one in enumerate(self._buffers) if changed >> index & 1]
        self._put(chosen, self._exchanged(chosen, is_last=is_last))

    def _exchanged(self, chosen: list[Any], *, is_last: bool) -> Any:
        row = self._row(chosen)
        last = row if is_last else torch.zeros_like(row)
        if not self._is_mean:
            self._wire.sum([last])
            return last
        mean = self._sum if self._sum is not None else row * self._weight
        rows = [mean if self._weight else torch.zeros_like(row), last]
        self._wire.sum(rows)
        return torch.where(_is_whole(chosen), rows[1], rows[0])

    def _row(self, chosen: list[Any] | None = None) -> Any:
        """The numbers of buffers; a double holds each kind of number exactly, whole ones up to 2**53."""
        parts = [one.detach().reshape(-1).to("cpu", torch.float64) for one in chosen or self._buffers]
        return torch.cat(parts)

    @staticmethod
    def _put(chosen: list[Any], row: Any) -> None:
        parts = row.split([one.numel() for one in chosen])
        with torch.no_grad():
            for one, part in zip(chosen, parts, strict=True):
                one.copy_(part.view_as(one))


def _is_whole(chosen: list[Any]) -> Any:
    """Return, for each number of the buffers, whether it is an integer such as a count, of which no mean is taken."""
    flags = [torch.full((one.numel(),), not one.is_floating_point()) for one in chosen]
    return torch.cat(flags)
