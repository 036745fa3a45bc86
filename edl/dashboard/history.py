"""What the cluster has and uses over time, in bounded memory.

When the history is full, every second sample is dropped and samples are taken half as often: it always reaches back
to its start, with less and less detail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from edl.dashboard.view import Body, kind_of, shown
from edl.model.cluster import ClusterSnapshot
from edl.model.pods import Pod
from edl.model.resources import Resources

CAPACITY = 360
_FIRST_STEP_S = 1.0
_QUIET_STEPS = 15
KINDS = ("other", "serving", "jobs")
"""Whose pods use the capacity: DaemonSets and the system, serving, and the masters, pservers and trainers of jobs."""

Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Capacity and use of the cluster at one moment; amounts are in the units of `Resources`.

    Attributes:
        time_s: seconds since the epoch.
        capacity: (resource, amount): what the nodes offer that are ready and not cordoned.
        used: for each of `KINDS`, what its pods on nodes request.
        waiting: serving pods without a node.
        pending: trainers, masters and pservers without a node.
    """

    time_s: float
    capacity: Amounts = ()
    used: tuple[Amounts, ...] = ((), (), ())
    waiting: int = 0
    pending: int = 0

    @property
    def body(self) -> Body:
        """The sample as the page reads it."""
        return {
            "time": round(self.time_s, 1),
            "capacity": dict(self.capacity),
            "used": {kind: dict(amounts) for kind, amounts in zip(KINDS, self.used, strict=True)},
            "waiting": self.waiting,
            "pending": self.pending,
        }


def sample_of(snapshot: ClusterSnapshot) -> Sample:
    """Add up a snapshot; 150,000 pods take about 0.1 s, so do it away from the event loop."""
    capacity: Counter[str] = Counter()
    used: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for offered, number in Counter(n.allocatable for n in snapshot.nodes if n.ready and not n.cordoned).items():
        _add(capacity, offered, number)
    for reserved, number in Counter(node.reserved for node in snapshot.nodes).items():
        _add(used["other"], reserved, number)
    of_jobs = (pod for job in snapshot.jobs for pod in job.pods)
    for owner, requested, number in (*_requests("jobs", of_jobs), *_requests("", snapshot.pods)):
        _add(used[owner], requested, number)
    return Sample(
        time_s=snapshot.observed_at_s,
        capacity=tuple(capacity.items()),
        used=tuple(tuple(used[kind].items()) for kind in KINDS),
        waiting=len(snapshot.waiting_serving),
        pending=sum(1 for job in snapshot.jobs for pod in job.pods if pod.is_live and not pod.node),
    )


def _add(total: Counter[str], amounts: Resources, number: int) -> None:
    for name, amount in shown(amounts).items():
        total[name] += number * amount


def _requests(kind: str, pods: Iterable[Pod]) -> Iterable[tuple[str, Resources, int]]:
    """The requests of the pods on nodes: the owner, the request, and the number of pods with it.

    Args:
        kind: whose; empty if each pod says so itself.
        pods: the pods of any state.
    """
    numbers: Counter[tuple[str, int, int]] = Counter()
    examples: dict[tuple[str, int, int], Pod] = {}
    for pod in pods:
        if pod.node and not pod.is_finished:
            owner = kind or ("serving" if kind_of(pod) == "serving" else "other")
            key = (owner, id(pod.shape), pod.lent_cpu_milli)
            numbers[key] += 1
            examples.setdefault(key, pod)
    return [(key[0], examples[key].requested, number) for key, number in numbers.items()]


class History:
    """The samples so far, oldest first.

    Args:
        capacity: the most samples that are kept; an even number.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._step_s = _FIRST_STEP_S
        self._samples: list[Sample] = []

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Every sample that is kept, oldest first."""
        return tuple(self._samples)

    def wants(self, time_s: float) -> bool:
        """True if a sample of this time is not too soon after the last one."""
        return not self._samples or time_s - self._samples[-1].time_s >= self._step_s

    def add(self, sample: Sample) -> bool:
        """Add a sample unless it comes too soon, or equals the last one and comes soon; True if it was added.

        What comes too soon is not lost: the cluster is observed again within seconds.
        """
        if not self.wants(sample.time_s):
            return False
        if self._samples:
            last = self._samples[-1]
            is_same = replace(sample, time_s=last.time_s) == last
            if is_same and sample.time_s - last.time_s < self._step_s * _QUIET_STEPS:
                return False
        self._samples.append(sample)
        if len(self._samples) > self._capacity:
            self._samples = [*self._samples[:-1:2], self._samples[-1]]
            self._step_s *= 2
        return True
