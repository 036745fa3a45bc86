"""Taking trainers from some jobs so that others grow: whose may die, for whom, and which of it is only a move.

What ought to be taken is decided in `sharing` and `trading`. A function that is given a room changes it, or leaves it
as it was where it says that nothing could be done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edl.model.names import Role
from edl.planner.packing import Demand, has_load_left, make_room
from edl.planner.packing import place as put
from edl.planner.trial import SERVING, Placed, Room

EPSILON = 1e-6
MOVES_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class Terms:
    """What sharing goes by.

    Attributes:
        ceiling: the most trainers that each member may have now.
        promised: what each must be able to have: its fair share, or the floor under it, in whole trainers.
    """

    ceiling: Mapping[int, int]
    promised: Mapping[int, int]


def kept(room: Room, d: int) -> int:
    """Trainers of a member that exist and keep a place."""
    return sum(i in room.node_of for i in room.world.claims[d].seats)


def moved(room: Room, before: Room) -> Counter[int]:
    """How many trainers of each member die and start anew elsewhere, beyond those that had to die before."""
    dead = Counter(room.world.seats[i].claim for i in set(room.victims) - set(before.victims))
    new = Counter(place.owner for place in room.placed if place.role is Role.TRAINER)
    return +Counter({d: min(n, new[d]) for d, n in dead.items()})


def undo_moves(room: Room) -> Room:
    """Let trainers live whose job gets a new one elsewhere, where what was meant for their place can change with it.

    Only what does not exist yet changes places, so it costs nobody anything. Deaths for serving stand: where serving
    goes is not ours to say.
    """
    claims, seats = room.world.claims, room.world.seats
    tries = 0
    for index in sorted(set(room.victims) - room.for_serving, key=lambda i: seats[i].order, reverse=True):
        j = seats[index].claim
        if seats[index].node < 0 or room.count[j] > claims[j].high:
            continue
        for place in [p for p in room.placed if p.owner == j and p.role is Role.TRAINER]:
            tries += 1
            if tries > MOVES_LOOKED_AT:
                return room
            if (without := _without_move(room, index, place)) is not None:
                room = without
                break
    return room


def _without_move(room: Room, index: int, place: Placed) -> Room | None:
    """The room in which a trainer lives instead of the new one of its job; None where its place cannot be cleared."""
    trial, seat = room.copy(), room.world.seats[index]
    trial.drop(place)
    for other in sorted((p for p in trial.placed if p.node == seat.node), key=lambda p: -p.shape):
        if trial.has_room(seat.shape, seat.node):
            break
        if other.owner == SERVING:
            continue
        slots = trial.slots(other.shape)
        slots[seat.node] = 0
        if slots[place.node] or slots.any():
            trial.drop(other)
            put(
                trial,
                other.shape,
                (other.owner, other.role),
                place.node if slots[place.node] else int(slots.argmax()),
            )
    if not trial.has_room(seat.shape, seat.node):
        return None
    trial.revive(index)
    return trial


def take_promised(room: Room, terms: Terms, keep: Mapping[int, int]) -> Room:
    """Raise whoever is below its promised share, at the cost of those above theirs; the worst off come first.

    Args:
        room: the trial; it may be changed, the result counts.
        terms: see there.
        keep: who may lose trainers, and how many of those that exist each must keep.
    """
    claims = room.world.claims
    owners: dict[int, list[tuple[float, int]]] = {}
    for j in room.members:
        if claims[j].asks:
            continue  # what its queue has left is looked at trainer by trainer
        for count in range(room.count[j], min(terms.promised[j], terms.ceiling[j])):
            owners.setdefault(claims[j].shape, []).append((claims[j].fulfilment(count), j))
    for shape in sorted(owners, key=lambda s: min(owners[s])):
        demand = Demand(shape, tuple((j, Role.TRAINER) for _, j in sorted(owners[shape])))
        allowance = _allowed(room, keep, {d: room.count[d] - terms.promised[d] for d in keep})
        few = room.copy()
        if make_room(few, demand, _from_few(room, allowance, len(demand.owners))) == len(demand.owners):
            room = few
        else:
            make_room(room, demand, allowance)
    return room


def take_one(room: Room, j: int, terms: Terms, keep: Mapping[int, int]) -> bool:
    """Make room for one more trainer of a job below its promise.

    Others lose what is above their own promise, or what leaves them as well off as this job becomes.
    """
    goal = room.fulfilment(j, 1)
    most = {d: max(room.count[d] - terms.promised[d], _can_spare(room, d, goal)) for d in keep if d != j}
    allowance = _allowed(room, keep, most)
    return any(allowance.values()) and give_one(room, j, allowance)


def give_one(room: Room, j: int, allowance: Mapping[int, int]) -> bool:
    """Place one more trainer of a job, where trainers of others die as allowed; of its own queue for its quota."""
    shape = room.world.claims[j].shape
    if not has_load_left(room, shape):
        return False
    demand = Demand(shape, ((j, Role.TRAINER),))
    if room.meter().short_of(j) is None:
        return make_room(room, demand, allowance) > 0
    trial = room.copy()
    if (left := _free_quota(trial, j, allowance)) is None or not make_room(trial, demand, left):
        return False
    left = _free_quota(room, j, allowance) or {}
    return make_room(room, demand, left) > 0


def allowed_beyond(room: Room, keep: Mapping[int, int], least: Mapping[int, int]) -> dict[int, int]:
    """How many trainers each may lose and still have its least count."""
    return _allowed(room, keep, {d: room.count[d] - least[d] for d in keep})


def _allowed(room: Room, keep: Mapping[int, int], most: Mapping[int, int]) -> dict[int, int]:
    allowance = {d: min(n, kept(room, d) - keep[d]) for d, n in most.items() if n > 0}
    return {d: n for d, n in allowance.items() if n > 0}


def _free_quota(room: Room, j: int, allowance: Mapping[int, int]) -> dict[int, int] | None:
    """Let trainers of the same queue die, the best off first, until the quota has room for one more of the job.

    Returns:
        What is left of the allowance; None where it does not suffice.
    """
    claims, left = room.world.claims, dict(allowance)
    while (short := room.meter().short_of(j)) is not None:
        givers = [
            d
            for d, n in left.items()
            if n > 0 and any(ask.row == short.row and ask.each for ask in claims[d].asks) and kept(room, d)
        ]
        if not givers:
            return None
        giver = max(givers, key=lambda d: (room.fulfilment(d), claims[d].job.created_s, d))
        seats = (i for i in claims[giver].seats if i in room.node_of)
        room.kill(min(seats, key=lambda i: room.world.seats[i].order))
        left[giver] -= 1
    return left


def _from_few(room: Room, allowance: Mapping[int, int], count: int) -> dict[int, int]:
    """The allowance of as few jobs as can give that many, those that lose trainers anyway first: fewer resizes."""
    losing = {room.world.seats[i].claim for i in room.victims}
    chosen: dict[int, int] = {}
    for d in sorted(allowance, key=lambda d: (d not in losing, -allowance[d], room.world.claims[d].job.key)):
        if sum(chosen.values()) >= count:
            break
        chosen[d] = allowance[d]
    return chosen


def _can_spare(room: Room, d: int, goal: float) -> int:
    """How many trainers a job can lose and still be at the goal and at its minimum."""
    spare = 0
    while room.count[d] - spare > room.world.claims[d].low and room.fulfilment(d, -spare - 1) >= goal - EPSILON:
        spare += 1
    return spare
