"""Placing all that must have room: waiting serving, missing masters and pservers, and minimums.

Whoever stands in the way dies, but as few as can be found, and nobody falls below its minimum for it: a trainer that
is part of a minimum only moves. Whether that is to be tried for a set of jobs at all is decided in `admission`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations

from edl.model.names import Role
from edl.planner.packing import Demand, make_room, place
from edl.planner.problem import World
from edl.planner.programs.integer import fewest_deaths
from edl.planner.trial import SERVING, Room

ORDERS_TRIED = 6  # orders of placing different shapes that are compared where trainers die


@dataclass(frozen=True, slots=True)
class Served:
    """Serving pods by shape: those that must get room, those that keep it where it is free; how many are short."""

    due: Mapping[int, int]
    young: Mapping[int, int]
    short: int


def settle(world: World, members: tuple[int, ...], served: Served, deadline_s: float) -> Room | None:
    """Place all that must have room, with as few deaths as can be found; None where not everything fits.

    Only surplus dies at first. Where that is not enough, or somebody dies and the cluster is small, an integer
    program over nodes looks for fewer deaths; else minimums may move, and then pods that are on their way to a node.
    """
    best = _settle_by_surplus(Room(world, members), served)
    if best is not None and not best.victims:
        return best
    attempts: tuple[Callable[[], Room | None], ...] = (
        lambda: _settle_exactly(Room(world, members), served, deadline_s),
        lambda: best,
        lambda: _settle_by_moves(Room(world, members), served),
        lambda: _settle_exactly(Room(world, members, settle=False), served, deadline_s),
        lambda: _settle_by_moves(Room(world, members, settle=False), served),
    )
    room = next((room for attempt in attempts if (room := attempt()) is not None), None)
    if room is not None and best is not None and len(best.victims) <= len(room.victims):
        room = best
    if room is not None:
        spare_victims(room)
    return room


def _settle_exactly(room: Room, served: Served, deadline_s: float) -> Room | None:
    """Let the fewest trainers die, wherever they are, by an integer program; None where there is too much to try."""
    fixed = [d for d in demands_of(room, served) if d.owners[0][1] is not Role.TRAINER]
    wanted: Counter[int] = Counter()
    queues: dict[int, list[tuple[int, Role | None]]] = {}
    for demand in fixed:
        wanted[demand.shape] += len(demand.owners)
        queues.setdefault(demand.shape, []).extend(demand.owners)
    answer = fewest_deaths(room, wanted, deadline_s)
    if answer is None:
        return None
    for index in answer.dying:
        room.kill(index)
    if any(served.due.values()):
        room.for_serving.update(answer.dying)
    for demand in demands_of(room, replace(served, due={})):
        if demand.owners[0][1] is Role.TRAINER:
            queues.setdefault(demand.shape, []).extend(demand.owners)
    for node, shape, pods in answer.places:
        for owner in queues.get(shape, [])[:pods]:
            place(room, shape, owner, node)
        queues[shape] = queues.get(shape, [])[pods:]
    return None if any(queues.values()) else room


def settle_freely(room: Room, served: Served) -> Room | None:
    """Place all that must have room without a death; the room is changed. None where that does not do."""
    for demand in demands_of(room, served):
        if make_room(room, demand, {}) < len(demand.owners):
            return None
    return room


def _settle_by_surplus(start: Room, served: Served) -> Room | None:
    """Try a few orders of the shapes; the fewest deaths win."""
    demands = demands_of(start, served)
    if not demands:
        return start
    best: Room | None = None
    for order in islice(permutations(demands), ORDERS_TRIED):
        room = start.copy()
        if all(make_room(room, d, _surplus(room)) == len(d.owners) for d in order) and (
            best is None or len(room.victims) < len(best.victims)
        ):
            best = room
        if best is not None and not best.victims:
            break
    return best


def _settle_by_moves(room: Room, served: Served) -> Room | None:
    """Let any trainer die for serving, masters and pservers, then give each minimum back elsewhere."""
    for demand in demands_of(room, served):
        is_base = demand.owners[0][1] is Role.TRAINER
        if make_room(room, demand, _surplus(room) if is_base else room.count) < len(demand.owners):
            return None
    for demand in demands_of(room, replace(served, due={})):
        if make_room(room, demand, _surplus(room)) < len(demand.owners):
            return None
    return room


def spare_victims(room: Room) -> None:
    """Revive victims whose place is free after all, dearest first, and those whose job gets a new one there."""
    meter = room.meter()
    for index in sorted(room.victims, key=lambda i: room.world.seats[i].order, reverse=True):
        seat = room.world.seats[index]
        claim = room.world.claims[seat.claim]
        if seat.node < 0 or room.count[seat.claim] > claim.high:
            continue
        wanted = (claim.index, Role.TRAINER, seat.shape, seat.node)
        twin = next((p for p in room.placed if (p.owner, p.role, p.shape, p.node) == wanted), None)
        if twin is not None:
            room.drop(twin)
            room.revive(index)
        elif (
            room.count[seat.claim] < claim.high
            and room.has_room(seat.shape, seat.node)
            and meter.short_of(seat.claim) is None
        ):
            room.revive(index)
            meter.add(seat.claim)


def demands_of(room: Room, served: Served) -> list[Demand]:
    """What must have room and has none: serving, then masters and pservers, then minimums; larger pods first.

    Trainers come last because wherever one goes it takes one trainer's room; the others can be put where they take
    less than they are.
    """
    world = room.world
    fixed: dict[int, list[tuple[int, Role | None]]] = {}
    trainers: dict[int, list[tuple[int, Role | None]]] = {}
    for (j, role, shape), count in sorted(Counter(room.homeless_fixed).items()):
        fixed.setdefault(shape, []).extend([(j, role)] * count)
    placed = Counter((p.owner, p.role, p.shape) for p in room.placed)
    for j in room.members:
        claim = world.claims[j]
        for need in claim.needs:
            missing = need.missing - placed[j, need.role, need.shape]
            fixed.setdefault(need.shape, []).extend([(j, need.role)] * missing)
        trainers.setdefault(claim.shape, []).extend([(j, Role.TRAINER)] * (claim.low - room.count[j]))
    serving = [for_serving(s, served.due[s]) for s in by_size(world, served.due) if served.due[s]]
    return [*serving, *(Demand(s, tuple(g[s])) for g in (fixed, trainers) for s in by_size(world, g) if g[s])]


def _surplus(room: Room) -> dict[int, int]:
    return {j: max(0, room.count[j] - room.world.claims[j].low) for j in room.members}


def for_serving(shape: int, count: int) -> Demand:
    """Room for that many serving pods of a shape."""
    return Demand(shape, ((SERVING, None),) * count)


def by_size(world: World, shapes: Iterable[int]) -> list[int]:
    """Shapes from the largest to the smallest."""
    return sorted(shapes, key=lambda s: (-size_of(world, s), s))


def size_of(world: World, shape: int) -> float:
    """The largest part of a node's room that the shape asks for."""
    most = world.largest
    return float((world.request[shape] / most).max(initial=0.0))
