"""The packing as a bound sees it: each pod may be in any domain, and pods of one job or slice in different ones.

A plan that keeps jobs together is one of the plans that the relaxed rules allow, whatever domains it chose. So a
bound under these rules holds for every choice of domains.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edl.model.resources import Placement
from edl.model.topology import SEATS, in_any_domain
from edl.planner.eligibility import Eligibility
from edl.planner.trial_packing import TrialPacking


def without_domains(packing: TrialPacking) -> TrialPacking:
    """Copy the packing so that jobs may use all domains; return itself if no job must stay in one."""
    problem = packing.problem
    required: dict[int, Placement] = {}
    for demand in problem.demands:
        topology = demand.job.topology
        if topology is None or not (topology.pinned_depth or topology.within):
            continue
        required[demand.shape] = in_any_domain(demand.job.trainer, topology).placement
        for fixed in demand.job.companions:
            required[problem.shapes.index(fixed.shape)] = in_any_domain(fixed.shape, topology.of_pservers).placement
    if not required:
        return packing
    judge, opened = Eligibility(problem.snapshot.nodes), problem.opened.copy()
    for shape, placement in sorted(required.items()):
        opened[shape] = judge.takes(placement)
    relaxed = packing.copy()
    request = problem.request * ~np.array([name.startswith(SEATS) for name in problem.names], dtype=np.bool_)
    relaxed.problem = replace(
        problem, opened=opened, request=request, used_columns={}, known_buckets={}, known_lists={}
    )
    return relaxed
