"""Trainers of each job and serving pods over time, in bounded memory.

When the history is full, every second sample is dropped and samples are taken half as often: it always reaches back
to its start, with less and less detail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edl.dashboard.view import Body, is_running_serving
from edl.model.cluster import ClusterSnapshot

CAPACITY = 360
MAX_JOBS_OF_A_SAMPLE = 40
_FIRST_STEP_S = 1.0
_QUIET_STEPS = 15


@dataclass(frozen=True, slots=True)
class Sample:
    """How many pods ran at one moment.

    Attributes:
        time_s: seconds since the epoch.
        serving, waiting: serving pods on a node, and those without one.
        trainers: (`namespace/name`, live trainers), the largest first; at most `MAX_JOBS_OF_A_SAMPLE`.
        others: live trainers of all other jobs.
    """

    time_s: float
    serving: int
    waiting: int
    trainers: tuple[tuple[str, int], ...]
    others: int = 0

    @property
    def body(self) -> Body:
        """The sample as the page reads it."""
        return {
            "time": round(self.time_s, 1),
            "serving": self.serving,
            "waiting": self.waiting,
            "trainers": dict(self.trainers),
            "others": self.others,
        }


def sample_of(snapshot: ClusterSnapshot) -> Sample:
    """Count the pods of a snapshot."""
    counts = Counter({str(job.key): len(job.live_trainers) for job in snapshot.jobs})
    largest = sorted(((n, key) for key, n in counts.items() if n), key=lambda item: (-item[0], item[1]))
    kept = tuple((key, n) for n, key in largest[:MAX_JOBS_OF_A_SAMPLE])
    return Sample(
        time_s=snapshot.observed_at_s,
        serving=sum(1 for p in snapshot.pods if is_running_serving(p)),
        waiting=len(snapshot.waiting_serving),
        trainers=kept,
        others=sum(n for n, _ in largest[MAX_JOBS_OF_A_SAMPLE:]),
    )


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

    def add(self, sample: Sample) -> bool:
        """Add a sample, unless it says what the last one said, or comes too soon; True if it was added.

        The sample that comes too soon is not lost: the cluster is observed again within seconds.
        """
        if self._samples:
            last = self._samples[-1]
            age_s = sample.time_s - last.time_s
            is_same = (sample.serving, sample.waiting, sample.trainers, sample.others) == (
                last.serving,
                last.waiting,
                last.trainers,
                last.others,
            )
            if age_s < (self._step_s * _QUIET_STEPS if is_same else self._step_s):
                return False
        self._samples.append(sample)
        if len(self._samples) > self._capacity:
            self._samples = [*self._samples[:-1:2], self._samples[-1]]
            self._step_s *= 2
        return True
