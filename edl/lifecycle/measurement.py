"""The measured speed of a job by number of trainers, and the measured cost of a resize.

Both come from one number, the positions that a master sees consumed. Speed is measured in windows in which the number
of trainers is constant and every trainer has work. The cost of a resize is the time from the change of the number
until every trainer works, minus the work done in that time at the speed after it. If the other trainers go on while
new ones join, that is the work that the new ones miss. If the whole job stops, it is all of the time. Work that
deleted trainers leave to be repeated counts as well.

Pure: a meter and a reading give the next meter. Readings are noisy, because trainers report progress only a few times
per lease TTL. So one window changes a known speed by a bounded factor, and old measurements lose weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, floor, log2, log10

from edl.model.jobs import Job
from edl.model.progress import NOTHING_MEASURED, Measured, Speed

WINDOW_S = 30.0
SETTLE_S = 300.0
"""A resize after which some trainer still has no work at this time is not measured: it may never take any."""

MAX_WEIGHT_S = 300.0
"""Maximum weight of a speed, in seconds of measurement."""

HALF_LIFE_S = 3600.0
"""A speed loses half of its weight while other numbers of trainers are measured for this long."""

MIN_WEIGHT_S = 0.5
"""A speed with less weight is dropped."""

MAX_SPEEDS = 32
"""Maximum number of speeds; those with the least weight are dropped first."""

OUTLIER = 2.0
"""A window changes a known speed as if it were at most this factor faster or slower."""

NEW_RESIZE = 0.5
"""Weight of the last resize in the mean cost; the rest is that of all earlier resizes."""

MIN_SPEED_CHANGE, MIN_COST_CHANGE, MIN_COST_CHANGE_S = 0.05, 0.1, 1.0
"""Smaller changes of a speed (fraction) or of the resize cost (fraction, seconds) are not written to the status."""

MIN_PRICE_CHANGE = 0.1
"""Smaller changes of the price of lending are not written either."""


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """The report of a master at one moment.

    Attributes:
        at_s: monotonic seconds.
        epoch: the epoch of `consumed`; 0 if the trainers train in step, whose work is counted through all epochs.
        consumed: positions that the trainers have processed.
        trainers: live trainers, ready or not.
        working: those of them that have made progress with their leases, or in their world.
        is_steady: there is work for every trainer: positions are waiting, the journal is writable, and no restore is
            due.
    """

    at_s: float
    epoch: int
    consumed: int
    trainers: int
    working: int
    is_steady: bool = True


@dataclass(frozen=True, slots=True)
class OpenResize:
    """A resize whose measurement is not complete.

    Attributes:
        before: the last reading with the old number of trainers.
        settled: the first reading in which every trainer works; None until then.
    """

    before: ProgressReading
    settled: ProgressReading | None = None


@dataclass(frozen=True, slots=True)
class SpeedMeter:
    """The measurements so far, and the open window.

    Attributes:
        measured: speeds and resize cost.
        last: the last reading.
        since_s: since when the number of trainers is constant and nothing prevents a measurement.
        start: the reading at which the open window started; None if no window is open.
        change: the resize whose cost will be known when the window closes; None if there is none.
        lost_s: the cost of the last resize, in seconds; None if no window has closed since.
    """

    measured: Measured = NOTHING_MEASURED
    last: ProgressReading | None = None
    since_s: float = 0.0
    start: ProgressReading | None = None
    change: OpenResize | None = None
    lost_s: float | None = None


def observe(meter: SpeedMeter, reading: ProgressReading, window_s: float = WINDOW_S) -> SpeedMeter:
    """Add a reading of the job's progress to the measurement of its speed.

    Args:
        meter: the meter after the earlier readings.
        reading: the next reading; if it is not later than the last one, measuring starts again.
        window_s: minimum length of a window.
    """
    last = meter.last
    if last is None or not _follows(last, reading):
        return replace(meter, last=reading, since_s=reading.at_s, start=None, change=None)
    if reading.trainers != last.trainers:
        change = OpenResize(last) if last.trainers and reading.trainers else None
        meter = replace(meter, since_s=reading.at_s, start=None, change=change, lost_s=None)
    if meter.start is None:
        return _opened(meter, reading)
    passed_s = reading.at_s - meter.start.at_s
    consumed = reading.consumed - meter.start.consumed
    if passed_s < window_s or not consumed:
        return replace(meter, last=reading)
    return _closed(meter, reading, consumed / passed_s, passed_s)


def add_speed(speeds: tuple[Speed, ...], trainers: int, per_s: float, seconds: float) -> tuple[Speed, ...]:
    """Add one window to the speeds.

    Args:
        speeds: the known speeds, sorted by trainers.
        trainers: trainers that worked in the window, at least 1.
        per_s: samples per second in the window, > 0.
        seconds: length of the window, > 0.
    """
    known = next((s for s in speeds if s.trainers == trainers), None)
    decay = 0.5 ** (seconds / HALF_LIFE_S)
    others = [replace(s, weight_s=s.weight_s * decay) for s in speeds if s.trainers != trainers]
    if known is None:
        new = Speed(trainers, per_s, min(seconds, MAX_WEIGHT_S))
    else:
        bounded = min(max(per_s, known.per_s / OUTLIER), known.per_s * OUTLIER)
        seconds = min(seconds, MAX_WEIGHT_S / 2)
        weight_s = min(known.weight_s, MAX_WEIGHT_S - seconds)
        mean = (known.per_s * weight_s + bounded * seconds) / (weight_s + seconds)
        new = Speed(trainers, mean, weight_s + seconds)
    kept = sorted((s for s in others if s.weight_s >= MIN_WEIGHT_S), key=lambda s: (-s.weight_s, s.trainers))
    return tuple(sorted((*kept[: MAX_SPEEDS - 1], new), key=lambda s: s.trainers))


def with_measured(job: Job) -> Job:
    """The job with its measured speeds and resize cost, unless the spec declares them, and what it has not saved.

    One speed alone does not show how a job scales, so at least two are used.
    """
    measured = job.status.measured if job.status is not None else NOTHING_MEASURED
    throughput, cost_s = job.throughput, job.resize_cost_s
    if not throughput and len(measured.speeds) > 1:
        throughput = tuple((s.trainers, s.per_s) for s in measured.speeds)
    return replace(
        job,
        throughput=throughput,
        goodput=job.goodput or tuple((one.trainers, one.per_s) for one in measured.goodputs),
        resize_cost_s=measured.resize_s if cost_s is None else cost_s,
        unsaved_s=_unsaved_s(job, throughput or tuple((s.trainers, s.per_s) for s in measured.speeds)),
    )


def _unsaved_s(job: Job, speeds: tuple[tuple[int, float], ...]) -> float:
    """How long the job trained for what it has not saved, at the speed nearest to its number of trainers.

    It is rounded up to a power of two, so that the plan of a job that trains on stays the same for a while.
    """
    stored = job.status.dataset if job.status is not None else None
    live = len(job.live_trainers)
    nearest = min(speeds, key=lambda speed: (abs(speed[0] - live), speed), default=(0, 0.0))
    if stored is None or stored.unsaved <= 0 or nearest[1] <= 0:
        return 0.0
    return float(2 ** max(0, ceil(log2(stored.unsaved / nearest[1]))))


def rounded(measured: Measured) -> Measured:
    """The measurements with the digits that are stored: three of a speed, whole seconds of weight."""
    speeds = tuple(Speed(s.trainers, _three_digits(s.per_s), float(round(s.weight_s))) for s in measured.speeds)
    price = measured.lending_price
    return replace(
        measured,
        speeds=speeds,
        resize_s=None if measured.resize_s is None else round(measured.resize_s, 1),
        lending_price=None if price is None else round(price, 2),
        goodputs=tuple(
            replace(one, per_s=_three_digits(one.per_s), efficiency=_three_digits(one.efficiency))
            for one in measured.goodputs
        ),
    )


def is_close_to(stored: Measured, measured: Measured) -> bool:
    """True if the measurements differ too little from the stored ones to be worth a write."""
    if _counts(stored) != _counts(measured) or stored.batch != measured.batch:
        return False
    if (stored.resize_s is None) != (measured.resize_s is None):
        return False
    price, stored_price = measured.lending_price, stored.lending_price
    if (stored_price is None) != (price is None) or abs((price or 0.0) - (stored_price or 0.0)) > MIN_PRICE_CHANGE:
        return False
    cost_s, stored_s = measured.resize_s or 0.0, stored.resize_s or 0.0
    if abs(cost_s - stored_s) > max(MIN_COST_CHANGE_S, MIN_COST_CHANGE * stored_s):
        return False
    speeds = ((old.per_s, new.per_s) for old, new in zip(stored.speeds, measured.speeds, strict=True))
    goodputs = ((old.per_s, new.per_s) for old, new in zip(stored.goodputs, measured.goodputs, strict=True))
    return all(abs(new - old) <= MIN_SPEED_CHANGE * old for old, new in chain(speeds, goodputs))


def _counts(measured: Measured) -> tuple[list[int], list[tuple[int, int, bool]]]:
    """The counts of trainers with a known speed, and those with a known goodput, for a comparison."""
    goodputs = [(one.trainers, one.batch, one.is_measured) for one in measured.goodputs]
    return [speed.trainers for speed in measured.speeds], goodputs


def _follows(last: ProgressReading, reading: ProgressReading) -> bool:
    """Return True if the work between two readings can be computed: one epoch, and all trainers had work."""
    is_later = reading.at_s > last.at_s and reading.consumed >= last.consumed
    return is_later and reading.epoch == last.epoch and reading.is_steady and last.is_steady


def _opened(meter: SpeedMeter, reading: ProgressReading) -> SpeedMeter:
    """Open a window if every trainer works, or if some have not begun to work within SETTLE_S."""
    all_work = reading.working >= reading.trainers
    if not all_work and reading.at_s - meter.since_s < SETTLE_S:
        return replace(meter, last=reading)
    change = replace(meter.change, settled=reading) if meter.change is not None and all_work else None
    return replace(meter, last=reading, start=reading if reading.trainers else None, change=change)


def _closed(meter: SpeedMeter, reading: ProgressReading, per_s: float, seconds: float) -> SpeedMeter:
    """Close the window: its speed is known, and with it the cost of the resize before it."""
    measured, lost_s = meter.measured, meter.lost_s
    change = meter.change
    if change is not None and change.settled is not None:
        done = change.settled.consumed - change.before.consumed
        lost_s = max(0.0, change.settled.at_s - change.before.at_s - done / per_s)
        known_s = measured.resize_s
        mean_s = lost_s if known_s is None else (1 - NEW_RESIZE) * known_s + NEW_RESIZE * lost_s
        measured = replace(measured, resize_s=mean_s)
    measured = replace(measured, speeds=add_speed(measured.speeds, reading.trainers, per_s, seconds))
    return replace(meter, measured=measured, last=reading, start=reading, change=None, lost_s=lost_s)


def _three_digits(value: float) -> float:
    return round(value, 2 - floor(log10(abs(value)))) if value else 0.0
