"""Takes trainers from some jobs so that others grow: which to delete, for whom, and which restarts to avoid.

`sharing` and `trading` decide what to take. A function that is given a packing changes it; if it returns that nothing
could be done, it leaves the packing unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edl.model.names import Role
from edl.planner.packing import PodBatch, has_load_left, place_batch
from edl.planner.packing import place as place_pod
from edl.planner.scores import EPSILON
from edl.planner.trial_packing import SERVING, Placed, TrialPacking
from edl.planner.waits import is_arriving, restrain

MAX_TRIES = 64


@dataclass(frozen=True, slots=True)
class Terms:
    """The targets of a division: what each job should get, and what other jobs may lose for it.

    Attributes:
        ceiling: the most trainers that each member may have now.
        fair_share: the fair share that each member must be able to have, in whole trainers: its fair share, or the
            floor below it.
    """

    ceiling: Mapping[int, int]
    fair_share: Mapping[int, int]


def has_arrivals(packing: TrialPacking) -> bool:
    """True if a job of the plan was just admitted and may still claim its whole share."""
    now_s = packing.problem.snapshot.observed_at_s
    return any(is_arriving(packing.problem.demands[j].job, now_s) for j in packing.members)


def is_at_rest(packing: TrialPacking) -> bool:
    """True if no trainer is deleted for serving now and none is terminating, except for those that linger."""
    snapshot = packing.problem.snapshot
    return not packing.for_serving and not any(
        p.terminating and p.role is Role.TRAINER and not p.lingers(snapshot.observed_at_s)
        for job in snapshot.jobs
        if not job.is_left_alone
        for p in job.pods
    )


def givers(packing: TrialPacking, *, admits: bool) -> dict[int, int]:
    """By job that may lose trainers to others, the fewest live trainers that it must keep, which is 0 here.

    In the plan that admits a job, every job may; else only jobs that are out of their cooldown.
    """
    now_s = packing.problem.snapshot.observed_at_s
    restrained = frozenset() if admits else restrain(packing.problem.snapshot.jobs, now_s)
    return {j: 0 for j in packing.members if packing.problem.demands[j].job.key not in restrained}


def kept(packing: TrialPacking, d: int) -> int:
    """Return how many live trainers of the job with index `d` the packing leaves on their nodes."""
    own = packing.problem.demands[d].live_trainers
    return int((packing.node_of[own.start : own.stop] >= 0).sum())


def deletion_order(packing: TrialPacking, d: int) -> list[int]:
    """The live trainers of a job that count, in the order in which a plan would delete them."""
    gone = {*packing.victims, *packing.without_node[d]}
    return sorted(
        (i for i in packing.problem.demands[d].live_trainers if i not in gone),
        key=lambda i: packing.problem.live_trainers[i].order,
    )


def movable_trainers(packing: TrialPacking, before: TrialPacking) -> Counter[int]:
    """Count by job the trainers that are deleted on one node and started on another, so that they only change nodes.

    Args:
        packing: the packing to judge.
        before: an earlier packing, whose victims do not count.
    """
    deleted = Counter(packing.problem.live_trainers[i].demand for i in set(packing.victims) - set(before.victims))
    new = Counter(place.owner for place in packing.placed if place.role is Role.TRAINER)
    return +Counter({d: min(n, new[d]) for d, n in deleted.items()})


def undo_restarts(packing: TrialPacking) -> TrialPacking:
    """Take victims back whose job gets a new trainer elsewhere, if the new pods on their node can go somewhere else.

    Only pods that do not exist yet change nodes, so nobody loses anything. Deletions for serving stay: kube-scheduler
    decides where serving pods go.

    Args:
        packing: the packing; not changed.

    Returns:
        The packing with fewer restarts.
    """
    demands, live_trainers = packing.problem.demands, packing.problem.live_trainers
    tries, started = 0, _started_trainers(packing)
    for index in sorted(
        set(packing.victims) - packing.for_serving, key=lambda i: live_trainers[i].order, reverse=True
    ):
        j = live_trainers[index].demand
        if live_trainers[index].node < 0 or packing.count[j] > demands[j].max_trainers:
            continue
        for place in started.get(j, ()):
            tries += 1
            if tries > MAX_TRIES:
                return packing
            if (without := _without_restart(packing, index, place)) is not None:
                packing, started = without, _started_trainers(without)
                break
    return packing


def _started_trainers(packing: TrialPacking) -> Mapping[int, Sequence[Placed]]:
    """The places of new trainers by job, in the order in which the packing has placed them."""
    found: dict[int, list[Placed]] = {}
    for place in packing.placed:
        if place.role is Role.TRAINER:
            found.setdefault(place.owner, []).append(place)
    return found


def _without_restart(packing: TrialPacking, index: int, place: Placed) -> TrialPacking | None:
    """The packing in which a victim keeps running and a new trainer of its job is dropped; None if it does not fit.

    Args:
        packing: the packing; not changed.
        index: the victim, a live trainer.
        place: the new trainer of the same job.
    """
    trial, trainer = packing.copy(), packing.problem.live_trainers[index]
    trial.drop(place)
    for other in sorted((p for p in trial.placed if p.node == trainer.node), key=lambda p: -p.shape):
        if trial.has_capacity(trainer.shape, trainer.node):
            break
        if other.owner == SERVING:
            continue
        slots = trial.slots(other.shape)
        slots[trainer.node] = 0
        if slots[place.node] or slots.any():
            trial.drop(other)
            place_pod(
                trial,
                other.shape,
                (other.owner, other.role),
                place.node if slots[place.node] else int(slots.argmax()),
            )
    if not trial.has_capacity(trainer.shape, trainer.node):
        return None
    trial.undelete(index)
    return trial


def take_fair_shares(packing: TrialPacking, terms: Terms, keep: Mapping[int, int]) -> TrialPacking:
    """Raise jobs below their fair share at the cost of jobs above theirs, the lowest fulfilment first.

    Args:
        packing: the packing; it may be changed, only the result counts.
        terms: what the sharing aims at.
        keep: the members that may lose trainers, and how many of its live trainers each must keep.

    Returns:
        The packing.
    """
    demands = packing.problem.demands
    owners: dict[int, list[tuple[float, int]]] = {}
    for j in packing.members:
        if demands[j].quota_uses:
            continue  # `take_one` checks what its queue has left, trainer by trainer
        for count in range(packing.count[j], min(terms.fair_share[j], terms.ceiling[j])):
            owners.setdefault(demands[j].shape, []).append((demands[j].fulfilment(count), j))
    for shape in sorted(owners, key=lambda s: min(owners[s])):
        batch = PodBatch(shape, tuple((j, Role.TRAINER) for _, j in sorted(owners[shape])))
        allowance = _allowed(packing, keep, {d: packing.count[d] - terms.fair_share[d] for d in keep})
        few = packing.copy()
        if place_batch(few, batch, _from_few(packing, allowance, len(batch.owners))) == len(batch.owners):
            packing = few
        else:
            place_batch(packing, batch, allowance)
    return packing


def take_one(packing: TrialPacking, j: int, terms: Terms, keep: Mapping[int, int]) -> bool:
    """Place one more trainer of a job below its fair share by evicting trainers of others.

    A member may lose what is above its own promise, and what leaves it at least as well off as the first one becomes.

    Args:
        packing: the packing; changed if it succeeds.
        j: the member that gets a trainer.
        terms: what the sharing aims at.
        keep: the members that may lose trainers, and how many of its live trainers each must keep.

    Returns:
        True if the member got a trainer.
    """
    goal = packing.fulfilment(j, 1)
    most = {d: max(packing.count[d] - terms.fair_share[d], _can_spare(packing, d, goal)) for d in keep if d != j}
    allowance = _allowed(packing, keep, most)
    return any(allowance.values()) and give_one(packing, j, allowance)


def give_one(packing: TrialPacking, j: int, allowance: Mapping[int, int]) -> bool:
    """Place one more trainer of a job by deleting others; if its quota is used up, trainers of its own queue.

    Args:
        packing: the packing; changed if it succeeds.
        j: the member that gets a trainer.
        allowance: how many trainers of each member may be deleted.

    Returns:
        True if the member got a trainer.
    """
    shape = packing.problem.demands[j].shape
    if not has_load_left(packing, shape):
        return False
    batch = PodBatch(shape, ((j, Role.TRAINER),))
    if packing.meter().quota_shortage(j) is None:
        return place_batch(packing, batch, allowance) > 0
    trial = packing.copy()
    if (left := _free_quota(trial, j, allowance)) is None or not place_batch(trial, batch, left):
        return False
    left = _free_quota(packing, j, allowance) or {}
    return place_batch(packing, batch, left) > 0


def allowed_beyond(packing: TrialPacking, keep: Mapping[int, int], least: Mapping[int, int]) -> dict[int, int]:
    """How many trainers each job may lose so that it still has its least count.

    Args:
        packing: the packing.
        keep: the members that may lose trainers, and how many of its live trainers each must keep.
        least: how many trainers each of them must still have, new ones included.
    """
    return _allowed(packing, keep, {d: packing.count[d] - least[d] for d in keep})


def _allowed(packing: TrialPacking, keep: Mapping[int, int], most: Mapping[int, int]) -> dict[int, int]:
    """Limit what each job may lose to the live trainers that it can spare; jobs that can spare none are left out."""
    allowance = {d: min(n, kept(packing, d) - keep[d]) for d, n in most.items() if n > 0}
    return {d: n for d, n in allowance.items() if n > 0}


def _free_quota(packing: TrialPacking, j: int, allowance: Mapping[int, int]) -> dict[int, int] | None:
    """Delete trainers of the same queue, of the best-off job first, until its quota allows the job one more.

    Returns:
        What is left of the allowance; None if it is not enough.
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
        live_trainers = (i for i in demands[giver].live_trainers if packing.node_of[i] >= 0)
        packing.delete(min(live_trainers, key=lambda i: packing.problem.live_trainers[i].order))
        left[giver] -= 1
    return left


def _from_few(packing: TrialPacking, allowance: Mapping[int, int], count: int) -> dict[int, int]:
    """Choose as few jobs as possible that can lose `count` trainers together, so that few jobs are resized.

    Jobs that lose trainers anyway come first.
    """
    losing = {packing.problem.live_trainers[i].demand for i in packing.victims}
    chosen: dict[int, int] = {}
    for d in sorted(allowance, key=lambda d: (d not in losing, -allowance[d], packing.problem.demands[d].job.key)):
        if sum(chosen.values()) >= count:
            break
        chosen[d] = allowance[d]
    return chosen


def _can_spare(packing: TrialPacking, d: int, goal: float) -> int:
    """How many trainers a job can lose and still have its minimum and the fulfilment `goal`."""
    spare = 0
    while (
        packing.count[d] - spare > packing.problem.demands[d].min_trainers
        and packing.fulfilment(d, -spare - 1) >= goal - EPSILON
    ):
        spare += 1
    return spare
