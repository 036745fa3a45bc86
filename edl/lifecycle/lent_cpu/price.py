"""What lending costs a job: the speed that it loses for each core lent by a trainer that serving slows.

The price is in cores' worth of its speed: 1 means that the job loses what those cores would train. It is less if its
trainers wait for their data anyway, and more if the others wait for a slow one. A window in which trainers are slow
is compared with the speed of as many trainers that were not; it never changes that speed itself.

Pure: a meter and a reading give the next meter. One window moves the price by a bounded part only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edl.model.jobs import Job
from edl.model.progress import Speed
from edl.model.resources import CPU

WINDOW_S = 10.0
"""Minimum length of a window; it is short, since --clear-lending-after-s soon ends the lending that slows a job."""

MAX_PRICE = 100.0
"""The highest price: that of a job in which one slow trainer stops a hundred others."""

KNOWN_S = 10.0
"""The least measurement in seconds behind a speed that is used for comparison."""

NEW_WINDOW = 0.25
"""Weight of the last window in the price; the rest is that of all earlier windows."""


@dataclass(frozen=True, slots=True)
class SlowedReading:
    """The progress of a job at one moment, and how much CPU its slowed trainers lend.

    Attributes:
        at_s: monotonic seconds.
        epoch: the epoch of `consumed`.
        consumed: positions that the trainers have processed.
        trainers: live trainers.
        cores: cores that they declare together.
        lent: the cores that the slowed trainers lend; 0 while none is slow.
        is_steady: every trainer works, and there is work for each.
    """

    at_s: float
    epoch: int
    consumed: int
    trainers: int
    cores: float
    lent: float
    is_steady: bool = True


@dataclass(frozen=True, slots=True)
class PriceMeter:
    """What lending CPU costs a job, as measured so far, and the window in which it is measured now.

    Attributes:
        price: cores' worth of speed lost for each core lent, 0 to MAX_PRICE; None until a window has closed.
        start: the reading at which the open window started; None if no window is open.
    """

    price: float | None = None
    start: SlowedReading | None = None


def reading_of(job: Job, at_s: float, epoch: int, consumed: int, *, is_steady: bool) -> SlowedReading:
    """The reading of a job whose status says how many of its trainers are slow; each is taken to lend the mean."""
    lending = job.status.lending if job.status is not None else None
    trainers = job.live_trainers
    lenders = sum(pod.lent_cpu_milli > 0 for pod in trainers)
    slowed = min(lending.slowed, lenders) if lending is not None else 0
    lent_milli = sum(pod.lent_cpu_milli for pod in trainers) * slowed / lenders if lenders else 0.0
    cores = sum(pod.shape.request[CPU] for pod in trainers) / 1000
    return SlowedReading(at_s, epoch, consumed, len(trainers), cores, lent_milli / 1000, is_steady)


def observe_price(
    meter: PriceMeter, reading: SlowedReading, speeds: tuple[Speed, ...], window_s: float = WINDOW_S
) -> PriceMeter:
    """Add a reading to the measurement: it opens a window, continues it, or closes it and updates the price.

    Args:
        meter: the meter after the earlier readings.
        reading: the next reading.
        speeds: those of trainers that nobody slows.
        window_s: minimum length of a window.
    """
    start = meter.start
    if not reading.is_steady or reading.lent <= 0:
        return replace(meter, start=None)
    if start is None or not _follows(start, reading):
        return replace(meter, start=reading)
    passed_s = reading.at_s - start.at_s
    if passed_s < window_s:
        return meter
    full = next((s.per_s for s in speeds if s.trainers == reading.trainers and s.weight_s >= KNOWN_S), 0.0)
    if full <= 0:
        return replace(meter, start=reading)
    lost = 1.0 - (reading.consumed - start.consumed) / passed_s / full
    found = min(MAX_PRICE, max(0.0, lost * reading.cores / reading.lent))
    price = found if meter.price is None else (1 - NEW_WINDOW) * meter.price + NEW_WINDOW * found
    return PriceMeter(price, reading)


def _follows(start: SlowedReading, reading: SlowedReading) -> bool:
    """Return True if the reading continues the window: trainers and lent CPU are those with which it was opened."""
    is_later = reading.at_s > start.at_s and reading.consumed >= start.consumed and reading.epoch == start.epoch
    return is_later and (reading.trainers, reading.cores, reading.lent) == (start.trainers, start.cores, start.lent)
