"""The histories of very small clusters keep every rule and come to rest: `tests.worlds.small_scope`.

One scene is searched whole here, and the others as far as a second goes. `make small-scope` searches all of them.
"""

from __future__ import annotations

import os

import pytest

from tests.planted.install import BUG, swapped
from tests.planted.small_scope import growth_beside_deletions, rests_for_ever
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.scenes import SCENES
from tests.worlds.small_scope.search import Search, replay
from tests.worlds.small_scope.space import Space

WHOLE = frozenset({"takeover-of-one"})
MOST = 40_000
PART = 15_000 if BUG in os.environ else 800
"""So many states of the other scenes; with a planted bug the search ends once it is found."""


@pytest.fixture(scope="module")
def plans() -> RememberedPlans:
    return RememberedPlans(check_every=500)


@pytest.mark.parametrize("name", SCENES)
def test_every_history_of_a_scene_keeps_the_rules_and_comes_to_rest(name: str, plans: RememberedPlans) -> None:
    figures = Search(Space(SCENES[name], plans), MOST if name in WHOLE else PART).run()
    assert (figures.broken, figures.trace) == ((), ())
    if name in WHOLE:
        assert figures.is_whole
        assert figures.at_rest
    else:
        assert figures.states >= PART


def test_a_trace_replays_to_the_broken_rule(plans: RememberedPlans) -> None:
    bug = growth_beside_deletions
    with swapped(bug.target, bug.plant):
        space = Space(SCENES["failure"], plans)
        figures = Search(space, MOST).run()
        again = list(replay(space, figures.trace))
    assert figures.broken
    assert [name for name, _ in again] == list(figures.trace)
    assert again[-1] == (figures.trace[-1], figures.broken)


def test_a_job_that_is_locked_for_ever_is_found_at_rest(plans: RememberedPlans) -> None:
    bug = rests_for_ever
    with swapped(bug.target, bug.plant):
        figures = Search(Space(SCENES["growth-without-answers"], plans), MOST).run()
    assert "at rest, the controller has writes to send, and sends none" in figures.broken


def test_a_step_that_is_not_possible_is_named(plans: RememberedPlans) -> None:
    space = Space(SCENES["failure"], plans)
    with pytest.raises(ValueError, match="'pods shown' is not"):
        list(replay(space, ["a-trainer-0 fails", "pods shown", "pods shown"]))
