"""What training itself tells about a job: its speed by number of trainers, and what a resize costs it.

Both are read off one thing, the positions that a master sees consumed. Speed is measured in windows during which the
number of trainers stays the same and there is work for all of them. A resize costs the time from the moment when the
number changes until every trainer takes part, less the work that was done meanwhile, counted at the speed after it:
for trainers that go on while others join that is what the new ones do not do yet, for a job that stops it is all of
it, and what dying trainers leave to be done again counts as well.

Pure: a meter and a reading give the next meter. A reading is noisy (trainers tell of their progress a few times per
TTL), so a window counts as far as it does not contradict what is known by more than a factor, and what is old fades
as new windows come in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, log10

from edl.model.jobs import Job
from edl.model.progress import NOTHING_MEASURED, Measured, Speed

WINDOW_S = 30.0
SETTLE_S = 300.0
"""A resize that has not settled by then is not measured: some trainers may never take work."""

KEPT_S = 300.0
"""The weight of a speed: so many seconds of measuring it remembers at most."""

HALF_LIFE_S = 3600.0
"""After so many seconds of measuring other numbers of trainers a speed counts half."""

FORGOTTEN_S = 0.5
"""A speed of less weight is forgotten."""

MOST_SPEEDS = 32
"""Of more numbers of trainers the speeds of least weight are forgotten."""

OUTLIER = 2.0
"""A window that is so many times faster or slower than what is known counts as this many times."""

NEW_RESIZE = 0.5
"""How much the last resize counts beside those before it."""

TOLD_SPEED, TOLD_RESIZE, TOLD_RESIZE_S = 0.05, 0.1, 1.0
"""A change that is worth a write to the API server."""


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """What a master tells at one moment.

    Attributes:
        at_s: monotonic seconds.
        epoch: the epoch that `consumed` counts in.
        consumed: positions that are behind the trainers.
        trainers: live ones, ready or not.
        working: those of them that have made progress with what they hold.
        is_steady: there is work for all: the epoch is not at its end, nothing is blocked or about to be restored.
    """

    at_s: float
    epoch: int
    consumed: int
    trainers: int
    working: int
    is_steady: bool = True


@dataclass(frozen=True, slots=True)
class OpenResize:
    """A resize that is being measured.

    Attributes:
        before: the last reading with the old number of trainers.
        settled: the first one at which every trainer took part; None until then.
    """

    before: ProgressReading
    settled: ProgressReading | None = None


@dataclass(frozen=True, slots=True)
class SpeedMeter:
    """What is known so far, and the window that is open.

    Attributes:
        since_s: since when the number of trainers has not changed, and nothing else has kept from measuring.
        lost_s: what the last resize cost; None while the number of trainers has not been measured since.
    """

    measured: Measured = NOTHING_MEASURED
    last: ProgressReading | None = None
    since_s: float = 0.0
    start: ProgressReading | None = None
    change: OpenResize | None = None
    lost_s: float | None = None


def observe(meter: SpeedMeter, reading: ProgressReading, window_s: float = WINDOW_S) -> SpeedMeter:
    """Take one more reading into account.

    Args:
        meter: what the readings before it came to.
        reading: a later one; one that is not later begins anew.
        window_s: how long a window lasts at least.
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
    """The speeds after a window.

    Args:
        speeds: sorted by trainers.
        trainers: how many worked in it, at least 1.
        per_s: samples per second, > 0.
        seconds: its length, > 0.
    """
    known = next((s for s in speeds if s.trainers == trainers), None)
    fades = 0.5 ** (seconds / HALF_LIFE_S)
    others = [replace(s, weight_s=s.weight_s * fades) for s in speeds if s.trainers != trainers]
    if known is None:
        new = Speed(trainers, per_s, min(seconds, KEPT_S))
    else:
        seen = min(max(per_s, known.per_s / OUTLIER), known.per_s * OUTLIER)
        seconds = min(seconds, KEPT_S / 2)
        weight_s = min(known.weight_s, KEPT_S - seconds)
        mean = (known.per_s * weight_s + seen * seconds) / (weight_s + seconds)
        new = Speed(trainers, mean, weight_s + seconds)
    kept = sorted((s for s in others if s.weight_s >= FORGOTTEN_S), key=lambda s: (-s.weight_s, s.trainers))
    return tuple(sorted((*kept[: MOST_SPEEDS - 1], new), key=lambda s: s.trainers))


def with_measured(job: Job) -> Job:
    """The job with what was measured of it wherever its spec says nothing.

    The speed of one number of trainers alone says nothing of how a job scales: it is no curve yet.
    """
    found = job.status.measured if job.status is not None else NOTHING_MEASURED
    throughput, cost_s = job.throughput, job.resize_cost_s
    if not throughput and len(found.speeds) > 1:
        throughput = tuple((s.trainers, s.per_s) for s in found.speeds)
    return replace(job, throughput=throughput, resize_cost_s=found.resize_s if cost_s is None else cost_s)


def rounded(measured: Measured) -> Measured:
    """As it is told: three digits say all that there is to know."""
    speeds = tuple(Speed(s.trainers, _three_digits(s.per_s), float(round(s.weight_s))) for s in measured.speeds)
    return Measured(speeds, None if measured.resize_s is None else round(measured.resize_s, 1))


def is_told_by(told: Measured, measured: Measured) -> bool:
    """True where nothing of what was measured differs enough from what was told to be worth a write."""
    if [s.trainers for s in told.speeds] != [s.trainers for s in measured.speeds]:
        return False
    if (told.resize_s is None) != (measured.resize_s is None):
        return False
    cost_s, known_s = measured.resize_s or 0.0, told.resize_s or 0.0
    if abs(cost_s - known_s) > max(TOLD_RESIZE_S, TOLD_RESIZE * known_s):
        return False
    pairs = zip(told.speeds, measured.speeds, strict=True)
    return all(abs(new.per_s - old.per_s) <= TOLD_SPEED * old.per_s for old, new in pairs)


def _follows(last: ProgressReading, reading: ProgressReading) -> bool:
    """True where the work between two readings can be counted."""
    is_later = reading.at_s > last.at_s and reading.consumed >= last.consumed
    return is_later and reading.epoch == last.epoch and reading.is_steady and last.is_steady


def _opened(meter: SpeedMeter, reading: ProgressReading) -> SpeedMeter:
    """Open a window once every trainer takes part, or those that do not are not waited for any longer."""
    is_whole = reading.working >= reading.trainers
    if not is_whole and reading.at_s - meter.since_s < SETTLE_S:
        return replace(meter, last=reading)
    change = replace(meter.change, settled=reading) if meter.change is not None and is_whole else None
    return replace(meter, last=reading, start=reading if reading.trainers else None, change=change)


def _closed(meter: SpeedMeter, reading: ProgressReading, per_s: float, seconds: float) -> SpeedMeter:
    """The window has come to a speed, and with it the resize before it to a cost."""
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
