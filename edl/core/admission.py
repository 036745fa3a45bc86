"""Who runs: waiting serving first, then jobs tier by tier and by age, each with all it needs or not at all.

A trial places everything that must have room (serving, missing masters and pservers, minimums), letting surplus
trainers die where they must. A linear program rejects what cannot fit; whole pods on real nodes confirm what does.
How much more than its minimum a job gets is decided in `sharing`.

Source: gang admission with backfill behind a head, after Kueue's BestEffortFIFO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations

from edl.core.capacity import Claim, World
from edl.core.model import Role
from edl.core.optimizer import pack_most, place_most
from edl.core.packing import Demand, make_room, place
from edl.core.room import SERVING, Room

ORDERS_TRIED = 6  # orders of placing different shapes that are compared where trainers die


@dataclass(frozen=True, slots=True)
class Served:
    """Serving pods by shape: those that must get room, those that keep it where it is free; how many are short."""

    due: Mapping[int, int]
    young: Mapping[int, int]
    short: int


@dataclass(frozen=True, slots=True)
class Admission:
    """Who runs, and a room in which all that must have room has it.

    Attributes:
        room: the trial with every admitted job at its minimum at least.
        head: of each waiting job, the older one that it waits behind; itself where it is the head.
        hopeless: jobs that would not fit even alone.
    """

    room: Room
    head: Mapping[int, int]
    hopeless: frozenset[int]


def serve(world: World, deadline_s: float) -> Served:
    """Count how many waiting serving pods could be placed with no training at all: those must be placed."""
    wanted = {group.shape: group.due + group.young for group in world.waiting}
    best: Counter[int] = Counter()
    if wanted:
        goal = min(sum(wanted.values()), int(place_most(world, world.empty, wanted, deadline_s) + 1e-6))
        for order in islice(permutations(_by_size(world, wanted)), ORDERS_TRIED):
            room = Room(world, ())
            placed = Counter({s: make_room(room, _for_serving(s, wanted[s]), {}) for s in order})
            best = max(best, placed, key=Counter.total)
            if best.total() >= goal:
                break
        if best.total() < goal and (packed := pack_most(world, world.empty, wanted, deadline_s)) is not None:
            exact: Counter[int] = Counter()
            for _, shape, pods in packed:
                exact[shape] += pods
            best = max(best, exact, key=Counter.total)
    due = {group.shape: min(group.due, best[group.shape]) for group in world.waiting}
    young = {group.shape: best[group.shape] - due[group.shape] for group in world.waiting}
    return Served(due, young, sum(wanted.values()) - best.total())


def cap(world: World, served: Served) -> tuple[World, frozenset[int]]:
    """Cap each maximum at what would fit were the job alone, and find the jobs that would not even fit alone.

    Trainers that a job has are never above its cap: a cap buys nothing and costs nobody.
    """
    idle = Room(world, ())
    for shape, count in sorted((Counter(served.due) + Counter(served.young)).items()):
        make_room(idle, _for_serving(shape, count), {})
    known: dict[tuple[object, ...], int] = {}
    claims, hopeless = [], set()
    for claim in world.claims:
        kind = (claim.shape, claim.job.fixed)
        if kind not in known:
            known[kind] = _alone(idle, claim)
        most = max(known[kind], len(claim.seats))
        if most < claim.low and not (claim.job.was_admitted and claim.seats):
            hopeless.add(claim.index)
        claims.append(replace(claim, high=max(claim.low, min(claim.high, most))))
    return replace(world, claims=tuple(claims)), frozenset(hopeless)


def _alone(idle: Room, claim: Claim) -> int:
    """Trainers that fit beside all of the job's masters and pservers; -1 where not even those fit."""
    room = idle.copy()
    number = {shape: index for index, shape in enumerate(room.world.shapes)}
    for fixed in sorted(claim.job.fixed, key=lambda f: -_size(room.world, number[f.shape])):
        wanted = _for_serving(number[fixed.shape], fixed.count)
        if fixed.count and make_room(room, wanted, {}) < fixed.count:
            return -1
    return int(room.slots(claim.shape).sum())


def admit(world: World, served: Served, hopeless: frozenset[int], deadline_s: float) -> Admission:
    """Choose who runs: tier by tier; those that run already before those that wait; older before younger."""
    trial = _Trial(world, served, deadline_s)
    hopeful = [c for c in world.claims if c.index not in hopeless]
    room = trial([c.index for c in hopeful])
    if room is not None:
        return Admission(room, {}, hopeless)
    room = trial([])
    head: dict[int, int] = {}
    for tier in sorted({c.job.tier for c in hopeful}, reverse=True):
        ranked = sorted((c for c in hopeful if c.job.tier == tier), key=_seniority)
        running = [c for c in ranked if c.job.was_admitted]
        waiting = [c for c in ranked if not c.job.was_admitted]
        room = _keep(trial, room, [c.index for c in running])
        room = _let_in(trial, room, waiting, head)
    if room is None:
        room = Room(world, ())
    return Admission(room, head, hopeless)


