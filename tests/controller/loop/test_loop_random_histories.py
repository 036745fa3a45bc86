"""Random histories of jobs, serving, nodes and API faults: each comes to rest and keeps every rule.

`make test` plays 400 seeds; `EDL_HISTORIES` sets another number, and `make histories` plays 20,000.
"""

from __future__ import annotations

import os

import pytest

from tests.worlds.histories.random_history import FAULTS, HAPPENINGS, play
from tests.worlds.histories.remembered_plans import RememberedPlans

HISTORIES = int(os.environ.get("EDL_HISTORIES", "400"))
BATCH = 100
CHECK_EVERY = 200


@pytest.fixture(scope="module")
def plans() -> RememberedPlans:
    return RememberedPlans(CHECK_EVERY)


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_whatever_happens_the_cluster_comes_to_rest_and_every_rule_is_kept(
    first: int, plans: RememberedPlans
) -> None:
    bad, _ = play(range(first, min(first + BATCH, HISTORIES)), plans)
    assert {seed: (history.happened, history.broken) for seed, history in bad.items()} == {}


def test_the_histories_are_the_same_in_each_run_and_try_everything(plans: RememberedPlans) -> None:
    _, first = play(range(BATCH), plans)
    _, again = play(range(BATCH), plans)
    assert [history.happened for history in first] == [history.happened for history in again]
    assert [len(history.world.writes) for history in first] == [len(history.world.writes) for history in again]
    assert {name for history in first for name in history.happened} == {
        happening.__name__ for happening in HAPPENINGS
    }
    _, more = play(range(BATCH, 2 * BATCH), plans)
    assert set().union(*(history.faults for history in (*first, *more))) == FAULTS.keys()


def test_a_plan_from_memory_is_the_plan_that_would_be_made() -> None:
    plans = RememberedPlans(check_every=3)
    play(range(16), plans)
    assert plans.checked > 5
