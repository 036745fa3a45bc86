"""Preferred nodes: new pods move to nodes that they prefer, if no other pod loses by it.

kube-scheduler scores nodes by preferred affinity and by PreferNoSchedule taints. This stage runs once the counts of a
plan are final. A pod moves to a better node only into capacity that is free already, and only if other pods lose no
more slots than before. Or it swaps nodes with a pod of the same shape. So a preference never costs a slot, and shapes
need not differ by it. kube-scheduler alone decides which node a serving pod gets.

Source: https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins (NodeAffinity, TaintToleration)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.resources import Preference
from edl.planner.eligibility import AVOIDING_EFFECT, Eligibility, count_avoided
from edl.planner.problem import BoolArray, IntArray, Problem
from edl.planner.trial_packing import Placed, TrialPacking
from edl.planner.victims import lost_slots

AFFINITY_WEIGHT, TAINT_WEIGHT = 2, 3  # of the two scores, each 0 to 100, as in kube-scheduler's default profile
WORK_LIMIT = 25_000_000  # units of work, about half a second
SCORING, COMPARING = 20, 1  # units for each node: to score it for a preference; to compare its score
COMPARED = 256  # at most so many nodes of equal score are compared by the slots that a pod costs there

Group = tuple[int, Role]
"""The pods of one role of one job, by index of the job."""


@dataclass(slots=True)
class _Scores:
    """The score of each node for each group: 0 for the worst node that is open to it, at most 500.

    A closed node scores no higher than the worst open one. A group to which all nodes are equal has no scores.

    Attributes:
        problem: the nodes and shapes.
        judge: reads the labels of the nodes, each once.
        work: units of work that are left.
        of: (nodes,) the scores of each group.
        tainted: indices of nodes with a PreferNoSchedule taint.
        by_key: (nodes,) scores by shape and preferences, which groups may share.
    """

    problem: Problem
    judge: Eligibility
    work: int
    of: dict[Group, IntArray] = field(default_factory=dict)
    tainted: list[int] = field(default_factory=list)
    by_key: dict[tuple[int, tuple[Preference, ...]], IntArray] = field(default_factory=dict)

    def learn(self, group: Group, shape: int, preferred: tuple[Preference, ...]) -> None:
        """Score the nodes for a group, unless no work is left or all nodes are equal to it."""
        key = (shape, preferred)
        if key not in self.by_key:
            if not self.affords(SCORING * len(self.problem.snapshot.nodes)):
                return
            self.by_key[key] = self._score(shape, preferred)
        if self.by_key[key].any():
            self.of[group] = self.by_key[key]

    def affords(self, work: int) -> bool:
        """Spend units of work; False if there are not so many left."""
        self.work -= work
        return self.work >= 0

    def _score(self, shape: int, preferred: tuple[Preference, ...]) -> IntArray:
        """(nodes,) the score of each node for pods of one shape with these preferences."""
        opened = self.problem.opened[shape]
        tolerations = self.problem.shapes[shape].placement.tolerations
        avoided = np.zeros(len(opened), dtype=np.int64)
        for node in self.tainted:
            avoided[node] = count_avoided(self.problem.snapshot.nodes[node], tolerations) * opened[node]
        wanted = _percent(self.judge.weigh(preferred) * opened)
        score: IntArray = (AFFINITY_WEIGHT * wanted + TAINT_WEIGHT * (100 - _percent(avoided))) * opened
        return score - score[opened].min() if opened.any() else score


def follow_preferences(packing: TrialPacking, *, work: int = WORK_LIMIT) -> None:
    """Move pods that do not exist yet to nodes that they prefer; counts do not change.

    Args:
        packing: a finished packing; it is changed.
        work: units of work, one for each node that is compared; pods that are left when it is spent do not move.
    """
    scores = _read_scores(packing, work)
    if scores.of:
        half, scores.work = scores.work // 2, scores.work - scores.work // 2
        _swap(packing, scores)
        scores.work = half + max(0, scores.work)
        _move(packing, scores)


def _read_scores(packing: TrialPacking, work: int) -> _Scores:
    """Score the nodes for each group of new pods."""
    nodes = packing.problem.snapshot.nodes
    tainted = [n for n, node in enumerate(nodes) if any(t.effect == AVOIDING_EFFECT for t in node.taints)]
    shapes: dict[Group, int] = {(p.owner, p.role): p.shape for p in packing.placed if p.owner >= 0 and p.role}
    preferred = {group: _preferences(packing.problem.demands[group[0]].job, group[1]) for group in sorted(shapes)}
    differing = [group for group, wishes in preferred.items() if wishes or tainted]
    scores = _Scores(packing.problem, Eligibility(nodes if differing else ()), work, tainted=tainted)
    for group in differing:
        with packing.problem.clock.charge((group[0],)):
            scores.learn(group, shapes[group], preferred[group])
    return scores


def _preferences(job: Job, role: Role) -> tuple[Preference, ...]:
    """The preferred affinity of the pods of a job in one role."""
    if role is Role.TRAINER:
        return job.preferred
    return next((fixed.preferred for fixed in job.fixed if fixed.role is role), ())


def _percent(amounts: IntArray) -> IntArray:
    """Scale amounts so that the largest is 100."""
    scaled: IntArray = amounts * 100 // max(1, int(amounts.max(initial=0)))
    return scaled


def _group(place: Placed) -> Group:
    """The group that a new pod of a job belongs to."""
    return place.owner, place.role or Role.TRAINER


def _move(packing: TrialPacking, scores: _Scores) -> None:
    """Move pods into free capacity, the worst placed of each group first."""
    groups: dict[Group, list[int]] = {}
    for number, place in enumerate(packing.placed):
        if _group(place) in scores.of:
            groups.setdefault(_group(place), []).append(number)
    everywhere = np.arange(len(packing.free))
    fits = {
        shape: _fits(packing, shape, everywhere)
        for shape in {packing.placed[n].shape for g in groups.values() for n in g}
    }
    for group, numbers in sorted(groups.items()):
        score = scores.of[group]
        for number in sorted(numbers, key=lambda n: (score[packing.placed[n].node], n)):
            before = packing.placed[number]
            if not scores.affords(COMPARING * len(score)):
                return
            better = np.flatnonzero((score > score[before.node]) & fits[before.shape])
            if not len(better):
                break
            node = _node_at_no_cost(packing, before, better, score)
            if node >= 0:
                packing.move(number, node)
                changed = np.array([before.node, node], dtype=np.int64)
                for shape, there in fits.items():
                    there[changed] = _fits(packing, shape, changed)


def _fits(packing: TrialPacking, shape: int, nodes: IntArray) -> BoolArray:
    """(nodes,) True if one more pod of the shape fits into capacity that is free already."""
    request = packing.problem.request[shape]
    has_room: BoolArray = (np.minimum(packing.free[nodes], packing.now[nodes]) >= request)[:, request > 0].all(axis=1)
    return has_room


def _node_at_no_cost(packing: TrialPacking, place: Placed, nodes: IntArray, score: IntArray) -> int:
    """The best-scored of some nodes where a pod costs others no more slots than it does now; -1 if there is none."""
    source, shape = np.array([place.node], dtype=np.int64), place.shape
    packing.free[source] += packing.problem.request[shape]
    spared = lost_slots(packing, shape, source, 1)[0]
    packing.free[source] -= packing.problem.request[shape]
    for level in np.unique(score[nodes])[::-1]:
        alike = nodes[score[nodes] == level][:COMPARED]
        lost = lost_slots(packing, shape, alike, 1)
        if lost.min() <= spared:
            return int(alike[lost.argmin()])
    return -1


def _swap(packing: TrialPacking, scores: _Scores) -> None:
    """Let pods of one shape swap nodes if their scores together become better."""
    by_shape: dict[int, list[int]] = {}
    for number, place in enumerate(packing.placed):
        if place.owner >= 0:
            by_shape.setdefault(place.shape, []).append(number)
    for _, numbers in sorted(by_shape.items()):
        groups = sorted({_group(packing.placed[n]) for n in numbers})
        if len(groups) > 1 and any(group in scores.of for group in groups):
            _swap_alike(packing, numbers, groups, scores)


def _swap_alike(packing: TrialPacking, numbers: list[int], groups: list[Group], scores: _Scores) -> None:
    """Let pods of one shape swap nodes.

    Args:
        packing: the packing; it is changed.
        numbers: positions of the pods in `packing.placed`.
        groups: their groups, sorted.
        scores: the scores of the groups.
    """
    nodes, here = np.unique([packing.placed[n].node for n in numbers], return_inverse=True)
    if not scores.affords(len(groups) * len(nodes)):
        return
    row: Mapping[Group, int] = {group: k for k, group in enumerate(groups)}
    score = np.zeros((len(groups), len(nodes)), dtype=np.int64)
    for group in groups:
        if group in scores.of:
            score[row[group]] = scores.of[group][nodes]
    group_of = np.array([row[_group(packing.placed[n])] for n in numbers])
    late = (packing.now[nodes] < 0).any(axis=1)
    for p in range(len(numbers)):
        has = score[group_of, here]
        if has[p] >= score[group_of[p]].max():
            continue
        if not scores.affords(len(numbers)):
            return
        gain = score[group_of[p], here] - has[p] + score[group_of, here[p]] - has
        gain[late[here] != late[here[p]]] = 0
        q = int(gain.argmax())
        if gain[q] > 0:
            here[p], here[q] = here[q], here[p]
            for k in (p, q):
                packing.move(numbers[k], int(nodes[here[k]]))