def waiting_since_s(claim: Claim) -> float:
    """When a job that does not run began to wait: at its creation, or when it lost its place."""
    status = claim.job.status
    admitted = status.condition("Admitted") if status is not None else None
    if status is not None and status.start_s is not None and admitted is not None and admitted.status == "False":
        return admitted.since_s
    return claim.job.created_s


def _seniority(claim: Claim) -> tuple[bool, float, object]:
    """Whole jobs before those that have lost pods; then by age."""
    is_broken = bool(claim.needs) or len(claim.seats) < claim.low
    return (claim.job.was_admitted and is_broken, claim.job.created_s, claim.job.key)


class _Trial:
    """Tries sets of jobs: whether all that they need fits beside serving. Sets that were refused are remembered."""

    def __init__(self, world: World, served: Served, deadline_s: float) -> None:
        self.world = world
        self.served = served
        self.deadline_s = deadline_s
        self.refused: set[tuple[tuple[int, ...], tuple[object, ...]]] = set()

    def __call__(self, members: Iterable[int]) -> Room | None:
        chosen = tuple(sorted(members))
        room = Room(self.world, chosen)
        if not _demands(room, self.served):
            return room
        return settle(self.world, chosen, self.served, self.deadline_s) if self._could_fit(chosen) else None

    def beside(self, members: tuple[int, ...], newcomer: int) -> Room | None:
        """Try one more job; one that needs the same as a refused one is refused at once."""
        claim = self.world.claims[newcomer]
        kind = (members, (claim.shape, claim.low, claim.needs, claim.unbound_fixed, claim.seats))
        if kind in self.refused:
            return None
        room = self((*members, newcomer))
        if room is None:
            self.refused.add(kind)
        return room

    def _could_fit(self, members: tuple[int, ...]) -> bool:
        """False where the linear program proves that it cannot: every trainer may move, every pod may be split."""
        world = self.world
        wanted: Counter[int] = Counter({s: n for s, n in self.served.due.items() if n})
        free = world.empty.copy()
        for j in members:
            claim = world.claims[j]
            free -= claim.held
            for index in claim.seats:
                seat = world.seats[index]
                if seat.node >= 0:
                    free[seat.node] += world.request[seat.shape]
            settled = sum(
                world.seats[i].node < 0 or not world.opened[world.seats[i].shape, world.seats[i].node]
                or world.seats[i].shape != claim.shape
                for i in claim.seats
                if world.seats[i].pod.node
            )  # fmt: skip
            wanted[claim.shape] += max(0, claim.low - settled)
            for need in claim.needs:
                wanted[need.shape] += need.missing
            for shape, _ in claim.unbound_fixed:
                wanted[shape] += 1
        wanted = +wanted
        if not wanted:
            return True
        return place_most(world, free, wanted, self.deadline_s) >= wanted.total() - 1e-6


def _keep(trial: _Trial, room: Room | None, running: list[int]) -> Room | None:
    """Keep those that run; where not all fit, the youngest go, whole."""
    members = room.members if room is not None else ()
    if not running:
        return room
    if (together := trial([*members, *running])) is not None:
        return together
    for j in running:
        members = room.members if room is not None else ()
        room = trial.beside(members, j) or room
    return room


def _let_in(trial: _Trial, room: Room | None, waiting: list[Claim], head: dict[int, int]) -> Room | None:
    """Let in the longest prefix by age that fits, then whoever fits behind it while its head has not waited long."""
    members = room.members if room is not None else ()
    order = [c.index for c in waiting]
    count, room = _longest(lambda n: trial([*members, *order[:n]]) if n else room, len(order), room)
    if count == len(order):
        return room
    first = waiting[count]
    head[first.index] = first.index
    limits, now_s = trial.world.limits, trial.world.snapshot.observed_at_s
    is_closed = now_s - waiting_since_s(first) >= limits.head_wait_s
    for j in order[count + 1 :]:
        behind = None if is_closed else trial.beside(room.members if room is not None else (), j)
        if behind is None:
            head[j] = first.index
        else:
            room = behind
    return room


def _longest(attempt: Callable[[int], Room | None], most: int, start: Room | None) -> tuple[int, Room | None]:
    """The largest count for which the attempt succeeds, by bisection, and its room; `start` is that of none."""
    low, high, room = 0, most + 1, start
    while high - low > 1:
        middle = most if high > most else (low + high) // 2
        if (tried := attempt(middle)) is not None:
            low, room = middle, tried
        else:
            high = middle
    return low, room


