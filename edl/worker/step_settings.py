"""How a job divides its epochs into steps, and each step into the pieces that trainers compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from edl.errors import ConfigError


class Piece(NamedTuple):
    """Some neighbouring positions of a step, which one trainer computes together.

    Attributes:
        epoch: of the positions.
        start, end: half-open, within the epoch.
        slot: the place of the piece in the order in which gradients are summed.
        weight: the part of the step's records that the piece has, in (0, 1].
    """

    epoch: int
    start: int
    end: int
    slot: int
    weight: float


@dataclass(frozen=True)
class StepSettings:
    """How a job trains in step.

    Attributes:
        total: records of an epoch.
        epochs: how often to train on each record.
        global_batch: records of a step; None gives each trainer `micro_batch` records in each step.
        micro_batch: the most records of a piece; None for no limit.
        logical_ranks: into how many parts a step is always divided, however many trainers there are; 0 divides it
            by the number of trainers.
        save_every: save the model after so many steps of an epoch, and at the end of the job; 0 for never, None for
            the end of each epoch.
        scale_rate: without a global batch, multiply the learning rate by the number of trainers.

    Raises:
        ConfigError: the values contradict each other.
    """

    total: int
    epochs: int = 1
    global_batch: int | None = None
    micro_batch: int | None = None
    logical_ranks: int = 0
    save_every: int | None = 0
    scale_rate: bool = False

    def __post_init__(self) -> None:
        if self.global_batch is None and self.micro_batch is None:
            raise ConfigError(
                "steps: neither global_batch nor micro_batch is given, so the size of a step is not known; set"
                " spec.elasticity.globalBatch in the job, or EDL_GLOBAL_BATCH, or pass micro_batch= for a step that"
                " grows with the trainers"
            )
        if any(size is not None and size < 1 for size in (self.global_batch, self.micro_batch)):
            raise ConfigError("steps: global_batch and micro_batch must be at least 1")
        if self.global_batch is None and self.logical_ranks:
            raise ConfigError("steps: a deterministic job needs global_batch; set spec.elasticity.globalBatch")
        if self.global_batch is not None and self.scale_rate:
            raise ConfigError("steps: scale_rate is only for jobs without global_batch, whose batch grows")

    @property
    def division(self) -> str:
        """What all trainers of a job must have in common."""
        batch = f"global_batch={self.global_batch} micro_batch={self.micro_batch}"
        return f"{batch} logical_ranks={self.logical_ranks}"

    @property
    def end(self) -> int:
        """The position at which the job ends."""
        return self.total * self.epochs

    def step_end(self, position: int, size: int) -> int:
        """Where the step that begins at a position ends, with that many trainers; no step crosses an epoch."""
        batch = self.global_batch if self.global_batch is not None else (self.micro_batch or 1) * size
        return min(position + batch, (position // self.total + 1) * self.total)

    def is_saved_after(self, position: int, size: int) -> bool:
        """True if the model is saved after the step that begins at a position."""
        if self.save_every is None:
            return self.step_end(position, size) % self.total == 0
        if not self.save_every:
            return False
        start = position % self.total
        length = self.step_end(position - start, size) - (position - start)
        return (start // length + 1) % self.save_every == 0 or self.step_end(position, size) == self.end

    def pieces(self, position: int, rank: int, size: int) -> list[Piece]:
        """What a trainer computes in the step that begins at a position."""
        end = self.step_end(position, size)
        epoch, start = divmod(position, self.total)
        count = end - position
        parts = self.logical_ranks or size
        found = []
        for part in parts_of(parts, rank, size):
            low, high = part * count // parts, (part + 1) * count // parts
            most = self.micro_batch or max(1, count)
            for first in range(low, high, most):
                last = min(first + most, high)
                found.append(Piece(epoch, start + first, start + last, part, (last - first) / count))
        return found


def parts_of(parts: int, rank: int, size: int) -> range:
    """The parts of a step that a trainer computes: neighbouring ones, so that their order is that of the ranks.

    Args:
        parts: of a step, at least 0.
        rank: of the trainer, in `[0, size)`.
        size: how many trainers there are.
    """
    return range(math.ceil(rank * parts / size), math.ceil((rank + 1) * parts / size))
