"""Every history of very small clusters keeps every rule and comes to rest: `tests.worlds.small_scope`.

`make small-scope` searches larger scenes, with millions of states.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.planted.install import swapped
from tests.planted.small_scope import growth_beside_deletions, refused_for_ever
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.scenes import SCENES, SMALL
from tests.worlds.small_scope.search import Search, Space, replay

MOST = 100_000
PART = 2_000


@pytest.fixture(scope="module")
def plans() -> RememberedPlans:
    return RememberedPlans(check_every=500)


@pytest.mark.parametrize("name", [scene.name for scene in SMALL])
def test_every_history_of_a_scene_keeps_the_rules_and_comes_to_rest(name: str, plans: RememberedPlans) -> None:
    with closing(Space(SCENES[name], plans)) as space:
        figures = Search(space, MOST).run()
    assert (figures.broken, figures.trace) == ((), ())
    assert figures.is_whole
    assert figures.at_rest


@pytest.mark.parametrize("name", sorted(SCENES.keys() - {scene.name for scene in SMALL}))
def test_the_first_states_of_a_large_scene_keep_the_rules(name: str, plans: RememberedPlans) -> None:
    with closing(Space(SCENES[name], plans)) as space:
        figures = Search(space, PART).run()
    assert (figures.broken, figures.trace) == ((), ())
    assert figures.states >= PART


def test_a_trace_replays_to_the_broken_rule(plans: RememberedPlans) -> None:
    bug, scene = growth_beside_deletions, SCENES["failure"]
    with swapped(bug.target, bug.plant), closing(Space(scene, plans)) as space:
        figures = Search(space, MOST).run()
        again = list(replay(space, figures.trace))
    assert figures.broken
    assert [name for name, _ in again] == list(figures.trace)
    assert again[-1] == (figures.trace[-1], figures.broken)


def test_what_the_controller_remembers_of_a_refusal_is_part_of_a_state(plans: RememberedPlans) -> None:
    bug = refused_for_ever
    with swapped(bug.target, bug.plant), closing(Space(SCENES["growth-refused"], plans)) as space:
        assert Search(space, MOST).run().broken == ("at rest, default/a has no trainers, although its minimum fits",)


def test_a_step_that_is_not_possible_is_named(plans: RememberedPlans) -> None:
    with closing(Space(SCENES["failure"], plans)) as space, pytest.raises(ValueError, match="'pods shown' is not"):
        list(replay(space, ["a-trainer-0 fails", "pods shown", "pods shown"]))
