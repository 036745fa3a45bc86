"""Looks once more at the first jobs that wait for capacity: whether a longer search packs them beside all that run.

Placing one pod after the other, and a short integer program, miss packings that leave nearly nothing free. A longer
search finds most of them, but it takes a second. So it is made once a decision, where all who run are known, for few
jobs, and not while serving pods wait for the decision.
"""

from __future__ import annotations

from collections.abc import Mapping

from edl.planner.admission.trial import AdmissionTrial
from edl.planner.clock import OutOfTimeError
from edl.planner.trial_packing import TrialPacking

MOST_NODES = 64  # in a larger cluster a pod or two are no matter, and the programs are too large
MOST_FAILURES = 2  # so many searches may fail


def with_repacking(
    trial: AdmissionTrial, packing: TrialPacking, head: dict[int, int], short: Mapping[int, object]
) -> TrialPacking:
    """Admit waiting jobs that a longer search packs beside those that run.

    Args:
        trial: what is known from the trials before.
        packing: who runs, and where.
        head: for each waiting job, the job that it waits behind; those that are admitted now are taken out.
        short: the jobs that wait for quota.

    Returns:
        The packing, with more members if the search found capacity for them.
    """
    if len(trial.problem.empty) > MOST_NODES or any(trial.served.due.values()):
        return packing
    demands, failed = trial.problem.demands, set[tuple[object, ...]]()
    waiting = [demands[j] for j in head if j not in short]
    for demand in sorted(waiting, key=lambda d: d.job.turn):
        kind = (demand.shape, demand.min_trainers, demand.needs, demand.unbound_fixed)
        if kind in failed or _is_held(trial, demand.index, head):
            continue
        try:
            if not trial.may_fit(packing.members, demand.index):
                continue
            found = trial.repacked(packing.members, demand.index)
        except OutOfTimeError:
            trial.problem.clock.cut_short("admission")
            break
        if found is not None:
            packing = found
            _leave_queue(demand.index, head)
            continue
        failed.add(kind)
        if len(failed) == MOST_FAILURES:
            break
    return packing


def _is_held(trial: AdmissionTrial, j: int, head: Mapping[int, int]) -> bool:
    """True if the job may not pass the one that it waits behind."""
    return head[j] != j and trial.has_waited(trial.problem.demands[head[j]])


def _leave_queue(j: int, head: dict[int, int]) -> None:
    """Remove an admitted job; jobs that waited behind it now wait behind the first of them."""
    del head[j]
    behind = [other for other, first in head.items() if first == j]
    for other in behind:
        head[other] = behind[0]
