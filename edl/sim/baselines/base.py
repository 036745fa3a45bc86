"""The interface of a baseline: facts about every job and the capacity in, the number of trainers of each job out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edl.model.names import JobKey
from edl.planner.speedup import Curve


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a baseline is told about one job that has not ended, including what only an oracle can know.

    Attributes:
        min_trainers, max_trainers: its bounds.
        fixed: the trainers that a policy of fixed size gives it.
        current: trainers that it has.
        age_s: seconds since its creation.
        remaining: samples left; infinite if it never ends.
        attained_s: trainer-seconds that it has had.
        curve: its speed.
        slots: trainers that the empty cluster could hold if there were only such trainers.
        resize_s: what a resize costs.
    """

    key: JobKey
    min_trainers: int
    max_trainers: int
    fixed: int
    current: int
    age_s: float
    remaining: float
    attained_s: float
    curve: Curve
    slots: int
    resize_s: float

    @property
    def size(self) -> float:
        """The part of the cluster that one trainer takes."""
        return 1.0 / max(1, self.slots)

    def speed(self, count: int) -> float:
        """Samples per second of the job with `trainers` trainers."""
        return self.curve.speed(count) if count else 0.0


class Sharer(Protocol):
    """A baseline policy. It may keep a state between calls; each run has an object of its own."""

    def share(self, jobs: Sequence[JobFacts], room: float, /) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; 0, or no entry, for a job that is not to run.

        Args:
            jobs: sorted by key.
            room: the part of the cluster that training may use, from 0 to 1.
        """


def minimums(jobs: Sequence[JobFacts], room: float) -> tuple[dict[JobKey, int], float]:
    """Give the oldest jobs their minimum as far as the capacity goes; returns the counts and the capacity left."""
    shares: dict[JobKey, int] = {}
    for job in sorted(jobs, key=lambda one: (-one.age_s, one.key)):
        if job.min_trainers * job.size <= room + 1e-9:
            shares[job.key] = job.min_trainers
            room -= job.min_trainers * job.size
    return shares, room
