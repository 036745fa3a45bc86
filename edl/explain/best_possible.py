"""How much better a plan could be: the worst-off jobs first, then the sum, with and without moving what runs.

The bound in a plan's certificate is for the sum of all plans that keep the fair shares, wherever pods run. This says
more, and takes as long as some certificates do, so `edl plan` computes it, never the controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, lcm
from typing import Any

from edl.errors import PlanError
from edl.model.names import JobKey
from edl.model.plan import GAP_ROUNDING, Certificate
from edl.model.units import count, listed
from edl.planner.decide import Study
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.levels import LevelBound, level_bounds, trainers_at_levels
from edl.planner.topology.gathering import moves_trainers
from edl.planner.topology.relaxed import without_domains
from edl.planner.trial_packing import TrialPacking

MOST_NAMED = 3  # jobs of a level
MOST_STEPS = 10**5  # from 0 to 1; with more of them, rounding down changes nothing
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Level:
    """Jobs of equal fulfilment, and how far a plan could raise them.

    Attributes:
        fulfilment: what they have, in [0, 1).
        bound: what they, and all jobs that have more, could all have at best while those that have less keep theirs.
        jobs: the jobs, sorted.
    """

    fulfilment: float
    bound: float
    jobs: tuple[JobKey, ...]


@dataclass(frozen=True, slots=True)
class BestPossible:
    """How much better a plan could be.

    Attributes:
        levels: the lowest levels of fulfilment, three at most, from the lowest upwards; none under `utility`.
        staying: no plan with these levels is worth more if the trainers that this plan keeps stay on their nodes.
        repacked: no plan with these levels is worth more, even if all pods were repacked.
        found: the levels with the prices that show them.
        proofs: the solutions behind `staying` and `repacked`.
    """

    levels: tuple[Level, ...]
    staying: float
    repacked: float
    found: tuple[LevelBound, ...]
    proofs: tuple[Proof, Proof]

    @property
    def price_of_staying(self) -> float:
        """The most that the objective loses because running pods do not move; 0 if that is within rounding."""
        lost = self.repacked - self.staying
        return lost if lost > GAP_ROUNDING else 0.0


def best_possible(made: Study, deadline_s: float) -> BestPossible | None:
    """Bound what another plan could reach.

    Args:
        made: the finished plan.
        deadline_s: time for each program.

    Returns:
        The bounds; None if pods move in the plan, or a program found no answer in time.
    """
    shared, certificate = made.context.shared, made.plan.certificate
    if any(decision.moves for decision in made.plan.decisions) or moves_trainers(made.plan):
        return None
    packing = without_domains(shared.packing)
    try:
        found = level_bounds(packing, deadline_s) if shared.objective.name == "fulfilment" else ()
        least = trainers_at_levels(packing, found)
        staying, anywhere = (
            shared.objective.prove(packing, shared.level, deadline_s, least=least, stays=stays)
            for stays in (True, False)
        )
    except PlanError:
        return None
    demands = packing.problem.demands
    bounds = [min(one.bound, certificate.bound) for one in (staying, anywhere)]
    if shared.objective.name == "fulfilment":
        bounds = [_with_whole_trainers(packing, bound) for bound in bounds]
    kept, repacked = (max(certificate.achieved, bound) for bound in bounds)
    levels = (Level(one.fulfilment, one.bound, tuple(sorted(demands[j].job.key for j in one.jobs))) for one in found)
    return BestPossible(tuple(levels), min(kept, repacked), repacked, found, (staying, anywhere))


def _with_whole_trainers(packing: TrialPacking, bound: float) -> float:
    """Round an upper bound of the sum of fulfilments down to a sum that whole trainers can have.

    Each trainer adds a fraction, so every sum is a multiple of one over the least common multiple of their spans.
    """
    demands = [packing.problem.demands[j] for j in packing.members]
    spans = [max(1, demand.max_trainers - demand.min_trainers) for demand in demands]
    steps = lcm(*spans)
    if steps > MOST_STEPS or any(demand.job.weight != 1.0 for demand in demands):
        return bound
    return floor(bound * steps + SAME) / steps


def best_dict(best: BestPossible) -> dict[str, Any]:
    """The bounds in the form that scripts read."""
    return {
        "levels": [
            {"fulfilment": level.fulfilment, "bound": level.bound, "jobs": [str(job) for job in level.jobs]}
            for level in best.levels
        ],
        "staying": best.staying,
        "repacked": best.repacked,
    }


def best_lines(certificate: Certificate, best: BestPossible) -> Iterator[str]:
    """Say in words how much better a plan could be: first each level of fulfilment, then the sum over all jobs."""
    if best.levels:
        yield f"Worst off: {'; then '.join(map(_said, best.levels))}"
    if not certificate.gap:
        return
    missed = best.staying - certificate.achieved
    gap = missed / best.staying if missed > GAP_ROUNDING else 0.0
    given = "With these levels and" if best.levels else "With"
    line = f"{given} the trainers that stay on their nodes: at most {best.staying:.6g} (gap {gap:.3%})"
    if price := best.price_of_staying:
        line += f"; with all pods repacked: at most {best.repacked:.6g}, so not moving pods costs up to {price:.6g}"
    yield line


def _said(level: Level) -> str:
    named, more = [str(job) for job in level.jobs[:MOST_NAMED]], len(level.jobs) - MOST_NAMED
    jobs = listed([*named, count(more, "more job")] if more > 0 else named)
    return f"{jobs} with {level.fulfilment:.3g}, at best {level.bound:.3g}"
