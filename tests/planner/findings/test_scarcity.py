"""What is full, who holds it and what an exchange takes, against a count by hand over the same packing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.resources import CPU
from edl.planner.decide import study
from edl.planner.findings.context import DecisionContext
from edl.planner.findings.scarcity import nearest
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.effort import examples
from tests.worlds.small_clusters import cores_of, running_worlds


def context_of(world: ClusterSnapshot) -> DecisionContext:
    return study(world, policy_named("maxmin"), Limits()).context


def standing(context: DecisionContext, j: int, shape: int) -> Counter[int]:
    """Trainers of a job, of the shape that it asks for now, on each node that another shape may use."""
    room, world = context.shared.packing, context.problem
    kept = [
        n
        for i, n in enumerate(room.node_of.tolist())
        if n >= 0 and (world.live_trainers[i].demand, world.live_trainers[i].shape) == (j, world.demands[j].shape)
    ]
    new = [p.node for p in room.placed if p.owner == j and p.role is Role.TRAINER]
    return Counter(n for n in (*kept, *new) if world.opened[shape][n])


@examples(120)
@given(running_worlds())
def test_an_exchange_is_the_fewest_deaths_on_one_node_that_make_room(world: ClusterSnapshot) -> None:
    context = context_of(world)
    room, read = context.shared.packing, context.problem
    cpu = read.names.index(CPU) if CPU in read.names else -1
    for demand in (read.demands[j] for j in room.members):
        scarce = context.scarce(demand.shape)
        found = {e.donor: e.deletions for e in scarce.exchanges}
        for holder in scarce.holders:
            donor = read.demands[holder.demand]
            asked, each = cores_of(demand.job.trainer), cores_of(donor.job.trainer)
            needed = [
                deaths
                for node, here in standing(context, donor.index, demand.shape).items()
                for deaths in range(1, min(here, holder.surplus) + 1)
                if room.free[node, cpu] // 1000 + deaths * each >= asked
            ]
            assert found.get(donor.index, 0) == min(needed, default=0)


@pytest.mark.parametrize(("size", "deaths"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_part_of_a_trainer_is_a_whole_death(size: int, deaths: int) -> None:
    small = make_job("s", trainers=4, min_trainers=1, max_trainers=4, cpu=2, on=("n000",))
    large = make_job("l", trainers=1, min_trainers=1, max_trainers=2, cpu=size, on=("n001",))
    context = context_of(make_snapshot(make_nodes(1, cpu=8) + make_nodes(2, cpu=size)[1:], (small, large)))
    (exchange,) = context.scarce(next(c.shape for c in context.problem.demands if c.job.key.name == "l")).exchanges
    assert exchange.deletions == deaths


@examples(60)
@given(running_worlds())
def test_the_nearest_node_has_room_once_it_gets_what_it_lacks(world: ClusterSnapshot) -> None:
    context = context_of(world)
    room, read = context.shared.packing, context.problem
    for demand in (read.demands[j] for j in room.members):
        node, lacks = nearest(room, demand.shape)
        if node < 0:
            assert not read.opened[demand.shape].any()
            continue
        more = dict(lacks)
        for column, name in enumerate(read.names):
            lack = max(0, int(read.request[demand.shape, column] - room.free[node, column]))
            assert more.get(name, 0) == lack
