"""Sentences about jobs whose pods share a domain: which domain it is, and what the best one is short of."""

from __future__ import annotations

from edl.model.units import count
from edl.planner.findings.context import DecisionContext
from edl.planner.problem import JobDemand
from edl.planner.topology.domain_capacity import DomainCapacities


class TogetherWriter:
    """Writes what domains have to do with the counts of one plan; the capacity of each domain is read once."""

    def __init__(self, context: DecisionContext) -> None:
        """Keep the plan; nothing is read before a job asks."""
        self._context = context
        self._at_minimums: DomainCapacities | None = None  # with the minimums of all jobs that run
        self._as_planned: DomainCapacities | None = None  # as the plan leaves them

    def lacks(self, demand: JobDemand, *, alone: bool) -> str:
        """Say why the minimum of a job fits in no domain; empty if it fits, or if the job needs no domain.

        Args:
            demand: a job that does not run.
            alone: count the capacity that there would be without any other training.
        """
        topology = demand.job.topology
        if topology is None or not topology.is_required:
            return ""
        packing = self._context.admission.packing
        self._at_minimums = self._at_minimums or DomainCapacities(self._context.problem, packing)
        offers = self._at_minimums.offers(demand, topology)
        if not offers:
            return f"no node has the label {topology.key}"
        for fixed in demand.job.companions:
            if not self._at_minimums.takes(fixed.shape, topology):
                return f"no node with the label {topology.key} accepts its {fixed.role}s"
        most, domain = max((offer.alone if alone else offer.surplus, offer.domain) for offer in offers)
        if most >= demand.min_trainers:
            return ""
        beside = "".join(f" and {count(fixed.count, fixed.role.value)}" for fixed in demand.job.companions)
        needs = f"needs {count(demand.min_trainers, 'trainer')}{beside} in one {topology.word}"
        if not most:
            return f"{needs}, and no {topology.word} has capacity for {'all pservers' if beside else 'any'}"
        fitting = f"{count(most, 'trainer')} beside the pservers" if beside else str(most)
        return f"{needs}; the best, {domain}, has capacity for {fitting}"

    def located(self, demand: JobDemand, short: str, full: str) -> tuple[str, str]:
        """Say what keeps a running job from more trainers in its domain."""
        topology = demand.job.topology
        if topology is None or not topology.is_required:
            return short, full
        where, packing = f"{topology.word} {topology.domain}", self._context.shared.packing
        self._as_planned = self._as_planned or DomainCapacities(self._context.problem, packing)
        larger = self._as_planned.larger(demand, topology, packing.count[demand.index])
        stay = f"its trainers stay in {where}"
        if larger is not None:
            stay += f", although {topology.word} {larger.domain} has free capacity for {larger.free}"
        return f"{short} (its {where})", f"{full}; {stay}"
