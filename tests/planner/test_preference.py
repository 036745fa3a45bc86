"""Preferences decide between nodes that are equal otherwise, and never cost a trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.resources import NodeTerm, Placement, PodShape, Preference, Requirement, Taint, Toleration
from edl.planner.eligibility import Eligibility
from edl.planner.preference import follow_preferences
from edl.planner.problem_reader import read_problem
from edl.planner.starts import startable
from edl.planner.trial_packing import TrialPacking
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import decision_of, plan_for, running_worlds, targets, victims


def pool(value: str, weight: int = 50) -> Preference:
    return Preference(weight, NodeTerm((Requirement("pool", "In", (value,)),)))


def nodes(*pools: str, cpu: float = 4) -> tuple[Node, ...]:
    return tuple(make_node(f"n{i}", cpu, labels={"pool": name}) for i, name in enumerate(pools))


def wishing(job: Job, *preferred: Preference) -> Job:
    return replace(job, preferred=preferred)


def used(plan: ScalePlan, name: str = "a") -> dict[str, int]:
    return dict(decision_of(plan, name).nodes)


AVOIDED = Taint("spot", "yes", "PreferNoSchedule")


def test_of_equal_nodes_the_preferred_one_is_planned() -> None:
    job = make_job("a", max_trainers=4)
    world = make_snapshot(nodes("hdd", "ssd"), (job,))
    assert used(plan_for(world)) == {"n0": 4}
    assert used(plan_for(replace(world, jobs=(wishing(job, pool("ssd")),)))) == {"n1": 4}


def test_the_sum_of_the_weights_that_are_met_decides() -> None:
    wishes = (pool("a", 60), pool("b", 40), Preference(30, NodeTerm((Requirement("pool", "In", ("b", "c")),))))
    job = wishing(make_job("a", max_trainers=4), *wishes)
    assert used(plan_for(make_snapshot(nodes("a", "c", "b"), (job,)))) == {"n2": 4}
    judge = Eligibility(nodes("a", "c", "b"))
    assert judge.weigh(wishes).tolist() == [60, 30, 70]
    assert judge.weigh((Preference(9, NodeTerm()),)).tolist() == [0, 0, 0]


def test_the_most_welcome_node_with_room_comes_first_and_then_the_next() -> None:
    for trainers, expected in ((1, {"n2": 1}), (6, {"n1": 2, "n2": 4})):
        job = wishing(make_job("a", max_trainers=trainers), pool("b", 10), pool("c", 90))
        assert used(plan_for(make_snapshot(nodes("a", "b", "c"), (job,)))) == expected


def test_a_node_that_is_closed_does_not_set_the_scale() -> None:
    """An avoided node is worse by 300 than one that is not, which a preference does not make up for: 200."""
    one, two = AVOIDED, AVOIDED._replace(key="old")
    avoided, other, closed = nodes("ssd", "hdd", "hdd")
    world = make_snapshot(
        (replace(avoided, taints=(one,)), other, replace(closed, taints=(one, two), cordoned=True)),
        (wishing(make_job("a", max_trainers=4), pool("ssd")),),
    )
    assert used(plan_for(world)) == {"n1": 4}


def test_a_preference_can_name_the_node() -> None:
    wish = Preference(1, NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)))
    assert used(plan_for(make_snapshot(nodes("x", "x", "x"), (wishing(make_job("a", max_trainers=2), wish),)))) == {
        "n1": 2
    }


def test_a_node_that_would_rather_not_is_left_for_last() -> None:
    spot, other = nodes("x", "x")
    world = make_snapshot((replace(spot, taints=(AVOIDED,)), other), (make_job("a", max_trainers=4),))
    assert used(plan_for(world)) == {"n1": 4}
    more = replace(world, jobs=(make_job("a", max_trainers=6),))
    assert used(plan_for(more)) == {"n0": 2, "n1": 4}


def test_who_tolerates_a_node_that_would_rather_not_does_not_mind_it() -> None:
    spot, other = nodes("x", "x")
    job = make_job("a", max_trainers=4)
    at_ease = PodShape(job.trainer.request, Placement(tolerations=(Toleration("spot", "Exists"),)))
    world = make_snapshot((replace(spot, taints=(AVOIDED,)), other), (replace(job, trainer=at_ease),))
    assert used(plan_for(world)) == {"n0": 4}


def test_masters_and_pservers_have_preferences_of_their_own() -> None:
    fixed = (FixedPods(Role.PSERVER, make_shape(1), 2, (pool("ssd"),)),)
    job = wishing(make_job("a", max_trainers=2, fixed=fixed), pool("gpu"))
    plan = plan_for(make_snapshot(nodes("hdd", "ssd", "gpu"), (job,)))
    assert decision_of(plan, "a").fixed_nodes == ((Role.PSERVER, "n1"), (Role.PSERVER, "n1"))
    assert used(plan) == {"n2": 2}


def test_in_a_full_cluster_jobs_of_one_shape_change_places() -> None:
    jobs = (wishing(make_job("a", max_trainers=8), pool("ssd")), wishing(make_job("b", max_trainers=8), pool("hdd")))
    plan = plan_for(make_snapshot(nodes("hdd", "ssd"), jobs))
    assert targets(plan) == {"a": 4, "b": 4}
    assert (used(plan, "a"), used(plan, "b")) == ({"n1": 4}, {"n0": 4})


def test_who_is_indifferent_makes_way_in_a_full_cluster() -> None:
    jobs = (make_job("a", max_trainers=8), wishing(make_job("b", max_trainers=8), pool("hdd")))
    plan = plan_for(make_snapshot(nodes("hdd", "ssd"), jobs))
    assert (used(plan, "a"), used(plan, "b")) == ({"n1": 4}, {"n0": 4})


def test_a_preference_takes_no_room_that_a_larger_pod_could_use() -> None:
    """One core is left on n0, and one whole node, which a trainer of b would need."""
    small = wishing(make_job("a", max_trainers=1), pool("ssd"))
    large = make_job("b", cpu=4, max_trainers=2)
    busy = make_serving("s", cpu=3, node="n0")
    world = make_snapshot(nodes("hdd", "ssd", "ssd", "ssd"), (small, large), (busy,))
    assert used(plan_for(world)) == {"n0": 1}
    alone = replace(world, jobs=(small,))
    assert used(plan_for(alone)).keys() <= {"n1", "n2", "n3"}


def test_a_preference_does_not_make_a_pod_wait() -> None:
    """The preferred node is full of trainers that are going."""
    old = make_job("old", trainers=4, max_trainers=4, on=("n1",))
    going = replace(old, suspended=True, pods=tuple(replace(p, terminating=True) for p in old.pods))
    world = make_snapshot(nodes("hdd", "ssd"), (wishing(make_job("a", max_trainers=3), pool("ssd")), going))
    plan = plan_for(world)
    assert used(plan) == {"n0": 3}
    assert len(startable(world, plan)) == 3


def test_nobody_changes_a_place_that_is_free_for_one_that_is_not_yet() -> None:
    old = make_job("old", trainers=4, max_trainers=4, on=("n1",))
    going = replace(old, suspended=True, pods=tuple(replace(p, terminating=True) for p in old.pods))
    jobs = (
        wishing(make_job("a", max_trainers=8), pool("ssd")),
        wishing(make_job("b", max_trainers=8), pool("hdd")),
        going,
    )
    plan = plan_for(make_snapshot(nodes("hdd", "ssd"), jobs))
    assert (used(plan, "a"), used(plan, "b")) == ({"n0": 2, "n1": 2}, {"n0": 2, "n1": 2})


def test_preferences_do_not_tell_shapes_apart() -> None:
    jobs = tuple(wishing(make_job(f"j{i}", max_trainers=2), pool("ssd", 1 + i)) for i in range(50))
    assert len(read_problem(make_snapshot(nodes("hdd", "ssd"), jobs), Limits()).shapes) == 1


@pytest.mark.parametrize(("work", "moved"), [(1, 0), (47, 0), (4_175, 0), (4_176, 4)])
def test_where_there_is_too_much_to_look_at_pods_stay_where_they_are(work: int, moved: int) -> None:
    """Two nodes are scored, for 24 each, then judged for 10 each; the move of all pods costs 4,108."""
    world = make_snapshot(nodes("hdd", "ssd"), (wishing(make_job("a", max_trainers=4), pool("ssd")),))
    room = TrialPacking(read_problem(world, Limits()), (0,))
    for _ in range(4):
        room.place_trainer(0, 0)
    follow_preferences(room, work=work)
    assert [place.node for place in room.placed].count(1) == moved


@pytest.mark.parametrize(("work", "moved"), [(95, 0), (4_310, 0), (4_311, 4)])
def test_places_are_changed_only_while_there_is_time_for_it(work: int, moved: int) -> None:
    jobs = (wishing(make_job("a", max_trainers=8), pool("ssd")), wishing(make_job("b", max_trainers=8), pool("hdd")))
    room = TrialPacking(read_problem(make_snapshot(nodes("hdd", "ssd"), jobs), Limits()), (0, 1))
    for j in range(8):
        room.place_trainer(j % 2, j // 4)
    before = [place.node for place in room.placed]
    follow_preferences(room, work=work)
    assert sum(place.node != node for place, node in zip(room.placed, before, strict=True)) == moved


@st.composite
def worlds_with_wishes(draw: st.DrawFn) -> ClusterSnapshot:
    """A cluster of which some nodes are preferred by some jobs, and some would rather not be used."""
    world = draw(running_worlds())
    pools, taints = st.sampled_from(["a", "b"]), st.sampled_from([(), (AVOIDED,)])
    dressed = tuple(
        replace(node, labels=(*node.labels, ("pool", draw(pools))), taints=draw(taints)) for node in world.nodes
    )
    jobs = tuple(wishing(job, pool(draw(pools), draw(st.integers(1, 100)))) for job in world.jobs)
    return replace(world, nodes=dressed, jobs=jobs)


@given(worlds_with_wishes())
@examples(100)
def test_a_preference_costs_nobody_a_trainer_and_no_pod_its_start(world: ClusterSnapshot) -> None:
    indifferent = replace(
        world,
        nodes=tuple(replace(node, taints=()) for node in world.nodes),
        jobs=tuple(replace(job, preferred=()) for job in world.jobs),
    )
    with_wishes, without = plan_for(world), plan_for(indifferent)
    assert targets(with_wishes) == targets(without)
    assert victims(with_wishes) == victims(without)
    assert with_wishes.serving == without.serving
    assert len(startable(world, with_wishes)) >= len(startable(indifferent, without))
    assert _welcome(world, with_wishes) >= _welcome(world, without)


def _welcome(world: ClusterSnapshot, plan: ScalePlan) -> int:
    """How welcome the new trainers are where they are meant to go, all together, by the scores of kube-scheduler."""
    by_name = {node.name: node for node in world.nodes}
    total = 0
    for job, decision in zip(world.jobs, plan.decisions, strict=True):
        wanted = job.preferred[0].term.expressions[0].values[0]
        for name, count in decision.nodes:
            node = by_name[name]
            total += count * (200 * (dict(node.labels)["pool"] == wanted) - 300 * bool(node.taints))
    return total
