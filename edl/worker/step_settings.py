"""How a job divides its epochs into steps, and each step into the pieces that trainers compute."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass
from typing import NamedTuple, SupportsIndex

from edl.errors import ConfigError


class Piece(NamedTuple):
    """Some neighbouring positions of a step, which one trainer computes together.

    Attributes:
        epoch: the epoch of the positions.
        start, end: half-open, within the epoch.
        slot: the place of the piece in the order in which gradients are summed.
        weight: the part of the step's records that the piece has, in (0, 1]. 0 is a piece of a record of another
            process: this one has to compute as many pieces as the others, and its gradient does not count.
    """

    epoch: int
    start: int
    end: int
    slot: int
    weight: float


class Division(NamedTuple):
    """How a trainer divides its records among its processes.

    Attributes:
        process: of the processes of this trainer, from 0.
        processes: how many processes each trainer has.
        is_sharded: each process has a part of the model: all of them compute as many pieces, at the same time.
    """

    process: int = 0
    processes: int = 1
    is_sharded: bool = False


_ALONE = Division()
_LEAST = {"global_batch": 1, "micro_batch": 1, "logical_ranks": 0, "save_every": 0}


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
        within: how a trainer divides its records among its processes.

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
    within: Division = _ALONE

    def __post_init__(self) -> None:
        if self.global_batch is None and self.micro_batch is None:
            raise ConfigError(
                "steps: neither global_batch nor micro_batch is given, so the size of a step is not known; set"
                " spec.elasticity.globalBatch in the job, or EDL_GLOBAL_BATCH, or pass micro_batch= for a step that"
                " grows with the trainers"
            )
        for name, least in _LEAST.items():
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _whole(name, value, least))
        if self.global_batch is None and self.logical_ranks:
            raise ConfigError(
                f"steps: a job whose steps have {self.logical_ranks} parts (deterministic) needs global_batch; set"
                " spec.elasticity.globalBatch"
            )
        if self.global_batch is not None and self.scale_rate:
            raise ConfigError(
                "steps: scale_rate is for jobs whose batch grows with the trainers, and"
                f" global_batch={self.global_batch} keeps it; leave scale_rate away, or give micro_batch instead of"
                " global_batch"
            )

    @property
    def agreement(self) -> str:
        """The settings that all trainers of a job must share."""
        batch = f"global_batch={self.global_batch} micro_batch={self.micro_batch}"
        some = f" processes={self.within.processes}" if self.within.processes > 1 else ""
        return f"{batch} logical_ranks={self.logical_ranks}{some}{' sharded' if self.within.is_sharded else ''}"

    @property
    def end(self) -> int:
        """The position at which the job ends."""
        return self.total * self.epochs

    def step_end(self, position: int, size: int) -> int:
        """Where the step that begins at a position ends, with that many trainers; no step crosses an epoch."""
        each = (self.micro_batch or 1) * self.within.processes
        batch = self.global_batch if self.global_batch is not None else each * size
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
        """The pieces that this process of a trainer computes in the step that begins at a position."""
        end = self.step_end(position, size)
        epoch, start = divmod(position, self.total)
        count = end - position
        process, processes, is_sharded = self.within
        if not is_sharded:
            rank, size = rank * processes + process, size * processes
        parts = self.logical_ranks or size
        found = []
        for part in parts_of(parts, rank, size):
            low, high = part * count // parts, (part + 1) * count // parts
            for first, last in self._cuts(low, high) if is_sharded else self._passes(low, high):
                weight = (last - first) / count
                found.append(Piece(epoch, start + first, start + max(last, first + 1), part, weight))
        return found

    def _passes(self, low: int, high: int) -> list[tuple[int, int]]:
        most = self.micro_batch or max(1, high - low)
        return [(first, min(first + most, high)) for first in range(low, high, most)]

    def _cuts(self, low: int, high: int) -> list[tuple[int, int]]:
        """The passes of this process over a part; one that has no records left gets empty ones."""
        process, processes, _ = self.within
        ends = [low + at * (high - low) // processes for at in range(processes + 1)]
        passes = [self._passes(*pair) for pair in itertools.pairwise(ends)]
        mine = passes[process]
        return mine + [(low, low)] * (max(map(len, passes)) - len(mine))


def _whole(name: str, value: object, least: int) -> int:
    try:
        found = operator.index(value) if isinstance(value, SupportsIndex) else least - 1  # numpy has numbers, too
    except TypeError:
        found = least - 1
    if found < least:
        raise ConfigError(f"steps: {name}={value!r} cannot be used; give a whole number of at least {least}")
    return found


def parts_of(parts: int, rank: int, size: int) -> range:
    """The parts of a step that a trainer computes: neighbouring ones, so that their order is that of the ranks.

    Args:
        parts: the parts of a step, at least 0.
        rank: of the trainer, in `[0, size)`.
        size: how many trainers there are.
    """
    return range(math.ceil(rank * parts / size), math.ceil((rank + 1) * parts / size))
