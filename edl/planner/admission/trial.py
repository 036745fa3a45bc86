"""Tries whether a set of jobs fits beside serving: by proofs that are kept, then by whole pods on real nodes.

`admit` decides which sets are tried. A set that is rejected by a program leaves a cut behind, and that rejects
others at once; see `programs.shortage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edl.planner.minimums.batches import Served, batches_of
from edl.planner.minimums.required import place_all_possible, place_exactly, place_in_free_capacity, place_required
from edl.planner.problem import JobDemand, Problem, free_beside_fixed
from edl.planner.programs.most_pods import place_most_priced
from edl.planner.programs.shortage import Screen
from edl.planner.quota import QuotaMeter
from edl.planner.trial_packing import TrialPacking

EXCHANGES = 600  # between two nodes, for a longer search; about 2 ms each


class AdmissionTrial:
    """Tries sets of jobs: whether all that they need fits beside serving; rejected sets are remembered.

    Attributes:
        screen: what the programs have proved so far.
    """

    def __init__(self, problem: Problem, served: Served, deadline_s: float) -> None:
        """Prepare trials beside the serving pods that are placed."""
        self.problem = problem
        self.served = served
        self.deadline_s = deadline_s
        self.screen = Screen(problem, served.due)
        self._refused: set[tuple[tuple[int, ...], tuple[object, ...]]] = set()

    def packing_of(self, members: Iterable[int]) -> TrialPacking | None:
        """The packing of these jobs; None if they do not fit together."""
        self.problem.clock.check("admission")
        chosen = tuple(sorted(members))
        if self.meter(chosen).passed():
            return None
        packing = TrialPacking(self.problem, chosen)
        if not batches_of(packing, self.served):
            return packing
        if self.problem.plans_in_bulk and place_in_free_capacity(packing, self.served) is not None:
            return packing  # placing the pods is faster than proving that they fit
        return place_required(self.problem, chosen, self.served, self.deadline_s) if self._could_fit(chosen) else None

    def beside(self, members: tuple[int, ...], newcomer: int) -> TrialPacking | None:
        """Try one more job; one with the needs of a rejected one, and pods on the same nodes, is rejected at once."""
        demand = self.problem.demands[newcomer]
        kind = (
            members,
            (
                demand.shape,
                demand.min_trainers,
                demand.needs,
                demand.unbound_fixed,
                self.screen.standing(newcomer),
                demand.live_trainers,
                demand.quota_uses,
            ),
        )
        if kind in self._refused:
            return None
        passes = self.screen.start(members) and self.screen.admits(newcomer)
        packing = self.packing_of((*members, newcomer)) if passes else None
        if packing is None:
            self._refused.add(kind)
        return packing

    def may_fit(self, members: tuple[int, ...], newcomer: int) -> bool:
        """False if a quota or a program proves that one more job cannot run beside these."""
        together = (*members, newcomer)
        return (
            not self.meter(together).passed()
            and self.screen.start(members)
            and self.screen.admits(newcomer)
            and self._could_fit(together)
        )

    def repacked(self, members: tuple[int, ...], newcomer: int) -> TrialPacking | None:
        """Try one more job by a longer search, also if it was rejected; None if it finds no packing.

        The search deletes no trainer, so there must be none.
        """
        packing = TrialPacking(self.problem, (*members, newcomer))
        if (packing.node_of >= 0).any():
            return None
        return place_exactly(packing, self.served, self.deadline_s, tries=EXCHANGES)

    def fitting(self, members: Sequence[int], order: Sequence[int]) -> list[int]:
        """Return the longest prefix of jobs whose pods all fit in one packing; empty if not even the first job fits.

        It is tried if no program proves which of them do not fit: serving takes any trainer's capacity, then masters,
        pservers and minimums take the capacity of surplus.
        """
        rank = {j: number for number, j in enumerate((*members, *order))}
        packing = TrialPacking(self.problem, rank)
        without = place_all_possible(packing, self.served, rank)
        return [j for j in order if j not in without] if without is not None else []

    def passing(self, members: Sequence[int], order: Sequence[int]) -> int:
        """How many jobs of an order no proof rejects, counted up to the first that is rejected."""
        if not self.screen.start(members, order):
            return 0
        for number, j in enumerate(order):
            if not self.screen.admits(j):
                return number
            self.screen.add(j)
        return len(order)

    def meter(self, members: Iterable[int]) -> QuotaMeter:
        """The quota that some jobs use at their minimums."""
        limited = {j: demand for j in members if (demand := self.problem.demands[j]).quota_uses}
        return QuotaMeter(
            {j: c.quota_uses for j, c in limited.items()}, {j: c.min_trainers for j, c in limited.items()}
        )

    def has_waited(self, demand: JobDemand) -> bool:
        """True if a job has waited longer than the limit after which no younger job may start before it."""
        now_s = self.problem.snapshot.observed_at_s
        return now_s - waiting_since_s(demand) >= self.problem.limits.sharing.head_wait_s

    def _could_fit(self, members: tuple[int, ...]) -> bool:
        """False if the linear program proves that they do not fit, even with trainers moved and pods split."""
        wanted = self.screen.wanted(members)
        if not wanted:
            return True
        free = free_beside_fixed(self.problem, self.screen.capacity, members)
        most, prices = place_most_priced(self.problem, free, wanted, self.deadline_s)
        if most >= wanted.total() - 1e-6:
            return True
        self.screen.learn(members, prices)
        return False


def waiting_since_s(demand: JobDemand) -> float:
    """When a job that does not run began to wait: at its creation, or when it lost its admission."""
    status = demand.job.status
    admitted = status.condition("Admitted") if status is not None else None
    if status is not None and status.start_s is not None and admitted is not None and admitted.status == "False":
        return admitted.since_s
    return demand.job.created_s
