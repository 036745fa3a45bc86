"""Preferred nodes: new pods move to nodes that they prefer, if no other pod loses by it.

kube-scheduler scores nodes by preferred affinity and by PreferNoSchedule taints. This stage runs once the counts of a
plan are final. A pod moves to a better node only into capacity that is free already, and only if other pods lose no
more slots than before. Or it swaps nodes with a pod of the same shape. So a preference never costs a slot, and shapes
need not differ by it. kube-scheduler alone decides which node a serving pod gets.

One job can have thousands of pods and as many scores as there are nodes. So pods move from node to node in batches,
the clock is asked before each, and the groups with fewest pods come first: a large one holds up no other job. What is
left when the work or the time is spent stays where it is.

Source: https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins (NodeAffinity, TaintToleration)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.resources import Preference
from edl.planner.eligibility import AVOIDING_EFFECT, Eligibility, count_avoided
from edl.planner.problem import BoolArray, IntArray, Problem, count_slots
from edl.planner.trial_packing import Placed, TrialPacking
from edl.planner.victims import lost_slots

AFFINITY_WEIGHT, TAINT_WEIGHT = 2, 3  # of the two scores, each 0 to 100, as in kube-scheduler's default profile
WORK_LIMIT = 25_000_000  # units of work, about half a second
SCORING, READING = 20, 4  # units for each node: to score it for a group, and to read one expression there
JUDGING = 10  # units for each node and each reference shape: to count the slots that a pod costs there
TRYING, COMPARING = 2_000, 4  # units for one move: for each reference shape, and for each node
SWAPPING, MOVING = (
    2_000,
    25,
)  # units for one swap, beside one for each pair of group and node; and for a pod that moves

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
            listed = sum(len(wish.term.expressions) + len(wish.term.fields) for wish in preferred)
            if not self.affords((SCORING + READING * listed) * len(self.problem.snapshot.nodes)):
                return
            self.by_key[key] = self._score(shape, preferred)
        if self.by_key[key].any():
            self.of[group] = self.by_key[key]

    def affords(self, work: int) -> bool:
        """Spend units of the work budget; False if it does not suffice, or if the time is over."""
        if self.problem.clock.is_over:
            self.problem.clock.cut_short("preferences")
            return False
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
        work: units of work, about 20 ns each; pods that are left when it is spent do not move.
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
    pods = Counter((place.owner, place.role) for place in packing.placed)
    in_turn = sorted(shapes, key=lambda group: (pods[group], group))
    preferred = {group: _preferences(packing.problem.demands[group[0]].job, group[1]) for group in in_turn}
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
    """The group of equal pods of a new pod: its owner (a job, or serving) and its role."""
    return place.owner, place.role or Role.TRAINER


def _move(packing: TrialPacking, scores: _Scores) -> None:
    """Move new pods to preferred nodes with free capacity: smallest group first, worst placed pods of each first."""
    groups: dict[Group, list[int]] = {}
    for number, place in enumerate(packing.placed):
        if _group(place) in scores.of:
            groups.setdefault(_group(place), []).append(number)
    for group, numbers in sorted(groups.items(), key=lambda item: (len(item[1]), item[0])):
        if not scores.affords(JUDGING * len(packing.free) * len(packing.problem.reference)):
            return
        _move_group(packing, numbers, scores.of[group], scores)


def _move_group(packing: TrialPacking, numbers: list[int], score: IntArray, scores: _Scores) -> None:
    """Move the pods of one group, all that go from one node to another at once.

    Args:
        packing: the packing; it is changed.
        numbers: positions of the pods in `packing.placed`.
        score: (nodes,) of the group.
        scores: counts the work.
    """
    by_node: dict[int, list[int]] = {}
    for number in numbers:
        by_node.setdefault(packing.placed[number].node, []).append(number)
    preferred = _PreferredNodes.of(packing, packing.placed[numbers[0]].shape, score)
    work = TRYING * (1 + len(packing.problem.reference)) + COMPARING * len(score)
    for source in sorted(by_node, key=lambda node: (score[node], node)):
        waiting = by_node[source]
        while waiting:
            better = preferred.better_than(source)
            if not len(better) or not scores.affords(work + MOVING * len(waiting)):
                return
            spared = preferred.spared(source, len(waiting))
            node = preferred.best(better, int(spared[0]))
            if node < 0:
                break
            count = preferred.move(waiting, node, spared)
            del waiting[:count]


@dataclass(frozen=True, slots=True)
class _PreferredNodes:
    """The nodes with their scores and slots for one group of pods, updated while the pods move.

    Attributes:
        packing: the packing; it is changed.
        shape: index of the pods' shape.
        score: (nodes,) of the group.
        fits: (nodes,) how many more pods fit into capacity that is free already.
        lost: (nodes,) slots that other pods lose by one more pod there.
    """

    packing: TrialPacking
    shape: int
    score: IntArray
    fits: IntArray
    lost: IntArray

    @classmethod
    def of(cls, packing: TrialPacking, shape: int, score: IntArray) -> _PreferredNodes:
        """Read the scores and slots of all nodes."""
        everywhere = np.arange(len(packing.free))
        return cls(
            packing, shape, score, _fits(packing, shape, everywhere), lost_slots(packing, shape, everywhere, 1)
        )

    def better_than(self, source: int) -> IntArray:
        """The nodes with capacity that have a better score than this one."""
        return np.flatnonzero((self.score > self.score[source]) & (self.fits > 0))

    def spared(self, source: int, count: int) -> IntArray:
        """Return (count,) the slots that others gain when the first pod leaves a node, the second one, and so on."""
        request = self.packing.problem.request[self.shape]
        self.packing.free[source] += count * request
        gained = self._lost_by_each(source, count)[::-1]
        self.packing.free[source] -= count * request
        return gained

    def best(self, nodes: IntArray, spared: int) -> int:
        """Return the node with the best score at which a pod takes at most `spared` slots from other pods.

        -1 if there is none.
        """
        costless = nodes[self.lost[nodes] <= spared]
        if not len(costless):
            return -1
        alike = costless[self.score[costless] == self.score[costless].max()]
        return int(alike[self.lost[alike].argmin()])

    def move(self, numbers: list[int], node: int, spared: IntArray) -> int:
        """Move the first of some pods from their node to a better one, while it stays the best one for the next pod.

        Args:
            numbers: positions of the pods in `packing.placed`.
            node: their best node.
            spared: (pods,) what others gain by each that leaves.

        Returns:
            How many were moved, at least one.
        """
        most, source = min(len(numbers), int(self.fits[node])), self.packing.placed[numbers[0]].node
        lost = self._lost_by_each(node, most + 1)
        stays_best = (lost[:most] <= spared[:most]) & (lost[:most] <= lost[0])
        count = most if stays_best.all() else int(stays_best.argmin())
        self.packing.move(numbers[:count], node)
        self.lost[source], self.lost[node] = spared[count - 1], lost[count]
        changed = np.array([source, node], dtype=np.int64)
        self.fits[changed] = _fits(self.packing, self.shape, changed)
        return count

    def _lost_by_each(self, node: int, count: int) -> IntArray:
        """(count,) the slots that others lose by one more pod on a node, by the next one, and so on."""
        same = np.full(count + 1, node, dtype=np.int64)
        lost: IntArray = np.diff(lost_slots(self.packing, self.shape, same, np.arange(count + 1)))
        return lost


def _fits(packing: TrialPacking, shape: int, nodes: IntArray) -> IntArray:
    """(nodes,) how many more pods of the shape fit into capacity that is free already."""
    return count_slots(np.minimum(packing.free[nodes], packing.now[nodes]), packing.problem.request[shape])


def _swap(packing: TrialPacking, scores: _Scores) -> None:
    """Let pods of one shape swap nodes if their scores together become better."""
    by_shape: dict[int, list[int]] = {}
    for number, place in enumerate(packing.placed):
        if place.owner >= 0:
            by_shape.setdefault(place.shape, []).append(number)
    for _, numbers in sorted(by_shape.items(), key=lambda item: (len(item[1]), item[0])):
        groups = sorted({_group(packing.placed[n]) for n in numbers})
        if len(groups) > 1 and any(group in scores.of for group in groups):
            _swap_alike(packing, numbers, groups, scores)


def _swap_alike(packing: TrialPacking, numbers: list[int], groups: list[Group], scores: _Scores) -> None:
    """Let pods of one shape swap nodes: of two groups, as many pods at once as gain equally.

    Args:
        packing: the packing; it is changed.
        numbers: positions of the pods in `packing.placed`.
        groups: their groups, sorted.
        scores: the scores of the groups.
    """
    nodes = sorted({packing.placed[n].node for n in numbers})
    if not scores.affords(len(groups) * len(nodes)):
        return
    cells, k = _Cells(packing, numbers, groups, nodes, scores.of), 0
    while k < cells.length:
        if cells.is_content(k):
            k += 1
        elif not scores.affords(SWAPPING + cells.length + 2 * MOVING * len(cells.pods[k])):
            return
        elif (other := cells.best_for(k)) >= 0:
            cells.swap(k, other)
        else:
            k += 1


class _Cells:
    """The pods of one shape, in cells: a cell has the pods of one group on one node, which swaps treat as equal.

    Attributes:
        length: how many cells there are.
        pods: positions in `packing.placed`, by cell.
    """

    def __init__(
        self,
        packing: TrialPacking,
        numbers: list[int],
        groups: list[Group],
        nodes: list[int],
        scores: Mapping[Group, IntArray],
    ) -> None:
        self._packing, self._nodes = packing, nodes
        self._late: BoolArray = (packing.now[np.array(nodes)] < 0).any(axis=1)
        self._score = np.zeros((len(groups), len(nodes)), dtype=np.int64)
        for row, group in enumerate(groups):
            if group in scores:
                self._score[row] = scores[group][nodes]
        self._top = self._score.max(axis=1)
        self._cell = np.full(self._score.shape, -1, dtype=np.int64)
        self._row, self._column, self._has, self._size = np.zeros((4, self._score.size), dtype=np.int64)
        self.length, self.pods = 0, list[list[int]]()
        rows, columns = ({one: k for k, one in enumerate(each)} for each in (groups, nodes))
        for number in numbers:
            place = packing.placed[number]
            self._add([number], rows[_group(place)], columns[place.node])

    def is_content(self, k: int) -> bool:
        """True if a cell is empty, or no node has a better score for its group."""
        return not self.pods[k] or bool(self._has[k] >= self._top[self._row[k]])

    def best_for(self, k: int) -> int:
        """The cell with which a swap gains most; -1 if none gains."""
        row, column, has = self._row[: self.length], self._column[: self.length], self._has[: self.length]
        gain = self._score[row[k], column] - has[k] + self._score[row, column[k]] - has
        gain[(self._late[column] != self._late[column[k]]) | (self._size[: self.length] == 0)] = 0
        best = int(gain.argmax())
        return best if gain[best] > 0 else -1

    def swap(self, k: int, other: int) -> None:
        """Let as many pods of two cells as possible change places."""
        count = min(len(self.pods[k]), len(self.pods[other]))
        left, right = self._take(k, count), self._take(other, count)
        self._packing.move(left, self._nodes[self._column[other]])
        self._packing.move(right, self._nodes[self._column[k]])
        self._add(left, int(self._row[k]), int(self._column[other]))
        self._add(right, int(self._row[other]), int(self._column[k]))

    def _take(self, k: int, count: int) -> list[int]:
        taken = self.pods[k][:count]
        del self.pods[k][:count]
        self._size[k] -= count
        return taken

    def _add(self, numbers: list[int], row: int, column: int) -> None:
        k = int(self._cell[row, column])
        if k < 0:
            k = self._cell[row, column] = self.length
            self._row[k], self._column[k], self._has[k] = row, column, self._score[row, column]
            self.pods.append([])
            self.length += 1
        self.pods[k] += numbers
        self._size[k] += len(numbers)
