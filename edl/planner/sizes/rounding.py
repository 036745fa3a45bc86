"""Lowers counts that are not among a job's allowed sizes to the next lower size."""

from __future__ import annotations

from edl.model.names import Role
from edl.model.sizes import allows, at_most
from edl.planner.reallocation import deletion_order
from edl.planner.trial_packing import TrialPacking


def in_sizes(packing: TrialPacking) -> TrialPacking:
    """Return the packing with each job's count lowered to the largest of its allowed sizes below it."""
    beyond = [j for j in packing.members if not allows(packing.problem.demands[j].job.sizes, packing.count[j])]
    if not beyond:
        return packing
    found = packing.copy()
    for j in beyond:
        lower(found, j, at_most(packing.problem.demands[j].job.sizes, packing.count[j]))
    return found


def lower(packing: TrialPacking, j: int, most: int) -> None:
    """Delete trainers of a job until it has `most`, planned ones before running ones; the packing is changed."""
    new = [place for place in packing.placed if place.owner == j and place.role is Role.TRAINER]
    while packing.count[j] > most and new:
        packing.drop(new.pop())
    for index in deletion_order(packing, j)[: max(0, packing.count[j] - most)]:
        packing.delete(index)
