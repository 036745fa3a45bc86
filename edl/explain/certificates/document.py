"""The certificate as a JSON document, which `tools/verify_certificate.py` checks against the snapshot and the plan.

It has the nodes of pods that the plan's JSON does not show, four proofs of the sum, and one for each level. All hold
for plans that admit the same jobs and place the same serving pods:

- `promised` bounds every plan that gives each job its fair share, or what this plan gives it if that is less;
- `minimum` bounds every plan that gives each job its minimum;
- `repacked` bounds every plan that is as fair as this one, up to its lowest levels of fulfilment;
- `staying` bounds those of them in which the trainers that this plan keeps stay on their nodes;
- the proof of a level says how far its jobs and all that have more could be, if those that have less keep theirs.

Each number of a proof is a numerator over `denominator`, as text, because not every JSON reader keeps so many digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from edl.errors import PlanError, PlanFailure
from edl.explain.best_possible import BestPossible
from edl.explain.certificates.exact import DENOMINATOR, Claim, Prices, bound_of
from edl.explain.certificates.levels import LevelClaim, as_fair, levels_of
from edl.explain.certificates.prices import fluid_prices, given_prices, grid_of
from edl.explain.certificates.rules import Rules, lends, rule_of, rules_of
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.resources import PodShape, without_rules
from edl.planner.decide import Study
from edl.planner.programs.fair_share import Proof
from edl.planner.programs.generation import Engine

FORMAT = 3
IMMATERIAL = Fraction(1, 10**6)  # bounds of the planner are rounded up by about this much
LEFT_OUT = (
    "quotas of queues",
    "--max-load-desired",
    "capacity for DaemonSet pods that are not on their nodes yet",
    "capacity that --serving-headroom keeps",
)

COSTS = "what resizes cost: in the bound, counts change for nothing"
BEST_EFFORT = "trainers above the minimum of jobs that request neither cpu nor memory"
RULES = "what rules between pods and of volumes exclude: the bound lets pods be anywhere"
LENT = "places of serving pods, which may use CPU that trainers lend"


def certify(study: Study, best: BestPossible | None, limits: Limits) -> dict[str, Any]:
    """Prove in rationals how much better another plan could be.

    Args:
        study: a finished decision of policy `maxmin`, `utility` or `goodput`.
        best: what another plan could reach, in floats; None if there was no time for it.
        limits: those of the decision; `deadline_s` bounds each program.

    Raises:
        ConfigError: the certificate does not cover such a plan; the message names the cause.
        PlanError: a program took too long.
    """
    rules, stated = rules_of(study), study.plan.certificate
    if best is None:
        raise PlanError(
            f"no certificate within {limits.deadline_s:g} s; plan without --certificate", PlanFailure.LATE_SOLVER
        )
    claims = levels_of(rules, best.levels)
    proofs = {name: _best(*asked, limits.deadline_s) for name, asked in _asked(study, rules, best, claims)}
    over = proofs["promised"].bound - Fraction(stated.bound)
    weaker = over if over > IMMATERIAL else Fraction(0)
    return {
        "format": FORMAT,
        "objective": stated.objective,
        "worth": rules.worth,
        "denominator": str(DENOMINATOR),
        "plan": {
            "achieved": stated.achieved,
            "bound": stated.bound,
            "staying": best.staying,
            "repacked": best.repacked,
            **_engine(study.proof),
        },
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
        "proofs": {
            name: {"bound": str(ceil(proof.bound * DENOMINATOR)), **_prices(proof)} for name, proof in proofs.items()
        },
        "levels": [
            {"bound": str(proof.bound), **_prices(proof)}
            for proof in (
                _level(claim, found.bound, _by_shape(study, found.price), limits.deadline_s)
                for claim, found in zip(claims, best.found, strict=True)
            )
        ],
    }


def _left_out(study: Study, rules: Rules) -> Iterable[str]:
    """List the facts about the cluster that the bound does not take into account."""
    problem = study.context.problem
    yield from LEFT_OUT
    if rules.worth != "fulfilment":
        yield COSTS
    if any(without_rules(shape) is not shape for shape in problem.shapes):
        yield RULES
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
    """Name the engine that gave the bound in the plan: `patterns` or `fluid`; empty if neither did."""
    return {"engine": proof.solution.engine.value} if proof.solution is not None else {}


class _Proved(NamedTuple):
    """An upper bound, with the prices that prove it under these rules."""

    bound: Fraction
    rules: Rules
    prices: Prices


def _asked(
    study: Study, rules: Rules, best: BestPossible, levels: Sequence[LevelClaim]
) -> Iterable[tuple[str, tuple[Rules, Mapping[PodShape, float], Claim]]]:
    """Yield the upper bounds to prove, by name: for which plans, by which rules, and from which prices to start."""
    promised, minimum = Claim(tuple(j.floor for j in rules.jobs)), Claim(tuple(j.low for j in rules.jobs))
    staying, repacked = best.proofs
    fair = as_fair(rules, levels)
    yield "promised", (rules, _by_shape(study, _slot_prices(study.proof)), promised)
    yield "minimum", (rules, _by_shape(study, _slot_prices(study.proof)), minimum)
    yield "repacked", (rules, _by_shape(study, _slot_prices(repacked)), fair)
    yield "staying", (rules.staying, _by_shape(study, _slot_prices(staying)), fair)


def _slot_prices(proof: Proof) -> Mapping[int, float]:
    """The dual prices of a slot for a pod of each shape, from the solution of a linear program; empty without one."""
    if proof.solution is None:
        return {}
    return dict(zip(proof.cluster.columns.shapes, proof.solution.slot_price.tolist(), strict=True))


def _by_shape(study: Study, price: Mapping[int, float]) -> dict[PodShape, float]:
    """Turn prices by the planner's shape number into prices by the shapes that the certificate's rules use."""
    problem = study.context.problem
    jobs = [demand.job for demand in problem.demands]
    relaxed = {job.trainer: rule_of(job, Role.TRAINER, job.trainer) for job in jobs}
    relaxed |= {fixed.shape: rule_of(job, fixed.role, fixed.shape) for job in jobs for fixed in job.companions}
    return {
        relaxed.get(shape, without_rules(shape)): worth
        for shape, worth in ((problem.shapes[s], p) for s, p in price.items())
    }


def _best(rules: Rules, known: Mapping[PodShape, float], claim: Claim, deadline_s: float) -> _Proved:
    """Try several price vectors for a claim, and return the one with the lowest upper bound."""
    first, *others = _candidates(rules, known, claim, deadline_s)
    best = _Proved(bound_of(rules, first, claim), rules, first)
    for prices in others:
        bound = bound_of(rules, prices, claim)
        if bound < best.bound - IMMATERIAL:
            best = _Proved(bound, rules, prices)
    return best


def _level(claim: LevelClaim, start: float, known: Mapping[PodShape, float], deadline_s: float) -> _Proved:
    """Prove the lowest upper bound that some prices prove for one level of fulfilment."""
    above = claim.beyond(claim.steps(start)[0])
    prices = [given_prices(claim.rules, {}), *_candidates(claim.rules, known, above, deadline_s)]
    bound, best = claim.proved(prices, start)
    return _Proved(bound, claim.rules, best)


def _candidates(rules: Rules, known: Mapping[PodShape, float], claim: Claim, deadline_s: float) -> Iterable[Prices]:
    """Yield the price vectors to try for a claim, the cheapest to evaluate first."""
    fluid, given = fluid_prices(rules, claim, deadline_s), given_prices(rules, known)
    yield fluid
    if steps := grid_of(rules):
        yield replace(fluid, steps=steps)
        yield replace(given, steps=steps)


def _prices(proof: _Proved) -> dict[str, Any]:
    rules, prices = proof.rules, proof.prices
    vectors = enumerate(prices.vectors)
    used = {number for number in prices.vector_of if number is not None}
    return {
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
