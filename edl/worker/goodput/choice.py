"""Which global batch makes the most progress, and how much that is by the number of trainers.

The goodput of a batch is the records that a second trains, each counted by how much it advances the training compared
with a record of the base batch (Pollux, OSDI 2021, definition 3.1). In these units the speeds of different counts can
be compared although their batches differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from edl.worker.goodput.rates import efficiency
from edl.worker.goodput.step_times import StepKind, TimeModel

BETTER = 1.05
"""The factor by which a batch must have more goodput than the present one to replace it."""
_FINENESS = 2  # batches for each doubling
MOST_COUNTS = 64


class Speed(NamedTuple):
    """The goodput of a number of trainers.

    Attributes:
        trainers: how many processes share the records of a step.
        per_s: records of the base batch to which the progress of a second is equal.
        is_measured: steps of so many trainers were seen; otherwise it is predicted.
        batch: the records of a step that give this goodput.
        efficiency: what one of them advances the training compared with a record of the base batch, in (0, 1].
    """

    trainers: int
    per_s: float
    is_measured: bool
    batch: int
    efficiency: float


class Choice:
    """Compares the batches that a job allows.

    Args:
        base: the smallest one, for which the learning rate was chosen.
        largest: the largest one.
        passes: gives the passes of each trainer for a number of trainers and a batch.
    """

    def __init__(self, base: int, largest: int, passes: Callable[[int, int], int]) -> None:
        self._base, self._passes = base, passes
        steps = range(_FINENESS * (largest // base).bit_length() + 1)
        between = (round(base * 2 ** (step / _FINENESS)) for step in steps)
        self.batches = sorted({base, largest, *(batch for batch in between if batch < largest)})

    def kind(self, trainers: int, batch: int) -> StepKind:
        """The kind of a step."""
        return StepKind(trainers, batch, self._passes(trainers, batch))

    def goodput(self, model: TimeModel, noise: float, trainers: int, batch: int) -> float | None:
        """The goodput of a batch; None if its time cannot be predicted."""
        seconds = model.seconds(self.kind(trainers, batch))
        return batch / seconds * efficiency(noise, self._base, batch) if seconds else None

    def best(self, model: TimeModel, noise: float, trainers: int, current: int) -> int:
        """Return the global batch for the next step.

        Args:
            model: of the times.
            noise: the noise scale in records.
            trainers: how many processes share the records.
            current: the batch in use; it stays unless another one is better by `BETTER`.
        """
        now = self.goodput(model, noise, trainers, current)
        if now is None:
            return current
        found = {batch: self.goodput(model, noise, trainers, batch) or 0.0 for batch in self.batches}
        best = max(found, key=lambda batch: found[batch])
        return best if found[best] > BETTER * now else current

    def curve(self, model: TimeModel, noise: float, seen: set[int]) -> list[Speed]:
        """The goodput by number of trainers, with the best batch for each.

        Args:
            model: of the times.
            noise: the noise scale in records.
            seen: the numbers of trainers that were measured; others follow up to twice the largest of them.
        """
        most = int(model.most_trainers)
        counts = sorted({*range(1, min(most, MOST_COUNTS) + 1), *seen})[-MOST_COUNTS:]
        found = []
        for trainers in counts:
            values = {batch: self.goodput(model, noise, trainers, batch) or 0.0 for batch in self.batches}
            best = max(values, key=lambda batch: values[batch])
            if values[best]:
                useful = efficiency(noise, self._base, best)
                found.append(Speed(trainers, values[best], trainers in seen, best, useful))
        return found
