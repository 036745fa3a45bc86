"""When a plan transfers trainers from job to job, and how few of them it restarts for that.

A transfer deletes a running trainer of one job so that another job grows. Policies decide which transfers they want;
the rules here hold for all of them: cooldowns, no transfer while the cluster is unsettled, and no restart that only
moves a trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from edl.model.names import JobKey, Role
from edl.planner.evictions import evictions_needed, shortfall
from edl.planner.guard import DEAD_BAND
from edl.planner.packing import grow, has_load_left
from edl.planner.quota import QuotaRow
from edl.planner.reallocation import kept, movable_trainers, undo_restarts
from edl.planner.scores import EPSILON
from edl.planner.trial_packing import Placed, TrialPacking

TRANSFERS = 256  # at most so many trainers change hands in one plan to level the jobs; the next plan goes on


def without_restarts(
    packing: TrialPacking,
    grown: TrialPacking,
    taken: TrialPacking,
    keep: Mapping[int, int],
    take: Callable[[Mapping[int, int]], TrialPacking],
) -> TrialPacking:
    """Drop from some transfers those by which a job only changes the node of a trainer.

    Args:
        packing: before any growth.
        grown: with growth alone: the answer if every attempt moves trainers.
        taken: with transfers.
        keep: who may give, and how many trainers each must keep.
        take: makes the transfers anew for another `keep`.
    """
    taken = undo_restarts(taken)
    if moves := movable_trainers(taken, packing):
        taken = take({d: kept(taken, d) + moves[d] if d in moves else n for d, n in keep.items()})
    return taken if not movable_trainers(taken, packing) else grown


def once_terminated(packing: TrialPacking) -> TrialPacking:
    """Copy the packing with the capacity of terminating pods of no job free: edl waits for that before it evicts."""
    later = packing.copy()
    later.free += packing.problem.leaving
    return later


def levelled(
    packing: TrialPacking, ceiling: Mapping[int, int], keep: Mapping[int, int], band: float = DEAD_BAND
) -> TrialPacking:
    """Transfer trainers from better-off to worse-off jobs until every pair of jobs is within the band.

    A trainer changes hands if the job that gets it is then still more than the band below the job that gave it, and
    if both fit: the new one on the node of the old one, beside what is free there. The job that is worst off of those
    that can gain comes first; the job that is best off gives. So each transfer raises the lowest of the fulfilments
    that it touches, and no order of transfers comes back to where it began.

    A job that gave in this plan gets nothing in it, and one that got gives nothing: a trainer that only moves would
    restart for nothing.

    Args:
        packing: not changed.
        ceiling: the most trainers that each job may have now.
        keep: the jobs that may lose running trainers, and how many of its live trainers each must keep. New ones may
            be given by every job.
        band: by how much fulfilments may differ.
    """
    best = packing.copy()
    standings = _Standings(best, keep, band)
    unserved: set[int] = set()
    for _ in range(TRANSFERS):
        if packing.problem.clock.is_over:
            packing.problem.clock.cut_short("transfers")
            break
        needy = standings.neediest(ceiling)
        transfer = next((g for j in needy if j not in unserved and (g := standings.best_transfer(j))), None)
        if transfer is None and unserved:  # they were tried before the last transfers
            unserved.clear()
            transfer = next((g for j in needy if (g := standings.best_transfer(j))), None)
        if transfer is None:
            break
        unserved.update(needy[: needy.index(transfer.taker)])
        standings.carry_out(transfer)
    if standings.gave:
        most = {j: best.count[j] if j in standings.gave else n for j, n in ceiling.items()}
        grow(best, most, dict.fromkeys(ceiling, 0))
    return best


class _Transfer(NamedTuple):
    """Trainers of one job on one node, all of one shape, to delete so that a trainer of another job fits there."""

    taker: int
    donor: int
    node: int
    shape: int
    deletions: int


class _Standings:
    """The nodes of all trainers of a packing and the fulfilment of their jobs, as arrays; transfers update them.

    Attributes:
        gave: the jobs that gave trainers.
    """

    def __init__(self, packing: TrialPacking, keep: Mapping[int, int], band: float) -> None:
        problem = packing.problem
        self.gave: set[int] = set()
        self._packing, self._band = packing, band
        self._surplus = np.zeros(len(problem.demands))
        self._span = np.ones(len(problem.demands))
        self._may_lose = np.zeros(len(problem.demands), dtype=np.int64)  # running trainers
        for j in packing.members:
            demand = problem.demands[j]
            if demand.max_trainers > demand.min_trainers:
                self._surplus[j] = packing.count[j] - demand.min_trainers
                self._span[j] = demand.max_trainers - demand.min_trainers
        for j, least in keep.items():
            self._may_lose[j] = max(0, kept(packing, j) - least)
        live, new = packing.trainers()
        live = live[(self._surplus[live[:, 1]] > 0) & (self._may_lose[live[:, 1]] > 0)]
        rows, row_of = np.unique(np.vstack([live, new]), axis=0, return_inverse=True)
        of_live, of_new = np.split(row_of.ravel(), [len(live)])
        self._node, self._owner, self._held = rows.T
        self._running = np.bincount(of_live, minlength=len(rows))
        self._new = np.bincount(of_new, minlength=len(rows))

    def neediest(self, ceiling: Mapping[int, int]) -> list[int]:
        """List the jobs below their ceiling to which others could transfer a trainer, the worst-off one first.

        Of jobs that differ in nothing that decides what they can be given, only the worst off is listed. Jobs for
        which terminating pods of others will free capacity are left out.
        """
        packing, demands = self._packing, self._packing.problem.demands
        highest = float(np.where(self._surplus > 0, (self._surplus - 1) / self._span, 0.0).max(initial=0.0))
        first: dict[tuple[int, tuple[QuotaRow, ...]], tuple[float, JobKey, int]] = {}
        for j, most in ceiling.items():
            rank = (packing.fulfilment(j, 1), demands[j].job.key, j)
            if packing.count[j] < most and j not in self.gave and rank[0] < highest - self._band - EPSILON:
                kind = (demands[j].shape, tuple(use.row for use in demands[j].quota_uses))
                first[kind] = min(first.get(kind, rank), rank)
        later = once_terminated(packing) if packing.problem.leaving.any() else None
        found = [j for *_, j in sorted(first.values())]
        return [j for j in found if later is None or not later.slots(demands[j].shape).any()]

    def best_transfer(self, j: int) -> _Transfer | None:
        """Return the best transfer to job j that leaves j at least a band below the job that loses the trainer."""
        packing, problem = self._packing, self._packing.problem
        shape, least = problem.demands[j].shape, packing.fulfilment(j, 1) + self._band + EPSILON
        rich = (self._surplus - 1) / self._span > least
        near = np.flatnonzero(rich[self._owner] & problem.opened[shape, self._node])
        node, owner, held = self._node[near], self._owner[near], self._held[near]
        number = np.minimum(self._running[near], self._may_lose[owner]) + self._new[near]
        needed = evictions_needed(shortfall(packing.free[node], problem.request[shape]), problem.request[held])
        after = (self._surplus[owner] - needed) / self._span[owner]
        fits = np.flatnonzero((needed <= number) & (after > least))
        for at in fits[np.lexsort((node[fits], owner[fits], needed[fits], -after[fits]))].tolist():
            transfer = _Transfer(j, int(owner[at]), int(node[at]), int(held[at]), int(needed[at]))
            if _is_within_limits(packing, transfer):
                return transfer
        return None

    def carry_out(self, transfer: _Transfer) -> None:
        """Carry out a transfer: trainers that do not exist yet go first; the packing is changed."""
        packing, donor = self._packing, transfer.donor
        row = np.flatnonzero((self._node == transfer.node) & (self._owner == donor) & (self._held == transfer.shape))
        new = min(transfer.deletions, int(self._new[row].sum()))
        for _ in range(new):
            packing.drop(Placed(donor, Role.TRAINER, transfer.shape, transfer.node))
        live_trainers = packing.problem.live_trainers
        alike = (donor, transfer.shape)
        here = (i for i in packing.at[transfer.node] if (live_trainers[i].demand, live_trainers[i].shape) == alike)
        for index in sorted(here, key=lambda i: live_trainers[i].order)[: transfer.deletions - new]:
            packing.delete(index)
        packing.place_trainer(transfer.taker, transfer.node)
        self.gave.add(donor)
        self._new[row] -= new
        self._running[row] -= transfer.deletions - new
        self._may_lose[donor] -= transfer.deletions - new
        self._surplus[donor] -= transfer.deletions
        self._surplus[transfer.taker] = 0.0  # it gives nothing any more


def _is_within_limits(packing: TrialPacking, transfer: _Transfer) -> bool:
    """True if a transfer leaves the quotas and --max-load-desired unbroken."""
    problem, taker = packing.problem, packing.problem.demands[transfer.taker]
    if taker.quota_uses:
        meter = packing.meter()
        for _ in range(transfer.deletions):
            meter.remove(transfer.donor)
        if meter.quota_shortage(taker.index) is not None:
            return False
    return has_load_left(packing, taker.shape, transfer.deletions * problem.request[transfer.shape])
