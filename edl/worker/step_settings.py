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
_LEAST = {"global_batch": 1, "micro_batch": 1, "logical_ranks": 0, "save_every": 0, "largest_batch": 1}
RATE_RULES = ("none", "linear", "sqrt", "adascale")
"""How the learning rate may follow the records of a step; see `edl.worker.goodput.rates`."""


class StepPlan(NamedTuple):
    """A step that all trainers are about to make.

    Attributes:
        start, end: its positions, counted through all epochs, half-open.
        batch: the records of a step that is not the last one of its epoch.
        trainers: how many share it.
    """

    start: int
    end: int
    batch: int
    trainers: int


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
        largest_batch: the job may choose each step's records from `global_batch` to this; None keeps `global_batch`.
        rate_rule: one of `RATE_RULES`: how the learning rate follows the records of a step; empty if nobody said.
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
    largest_batch: int | None = None
    rate_rule: str = ""
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
        self._check_range()

    def _check_range(self) -> None:
        """Refuse a range of batches that cannot be used, and a rule of the learning rate that is not known."""
        base, largest = self.global_batch, self.largest_batch
        if self.rate_rule and self.rate_rule not in RATE_RULES:
            raise ConfigError(
                f"steps: rate_rule={self.rate_rule!r} is not known; give one of {', '.join(RATE_RULES)}"
            )
        if largest is not None and (base is None or largest < base):
            raise ConfigError(
                f"steps: the largest global batch is {largest}, and the smallest one {base}; give the smaller one"
                " first, as in Elastic(..., global_batch=(64, 512)), or in spec.elasticity, as in globalBatch: 64 and"
                " maxGlobalBatch: 512"
            )
        if not self.is_ranged:
            return
        if self.logical_ranks:
            raise ConfigError(
                f"steps: the global batch may be {base} to {largest}, so the weights depend on the number of"
                f" trainers, and deterministic={self.logical_ranks} says that they do not; leave one of the two away"
            )
        if self.within.is_sharded:
            raise ConfigError(
                f"steps: the global batch may be {base} to {largest}, and the noise of gradients is not measured for"
                " a model that is spread over processes (FSDP2); give one global batch, or leave fully_shard away"
            )
        if not self.rate_rule:
            raise ConfigError(
                f"steps: the global batch may be {base} to {largest}, and nobody says how the learning rate follows;"
                " pass rate_rule='adascale' (SGD), 'sqrt' (Adam), 'linear' or 'none' to Elastic; a script that calls"
                " optimizer.step() itself (Accelerator, Trainer, Lightning) trains with one global batch"
            )

    @property
    def is_ranged(self) -> bool:
        """True if the job chooses its global batch."""
        return self.largest_batch is not None and self.largest_batch != self.global_batch

    @property
    def agreement(self) -> str:
        """The settings that all trainers of a job must share."""
        batch = f"global_batch={self.global_batch} micro_batch={self.micro_batch}"
        some = f" processes={self.within.processes}" if self.within.processes > 1 else ""
        some += " sharded" if self.within.is_sharded else ""
        some += f" largest_batch={self.largest_batch}" if self.is_ranged else ""
        some += f" rate_rule={self.rate_rule}" if self.rate_rule not in {"", "none"} else ""
        return f"{batch} logical_ranks={self.logical_ranks}{some}"

    @property
    def end(self) -> int:
        """The position at which the job ends."""
        return self.total * self.epochs

    def base_batch(self, size: int) -> int:
        """The global batch in records for a number of trainers, if the job does not choose it."""
        each = (self.micro_batch or 1) * self.within.processes
        return self.global_batch if self.global_batch is not None else each * size

    def passes(self, size: int, batch: int) -> int:
        """The batches that a trainer computes one after the other in a step with a number of trainers and records."""
        share = -(-batch // (size * self.within.processes))
        return -(-share // self._most(share, size))

    def plan(self, position: int, size: int, batch: int | None = None) -> StepPlan:
        """The step that begins at a position; no step crosses an epoch.

        Args:
            position: counted through all epochs.
            size: how many trainers there are.
            batch: the batch that the trainers have agreed on; None for that of the settings.
        """
        records = batch or self.base_batch(size)
        end = min(position + records, (position // self.total + 1) * self.total)
        return StepPlan(position, end, records, size)

    def base_steps(self, start: int, end: int, size: int = 1) -> int:
        """Return how many steps of the base batch end between two positions; an unfinished one counts at its start.

        Schedules of learning rates and checkpoints count them: a job that chooses its batch has as many as another.
        """
        return self._steps_before(end, size) - self._steps_before(start, size)

    def _steps_before(self, position: int, size: int) -> int:
        epoch, rest = divmod(position, self.total)
        base = self.base_batch(size)
        return epoch * -(-self.total // base) + -(-rest // base)

    def is_saved_after(self, plan: StepPlan) -> bool:
        """True if the model is saved after a step."""
        if self.save_every is None:
            return plan.end % self.total == 0
        if not self.save_every:
            return False
        first = plan.start - plan.start % self.total
        before, after = (self.base_steps(first, at, plan.trainers) for at in (plan.start, plan.end))
        return after // self.save_every > before // self.save_every or plan.end == self.end

    def pieces(self, position: int, rank: int, size: int, batch: int | None = None) -> list[Piece]:
        """The pieces that this process of a trainer computes in the step that begins at a position; see `plan`."""
        end = self.plan(position, size, batch).end
        epoch, start = divmod(position, self.total)
        count = end - position
        trainers, (process, processes, is_sharded) = size, self.within
        if not is_sharded:
            rank, size = rank * processes + process, size * processes
        parts = self.logical_ranks or size
        found = []
        for part in parts_of(parts, rank, size):
            low, high = part * count // parts, (part + 1) * count // parts
            most = self._most(high - low, trainers)
            for first, last in self._cuts(low, high, most) if is_sharded else _passes(low, high, most):
                weight = (last - first) / count
                found.append(Piece(epoch, start + first, start + max(last, first + 1), part, weight))
        return found

    def _most(self, share: int, size: int) -> int:
        """The most records of a pass; a single trainer that measures noise needs two passes to compare."""
        most = self.micro_batch or max(1, share)
        return min(most, max(1, -(-share // 2))) if self.is_ranged and size * self.within.processes == 1 else most

    def _cuts(self, low: int, high: int, most: int) -> list[tuple[int, int]]:
        """The passes of this process over a part; one that has no records left gets empty ones."""
        process, processes, _ = self.within
        ends = [low + at * (high - low) // processes for at in range(processes + 1)]
        passes = [_passes(*pair, most) for pair in itertools.pairwise(ends)]
        mine = passes[process]
        return mine + [(low, low)] * (max(map(len, passes)) - len(mine))


def _passes(low: int, high: int, most: int) -> list[tuple[int, int]]:
    return [(first, min(first + most, high)) for first in range(low, high, most)]


def batch_range(
    given: int | tuple[int, int] | None, by_spec: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """The smallest and the largest global batch; the second one is None for a job of one batch.

    Args:
        given: by the script, a batch or a pair; None if it says nothing.
        by_spec: what the job's spec says.

    Raises:
        ConfigError: the script gives something else.
    """
    if not given:
        return by_spec
    if not isinstance(given, tuple | list):
        return given, None
    if len(given) != 2:
        raise ConfigError(
            f"steps: global_batch={given!r} cannot be used; give one number, or the smallest and the largest batch,"
            " such as (64, 512)"
        )
    return given[0], given[1]


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
