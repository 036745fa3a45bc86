"""Counts that are none of a job's sizes become the next lower one."""

from __future__ import annotations

from edl.model.names import Role
from edl.model.sizes import allows, at_most
from edl.planner.reallocation import deletion_order
from edl.planner.trial_packing import TrialPacking


def in_sizes(packing: TrialPacking) -> TrialPacking:
    """The packing in which no member has a count that is none of its sizes: it falls to the next lower one."""
    beyond = [j for j in packing.members if not allows(packing.problem.demands[j].job.sizes, packing.count[j])]
    if not beyond:
        return packing
    found = packing.copy()
    for j in beyond:
        lower(found, j, at_most(packing.problem.demands[j].job.sizes, packing.count[j]))
    return found


def lower(packing: TrialPacking, j: int, most: int) -> None:
    """Take trainers from a member until it has `most`, those that do not exist yet first; the packing is changed."""
    new = [place for place in packing.placed if place.owner == j and place.role is Role.TRAINER]
    while packing.count[j] > most and new:
        packing.drop(new.pop())
    for index in deletion_order(packing, j)[: max(0, packing.count[j] - most)]:
        packing.delete(index)
