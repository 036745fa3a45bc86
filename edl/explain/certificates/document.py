"""The certificate as a JSON document, which `tools/verify_certificate.py` checks against the snapshot and the plan.

It has the nodes of pods that the plan's JSON does not show, and two proofs. `promised` bounds every plan that gives
each job its promised share, or what this plan gives it if that is less. `minimum` bounds every plan that gives each
job its minimum. Both hold for plans that admit the same jobs and place the same serving pods. Each number of a proof
is a numerator over `denominator`, as text, because not every JSON reader keeps so many digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

from edl.explain.certificates.exact import DENOMINATOR, Prices, bound_of
from edl.explain.certificates.prices import fluid_prices, given_prices, grid_of
from edl.explain.certificates.rules import Rules, lends, rule_of, rules_of
from edl.model.names import Role
from edl.model.plan import Limits
from edl.model.resources import PodShape
from edl.planner.decide import Study
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.generation import Engine

FORMAT = 1
IMMATERIAL = Fraction(1, 10**6)  # bounds of the planner are rounded up by about this much
LEFT_OUT = (
    "quotas of queues",
    "--max-load-desired",
    "room for DaemonSet pods that are not on their nodes yet",
    "room that --serving-headroom keeps",
)

BEST_EFFORT = "trainers above the minimum of jobs that request neither cpu nor memory"
LENT = "places of serving pods, which may use CPU that trainers lend"


def certify(study: Study, limits: Limits) -> dict[str, Any]:
    """Prove in rationals how much better another plan could be.

    Args:
        study: a finished decision of policy `maxmin`.
        limits: those of the decision; `deadline_s` bounds each program.

    Raises:
        ConfigError: the certificate does not cover such a plan; the message names the cause.
        PlanError: a program took too long.
    """
    rules, stated = rules_of(study), study.plan.certificate
    known = _planned_prices(study)
    proofs = {
        name: _best(rules, known, promised=name == "promised", deadline_s=limits.deadline_s)
        for name in ("promised", "minimum")
    }
    over = proofs["promised"][1] - Fraction(stated.bound)
    weaker = over if over > IMMATERIAL else Fraction(0)
    return {
        "format": FORMAT,
        "objective": stated.objective,
        "denominator": str(DENOMINATOR),
        "plan": {"achieved": stated.achieved, "bound": stated.bound, **_engine(study.proof)},
        "weakerBy": float(weaker),
        "note": _note(weaker, stated.bound, study.proof),
        "leftOut": list(_left_out(study, rules)),
        "jobs": {
            str(job.key): {
                "cap": job.cap,
                "floor": job.floor,
                **{role.value: list(job.starts[role]) for role in (Role.MASTER, Role.PSERVER)},
            }
            for job in rules.jobs
        },
        "pods": dict(rules.serving),
        "proofs": {name: _proof(rules, prices, bound) for name, (prices, bound) in proofs.items()},
    }


def _left_out(study: Study, rules: Rules) -> Iterable[str]:
    """What the bound does not know."""
    problem = study.context.problem
    yield from LEFT_OUT
    if lends(problem.snapshot) and rules.serving:
        yield LENT
    if any(demand.job.is_best_effort for demand in problem.demands):
        yield BEST_EFFORT


def _note(weaker: Fraction, bound: float, proof: Proof) -> str:
    if not weaker:
        return "The proof reaches the bound that the plan states."
    is_fluid = proof.solution is not None and proof.solution.engine is Engine.FLUID
    origin = "pods that can be divided" if is_fluid else "patterns of whole pods"
    return (
        f"The plan states a bound of {bound:.6g} from {origin}. The rational proof is weaker: its bound"
        f" is higher by {float(weaker):.6g}."
    )


def _engine(proof: Proof) -> dict[str, str]:
    """Which of both engines gave the bound that the plan states: `patterns` or `fluid`; nothing if none did."""
    return {"engine": proof.solution.engine.value} if proof.solution is not None else {}


def _planned_prices(study: Study) -> dict[PodShape, float]:
    """The prices of the solution that the plan was proved with."""
    solution, cluster = study.proof.solution, study.proof.cluster
    if solution is None:
        return {}
    problem = study.context.problem
    jobs = [demand.job for demand in problem.demands]
    relaxed = {job.trainer: rule_of(job, Role.TRAINER, job.trainer) for job in jobs}
    relaxed |= {fixed.shape: rule_of(job, fixed.role, fixed.shape) for job in jobs for fixed in job.companions}
    shapes = (relaxed.get(shape, shape) for shape in (problem.shapes[s] for s in cluster.columns.shapes))
    return dict(zip(shapes, solution.slot_price.tolist(), strict=True))


def _best(
    rules: Rules, known: dict[PodShape, float], *, promised: bool, deadline_s: float
) -> tuple[Prices, Fraction]:
    """The prices with the lowest bound; a table over whole pods is used only if it lowers the bound."""
    fluid, given = fluid_prices(rules, promised=promised, deadline_s=deadline_s), given_prices(rules, known)
    best = fluid, bound_of(rules, fluid, promised=promised)
    if steps := grid_of(rules):
        for prices in (replace(fluid, steps=steps), replace(given, steps=steps)):
            bound = bound_of(rules, prices, promised=promised)
            if bound < best[1] - IMMATERIAL:
                best = prices, bound
    return best


def _proof(rules: Rules, prices: Prices, bound: Fraction) -> dict[str, Any]:
    vectors = enumerate(prices.vectors)
    used = {number for number in prices.vector_of if number is not None}
    return {
        "bound": str(ceil(bound * DENOMINATOR)),
        "prices": dict(_texts(zip(rules.labels, prices.slots, strict=True))),
        "steps": dict(prices.steps),
        "nodePrices": {
            f"v{v}": dict(_texts(zip(rules.resources, vector, strict=True))) for v, vector in vectors if v in used
        },
        "nodes": {
            name: f"v{number}"
            for kind, number in zip(rules.kinds, prices.vector_of, strict=True)
            if number is not None
            for name in kind.names
        },
    }


def _texts(prices: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str]]:
    return ((name, str(price)) for name, price in prices if price)
