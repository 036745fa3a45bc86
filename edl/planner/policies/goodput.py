"""Policy `goodput`: `utility` by what jobs learn instead of how many samples they process, after the cost of resizes.

Goodput is the speed of a job times its statistical efficiency: samples that teach as much as those of its base batch.
A job that may change its global batch chooses the best batch for each count of trainers itself, so the planner gets
one curve for each job and never a batch. Without such a curve, the speed of the job counts.

Objective, floors and certificate are those of `utility`. What differs is how counts are found: from the speeds as
they were seen instead of their concave envelope (`options`), and with the cost of each change, growth included
(`choosing`).

Source: goodput, Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021,
section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from edl.model.jobs import Job
from edl.planner.objective import Division
from edl.planner.policies.choosing import chosen_counts
from edl.planner.policies.options import options_of, would_gain
from edl.planner.policies.trading import Goal, grown_by_worth, traded
from edl.planner.policies.transfers import without_restarts
from edl.planner.policies.utility import TotalUtility, Utility, floors
from edl.planner.reallocation import Terms, givers, has_arrivals, is_at_rest
from edl.planner.scores import EPSILON
from edl.planner.speedup import worth_of
from edl.planner.trial_packing import TrialPacking
from edl.planner.waits import rest_left_s

ROUNDS = 4
"""How often counts are chosen again if whole pods do not fit with the counts before."""


class NetUtility(TotalUtility):
    """Maximises the sum of the jobs' utilities less the cost of the resizes; each job keeps its floor.

    A floor that is none of the job's options is rounded down to one.
    """

    charges_growth = True

    def divide(
        self, packing: TrialPacking, ceiling: Mapping[int, int], level: Mapping[int, float], deadline_s: float
    ) -> Division:
        """Divide the capacity that the minimums left; see `Objective.divide`."""
        floor = floors(packing, level)
        fair_share = {j: int(n + EPSILON) for j, n in floor.items()}
        admits = has_arrivals(packing)
        keep = givers(packing, admits=admits) if admits or is_at_rest(packing) else {}
        most, best, wanted = dict(ceiling), packing, dict(packing.count)
        for _ in range(ROUNDS):
            wanted = chosen_counts(packing, options_of(packing, most, fair_share, keep))
            best = self._placed(packing, wanted, keep, deadline_s)
            missed = {j: best.count[j] for j in packing.members if best.count[j] < wanted[j]}
            if not missed:
                break
            most |= missed
        most = {j: max(best.count[j], wanted[j]) for j in packing.members}
        demands = packing.problem.demands
        withheld = (  # more would not pay, as far as is known; with nothing free, one that would gain nothing waits
            j
            for j, n in most.items()
            if n < ceiling[j] and (self.worths[j].next(n) > 0.0 or best.slots(demands[j].shape).any())
        )
        now_s = packing.problem.snapshot.observed_at_s
        resting = (
            j
            for j, n in ceiling.items()
            if best.count[j] < n
            and rest_left_s(demands[j].job, now_s) > 0
            and (best.count[j] < min(fair_share[j], n) or would_gain(best, j, n))
        )
        return Division(best, floor, most, frozenset(withheld), frozenset(resting))

    def _placed(
        self, packing: TrialPacking, wanted: Mapping[int, int], keep: Mapping[int, int], deadline_s: float
    ) -> TrialPacking:
        """The packing in which as many jobs as possible have their wanted count, in free capacity or at others' cost.

        Args:
            packing: before any growth; not changed.
            wanted: trainers of each member.
            keep: by job that may lose trainers, how many live ones it must keep.
            deadline_s: time for each program.
        """
        ceiling = {j: max(n, packing.count[j]) for j, n in wanted.items()}
        terms, goal = Terms(ceiling, wanted), Goal(-inf, wanted)
        grown = grown_by_worth(packing, terms, wanted, self.worths, deadline_s)
        if not keep or all(grown.count[j] >= n for j, n in wanted.items()):
            return grown

        def take(least: Mapping[int, int]) -> TrialPacking:
            return traded(packing, terms, goal, least, self.worths, deadline_s=deadline_s)

        return without_restarts(packing, grown, take(keep), keep, take)


class Goodput(Utility):
    """The most goodput, by curves that jobs report, or by their speed; resizes are charged for."""

    name = "goodput"
    rests = True

    def adapt(self, job: Job) -> Job:
        """The job with its goodput as its speed, without trainers that would lower it."""
        if not job.goodput:
            return super().adapt(job)
        reported = job.status.measured.goodputs if job.status is not None else ()
        seen_to = max((one.trainers for one in reported if one.is_measured), default=0)
        return super().adapt(replace(job, throughput=job.goodput, speeds_seen_to=seen_to))

    def objective(self, packing: TrialPacking) -> NetUtility:
        """The objective for the admitted jobs: what trainers are worth to each of them."""
        demands = [packing.problem.demands[j] for j in packing.members]
        return NetUtility({d.index: worth_of(d.job, d.min_trainers, d.max_trainers) for d in demands})
