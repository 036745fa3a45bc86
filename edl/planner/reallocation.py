"""Taking trainers from some jobs so that others grow: whose may die, for whom, and which of it is only a move.

What ought to be taken is decided in `sharing` and `trading`. A function that is given a room changes it, or leaves it
as it was where it says that nothing could be done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edl.model.names import Role
from edl.planner.packing import PodBatch, has_load_left, make_room
from edl.planner.packing import place as put
from edl.planner.trial_packing import SERVING, Placed, TrialPacking

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


def kept(packing: TrialPacking, d: int) -> int:
    """Trainers of a member that exist and keep a place."""
    return sum(i in packing.node_of for i in packing.problem.demands[d].live_trainers)


def restarted_elsewhere(packing: TrialPacking, before: TrialPacking) -> Counter[int]:
    """How many trainers of each member die and start anew elsewhere, beyond those that had to die before."""
    dead = Counter(packing.problem.live_trainers[i].demand for i in set(packing.victims) - set(before.victims))
    new = Counter(place.owner for place in packing.placed if place.role is Role.TRAINER)
    return +Counter({d: min(n, new[d]) for d, n in dead.items()})


def undo_restarts(packing: TrialPacking) -> TrialPacking:
    """Let trainers live whose job gets a new one elsewhere, where what was meant for their place can change with it.

    Only what does not exist yet changes places, so it costs nobody anything. Deaths for serving stand: where serving
    goes is not ours to say.
    """
    demands, live_trainers = packing.problem.demands, packing.problem.live_trainers
    tries = 0
    for index in sorted(
        set(packing.victims) - packing.for_serving, key=lambda i: live_trainers[i].order, reverse=True
    ):
        j = live_trainers[index].demand
        if live_trainers[index].node < 0 or packing.count[j] > demands[j].max_trainers:
            continue
        for place in [p for p in packing.placed if p.owner == j and p.role is Role.TRAINER]:
            tries += 1
            if tries > MOVES_LOOKED_AT:
                return packing
            if (without := _without_move(packing, index, place)) is not None:
                packing = without
                break
    return packing


def _without_move(packing: TrialPacking, index: int, place: Placed) -> TrialPacking | None:
    """The room in which a trainer lives instead of the new one of its job; None where its place cannot be cleared."""
    trial, trainer = packing.copy(), packing.problem.live_trainers[index]
    trial.drop(place)
    for other in sorted((p for p in trial.placed if p.node == trainer.node), key=lambda p: -p.shape):
        if trial.has_room(trainer.shape, trainer.node):
            break
        if other.owner == SERVING:
            continue
        slots = trial.slots(other.shape)
        slots[trainer.node] = 0
        if slots[place.node] or slots.any():
            trial.drop(other)
            put(
                trial,
                other.shape,
                (other.owner, other.role),
                place.node if slots[place.node] else int(slots.argmax()),
            )
    if not trial.has_room(trainer.shape, trainer.node):
        return None
    trial.revive(index)
    return trial


def take_promised(packing: TrialPacking, terms: Terms, keep: Mapping[int, int]) -> TrialPacking:
    """Raise whoever is below its promised share, at the cost of those above theirs; the worst off come first.

    Args:
        packing: the trial; it may be changed, the result counts.
        terms: see there.
        keep: who may lose trainers, and how many of those that exist each must keep.
    """
    demands = packing.problem.demands
    owners: dict[int, list[tuple[float, int]]] = {}
    for j in packing.members:
        if demands[j].quota_uses:
            continue  # what its queue has left is looked at trainer by trainer
        for count in range(packing.count[j], min(terms.promised[j], terms.ceiling[j])):
            owners.setdefault(demands[j].shape, []).append((demands[j].fulfilment(count), j))
    for shape in sorted(owners, key=lambda s: min(owners[s])):
        batch = PodBatch(shape, tuple((j, Role.TRAINER) for _, j in sorted(owners[shape])))
        allowance = _allowed(packing, keep, {d: packing.count[d] - terms.promised[d] for d in keep})
        few = packing.copy()
        if make_room(few, batch, _from_few(packing, allowance, len(batch.owners))) == len(batch.owners):
            packing = few
        else:
            make_room(packing, batch, allowance)
    return packing


def take_one(packing: TrialPacking, j: int, terms: Terms, keep: Mapping[int, int]) -> bool:
    """Make room for one more trainer of a job below its promise.

    Others lose what is above their own promise, or what leaves them as well off as this job becomes.
    """
    goal = packing.fulfilment(j, 1)
    most = {d: max(packing.count[d] - terms.promised[d], _can_spare(packing, d, goal)) for d in keep if d != j}
    allowance = _allowed(packing, keep, most)
    return any(allowance.values()) and give_one(packing, j, allowance)


def give_one(packing: TrialPacking, j: int, allowance: Mapping[int, int]) -> bool:
    """Place one more trainer of a job, where trainers of others die as allowed; of its own queue for its quota."""
    shape = packing.problem.demands[j].shape
    if not has_load_left(packing, shape):
        return False
    batch = PodBatch(shape, ((j, Role.TRAINER),))
    if packing.meter().quota_shortage(j) is None:
        return make_room(packing, batch, allowance) > 0
    trial = packing.copy()
    if (left := _free_quota(trial, j, allowance)) is None or not make_room(trial, batch, left):
        return False
    left = _free_quota(packing, j, allowance) or {}
    return make_room(packing, batch, left) > 0


def allowed_beyond(packing: TrialPacking, keep: Mapping[int, int], least: Mapping[int, int]) -> dict[int, int]:
    """How many trainers each may lose and still have its least count."""
    return _allowed(packing, keep, {d: packing.count[d] - least[d] for d in keep})


def _allowed(packing: TrialPacking, keep: Mapping[int, int], most: Mapping[int, int]) -> dict[int, int]:
    allowance = {d: min(n, kept(packing, d) - keep[d]) for d, n in most.items() if n > 0}
    return {d: n for d, n in allowance.items() if n > 0}


def _free_quota(packing: TrialPacking, j: int, allowance: Mapping[int, int]) -> dict[int, int] | None:
    """Let trainers of the same queue die, the best off first, until the quota has room for one more of the job.

    Returns:
        What is left of the allowance; None where it does not suffice.
    """
    demands, left = packing.problem.demands, dict(allowance)
    while (short := packing.meter().quota_shortage(j)) is not None:
        givers = [
            d
            for d, n in left.items()
            if n > 0
            and any(quota_use.row == short.row and quota_use.each for quota_use in demands[d].quota_uses)
            and kept(packing, d)
        ]
        if not givers:
            return None
        giver = max(givers, key=lambda d: (packing.fulfilment(d), demands[d].job.created_s, d))
        live_trainers = (i for i in demands[giver].live_trainers if i in packing.node_of)
        packing.delete(min(live_trainers, key=lambda i: packing.problem.live_trainers[i].order))
        left[giver] -= 1
    return left


def _from_few(packing: TrialPacking, allowance: Mapping[int, int], count: int) -> dict[int, int]:
    """The allowance of as few jobs as can give that many, those that lose trainers anyway first: fewer resizes."""
    losing = {packing.problem.live_trainers[i].demand for i in packing.victims}
    chosen: dict[int, int] = {}
    for d in sorted(allowance, key=lambda d: (d not in losing, -allowance[d], packing.problem.demands[d].job.key)):
        if sum(chosen.values()) >= count:
            break
        chosen[d] = allowance[d]
    return chosen


def _can_spare(packing: TrialPacking, d: int, goal: float) -> int:
    """How many trainers a job can lose and still be at the goal and at its minimum."""
    spare = 0
    while (
        packing.count[d] - spare > packing.problem.demands[d].min_trainers
        and packing.fulfilment(d, -spare - 1) >= goal - EPSILON
    ):
        spare += 1
    return spare
