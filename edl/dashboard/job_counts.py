"""How many trainers each job had over time: its changes, in bounded memory."""

from __future__ import annotations

from itertools import islice

from edl.dashboard.view import MAX_JOBS
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job

CAPACITY = 60


class JobCounts:
    """The changes of each job's count of live trainers, for at most `MAX_JOBS` jobs.

    Attributes:
        steps: by `namespace/name`, (seconds since the epoch, trainers from then on), oldest first. If there are more
            than `CAPACITY`, every second one is dropped, but never the first and the last.
    """

    def __init__(self) -> None:
        self.steps: dict[str, list[tuple[float, int]]] = {}
        self._jobs: dict[str, Job] = {}

    def take(self, snapshot: ClusterSnapshot) -> None:
        """Note the changed counts, and drop the history of deleted jobs."""
        before, self._jobs = self._jobs, {str(job.key): job for job in islice(snapshot.jobs, MAX_JOBS)}
        for name in before.keys() - self._jobs.keys():
            self.steps.pop(name, None)
        for name, job in self._jobs.items():
            if before.get(name) is not job:
                self._note(name, round(snapshot.observed_at_s, 1), len(job.live_trainers))

    def _note(self, name: str, time_s: float, count: int) -> None:
        steps = self.steps.setdefault(name, [])
        if steps and steps[-1][1] == count:
            return
        steps.append((time_s, count))
        if len(steps) > CAPACITY:
            steps[:] = [*steps[:-1:2], steps[-1]]
