"""Trainers that would die only to start anew elsewhere: an arrival moves nobody for little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.planner.problem_reader import read_problem
from edl.planner.reallocation import undo_restarts
from edl.planner.trial_packing import Placed, TrialPacking
from tests.worlds.builders import make_job
from tests.worlds.effort import examples
from tests.worlds.small_clusters import (
    apply_plan,
    cluster_of,
    decision_of,
    later,
    plan_for,
    small_nodes,
    targets,
    victims,
    with_jobs,
)

quick = examples(60)


def arrival(cores: list[int], running: list[Job], new: Job) -> ClusterSnapshot:
    """Jobs that have run for a while, and one that has just come."""
    world = cluster_of(cores, running)
    world = later(apply_plan(world, plan_for(world)), 100)
    return with_jobs(world, replace(new, created_s=world.observed_at_s))


def test_a_newcomer_is_packed_around_trainers_that_would_only_move() -> None:
    """Its minimum would fit where 'large' loses one, but what 'small' loses for its share has room for all of it."""
    small = make_job("small", cpu=3, min_trainers=1, max_trainers=42)
    large = make_job("large", cpu=5, min_trainers=2, max_trainers=60)
    world = arrival([21, 10], [small, large], make_job("new", cpu=5, min_trainers=1, max_trainers=24))
    plan = plan_for(world)
    assert targets(plan) == {"small": 2, "large": 3, "new": 2}
    assert not decision_of(plan, "large").victims


def test_trainers_are_not_moved_for_a_gain_below_the_dead_band() -> None:
    """A fifth death, of a trainer that starts anew elsewhere, would leave everybody with the same counts."""
    running = [
        make_job("j0", cpu=4, min_trainers=2, max_trainers=22),
        make_job("j1", cpu=5, min_trainers=1, max_trainers=57),
    ]
    plan = plan_for(arrival([21, 21, 11, 10], running, make_job("new", cpu=3, min_trainers=1, max_trainers=40)))
    assert targets(plan) == {"j0": 6, "j1": 4, "new": 6}
    assert len(victims(plan)) == 4
    assert not any(d.victims and d.nodes for d in plan.decisions)


many = st.builds(
    make_job,
    name=st.sampled_from(["a", "b", "c"]),
    cpu=st.integers(1, 3),
    min_trainers=st.integers(1, 2),
    max_trainers=st.integers(20, 60),
)


@given(small_nodes().map(lambda cores: [2 * n for n in cores]), st.lists(many, min_size=1, max_size=3), many)
@quick
def test_no_job_keeps_its_count_by_moving_where_steps_are_small(
    cores: list[int], running: list[Job], new: Job
) -> None:
    """With maxima so large that one trainer is little, nobody keeps its count at the price of a death.

    A minimum of several large trainers may have to be made room for in one piece: then somebody may move.
    """
    world = arrival(cores, running, replace(new, key=new.key._replace(name="new")))
    plan = plan_for(world)
    min_trainers = new.min_trainers * (new.trainer.request["cpu"] // 1000)
    for decision in plan.decisions:
        assert not decision.victims or decision.target < decision.current or min_trainers > 1


class Counted(list[Placed]):
    """New pods that count how often all of them are read."""

    read = 0

    def __iter__(self) -> Iterator[Placed]:
        Counted.read += 1
        return super().__iter__()


def test_the_new_pods_are_read_once_however_many_trainers_leave() -> None:
    """1,996 trainers that left and 10,000 new pods of other jobs once took 2.6 CPU seconds, and that three times."""
    jobs = [make_job(name, min_trainers=1, max_trainers=100) for name in ("a", "b")]
    world = cluster_of([64], jobs[:1])
    world = with_jobs(apply_plan(world, plan_for(world)), jobs[1])
    packing = TrialPacking(read_problem(world, Limits()), (0, 1))
    for index in range(40):
        packing.delete(index)
    packing.place_trainer(1, 0, 40)
    packing.placed, Counted.read = Counted(packing.placed), 0
    assert undo_restarts(packing) is packing
    assert Counted.read == 1
