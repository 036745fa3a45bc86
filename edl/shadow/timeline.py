"""Records what the cluster used minute by minute, and what it would have used with the plan of each moment.

Each plan is made from the real cluster, which edl does not change, so a line `with edl` is a sequence of first steps:
no plan sees what the one before it would have brought. docs/how-to/shadow.md says what follows from that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from edl.model.cluster import ClusterSnapshot
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.resources import EPHEMERAL_STORAGE, HOST_PORT_PREFIX, PODS, Resources
from edl.model.times import text_of
from edl.shadow.document import Interval

INTERVAL_S = 60
LONGEST_HOLD_S = 30.0
"""The longest time for which a sample counts; after that nobody has looked."""

_LEFT_OUT = {PODS, EPHEMERAL_STORAGE}


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment; amounts by resource."""

    capacity: dict[str, int]
    used: dict[str, int]
    training: dict[str, int]
    with_edl: dict[str, int]
    training_with_edl: dict[str, int]
    waiting: int
    waiting_with_edl: int
    jobs_waiting: int
    jobs_waiting_with_edl: int


@dataclass(slots=True)
class Timeline:
    """Turns samples into intervals.

    Attributes:
        now_s: seconds since the epoch.
        monotonic_s: a clock that never runs backwards.
        intervals: one for each minute with an observation, in the order of time.
        observed_s: how long somebody looked, all intervals together.
    """

    now_s: Callable[[], float]
    monotonic_s: Callable[[], float]
    intervals: list[Interval] = field(default_factory=list)
    observed_s: float = 0.0
    _last: Sample | None = None
    _since_s: float = 0.0

    def planned(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Take a plan, and the snapshot that it was made from."""
        self.hold()
        self._last, self._since_s = sample(view, plan), self.monotonic_s()

    def hold(self) -> None:
        """Note that the last sample has held until now; call it at least every `LONGEST_HOLD_S`."""
        now_s = self.monotonic_s()
        seconds = min(now_s - self._since_s, LONGEST_HOLD_S)
        self._since_s = now_s
        if self._last is None or seconds <= 0:
            return
        self.observed_s += seconds
        start = text_of(self.now_s() // INTERVAL_S * INTERVAL_S)
        if not self.intervals or self.intervals[-1].start != start:
            self.intervals.append(_empty(start))
        _add(self.intervals[-1], self._last, seconds)


def sample(view: ClusterSnapshot, plan: ScalePlan) -> Sample:
    """Sum up a cluster, and what a plan would make of it."""
    jobs = {job.key: job for job in view.jobs}
    own = [pod for job in view.jobs for pod in job.pods]
    used = _sum(pod.requested for pod in (*view.pods, *own) if pod.node and not pod.is_finished)
    training = _sum(pod.requested for pod in own if pod.role is Role.TRAINER and pod.node and not pod.is_finished)
    changed, trained = used, training
    for decision in plan.decisions:
        job = jobs[decision.job]
        victims = set(decision.victims)
        difference = job.trainer.request * sum(count for _, count in decision.nodes)
        difference -= _sum(pod.requested for pod in job.pods if pod.node and pod.name in victims)
        changed += difference
        trained += difference
        shapes = {fixed.role: fixed.shape for fixed in job.fixed}
        changed += _sum(shapes[role].request for role, _ in decision.fixed_nodes if role in shapes)
    waiting = view.waiting_serving
    placed = min(plan.serving.placed, len(waiting))
    changed += _share(_sum(pod.requested for pod in waiting), placed, len(waiting))
    schedulable = {job.key for job in view.jobs if job.is_schedulable}
    return Sample(
        capacity=_amounts(_sum(node.allocatable for node in view.nodes if node.ready and not node.cordoned)),
        used=_amounts(used),
        training=_amounts(training),
        with_edl=_amounts(changed),
        training_with_edl=_amounts(trained),
        waiting=len(waiting),
        waiting_with_edl=len(waiting) - placed,
        jobs_waiting=sum(
            len([pod for pod in jobs[key].live_trainers if pod.node]) < jobs[key].min_trainers for key in schedulable
        ),
        jobs_waiting_with_edl=sum(not d.admitted for d in plan.decisions if d.job in schedulable),
    )


def _sum(requests: Iterable[Resources]) -> Resources:
    """The sum; thousands of pods have few different requests."""
    total = Resources()
    for request, count in Counter(requests).items():
        total += request * count
    return total


def _share(total: Resources, part: int, whole: int) -> Resources:
    return Resources.of({name: amount * part // whole for name, amount in total.amounts}) if whole else Resources()


def _amounts(total: Resources) -> dict[str, int]:
    """The resources that a report shows: cpu, memory and devices."""
    return {
        name: amount
        for name, amount in total.amounts
        if name not in _LEFT_OUT and not name.startswith((HOST_PORT_PREFIX, "hugepages-", "attachable-volumes-"))
    }


def _empty(start: str) -> Interval:
    nothing: dict[str, float] = {}
    return Interval(
        start=start,
        seconds=0.0,
        capacity=nothing,
        used=nothing,
        training=nothing,
        with_edl=nothing,
        training_with_edl=nothing,
        waiting=0.0,
        waiting_with_edl=0.0,
        jobs_waiting=0.0,
        jobs_waiting_with_edl=0.0,
    )


def _add(interval: Interval, seen: Sample, seconds: float) -> None:
    """Add a sample to the means of an interval, weighted by so many seconds."""
    before, after = interval.seconds, interval.seconds + seconds
    for name in ("capacity", "used", "training", "with_edl", "training_with_edl"):
        old, new = getattr(interval, name), getattr(seen, name)
        mixed = {key: (old.get(key, 0.0) * before + new.get(key, 0) * seconds) / after for key in {*old, *new}}
        setattr(interval, name, {key: mixed[key] for key in sorted(mixed)})
    for name in ("waiting", "waiting_with_edl", "jobs_waiting", "jobs_waiting_with_edl"):
        setattr(interval, name, (getattr(interval, name) * before + getattr(seen, name) * seconds) / after)
    interval.seconds = after
