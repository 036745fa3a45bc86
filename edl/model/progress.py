"""What is stored of a job's training: how far its data set is consumed, and what was measured while it ran.

The nouns alone. How they come about stands in `ledgers` and in `measuring`.
"""

from __future__ import annotations

from dataclasses import dataclass

LOST_MODEL = "lost"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job's data set is consumed, as its master counts it: positions of the present epoch.

    Attributes:
        model: which pservers hold the model that goes with these accounts (`ledgers.model_of`); LOST_MODEL where the
            model is gone and the accounts have to go back with it; empty where nobody has looked yet.
    """

    epoch: int = 0
    done: int = 0
    total: int = 0
    model: str = ""

    @property
    def is_begun(self) -> bool:
        """True where something was done."""
        return bool(self.epoch or self.done)


@dataclass(frozen=True, slots=True)
class Speed:
    """What a number of trainers was measured to do.

    Attributes:
        trainers: how many.
        per_s: samples per second of them together.
        weight_s: how many seconds of measuring stand behind it; what is old counts less.
    """

    trainers: int
    per_s: float
    weight_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a job while it ran.

    Attributes:
        speeds: sorted by number of trainers.
        resize_s: what a resize cost lately, in seconds of training; None while that is not measured.
    """

    speeds: tuple[Speed, ...] = ()
    resize_s: float | None = None


NOTHING_MEASURED = Measured()
