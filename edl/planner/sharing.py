"""How many trainers each job gets beyond its minimum: the fair share, and whether it is worth a death.

Growth into free room goes to whoever is worst off. A running trainer dies for another job's share only in the plan
that admits a job, or where the worst off would gain more than a dead band from jobs that are out of their cooldown. A
trainer that would die only to start anew elsewhere dies where that gain is made by it, and not without.

Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edl.model.names import Role
from edl.planner.filling import fill
from edl.planner.guard import DEAD_BAND, growth_hold_left_s, restrain
from edl.planner.minimums import Served, for_serving, spare_victims
from edl.planner.packing import grow, make_room
from edl.planner.problem import Claim, World
from edl.planner.programs.fair_share import could_reach, fair_shares, read_cluster
from edl.planner.programs.integer import pack_anew
from edl.planner.reallocation import EPSILON, Terms, kept, moved, take_one, take_promised, undo_moves
from edl.planner.speedup import Worth
from edl.planner.trading import (
    Goal,
    grown_by_worth,
    has_arrivals,
    lacking_gain,
    pays,
    set_goal,
    standing,
    total_worth,
    traded,
)
from edl.planner.trial import Room

RAISES_TRIED = 8
FEW_JOBS = 20  # up to so many, raising the worst off is tried even where only packing anew or a death could do it
STAYS_TRIED = 3  # how often trainers are taken anew, without those that would only have moved


@dataclass(frozen=True, slots=True)
class Share:
    """The finished packing.

    Attributes:
        room: everything placed.
        level: of each member, the trainers that its fair share promises, in fractions; under `utility` its floor.
        young_placed: serving pods that nobody dies for and that have room all the same.
        for_quota: seats that die because their queue has passed a quota.
        not_worth_it: members that would have more if their gain paid for the resizes.
        worths: what trainers are worth to each member; None where it is the fulfilment.
    """

    room: Room
    level: Mapping[int, float]
    young_placed: int
    for_quota: frozenset[int] = frozenset()
    not_worth_it: frozenset[int] = frozenset()
    worths: Mapping[int, Worth] | None = None

    @property
    def objective(self) -> str:
        """What the certificate is about."""
        return "fulfilment" if self.worths is None else "utility"


def share(room: Room, served: Served, deadline_s: float, worths: Mapping[int, Worth] | None = None) -> Share:
    """Give each admitted job its share of what the minimums left.

    Args:
        room: every admitted job at its minimum at least; not changed.
        served: the serving pods; those that nobody dies for keep free room from growth.
        deadline_s: time for each program.
        worths: what trainers are worth to each member, under policy `utility`; else its fulfilment counts.
    """
    room = room.copy()
    for_quota = _trim(room)
    ceiling = {j: _ceiling(room.world, room.world.claims[j]) for j in room.members}
    resettled = {j: min(ceiling[j], room.count[j] + len(room.homeless[j])) for j in room.members}
    grow(room, resettled, resettled)
    young = sum(make_room(room, for_serving(s, n), {}) for s, n in sorted(served.young.items()) if n)
    extra = room.world.limits.serving_headroom
    for shape in room.world.headroom:
        make_room(room, for_serving(shape, extra), {})
    level = fair_shares(read_cluster(room), deadline_s)
    refused: frozenset[int] = frozenset()
    if worths is None:
        ceiling = _leave_to_held(room, ceiling, level)
        terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in room.members})
        best = _reshare(room, _grown(room, terms, deadline_s), terms, deadline_s)
    else:
        low = {j: room.world.claims[j].low for j in room.members}
        level = {j: low[j] + (level[j] - low[j]) / 2 for j in room.members}
        terms = Terms(ceiling, {j: int(level[j] + EPSILON) for j in room.members})
        best, refused = _reshare_by_worth(room, terms, worths, deadline_s)
    best = undo_moves(best)
    spare_victims(best)
    return Share(best, level, young, for_quota & frozenset(best.victims), refused, worths)


Take = Callable[[Room, int, Terms], bool]  # makes room for one more trainer of a job at the cost of others


def _grown(room: Room, terms: Terms, deadline_s: float, take: Take | None = None) -> Room:
    """Grow; then raise whoever is worst off by one more trainer as long as all who are worst off get it."""
    best = _filled(room, terms, deadline_s, take)
    if room.world.is_large:
        return best
    can_repack = len({place.shape for place in room.placed}) > 1
    is_settled = len(room.members) > FEW_JOBS or (take is None and not can_repack)

    refused: list[Mapping[int, int]] = []

    def reach(wanted: Terms) -> Room | None:
        if any(all(wanted.promised[j] >= n for j, n in less.items()) for less in refused):
            return None
        reached = _reached(room, best, wanted, deadline_s, take)
        if reached is None:
            refused.append(wanted.promised)
        return reached

    if any(best.count[j] < terms.promised[j] for j in room.members):
        refused.append(terms.promised)
        best, terms = lowered(room, terms, _worst(best), reach) or (best, terms)
    for _ in range(RAISES_TRIED):
        raised = _raised(room, terms, is_settled=is_settled)
        if raised is None:
            break
        reached = reach(raised)
        level = min(room.world.claims[j].fulfilment(min(terms.promised[j], terms.ceiling[j])) for j in room.members)
        step = (reached, raised) if reached else lowered(room, raised, level, reach)
        if step is None:
            break
        best, terms = step
    return best


def _reached(room: Room, best: Room, terms: Terms, deadline_s: float, take: Take | None) -> Room | None:
    """A trial in which everybody has what is promised, `best` itself where it does; None where none is found."""
    if all(best.count[j] >= terms.promised[j] for j in room.members):
        return best
    if not could_reach(read_cluster(best), terms.promised, deadline_s):
        return None
    trial = _filled(room, terms, deadline_s, take)
    return trial if all(trial.count[j] >= terms.promised[j] for j in room.members) else None


def lowered(
    room: Room, terms: Terms, level: float, reach: Callable[[Terms], Room | None]
) -> tuple[Room, Terms] | None:
    """Promise less to whoever is best off, trainer by trainer and never down to that level, until all can be had.

    What can be had with less promised can be had: the first step is tried, then the last, then those between.
    """
    steps = _lower(room, terms, level)
    if not steps:
        return None
    if (reached := reach(steps[0])) is not None:
        return reached, steps[0]
    if len(steps) == 1 or (reached := reach(steps[-1])) is None:
        return None
    fails, works = 0, len(steps) - 1
    while works - fails > 1:
        middle = (fails + works) // 2
        if (tried := reach(steps[middle])) is None:
            fails = middle
        else:
            works, reached = middle, tried
    return reached, steps[works]


def _lower(room: Room, terms: Terms, level: float) -> list[Terms]:
    """The terms with one trainer less promised to whoever is then best off, again and again."""
    claims = room.world.claims
    steps: list[Terms] = []
    for _ in range(RAISES_TRIED if len(room.members) <= FEW_JOBS else 0):
        promised = (steps[-1] if steps else terms).promised
        rich = [j for j, n in promised.items() if n > claims[j].low and claims[j].fulfilment(n - 1) > level + EPSILON]
        if not rich:
            break
        giver = max(rich, key=lambda j: (claims[j].fulfilment(promised[j]), claims[j].job.key))
        steps.append(Terms(terms.ceiling, {j: n - (j == giver) for j, n in promised.items()}))
    return steps


def _raised(room: Room, terms: Terms, *, is_settled: bool) -> Terms | None:
    """The terms with one more trainer promised to each of the worst off; None where one of them cannot have it.

    `is_settled` says that nothing can be packed anew and nobody dies: then there is no room but what is free.
    """
    claims = room.world.claims
    level = {j: claims[j].fulfilment(min(terms.promised[j], terms.ceiling[j])) for j in room.members}
    worst = [j for j in room.members if level[j] <= min(level.values()) + EPSILON]
    can_grow = {shape: bool(room.slots(shape).any()) for shape in {claims[j].shape for j in worst}}
    if not worst or any(terms.promised[j] >= terms.ceiling[j] for j in worst):
        return None
    if is_settled and any(room.count[j] <= terms.promised[j] and not can_grow[claims[j].shape] for j in worst):
        return None
    return Terms(terms.ceiling, {j: n + (j in worst) for j, n in terms.promised.items()})


def _filled(room: Room, terms: Terms, deadline_s: float, take: Take | None) -> Room:
    """Grow, and where that falls short of what is possible, pack anew all pods that are not created yet."""
    taking = (lambda trial, j: take(trial, j, terms)) if take else None
    if room.world.is_large:
        filled = fill(room, terms.ceiling, terms.promised, deadline_s)
        grow(filled, terms.ceiling, terms.promised, taking)
        return filled
    grown = room.copy()
    grow(grown, terms.ceiling, terms.promised, taking)
    anew = pack_anew(grown, terms.ceiling, terms.promised, deadline_s)
    if anew is None:
        return grown
    grow(anew, terms.ceiling, terms.promised)
    return max((grown, anew), key=lambda trial: _standing(trial, terms))


def _trim(room: Room) -> frozenset[int]:
    """Let trainers above a maximum die, in their dying order; then those above a quota, of whoever is best off.

    Returns:
        The seats that die for a quota.
    """
    killed = set()
    for j in room.members:
        claim = room.world.claims[j]
        above = room.count[j] - claim.high
        for index in _dying(room, j)[:above] if above > 0 else ():
            if room.count[j] <= (claim.job.pinned or claim.job.max_trainers):
                killed.add(index)
            room.kill(index)
    while passed := room.meter().passed():
        givers = [
            j
            for j in room.members
            if room.count[j] > room.world.claims[j].low
            and any(ask.row in passed and ask.each for ask in room.world.claims[j].asks)
        ]
        giver = max(givers, key=lambda j: (room.fulfilment(j), room.world.claims[j].job.created_s, j))
        killed.add(_dying(room, giver)[0])
        room.kill(_dying(room, giver)[0])
    return frozenset(killed)


def _dying(room: Room, j: int) -> list[int]:
    """The trainers of a member that count, in their dying order."""
    gone = {*room.victims, *room.homeless[j]}
    return sorted((i for i in room.world.claims[j].seats if i not in gone), key=lambda i: room.world.seats[i].order)


def _ceiling(world: World, claim: Claim) -> int:
    """The most trainers a job may have now: after a shrink for serving it does not grow at once."""
    if growth_hold_left_s(claim.job, world.limits, world.snapshot.observed_at_s) <= 0:
        return claim.high
    resize = claim.job.status.last_resize if claim.job.status is not None else None
    shrunk_to = resize.to_count if resize is not None else 0
    return min(claim.high, max(claim.low, len(claim.seats), shrunk_to))


def _leave_to_held(room: Room, ceiling: dict[int, int], level: Mapping[int, float]) -> dict[int, int]:
    """The ceilings while a job below its fair share may not grow yet: the others get no more than theirs.

    What they took of its room in these seconds would be taken back by deaths as soon as it may grow.
    """
    promised = {j: int(level[j] + EPSILON) for j in room.members}
    if all(ceiling[j] >= promised[j] for j in room.members):
        return ceiling
    return {j: min(ceiling[j], max(room.count[j], promised[j])) for j in room.members}


def _reshare(room: Room, grown: Room, terms: Terms, deadline_s: float) -> Room:
    """Choose between growth alone and taking from those that are better off."""
    claims = room.world.claims
    admits = has_arrivals(room)
    if not admits and not _is_at_rest(room):
        return grown
    short = [j for j in room.members if terms.promised[j] > grown.count[j]]
    gain = max((claims[j].fulfilment(terms.promised[j]) - grown.fulfilment(j) for j in short), default=0.0)
    is_fine = not short and len(room.members) > FEW_JOBS
    if is_fine or (not admits and gain <= DEAD_BAND + EPSILON):
        return grown

    def take(keep: Mapping[int, int]) -> Room:
        start = take_promised(room.copy(), terms, keep)
        if not room.world.is_large:
            return _grown(start, terms, deadline_s, lambda trial, j, now: take_one(trial, j, now, keep))
        lost = {j: n if (n := start.count[j]) < room.count[j] else terms.ceiling[j] for j in room.members}
        return _grown(start, Terms(lost, terms.promised), deadline_s)

    keep = _givers(room, admits=admits)
    if not any(room.count[d] > min(terms.promised[d], claims[d].low) and claims[d].seats for d in keep):
        return grown
    taken = take(keep)
    still = _staying(room, grown, taken, keep, take)
    if _worst_gain(still, taken) <= DEAD_BAND + EPSILON:
        taken = still
    if room.world.leaving.any():
        enough = EPSILON if admits else DEAD_BAND + EPSILON
        if _worst_gain(_grown(_when_left(room), terms, deadline_s), taken) <= enough:
            return grown
    if admits:
        return max((grown, taken), key=lambda trial: (_worst(trial), _standing(trial, terms)))
    is_worth_it = _worst_gain(grown, taken) > DEAD_BAND + EPSILON and _worst(taken) >= _worst(grown)
    return taken if is_worth_it else grown


def _reshare_by_worth(
    room: Room, terms: Terms, worths: Mapping[int, Worth], deadline_s: float
) -> tuple[Room, frozenset[int]]:
    """Choose between growth alone and trades; also tells who would gain by trades that do not pay for the resizes."""
    goal = set_goal(room, room.count, terms, worths, deadline_s)
    grown = grown_by_worth(room, terms, goal.wanted, worths, deadline_s)
    admits = has_arrivals(room)
    if _is_good_enough(grown, terms, goal, worths) or not (admits or _is_at_rest(room)):
        return grown, frozenset()

    def take(keep: Mapping[int, int]) -> Room:
        return traded(room, terms, goal, keep, worths, deadline_s=deadline_s)

    keep = _givers(room, admits=admits)
    taken = take(keep)
    still = _staying(room, grown, taken, keep, take)
    if lacking_gain(taken, still, terms) <= DEAD_BAND + EPSILON and not pays(room, taken, still, worths):
        taken = still
    if standing(taken, terms, worths) <= standing(grown, terms, worths):
        return grown, frozenset()
    if room.world.leaving.any():
        later = grown_by_worth(_when_left(room), terms, goal.wanted, worths, deadline_s)
        if standing(taken, terms, worths) <= standing(later, terms, worths):
            return grown, frozenset()
    if admits or lacking_gain(taken, grown, terms) > DEAD_BAND + EPSILON or pays(room, taken, grown, worths):
        return taken, frozenset()
    gains = total_worth(taken, worths) > total_worth(grown, worths) + EPSILON
    return grown, frozenset(j for j in room.members if gains and taken.count[j] > grown.count[j])


def _is_good_enough(room: Room, terms: Terms, goal: Goal, worths: Mapping[int, Worth]) -> bool:
    """True where everybody has its floor, and all together what they should."""
    lacks = any(room.count[j] < min(terms.promised[j], terms.ceiling[j]) for j in room.members)
    return not lacks and total_worth(room, worths) >= goal.value - EPSILON


def _givers(room: Room, *, admits: bool) -> dict[int, int]:
    """Who may lose trainers to others: in the plan that admits a job all, else those out of their cooldown."""
    now_s = room.world.snapshot.observed_at_s
    restrained = frozenset() if admits else restrain(room.world.snapshot.jobs, now_s)
    return {j: 0 for j in room.members if room.world.claims[j].job.key not in restrained}


def _staying(
    room: Room, grown: Room, taken: Room, keep: Mapping[int, int], take: Callable[[Mapping[int, int]], Room]
) -> Room:
    """The same taking without moves: whoever would get back elsewhere what it gives keeps that much."""
    for _ in range(STAYS_TRIED):
        moves = moved(taken, room)
        if not moves:
            return taken
        keep = {d: kept(taken, d) + moves[d] if d in moves else n for d, n in keep.items()}
        taken = take(keep)
    return taken if not moved(taken, room) else grown


def _worst_gain(grown: Room, taken: Room) -> float:
    """What the worst off of those that gain gains in fulfilment."""
    gainers = [j for j in grown.members if taken.count[j] > grown.count[j]]
    worst = min(gainers, key=lambda j: (grown.fulfilment(j), j), default=None)
    return 0.0 if worst is None else taken.fulfilment(worst) - grown.fulfilment(worst)


def _is_at_rest(room: Room) -> bool:
    """True where nobody dies for serving now, and nobody is still dying."""
    jobs = room.world.snapshot.jobs
    return not room.for_serving and not any(
        p.terminating and p.role is Role.TRAINER for job in jobs for p in job.pods
    )


def _when_left(room: Room) -> Room:
    """The room once those pods of others are gone that terminate: it is waited for rather than taken from jobs."""
    later = room.copy()
    later.free += room.world.leaving
    return later


def _worst(room: Room) -> float:
    """How well off the worst off is."""
    return round(min((room.fulfilment(j) for j in room.members), default=1.0), 9)


def _standing(room: Room, terms: Terms) -> tuple[tuple[float, ...], float]:
    """How good a trial is: fulfilments up to the promised share, from the worst off upwards; then the whole sum."""
    claims = room.world.claims
    held = sorted(round(min(room.fulfilment(j), claims[j].fulfilment(terms.promised[j])), 9) for j in room.members)
    return tuple(held), round(sum(claims[j].job.weight * room.fulfilment(j) for j in room.members), 9)
