"""The packing as a bound sees it: each trainer may be in any domain, and trainers of a job in different ones.

A plan that keeps jobs together is one of the plans that the relaxed rules allow, whatever domains it chose. So a
bound under these rules holds for every choice of domains.
"""

from __future__ import annotations

from dataclasses import replace

from edl.model.topology import in_any_domain
from edl.planner.eligibility import Eligibility
from edl.planner.trial_packing import TrialPacking


def without_domains(packing: TrialPacking) -> TrialPacking:
    """A copy in which jobs may use all domains; the packing itself if no job must stay in one."""
    problem = packing.problem
    required = {
        demand.shape: in_any_domain(demand.job.trainer, topology).placement
        for demand in problem.demands
        if (topology := demand.job.topology) is not None and topology.is_required
    }
    if not required:
        return packing
    judge, opened = Eligibility(problem.snapshot.nodes), problem.opened.copy()
    for shape, placement in sorted(required.items()):
        opened[shape] = judge.takes(placement)
    relaxed = packing.copy()
    relaxed.problem = replace(problem, opened=opened, used_columns={}, known_buckets={})
    return relaxed
