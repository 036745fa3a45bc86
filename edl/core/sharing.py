"""How many trainers each job gets beyond its minimum: the fair share, and whether it is worth a death.

Growth into free room goes to whoever is worst off. A running trainer dies for another job's share only in the plan
that admits a job, or where the worst off would gain more than a dead band from jobs that are out of their cooldown.

Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from edl.core.capacity import Claim, World
from edl.core.filling import fill
from edl.core.guard import DEAD_BAND, growth_hold_left_s, is_arriving, restrain
from edl.core.integer import pack_anew
from edl.core.model import Role
from edl.core.optimizer import could_reach, fair_shares, read_cluster
from edl.core.packing import Demand, grow, has_load_left, make_room
from edl.core.room import Room
from edl.core.settling import Served, for_serving, spare_victims

EPSILON = 1e-6
RAISES_TRIED = 8


@dataclass(frozen=True, slots=True)
class Share:
    """The finished packing.

    Attributes:
        room: everything placed.
        level: of each member, the trainers that its fair share promises, in fractions.
        young_placed: serving pods that nobody dies for and that have room all the same.
    """

    room: Room
    level: Mapping[int, float]
    young_placed: int


def share(room: Room, served: Served, deadline_s: float) -> Share:
    """Give each admitted job its share of what the minimums left.

    Args:
        room: every admitted job at its minimum at least; not changed.
        served: the serving pods; those that nobody dies for keep free room from growth.
        deadline_s: time for each program.
    """
    room = room.copy()
    _trim(room)
    ceiling = {j: _ceiling(room.world, room.world.claims[j]) for j in room.members}
    resettled = {j: min(ceiling[j], room.count[j] + len(room.homeless[j])) for j in room.members}
    grow(room, resettled, resettled)
    young = sum(make_room(room, for_serving(s, n), {}) for s, n in sorted(served.young.items()) if n)
    extra = room.world.limits.serving_headroom
    for shape in room.world.headroom:
        make_room(room, for_serving(shape, extra), {})
    level = fair_shares(read_cluster(room), deadline_s)
    terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in room.members})
    best = _reshare(room, _grown(room, terms, deadline_s), terms, deadline_s)
    spare_victims(best)
    return Share(best, level, young)


@dataclass(frozen=True, slots=True)
class Terms:
    """What growth goes by: the most each member may have now, and its fair share in whole trainers."""

    ceiling: Mapping[int, int]
    promised: Mapping[int, int]


def _grown(room: Room, terms: Terms, deadline_s: float, take: Callable[[Room, int], bool] | None = None) -> Room:
    """Grow; then raise whoever is worst off by one more trainer as long as all who are worst off get it."""
    best = _filled(room, terms, deadline_s, take)
    if room.world.is_large:
        return best
    for _ in range(RAISES_TRIED):
        raised = _raised(room, terms)
        if raised is None:
            break
        if any(best.count[j] < raised.promised[j] for j in room.members):
            if not could_reach(read_cluster(best), raised.promised, deadline_s):
                break
            trial = _filled(room, raised, deadline_s, take)
            if any(trial.count[j] < raised.promised[j] for j in room.members):
                break
            best = trial
        terms = raised
    return best


def _raised(room: Room, terms: Terms) -> Terms | None:
    """The terms with one more trainer promised to each of the worst off; None where one of them cannot have it."""
    claims = room.world.claims
    level = {j: claims[j].fulfilment(min(terms.promised[j], terms.ceiling[j])) for j in room.members}
    worst = [j for j in room.members if level[j] <= min(level.values()) + EPSILON]
    can_grow = {shape: bool(room.slots(shape).any()) for shape in {claims[j].shape for j in worst}}
    if not worst or any(terms.promised[j] >= terms.ceiling[j] for j in worst):
        return None
    if any(room.count[j] <= terms.promised[j] and not can_grow[claims[j].shape] for j in worst):
        return None
    return Terms(terms.ceiling, {j: n + (j in worst) for j, n in terms.promised.items()})


def _filled(room: Room, terms: Terms, deadline_s: float, take: Callable[[Room, int], bool] | None) -> Room:
    """Grow, and where that falls short of what is possible, pack anew all pods that are not created yet."""
    if room.world.is_large:
        filled = fill(room, terms.ceiling, terms.promised, deadline_s)
        grow(filled, terms.ceiling, terms.promised, take)
        return filled
    grown = room.copy()
    grow(grown, terms.ceiling, terms.promised, take)
    anew = pack_anew(grown, terms.ceiling, terms.promised, deadline_s)
    if anew is None:
        return grown
    grow(anew, terms.ceiling, terms.promised)
    return max((grown, anew), key=lambda trial: _standing(trial, terms))


def _trim(room: Room) -> None:
    """Let trainers above a maximum die, in their dying order."""
    for j in room.members:
        claim = room.world.claims[j]
        for index in sorted(claim.seats, key=lambda i: room.world.seats[i].order):
            if room.count[j] <= claim.high:
                break
            if index not in room.victims and index not in room.homeless[j]:
                room.kill(index)


def _ceiling(world: World, claim: Claim) -> int:
    """The most trainers a job may have now: after a shrink for serving it does not grow at once."""
    if growth_hold_left_s(claim.job, world.limits, world.snapshot.observed_at_s) <= 0:
        return claim.high
    resize = claim.job.status.last_resize if claim.job.status is not None else None
    shrunk_to = resize.to_count if resize is not None else 0
    return min(claim.high, max(claim.low, len(claim.seats), shrunk_to))


def _reshare(room: Room, grown: Room, terms: Terms, deadline_s: float) -> Room:
    """Choose between growth alone and taking from those that are better off."""
    claims = room.world.claims
    now_s = room.world.snapshot.observed_at_s
    admits = any(is_arriving(claims[j].job, now_s) for j in room.members)
    if not admits and not _is_at_rest(room):
        return grown
    short = [j for j in room.members if terms.promised[j] > grown.count[j]]
    gain = max((claims[j].fulfilment(terms.promised[j]) - grown.fulfilment(j) for j in short), default=0.0)
    if not short or (not admits and gain <= DEAD_BAND + EPSILON):
        return grown
    restrained = frozenset() if admits else restrain(room.world.snapshot.jobs, now_s)
    donors = [j for j in room.members if claims[j].job.key not in restrained]
    if not any(room.count[d] > min(terms.promised[d], claims[d].low) and claims[d].seats for d in donors):
        return grown
    start = _take_promised(room.copy(), terms, donors)
    taken = _grown(start, terms, deadline_s, lambda trial, j: _take_one(trial, j, terms, donors))
    if admits:
        return taken if _standing(taken, terms) > _standing(grown, terms) else grown
    gainers = [j for j in room.members if taken.count[j] > grown.count[j]]
    worst = min(gainers, key=lambda j: (grown.fulfilment(j), j), default=None)
    is_worth_it = worst is not None and taken.fulfilment(worst) - grown.fulfilment(worst) > DEAD_BAND + EPSILON
    return taken if is_worth_it else grown


def _is_at_rest(room: Room) -> bool:
    """True where nobody dies for serving now, and nobody is still dying."""
    jobs = room.world.snapshot.jobs
    return not room.for_serving and not any(
        p.terminating and p.role is Role.TRAINER for job in jobs for p in job.pods
    )


def _standing(room: Room, terms: Terms) -> tuple[tuple[float, ...], float]:
    """How good a trial is: fulfilments up to the promised share, from the worst off upwards; then the whole sum."""
    claims = room.world.claims
    kept = sorted(round(min(room.fulfilment(j), claims[j].fulfilment(terms.promised[j])), 9) for j in room.members)
    return tuple(kept), round(sum(claims[j].job.weight * room.fulfilment(j) for j in room.members), 9)


def _take_promised(room: Room, terms: Terms, donors: Iterable[int]) -> Room:
    """Raise whoever is below its promised share, at the cost of those above theirs; the worst off come first."""
    claims = room.world.claims
    owners: dict[int, list[tuple[float, int]]] = {}
    for j in room.members:
        for count in range(room.count[j], min(terms.promised[j], terms.ceiling[j])):
            owners.setdefault(claims[j].shape, []).append((claims[j].fulfilment(count), j))
    for shape in sorted(owners, key=lambda s: min(owners[s])):
        demand = Demand(shape, tuple((j, Role.TRAINER) for _, j in sorted(owners[shape])))
        allowance = {d: room.count[d] - terms.promised[d] for d in donors if room.count[d] > terms.promised[d]}
        few = room.copy()
        if make_room(few, demand, _from_few(room, allowance, len(demand.owners))) == len(demand.owners):
            room = few
        else:
            make_room(room, demand, allowance)
    return room


def _from_few(room: Room, allowance: Mapping[int, int], count: int) -> dict[int, int]:
    """The allowance of as few jobs as can give that many, those that lose trainers anyway first: fewer resizes."""
    losing = {room.world.seats[i].claim for i in room.victims}
    chosen: dict[int, int] = {}
    for d in sorted(allowance, key=lambda d: (d not in losing, -allowance[d], room.world.claims[d].job.key)):
        if sum(chosen.values()) >= count:
            break
        chosen[d] = allowance[d]
    return chosen


def _take_one(room: Room, j: int, terms: Terms, donors: Iterable[int]) -> bool:
    """Make room for one more trainer of a job below its promise.

    Others lose what is above their own promise, or what leaves them as well off as this job becomes.
    """
    shape = room.world.claims[j].shape
    if not has_load_left(room, shape):
        return False
    goal = room.fulfilment(j, 1)
    allowance = {d: max(0, room.count[d] - terms.promised[d], _can_spare(room, d, goal)) for d in donors if d != j}
    return any(allowance.values()) and make_room(room, Demand(shape, ((j, Role.TRAINER),)), allowance) > 0


def _can_spare(room: Room, d: int, goal: float) -> int:
    """How many trainers a job can lose and still be at the goal and at its minimum."""
    spare = 0
    while room.count[d] - spare > room.world.claims[d].low and room.fulfilment(d, -spare - 1) >= goal - EPSILON:
        spare += 1
    return spare
