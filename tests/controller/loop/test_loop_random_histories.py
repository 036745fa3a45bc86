"""Random histories of jobs, serving, nodes and API faults: each comes to rest and keeps every rule.

`make test` plays 400 seeds; `EDL_HISTORIES` sets another number, and `make histories` plays 20,000.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.worlds.histories.random_history import FAULTS, HAPPENINGS, History, play
from tests.worlds.histories.remembered_plans import RememberedPlans

HISTORIES = int(os.environ.get("EDL_HISTORIES", "400"))
BATCH = 100
CHECK_EVERY = 200


@pytest.fixture(scope="module")
def plans() -> RememberedPlans:
    return RememberedPlans(CHECK_EVERY)


@pytest.fixture(scope="module")
def histories(plans: RememberedPlans) -> Callable[[range], list[History]]:
    """Plays the histories of some seeds; those of the first two batches, which two tests look at, once."""
    kept: dict[range, list[History]] = {}

    def of(seeds: range) -> list[History]:
        played = kept.get(seeds) or play(seeds, plans)
        if seeds.stop <= 2 * BATCH:
            kept[seeds] = played
        return played

    return of


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_whatever_happens_the_cluster_comes_to_rest_and_every_rule_is_kept(
    first: int, histories: Callable[[range], list[History]]
) -> None:
    seeds = range(first, min(first + BATCH, HISTORIES))
    played = zip(seeds, histories(seeds), strict=True)
    assert {seed: (history.happened, history.broken) for seed, history in played if history.broken} == {}


def test_the_histories_are_the_same_in_each_run_and_try_everything(
    histories: Callable[[range], list[History]], plans: RememberedPlans
) -> None:
    first, again = histories(range(BATCH)), play(range(BATCH), plans)
    assert [history.happened for history in first] == [history.happened for history in again]
    assert [len(history.world.writes) for history in first] == [len(history.world.writes) for history in again]
    assert {name for history in first for name in history.happened} == {
        happening.__name__ for happening in HAPPENINGS
    }
    more = histories(range(BATCH, 2 * BATCH))
    assert set().union(*(history.faults for history in (*first, *more))) == FAULTS.keys()


def test_a_plan_from_memory_is_the_plan_that_would_be_made() -> None:
    plans = RememberedPlans(check_every=3)
    play(range(16), plans)
    assert plans.checked > 5
