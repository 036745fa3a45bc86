"""Any prices give a bound that holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from edl.errors import EdlError
from edl.explain.certificates.exact import DENOMINATOR, Claim, Prices, bound_of
from edl.explain.certificates.prices import fluid_prices, grid_of
from edl.explain.certificates.rules import rules_of
from edl.model.limits import Limits
from edl.planner.decide import study
from edl.planner.policies.registry import policy_named
from tests.tools.certified_clusters import certify_objects, random_objects
from tests.tools.judge import Judge
from tests.worlds.builders import make_job, make_node, make_snapshot


@pytest.mark.parametrize("seed", range(12))
def test_no_prices_prove_less_than_whole_pods_can_reach(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311
    try:
        world = certify_objects(random_objects(seed), tmp_path)
    except EdlError:
        return
    judge = Judge(world)
    rules = rules_of(
        study(replace(world.snapshot, jobs=tuple(judge.jobs.values())), policy_named("maxmin"), Limits())
    )
    lows = {str(job.key): job.low for job in rules.jobs}
    claim = Claim(tuple(job.low for job in rules.jobs))
    best = judge.best(lows, {str(job.key): job.cap for job in rules.jobs}, world.certificate)
    for _ in range(20):
        slots = tuple(random.choice((0, random.randrange(DENOMINATOR))) for _ in rules.shapes)
        vector = tuple(random.randrange(DENOMINATOR) // 10 ** random.randrange(3, 12) for _ in rules.resources)
        prices = Prices(slots, (vector,), (random.choice((0, None)),) * len(rules.kinds))
        for steps in ({}, grid_of(rules)):
            assert bound_of(rules, replace(prices, steps=steps), claim) >= best - 1e-9


def test_room_that_no_set_of_pods_can_use_is_not_paid_for() -> None:
    snapshot = make_snapshot((make_node("n1", 11.62, 100),), (make_job("a", cpu=5, max_trainers=20),))
    rules = rules_of(study(snapshot, policy_named("maxmin"), Limits()))
    claim = Claim(tuple(job.floor for job in rules.jobs))
    prices = fluid_prices(rules, claim, 10.0)
    assert float(bound_of(rules, prices, claim)) == pytest.approx(1.0)
