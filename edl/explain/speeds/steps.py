"""Says why a job does not get the next count of trainers under policy `goodput`."""

from __future__ import annotations

from math import log
from typing import NamedTuple

from edl.model.jobs import Job
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from edl.model.times import text_of
from edl.model.units import seconds
from edl.planner.policies.options import charge_of, gain_for, offered
from edl.planner.speedup import seen_of, trainers_beside
from edl.planner.waits import HORIZON_S, resize_cost_s, rest_left_s

SMALL = 1e-9
_LACKS = {Reason.INSUFFICIENT_CAPACITY: "it lacks capacity for them", Reason.QUOTA_REACHED: "its quota is used"}


class Step(NamedTuple):
    """A larger number of trainers than a job has in a plan, and what it would gain.

    Attributes:
        trainers: the count.
        gain: the part by which it is faster; above 0.
        least_gain: the part by which it would have to be faster to pay for the change.
    """

    trainers: int
    gain: float
    least_gain: float

    @property
    def pays(self) -> bool:
        """True if the job would gain more than the change costs it."""
        return self.gain > self.least_gain


def next_step(job: Job, have: int, now_s: float, most: int = 0) -> Step | None:
    """Find the nearest larger count that would pay for its resize, else the one that would add most.

    None without any.

    Args:
        job: the job as the policy sees it.
        have: its trainers in the plan.
        now_s: the time of the snapshot, in seconds since the epoch.
        most: the largest count to look at; by default its maximum.
    """
    seen, beside = seen_of(job), trainers_beside(job)
    high = max(have, min(most or job.bounds.max_trainers, job.bounds.max_trainers))
    is_changed = have != len(job.live_trainers) - beside  # the plan changes the count in any case
    charge = 0.0 if is_changed else charge_of(job, now_s)
    speed, steps = seen.at(have + beside), list[Step]()
    for n in offered(job, have, high, have):
        faster = seen.at(n + beside)
        if n > have and log(faster) - log(speed) > SMALL:
            steps.append(Step(n, faster / speed - 1.0, gain_for(charge)))
    return next((one for one in steps if one.pays), max(steps, key=lambda one: one.gain, default=None))


def not_worth_it(job: Job, have: int, fits: int, now_s: float) -> tuple[str, str]:
    """Explain, briefly and in full, why a job leaves free capacity: no larger count would pay for the resize.

    Args:
        job: the job as the policy sees it.
        have: its trainers in the plan.
        fits: the trainers for which there is capacity.
        now_s: the time of the snapshot, in seconds since the epoch.
    """
    step, less = next_step(job, have, now_s, fits), "more trainers would not pay"
    if step is None:
        return _none_adds(job, have)
    if step.pays:
        return less, f"{less}: other jobs gain more by the capacity"
    adds, needed = percent(step.gain), percent(step.least_gain)
    larger = next_step(job, have, now_s)
    beyond = f"; {larger.trainers} would pay and do not fit" if larger is not None and larger.pays else ""
    return (
        f"{less}: {step.trainers} add {adds}, and a resize must add {needed}",
        f"there is capacity for more trainers, but {step.trainers} would add {adds}, and must add {needed} to make up"
        f" within {HORIZON_S:g} s for a resize of {seconds(resize_cost_s(job))}{beyond}",
    )


def resting(job: Job, have: int, fits: int, now_s: float) -> tuple[str, str]:
    """Explain, briefly and in full, that a job does not grow because it was resized a moment ago."""
    short, step = "was resized a moment ago", next_step(job, have, now_s, fits)
    end, cost = text_of(round(now_s + rest_left_s(job, now_s))), seconds(resize_cost_s(job))
    after = f"; then {step.trainers} trainers would add {percent(step.gain)}" if step is not None else ""
    return short, f"it was resized a moment ago, which costs {cost}, and does not grow before {end}{after}"


def why_not_next(job: Job, decision: ScaleDecision, now_s: float) -> str:
    """Why a running job does not get the next count, as a sentence; empty if its reason says all.

    Args:
        job: the job as the policy sees it.
        decision: what is planned for it.
        now_s: the time of the snapshot, in seconds since the epoch.
    """
    if not decision.admitted or decision.reason in {Reason.PINNED, Reason.AT_MAX}:
        return ""
    have = decision.target - trainers_beside(job)
    step = next_step(job, have, now_s)
    if step is None:
        return _none_adds(job, have)[1]
    adds, needed = percent(step.gain), percent(step.least_gain)
    adds = f"{step.trainers} trainers would add {adds}"
    if (left_s := rest_left_s(job, now_s)) > 0:
        return f"{adds}, but after its last resize it does not grow before {text_of(now_s + left_s)}"
    if not step.pays:
        return f"{adds}, less than the {needed} that a change must add"
    more = f", more than the {needed} that a change must add" if step.least_gain else ", and no change has to be paid"
    return f"{adds}{more}; but {_LACKS.get(decision.reason, 'what keeps it from them is said above')}"


def _none_adds(job: Job, have: int) -> tuple[str, str]:
    """Say that no larger count is known to be faster: a short line and an account."""
    seen, less = seen_of(job), "more trainers would not pay"
    if seen.points and have + trainers_beside(job) >= seen.curve.flat_from:
        known = f"nothing is known beyond {seen.curve.flat_from}"
        return f"{less}: {known}", f"{less}: {known}, which is twice the largest count that was seen"
    return f"{less}: none is known to add anything", f"{less}: by the speeds that are known, none adds anything"


def percent(part: float) -> str:
    """Format a part as `12 %`, with two digits; more than a hundredfold is not given exactly."""
    return f"{100 * part:.2g} %" if part < 1.0 else f"{100 * part:.0f} %" if part < 100.0 else "more than 10000 %"
