"""What is full, who holds it and what an exchange takes, against a count by hand over the same packing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from edl.model.cluster import ClusterSnapshot
from edl.model.names import Role
from edl.model.plan import Limits
from edl.model.resources import CPU
from edl.planner.context import Outcome
from edl.planner.decide import policy_named, study
from edl.planner.scarcity import nearest
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.small_clusters import cores_of, examples, running_worlds


def outcome_of(world: ClusterSnapshot) -> Outcome:
    return study(world, policy_named("maxmin"), Limits()).outcome


def standing(outcome: Outcome, j: int, shape: int) -> Counter[int]:
    """Trainers of a job, of the shape that it asks for now, on each node that another shape may use."""
    room, world = outcome.shared.room, outcome.world
    kept = [
        n
        for i, n in room.node_of.items()
        if (world.seats[i].claim, world.seats[i].shape) == (j, world.claims[j].shape)
    ]
    new = [p.node for p in room.placed if p.owner == j and p.role is Role.TRAINER]
    return Counter(n for n in (*kept, *new) if world.opened[shape][n])


@examples(120)
@given(running_worlds())
def test_an_exchange_is_the_fewest_deaths_on_one_node_that_make_room(world: ClusterSnapshot) -> None:
    outcome = outcome_of(world)
    room, read = outcome.shared.room, outcome.world
    cpu = read.names.index(CPU) if CPU in read.names else -1
    for claim in (read.claims[j] for j in room.members):
        scarce = outcome.scarce(claim.shape)
        found = {e.donor: e.deaths for e in scarce.exchanges}
        for holder in scarce.holders:
            donor = read.claims[holder.claim]
            asked, each = cores_of(claim.job.trainer), cores_of(donor.job.trainer)
            needed = [
                deaths
                for node, here in standing(outcome, donor.index, claim.shape).items()
                for deaths in range(1, min(here, holder.surplus) + 1)
                if room.free[node, cpu] // 1000 + deaths * each >= asked
            ]
            assert found.get(donor.index, 0) == min(needed, default=0)


@pytest.mark.parametrize(("size", "deaths"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_part_of_a_trainer_is_a_whole_death(size: int, deaths: int) -> None:
    small = make_job("s", trainers=4, minimum=1, maximum=4, cpu=2, on=("n000",))
    large = make_job("l", trainers=1, minimum=1, maximum=2, cpu=size, on=("n001",))
    outcome = outcome_of(make_snapshot(make_nodes(1, cpu=8) + make_nodes(2, cpu=size)[1:], (small, large)))
    (exchange,) = outcome.scarce(next(c.shape for c in outcome.world.claims if c.job.key.name == "l")).exchanges
    assert exchange.deaths == deaths


@examples(60)
@given(running_worlds())
def test_the_nearest_node_has_room_once_it_gets_what_it_lacks(world: ClusterSnapshot) -> None:
    outcome = outcome_of(world)
    room, read = outcome.shared.room, outcome.world
    for claim in (read.claims[j] for j in room.members):
        node, lacks = nearest(room, claim.shape)
        if node < 0:
            assert not read.opened[claim.shape].any()
            continue
        more = dict(lacks)
        for column, name in enumerate(read.names):
            lack = max(0, int(read.request[claim.shape, column] - room.free[node, column]))
            assert more.get(name, 0) == lack
