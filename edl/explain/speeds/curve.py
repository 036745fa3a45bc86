"""The speed of a job by number of trainers as the policy knows it: what was measured, and what is extrapolated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl.explain.speeds.steps import why_not_next
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision
from edl.model.progress import NOTHING_MEASURED, Goodput
from edl.model.status import Resize
from edl.planner.policies.goodput import Goodput as GoodputPolicy
from edl.planner.policies.options import charge_of, gain_for, offered
from edl.planner.policies.utility import Utility
from edl.planner.speedup import SeenSpeed, seen_of, trainers_beside
from edl.planner.waits import HORIZON_S, REST, resize_cost_s, rest_left_s

BY_SPEED = frozenset({Utility.name, GoodputPolicy.name})
"""The policies that share by speed."""


class Source(StrEnum):
    """How edl knows the speed of a job with a number of trainers."""

    DECLARED = "declared"  # spec.elasticity.throughput
    MEASURED = "measured"  # the job has had so many trainers
    PREDICTED = "predicted"  # the trainers predict it from the times of their steps
    BETWEEN = "between"  # on the line between two known counts
    BEYOND = "beyond"  # outside of the known counts, by n^0.75 at most
    FLAT = "flat"  # beyond twice the largest known count: no faster than there
    UNKNOWN = "unknown"  # nothing is known of this job: n^0.75, relative to one trainer


@dataclass(frozen=True, slots=True)
class CountSpeed:
    """The speed of one number of trainers, and how it is known.

    Attributes:
        trainers: the count.
        per_s: what the policy counts: useful samples a second, or samples a second; relative to one trainer if the
            source is UNKNOWN.
        samples_per_s: all samples a second; None if it is not known how many of them are useful.
        efficiency: the useful part of them, in (0, 1]; None if it is not known.
        batch: samples of a step with so many trainers; None if it is not known.
    """

    trainers: int
    per_s: float
    source: Source
    samples_per_s: float | None = None
    efficiency: float | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """What a change of the count costs a job under policy `goodput`.

    Attributes:
        cost_s: training time that a resize costs, in seconds.
        is_measured: it was measured or declared; otherwise it is the usual one.
        counted_over_s: the time over which a gain has to make up for it.
        least_gain: the part by which the job must become faster by the change; 0 while it starts.
        rest_s: for so long after a resize it does not grow.
        grows_from_s: it does not grow before this time, in seconds since the epoch; None if it may.
        last: its last resize; None if there was none.
    """

    cost_s: float
    is_measured: bool
    counted_over_s: float
    least_gain: float
    rest_s: float
    grows_from_s: float | None
    last: Resize | None


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """The curve of a job and the cost of a change.

    Attributes:
        is_goodput: the job reports its goodput, and the policy counts that instead of the speed.
        batch: samples of a step that the job has chosen; None if it has one batch, or if that is not known.
        counts: ascending.
        flat_from: from this count on no trainer adds anything, as nothing is known of more; 0 if nothing is known.
        change: None unless the policy charges for changes.
        why_not: why the job does not get the next count, as a sentence; empty if nothing is to be said.
    """

    is_goodput: bool
    batch: int | None
    counts: tuple[CountSpeed, ...]
    flat_from: int
    change: ChangeCost | None
    why_not: str = ""


def speeds_of(job: Job, policy: str, decision: ScaleDecision, now_s: float) -> SpeedReport | None:
    """Report what a policy knows of the speed of a job.

    Args:
        job: the job as the policy sees it; see `Policy.adapt`.
        policy: the name of the policy.
        decision: what is planned for it.
        now_s: the time of the snapshot, in seconds since the epoch.

    Returns:
        None under a policy that does not look at speeds.
    """
    if policy not in BY_SPEED:
        return None
    measured = job.status.measured if job.status is not None else NOTHING_MEASURED
    is_goodput = policy == GoodputPolicy.name and bool(job.goodput)
    known = {one.trainers: one for one in measured.goodputs} if is_goodput else {}
    seen, beside = seen_of(job), trainers_beside(job)
    source, charges = _source_of_points(job, is_goodput=is_goodput), policy == GoodputPolicy.name
    return SpeedReport(
        is_goodput,
        measured.batch or None if is_goodput else None,
        tuple(_count(n, seen, beside, source, known) for n in _shown(job, decision.target, seen, beside)),
        seen.curve.flat_from,
        _change(job, now_s) if charges else None,
        why_not_next(job, decision, now_s) if charges else "",
    )


def _source_of_points(job: Job, *, is_goodput: bool) -> Source:
    """Find how the known speeds of a job were obtained, unless its trainers predict one."""
    measured = job.status.measured if job.status is not None else NOTHING_MEASURED
    if is_goodput:
        return Source.PREDICTED if measured.goodputs else Source.DECLARED
    speeds = tuple((one.trainers, one.per_s) for one in measured.speeds)
    return Source.MEASURED if job.throughput and job.throughput == speeds else Source.DECLARED


def _shown(job: Job, target: int, seen: SeenSpeed, beside: int) -> list[int]:
    """List the counts to show: those of a known speed, the present and the planned one, bounds, and larger ones."""
    low, high = job.bounds
    counts = {n - beside for n, _ in seen.points} | {target, len(job.live_trainers) - beside, low, high}
    known = [n for n in offered(job, max(low, min(target, high)), high, target) if n + beside <= seen.curve.flat_from]
    return sorted(n for n in counts.union(known) if n >= 1)


def _count(n: int, seen: SeenSpeed, beside: int, source: Source, known: dict[int, Goodput]) -> CountSpeed:
    """Find the speed of one number of trainers, and how it is known."""
    at, per_s = n + beside, seen.at(n + beside)
    if not seen.points:
        return CountSpeed(n, per_s, Source.UNKNOWN)
    first, last = seen.points[0][0], seen.points[-1][0]
    if at not in dict(seen.points):
        outside = Source.FLAT if at > seen.curve.flat_from else Source.BEYOND
        return CountSpeed(n, per_s, Source.BETWEEN if first < at < last else outside)
    one = known.get(at)
    if one is None:
        return CountSpeed(n, per_s, source)
    useful = one.efficiency or None
    is_from = Source.MEASURED if one.is_measured else source
    return CountSpeed(n, per_s, is_from, per_s / useful if useful else None, useful, one.batch or None)


def _change(job: Job, now_s: float) -> ChangeCost:
    cost_s, rest_s = resize_cost_s(job), rest_left_s(job, now_s)
    return ChangeCost(
        cost_s,
        job.resize_cost_s is not None,
        HORIZON_S,
        gain_for(charge_of(job, now_s)),
        REST * cost_s,
        now_s + rest_s if rest_s > 0 else None,
        job.status.last_resize if job.status is not None else None,
    )
