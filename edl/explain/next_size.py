"""What the next size of a job lacks, if the job may not have every number of trainers."""

from __future__ import annotations

from edl.model.resources import CPU, MEMORY
from edl.model.sizes import NAMED, above, named
from edl.model.units import amount, count, listed, rank_of
from edl.planner.findings.context import Scarce
from edl.planner.problem import JobDemand
from edl.planner.trial_packing import TrialPacking


def next_size(demand: JobDemand, packing: TrialPacking, scarce: Scarce) -> str:
    """Write a line such as `sizes 2, 4 and 8 are allowed, 8 needs 1 core more`; empty if every count is allowed.

    What is free on nodes that take its trainers counts as much as whole trainers fit there.

    Args:
        demand: a job that the plan admits.
        packing: the finished packing.
        scarce: why there is no capacity for one more trainer; without shortages there is some.
    """
    sizes = demand.job.sizes
    size = above(sizes, packing.count[demand.index]) if sizes else 0
    if not size:
        return ""
    lacking = lacking_trainers(demand, packing)
    line = f"{named(sizes)} are allowed" if len(sizes) > NAMED else f"sizes {named(sizes)} are allowed"
    if not lacking:
        return f"{line}, and {size} fits once other pods are placed"
    request = demand.job.trainer.request
    short = sorted({one.resource for one in scarce.shortages if request[one.resource]}, key=rank_of)
    short = short or [name for name in (CPU, MEMORY) if request[name]][:1]
    if not short:
        return f"{line}, {size} needs capacity for {count(lacking, 'trainer')} more"
    return f"{line}, {size} needs {listed([amount(name, lacking * request[name]) for name in short])} more"


def lacking_trainers(demand: JobDemand, packing: TrialPacking) -> int:
    """Count the trainers that a job lacks for its next allowed size and that find no slot; 0 if all find one."""
    have = packing.count[demand.index]
    return max(0, above(demand.job.sizes, have) - have - int(packing.slots(demand.shape).sum()))
