"""AFS: the next trainer goes to the shorter job unless the longer one uses it better, compared two by two.

Of two jobs the one that would end sooner with its present share gets priority, if (speed gained by it) / (its speed
then) does not fall behind what the other gains relative to what it has.

Source: Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021, algorithm 1 (AFS-L).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl.model.names import JobKey
from edl.sim.baselines.base import JobFacts, minimums


class Afs:
    """Apathetic future share, with exact lengths."""

    def share(self, jobs: Sequence[JobFacts], room: float) -> Mapping[JobKey, int]:
        """Return the number of trainers of each job; see `Sharer.share`."""
        shares, left = minimums(jobs, room)
        while True:
            takers = [
                job
                for job in jobs
                if job.key in shares and shares[job.key] < job.max_trainers and job.size <= left + 1e-9
            ]
            best: JobFacts | None = None
            for job in takers:
                if job.speed(shares[job.key] + 1) <= job.speed(shares[job.key]):
                    continue
                best = job if best is None else _first(best, job, shares)
            if best is None:
                return shares
            shares[best.key] += 1
            left -= best.size


def _first(a: JobFacts, b: JobFacts, shares: Mapping[JobKey, int]) -> JobFacts:
    """Decide which of two jobs gets the next trainer."""
    short, long = sorted((a, b), key=lambda job: (_left_s(job, shares[job.key]), job.key))
    have_short, have_long = shares[short.key], shares[long.key]
    gain_short = (short.speed(have_short + 1) - short.speed(have_short)) / short.speed(have_short + 1)
    gain_long = (long.speed(have_long + 1) - long.speed(have_long)) / long.speed(have_long)
    return long if gain_short / short.size < gain_long / long.size else short


def _left_s(job: JobFacts, count: int) -> float:
    return job.remaining / job.speed(count)
