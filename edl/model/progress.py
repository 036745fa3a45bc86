"""The stored training data of a job: the progress through its data set, and its measured speed and resize cost.

Types only: `edl.lifecycle.data_progress` and `edl.lifecycle.measurement` compute the values.
"""

from __future__ import annotations

from dataclasses import dataclass

LOST_MODEL = "lost"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job through its data set, counted by its master in positions of the current epoch.

    Attributes:
        epoch: the current epoch, from 0.
        done: positions of that epoch that are done.
        total: all positions of that epoch.
        model: identifies the pservers that hold the model with this progress; see
            `edl.lifecycle.data_progress.model_of`. LOST_MODEL if the model was lost: the ledger must then return to
            the last checkpoint. Empty if it is not known.
        unsaved: positions that training would repeat if the model were lost now.
    """

    epoch: int = 0
    done: int = 0
    total: int = 0
    model: str = ""
    unsaved: int = 0

    @property
    def is_begun(self) -> bool:
        """True if any position is done."""
        return bool(self.epoch or self.done)


@dataclass(frozen=True, slots=True)
class Speed:
    """The measured speed of a number of trainers.

    Attributes:
        trainers: how many trainers.
        per_s: samples per second that they process together.
        weight_s: seconds of measurement behind the value; older seconds count less.
    """

    trainers: int
    per_s: float
    weight_s: float


@dataclass(frozen=True, slots=True)
class Goodput:
    """What a number of trainers achieves with the best batch for it, as a job reports that may choose its batch.

    Attributes:
        trainers: how many trainers.
        per_s: useful samples per second: each teaches as much as one of the job's smallest batch.
        batch: samples of a step; 0 if the job does not say so.
        efficiency: what a sample of that batch teaches compared with one of the smallest batch, in (0, 1]; 0 if the
            job does not say so.
        is_measured: the job has had so many trainers; otherwise it predicts their goodput.
    """

    trainers: int
    per_s: float
    batch: int = 0
    efficiency: float = 0.0
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """Speeds and costs that edl measured while a job ran.

    Attributes:
        speeds: sorted by number of trainers.
        goodputs: sorted by number of trainers; empty for a job of one batch.
        batch: the global batch that such a job has chosen, in samples; 0 if it is not known.
        resize_s: the training time that a recent resize cost, in seconds; None if none was measured.
        lending_price: cores' worth of speed that the job loses for each core that its slowed trainers lend; None if
            it was not measured.
    """

    speeds: tuple[Speed, ...] = ()
    resize_s: float | None = None
    lending_price: float | None = None
    goodputs: tuple[Goodput, ...] = ()
    batch: int = 0


NOTHING_MEASURED = Measured()
