"""Keeps the buffers of a model, such as the averages of batch normalisation, equal in all trainers.

After each step all trainers have the buffers of the one with the last records of the step, or their mean over the
records. With logical ranks each part of a step begins with the buffers of the step's beginning, so what comes out
does not depend on the number of trainers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.portable import bytes_of, check_kind, overwrite, resolved, version_of
from edl.worker_torch.state import TrainState
from edl.worker_torch.wire import Wire

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

LAST, MEAN = "last", "mean"
_AVERAGES = {"running_mean", "running_var", "num_batches_tracked"}
_SMALL = 65_536  # numbers; a larger buffer counts as constant while nobody writes to it through torch
_log = logging.getLogger(__name__)


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
        self._sums: list[Any] = []  # of each buffer over the pieces, for a mean with logical ranks
        self._slot: int | None = None
        self._weight = 0.0
        self._others: list[tuple[str, Any, int]] = []
        self._has_said = self._has_said_others = False
        self.parts = 0

    def begin_step(self) -> None:
        """Save a copy of each buffer, to which `restore` and `begin_piece` return.

        Raises:
            PermanentError: one is of a kind that cannot be exchanged.
        """
        buffers = self._state.buffers
        self._buffers, self._versions = list(buffers.values()), [version_of(one) for one in buffers.values()]
        if self._is_exchanged:
            for name, one in buffers.items():
                if one.numel() <= _SMALL or (self._is_mean and self.parts):
                    check_kind(f"the buffer {name}", one)
        is_needed = bool(self.parts) or not self._wire.is_alone
        self._before = self._copies() if is_needed else []
        self._sums, self._slot, self._weight = [], None, 0.0
        others = self._state.others if is_needed and not self._has_said_others else {}
        self._others = [(name, one, version_of(one)) for name, one in others.items()]

    @property
    def _is_exchanged(self) -> bool:
        return not self._wire.is_alone or (self._is_mean and bool(self.parts))

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
        for index, (buffer, before) in enumerate(zip(self._now(), self._before, strict=False)):
            if changed >> index & 1:
                overwrite(buffer, before)

    def begin_piece(self, slot: int) -> None:
        """Prepare the buffers for a batch: a logical rank's first one sees them as they were before the step."""
        if self.parts and slot != self._slot:
            for buffer, before in zip(self._now(), self._before, strict=True):
                overwrite(buffer, before)
        self._slot = slot

    def end_piece(self, weight: float) -> None:
        """Add the buffers after a batch to their weighted mean.

        `weight` is the part of the step's records in the batch.
        """
        self._weight += weight
        if self.parts and self._is_mean and self._buffers:
            rows = [_numbers(one) * weight for one in self._now()]
            self._sums = [row + more for row, more in zip(self._sums, rows, strict=True)] if self._sums else rows

    def _now(self) -> list[Any]:
        """The buffers as they are; the loop may have put other tensors in their places.

        Raises:
            PermanentError: one has another shape or type than at the beginning of the step.
        """
        now = self._state.buffers
        for (name, one), before in zip(now.items(), self._buffers, strict=True):
            if one is not before and (one.shape != before.shape or one.dtype != before.dtype):
                raise PermanentError(
                    f"Elastic: the buffer {name} is {one.dtype} of shape {tuple(one.shape)}, and when the step began"
                    f" it was {before.dtype} of shape {tuple(before.shape)}, so it cannot be kept equal in all;"
                    " give it its largest size at the beginning, and write into it"
                )
        return list(now.values())

    @property
    def changed(self) -> int:
        """Bit i is set if buffer i may have changed in this step."""
        for name, one, version in self._others if not self._wire.is_alone else ():
            if not self._has_said_others and version_of(one) != version:
                self._has_said_others = True
                _log.warning(
                    "Elastic: the loop writes to the buffer %s, which is not saved (persistent=False), so it is not"
                    " kept equal in all trainers. Register it with persistent=True if a batch reads what an earlier"
                    " one has written (said once)",
                    name,
                )
        found = 0
        for place, (one, before, version) in enumerate(zip(self._now(), self._buffers, self._versions, strict=True)):
            is_same = one is before and version_of(one) == version and one.numel() > _SMALL
            found |= (not is_same) << place
        return found

    def sync(self, changed: int, *, is_last: bool) -> None:
        """Exchange the buffers.

        Args:
            changed: the union of `changed` over all trainers.
            is_last: this trainer has the last records of the step.

        Raises:
            PeerLostError: a trainer is gone; nothing has changed.
            PermanentError: one is of a kind that cannot be exchanged.
        """
        if not changed or not self._is_exchanged:
            return
        for index, name in enumerate(self._state.buffers):
            if changed >> index & 1:
                check_kind(f"the buffer {name}", self._buffers[index])
        chosen = [(index, one) for index, one in enumerate(self._now()) if changed >> index & 1]
        means = [(index, one) for index, one in chosen if self._is_mean and not _is_whole(one)]
        others = [one for _, one in chosen if not self._is_mean or _is_whole(one)]
        rows = [torch.cat([bytes_of(one) for one in others])] if others else []
        if not is_last:
            rows = [torch.zeros_like(row) for row in rows]
        if means:
            parts = [self._sums[index] if self._sums else _numbers(one) * self._weight for index, one in means]
            rows.append(torch.cat(parts) if self._weight else torch.zeros_like(torch.cat(parts)))
        self._wire.sum(rows)
        if others:
            self._put(others, rows[0].split([one.numel() * one.element_size() for one in others]), _from_bytes)
        if means:
            sizes = [len(_numbers(one)) for _, one in means]
            self._put([one for _, one in means], rows[-1].split(sizes), _from_numbers)

    def _put(self, chosen: list[Any], parts: Any, made: Callable[[Any, Any], Any]) -> None:
        for one, part in zip(chosen, parts, strict=True):
            its = made(part, one)
            is_asked = self._weight and not self._is_mean and not self._has_said
            if is_asked and not torch.equal(its, one.detach().cpu()):
                self._say(one)
            overwrite(one, its)

    def _say(self, buffer: Any) -> None:
        """Say once that the trainers had other values, unless it is an average of a normalisation."""
        name = next(name for name, one in self._state.buffers.items() if one is buffer)
        if name.rpartition(".")[2] not in _AVERAGES:
            self._has_said = True
            _log.warning(
                "Elastic: the buffer %s had other values in another trainer, and all take those of the one with the"
                " last records of the step. If it is computed from the records of a batch, such as a queue of keys or"
                " an average, it depends on the number of trainers (said once)",
                name,
            )


def _is_whole(buffer: Any) -> bool:
    """Whether it has whole numbers, such as a count: their mean would be no whole one."""
    return not (buffer.is_floating_point() or buffer.is_complex())


def _numbers(buffer: Any) -> Any:
    """The numbers of a buffer, in double precision; a complex one is two."""
    flat = resolved(buffer.detach()).reshape(-1)
    return (torch.view_as_real(flat).reshape(-1) if buffer.is_complex() else flat).to("cpu", torch.float64)


def _from_numbers(part: Any, buffer: Any) -> Any:
    return (torch.view_as_complex(part.view(-1, 2)) if buffer.is_complex() else part).view_as(buffer)


def _from_bytes(part: Any, buffer: Any) -> Any:
    return part.clone().view(buffer.dtype).view_as(buffer)