def settle(world: World, members: tuple[int, ...], served: Served, deadline_s: float) -> Room | None:
    """Place all that must have room; None where not everything fits.

    At first nobody dies, or only surplus; if that is not enough, minimums may move elsewhere; then pods that are on
    their way to a node may go to another, and at last everything that is not bound yet is packed exactly.
    """
    first = _settle_by_surplus(Room(world, members), served)
    if first is not None and not first.victims:
        return first
    attempts: tuple[Callable[[], Room | None], ...] = (
        lambda: _settle_exactly(Room(world, members), served, deadline_s),
        lambda: first,
        lambda: _settle_by_moves(Room(world, members), served),
        lambda: _settle_exactly(Room(world, members, settle=False), served, deadline_s),
        lambda: _settle_by_moves(Room(world, members, settle=False), served),
        lambda: _settle_from_nothing(world, members, served, deadline_s),
    )
    room = next((room for attempt in attempts if (room := attempt()) is not None), None)
    if room is not None:
        spare_victims(room)
    return room


def _settle_exactly(room: Room, served: Served, deadline_s: float) -> Room | None:
    """Place all that has no room into the room that is free, by an integer program; nobody dies."""
    demands = _demands(room, served)
    wanted: Counter[int] = Counter()
    queues: dict[int, list[tuple[int, Role | None]]] = {}
    for demand in demands:
        wanted[demand.shape] += len(demand.owners)
        queues.setdefault(demand.shape, []).extend(demand.owners)
    slots = {shape: int(room.slots(shape).sum()) for shape in wanted}
    if any(slots[shape] < count for shape, count in wanted.items()) or len(wanted) < 2:
        return None
    packed = pack_most(room.world, room.free, wanted, deadline_s)
    if packed is None or sum(pods for _, _, pods in packed) < wanted.total():
        return None
    for node, shape, pods in packed:
        for _ in range(pods):
            place(room, shape, queues[shape].pop(0), node)
    return room


def _settle_from_nothing(world: World, members: tuple[int, ...], served: Served, deadline_s: float) -> Room | None:
    """Let every trainer die and place all that must have room; who can stay after all is spared later."""
    room = Room(world, members, settle=False)
    for index in sorted(room.node_of):
        room.kill(index)
    return _settle_exactly(room, served, deadline_s)


def _settle_by_surplus(start: Room, served: Served) -> Room | None:
    """Try a few orders of the shapes; the fewest deaths win."""
    demands = _demands(start, served)
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
    for demand in _demands(room, served):
        is_base = demand.owners[0][1] is Role.TRAINER
        if make_room(room, demand, _surplus(room) if is_base else room.count) < len(demand.owners):
            return None
    for demand in _demands(room, replace(served, due={})):
        if make_room(room, demand, _surplus(room)) < len(demand.owners):
            return None
    return room


def spare_victims(room: Room) -> None:
    """Revive victims whose place is free after all, dearest first, and those whose job gets a new one there."""
    for index in sorted(room.victims, key=lambda i: room.world.seats[i].order, reverse=True):
        seat = room.world.seats[index]
        claim = room.world.claims[seat.claim]
        if seat.node < 0 or room.count[seat.claim] > claim.high:
            continue
        twin = next(
            (p for p in room.placed if (p.owner, p.role, p.shape, p.node) == (claim.index, Role.TRAINER, seat.shape, seat.node)),
            None,
        )  # fmt: skip
        if twin is not None:
            room.drop(twin)
            room.revive(index)
        elif room.count[seat.claim] < claim.high and room.has_room(seat.shape, seat.node):
            room.revive(index)


def _demands(room: Room, served: Served) -> list[Demand]:
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
    serving = [_for_serving(s, served.due[s]) for s in _by_size(world, served.due) if served.due[s]]
    return [*serving, *(Demand(s, tuple(g[s])) for g in (fixed, trainers) for s in _by_size(world, g) if g[s])]


def _surplus(room: Room) -> dict[int, int]:
    return {j: max(0, room.count[j] - room.world.claims[j].low) for j in room.members}


def _for_serving(shape: int, count: int) -> Demand:
    return Demand(shape, ((SERVING, None),) * count)


def _by_size(world: World, shapes: Iterable[int]) -> list[int]:
    return sorted(shapes, key=lambda s: (-_size(world, s), s))


def _size(world: World, shape: int) -> float:
    """The largest part of a node's room that the shape asks for."""
    most = world.allocatable.max(axis=0, initial=1).clip(min=1)
    return float((world.request[shape] / most).max(initial=0.0))
