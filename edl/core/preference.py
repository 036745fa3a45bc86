"""Preferred nodes: new pods move to nodes that they would rather have, where that costs nobody anything.

kube-scheduler scores nodes by preferred affinity and by PreferNoSchedule taints. The counts of a plan are settled
before these are looked at: a pod moves to a better node only into room that is free there, at no more lost room for
others and no later, or it changes places with a pod of the same shape. So a preference never costs a slot, and shapes
need not be told apart by it. Which node a serving pod gets is for kube-scheduler to say.

Source: https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins (NodeAffinity, TaintToleration)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edl.core.capacity import IntArray, World
from edl.core.eligibility import AVOIDING_EFFECT, add_weights, count_avoided
from edl.core.model import Job, Preference, Role
from edl.core.room import Placed, Room
from edl.core.victims import lost_slots

AFFINITY_WEIGHT, TAINT_WEIGHT = 2, 3  # of the two scores, each 0 to 100, as in kube-scheduler's default profile
WORK_LIMIT = 5_000_000

Group = tuple[int, Role]
"""The pods of one role of one member."""


@dataclass(slots=True)
class _Scores:
    """How welcome each node is to each group: (nodes,) 0 for the least welcome node that is open to it, at most 500.

    A closed node is no more welcome than the least welcome open one. Groups that are indifferent have no scores.

    Attributes:
        work: nodes that may still be looked at.
        labels: of each node, read once.
        known: by shape and preferences.
    """

    world: World
    work: int
    of: dict[Group, IntArray] = field(default_factory=dict)
    labels: list[dict[str, str]] = field(default_factory=list)
    known: dict[tuple[int, tuple[Preference, ...]], IntArray] = field(default_factory=dict)

    def learn(self, group: Group, shape: int, preferred: tuple[Preference, ...]) -> None:
        """Score the nodes for a group, unless the time for it is over or all of them are the same to it."""
        key = (shape, preferred)
        if key not in self.known:
            if not self.affords(len(self.world.snapshot.nodes)):
                return
            self.known[key] = self._score(shape, preferred)
        if self.known[key].any():
            self.of[group] = self.known[key]

    def affords(self, nodes: int) -> bool:
        """Take that much off the work that is left; False where it is too much."""
        self.work -= nodes
        return self.work >= 0

    def _score(self, shape: int, preferred: tuple[Preference, ...]) -> IntArray:
        opened = self.world.opened[shape]
        tolerations = self.world.shapes[shape].placement.tolerations
        nodes = self.world.snapshot.nodes
        avoided = np.array([count_avoided(node, tolerations) for node in nodes], dtype=np.int64) * opened
        wanted = self._weigh(preferred) * opened
        score: IntArray = AFFINITY_WEIGHT * _percent(wanted) + TAINT_WEIGHT * (100 - _percent(avoided))
        score = score * opened
        return score - score[opened].min() if opened.any() else score

    def _weigh(self, preferred: tuple[Preference, ...]) -> IntArray:
        """(nodes,) weights that are met; nodes whose labels in question are the same are asked once."""
        nodes = self.world.snapshot.nodes
        if not self.labels:
            self.labels = [dict(node.labels) for node in nodes]
        keys = sorted({r.key for _, term in preferred for r in term.expressions})
        by_name = any(term.fields for _, term in preferred)
        asked: dict[tuple[str | None, ...], int] = {}
        weights = []
        for node, labels in zip(nodes, self.labels, strict=True):
            kind = (node.name if by_name else None, *map(labels.get, keys))
            if kind not in asked:
                asked[kind] = add_weights(preferred, labels, {"metadata.name": node.name})
            weights.append(asked[kind])
        return np.array(weights, dtype=np.int64)


def follow_preferences(room: Room, *, work: int = WORK_LIMIT) -> None:
    """Move pods that do not exist yet to nodes that they prefer; the room is changed, its counts are not.

    Args:
        room: a finished packing.
        work: how many nodes may be looked at in all; a pod for which nothing is left of it stays where it is.
    """
    scores = _read_scores(room, work)
    if scores.of:
        _move(room, scores)
        _swap(room, scores)


def _read_scores(room: Room, work: int) -> _Scores:
    scores = _Scores(room.world, work)
    taints = any(t.effect == AVOIDING_EFFECT for node in room.world.snapshot.nodes for t in node.taints)
    shapes: dict[Group, int] = {(p.owner, p.role): p.shape for p in room.placed if p.owner >= 0 and p.role}
    for group, shape in sorted(shapes.items()):
        preferred = _preferences(room.world.claims[group[0]].job, group[1])
        if preferred or taints:
            scores.learn(group, shape, preferred)
    return scores


def _preferences(job: Job, role: Role) -> tuple[Preference, ...]:
    if role is Role.TRAINER:
        return job.preferred
    return next((fixed.preferred for fixed in job.fixed if fixed.role is role), ())


def _percent(amounts: IntArray) -> IntArray:
    """0 to 100 of the largest."""
    scaled: IntArray = amounts * 100 // max(1, int(amounts.max(initial=0)))
    return scaled


def _group(place: Placed) -> Group:
    return place.owner, place.role or Role.TRAINER


def _move(room: Room, scores: _Scores) -> None:
    """Move pods into free room, the worst placed of each group first."""
    groups: dict[Group, list[int]] = {}
    for number, place in enumerate(room.placed):
        if _group(place) in scores.of:
            groups.setdefault(_group(place), []).append(number)
    for group, numbers in sorted(groups.items()):
        score = scores.of[group]
        for number in sorted(numbers, key=lambda n: (score[room.placed[n].node], n)):
            if not _move_one(room, number, scores):
                break


def _move_one(room: Room, number: int, scores: _Scores) -> bool:
    """Move one pod, if it can be; False where no better node has room for it, nor would for a better placed one."""
    place, score = room.placed[number], scores.of[_group(room.placed[number])]
    request, source = room.world.request[place.shape], place.node
    if not scores.affords(len(score)):
        return False
    has_room = (np.minimum(room.free, room.now) >= request)[:, request > 0].all(axis=1)
    better = np.flatnonzero((score > score[source]) & has_room)
    if not len(better):
        return False
    room.free[source] += request
    lost = lost_slots(room, place.shape, np.append(better, source), 1)
    room.free[source] -= request
    harmless = lost[:-1] <= lost[-1]
    if harmless.any():
        nodes, cost = better[harmless], lost[:-1][harmless]
        room.move(number, int(nodes[np.lexsort((nodes, cost, -score[nodes]))[0]]))
    return True


def _swap(room: Room, scores: _Scores) -> None:
    """Let pods of one shape change places where that is better for them together."""
    by_shape: dict[int, list[int]] = {}
    for number, place in enumerate(room.placed):
        if place.owner >= 0:
            by_shape.setdefault(place.shape, []).append(number)
    for _, numbers in sorted(by_shape.items()):
        groups = sorted({_group(room.placed[n]) for n in numbers})
        if len(groups) > 1 and any(group in scores.of for group in groups):
            _swap_alike(room, numbers, groups, scores)


def _swap_alike(room: Room, numbers: list[int], groups: list[Group], scores: _Scores) -> None:
    nodes, here = np.unique([room.placed[n].node for n in numbers], return_inverse=True)
    if not scores.affords(len(groups) * len(nodes)):
        return
    row: Mapping[Group, int] = {group: k for k, group in enumerate(groups)}
    welcome = np.zeros((len(groups), len(nodes)), dtype=np.int64)
    for group in groups:
        if group in scores.of:
            welcome[row[group]] = scores.of[group][nodes]
    who = np.array([row[_group(room.placed[n])] for n in numbers])
    late = (room.now[nodes] < 0).any(axis=1)
    for p in range(len(numbers)):
        has = welcome[who, here]
        if has[p] >= welcome[who[p]].max():
            continue
        if not scores.affords(len(numbers)):
            return
        gain = welcome[who[p], here] - has[p] + welcome[who, here[p]] - has
        gain[late[here] != late[here[p]]] = 0
        q = int(gain.argmax())
        if gain[q] > 0:
            here[p], here[q] = here[q], here[p]
            for k in (p, q):
                room.move(numbers[k], int(nodes[here[k]]))
