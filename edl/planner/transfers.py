"""When trainers may change hands between jobs, and how few of them need to restart for it.

A transfer deletes a running trainer of one job so that another job grows. Policies decide which transfers they want;
the rules here hold for all of them: cooldowns, no transfer while the cluster is unsettled, and no restart that only
moves a trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edl.model.names import Role
from edl.planner.guard import is_arriving, restrain
from edl.planner.reallocation import kept, restarted_elsewhere
from edl.planner.trial_packing import TrialPacking

STAYS_TRIED = 3  # how often transfers are tried again without those that would only move a trainer


def has_arrivals(packing: TrialPacking) -> bool:
    """True if a job of the plan was just admitted and may still claim its whole share."""
    now_s = packing.problem.snapshot.observed_at_s
    return any(is_arriving(packing.problem.demands[j].job, now_s) for j in packing.members)


def is_at_rest(packing: TrialPacking) -> bool:
    """True if no trainer is deleted for serving now and none is terminating."""
    jobs = packing.problem.snapshot.jobs
    return not packing.for_serving and not any(
        p.terminating and p.role is Role.TRAINER for job in jobs for p in job.pods
    )


def givers(packing: TrialPacking, *, admits: bool) -> dict[int, int]:
    """Which jobs may lose trainers to others, each with the number of trainers that it must keep: 0 to begin with.

    In the plan that admits a job, every job may; else only jobs that are out of their cooldown.
    """
    now_s = packing.problem.snapshot.observed_at_s
    restrained = frozenset() if admits else restrain(packing.problem.snapshot.jobs, now_s)
    return {j: 0 for j in packing.members if packing.problem.demands[j].job.key not in restrained}


def without_restarts(
    packing: TrialPacking,
    grown: TrialPacking,
    taken: TrialPacking,
    keep: Mapping[int, int],
    take: Callable[[Mapping[int, int]], TrialPacking],
) -> TrialPacking:
    """The same transfers without those by which a job loses a trainer on one node and gets one on another.

    Args:
        packing: before any growth.
        grown: with growth alone: the answer if every attempt moves trainers.
        taken: with transfers.
        keep: who may give, and how many trainers each must keep.
        take: makes the transfers anew for another `keep`.
    """
    for _ in range(STAYS_TRIED):
        moves = restarted_elsewhere(taken, packing)
        if not moves:
            return taken
        keep = {d: kept(taken, d) + moves[d] if d in moves else n for d, n in keep.items()}
        taken = take(keep)
    return taken if not restarted_elsewhere(taken, packing) else grown


def once_terminated(packing: TrialPacking) -> TrialPacking:
    """A copy without the terminating pods of others: edl waits for their room rather than taking it from jobs."""
    later = packing.copy()
    later.free += packing.problem.leaving
    return later
