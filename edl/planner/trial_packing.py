"""A trial packing: which jobs run, which trainers are deleted and which pods are placed, with exact free capacity.

Every step of the planner is tried on a copy and thrown away if it does not work, so a `TrialPacking` is mutable and
cheap to copy. It accounts for free capacity, counts, victims and new pods, node by node, and decides nothing.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from edl.model.names import Role
from edl.model.pods import Pod
from edl.planner.problem import IntArray, Problem, count_slots, order_of, sum_requests
from edl.planner.quota import QuotaMeter

SERVING = -1  # the owner of capacity that is reserved for a serving pod


class Placed(NamedTuple):
    """A pod that does not exist yet, and the node it is planned for.

    Attributes:
        owner: index of its job, or SERVING.
        role: its role; None for a serving pod.
        shape: index of its shape.
        node: index of the node.
    """

    owner: int
    role: Role | None
    shape: int
    node: int


class TrialPacking:
    """The cluster as it would be if the jobs of the packing (its members) ran, and no other training did.

    Attributes:
        problem: the arrays it starts from.
        members: indices of the jobs that run, ascending.
        free: (nodes, resources) left beside everything that stays and everything placed; pods that terminate are
            gone.
        lent: (nodes, resources) how much less the bound trainers that stay request than they declare. Serving may use
            `free` + `lent`: `free` is then negative by what serving has of the capacity that trainers declared.
        counts_requests: this is a view for serving, see `for_requests`.
        now: (nodes, resources) left while terminating pods and victims still use their requests.
        count: trainers of each member: those that stay and those placed.
        at: live trainers on each node, by index. Copies share these lists, so a list is replaced, never changed.
        node_of: (live trainers,) the node of each; -1 if it has none.
        without_node: unbound live trainers of each member that fit nowhere, in the order of deletion.
        fixed_without_node: (owner, role, shape) of unbound masters and pservers that fit nowhere.
        victims: bound trainers that the plan deletes.
        for_serving: those victims that are deleted for a serving pod.
        placed: pods to create, and capacity reserved for serving pods.
    """

    __slots__ = (
        "at", "count", "counts_requests", "fixed_without_node", "for_serving", "free", "lent", "members",
        "node_of", "now", "placed", "problem", "victims", "without_node",
    )  # fmt: skip

    def __init__(self, problem: Problem, members: Iterable[int], *, place_unbound: bool = True) -> None:
        """Begin with the bound pods of the jobs on their nodes, and with nodes for their unbound pods.

        Args:
            problem: the arrays; never changed.
            members: indices of the jobs that run.
            place_unbound: also place their unbound pods, each on its nominated, planned or tightest node.
        """
        self.problem = problem
        self.members = tuple(sorted(members))
        self.free = problem.empty.copy()
        self.lent = np.zeros_like(problem.empty)
        self.counts_requests = False
        self.now = problem.now.copy()
        self.count = dict.fromkeys(self.members, 0)
        self.at: list[Sequence[int]] = [()] * len(problem.empty)
        self.node_of = np.full(len(problem.live_trainers), -1, dtype=np.int64)
        self.without_node: dict[int, list[int]] = {j: [] for j in self.members}
        self.fixed_without_node: list[tuple[int, Role, int]] = []
        self.victims: list[int] = []
        self.for_serving: set[int] = set()
        self.placed: list[Placed] = []
        self._place_bound()
        self._place_unbound(place_unbound=place_unbound)

    def copy(self) -> TrialPacking:
        """Return an independent copy; both share the problem."""
        other = object.__new__(TrialPacking)
        other.problem, other.members = self.problem, self.members
        other.free, other.now, other.lent = self.free.copy(), self.now.copy(), self.lent.copy()
        other.counts_requests = self.counts_requests
        other.count = dict(self.count)
        other.at = list(self.at)
        other.node_of = self.node_of.copy()
        other.without_node = {j: list(live_trainers) for j, live_trainers in self.without_node.items()}
        other.fixed_without_node = list(self.fixed_without_node)
        other.victims = list(self.victims)
        other.for_serving = set(self.for_serving)
        other.placed = list(self.placed)
        return other

    def for_requests(self) -> TrialPacking:
        """Return a read-only view of the packing in which lent CPU is free, as kube-scheduler counts it.

        Without lending it is the packing itself.
        """
        if not self.problem.lends:
            return self
        view = self.copy()
        view.counts_requests = True
        view.free += view.lent
        view.now += view.lent
        return view

    def freed(self, index: int) -> IntArray:
        """(resources,) what the deletion of a live trainer adds to `free`."""
        freed: IntArray = self.problem.request[self.problem.live_trainers[index].shape]
        return freed - self.problem.trainer_lent[index] if self.counts_requests else freed

    def with_members(self, more: Iterable[int]) -> TrialPacking:
        """Copy the packing with more jobs, which have no live pods."""
        other = self.copy()
        other.count.update(dict.fromkeys(more, 0))
        other.without_node.update({j: [] for j in more})
        other.members = tuple(sorted(other.count))
        return other

    def fulfilment(self, j: int, change: int = 0) -> float:
        """The fulfilment of a job with `change` more trainers than the packing gives it."""
        return self.problem.demands[j].fulfilment(self.count[j] + change)

    def with_node(self) -> tuple[IntArray, IntArray]:
        """(trainers,) the index of each live trainer that has a node, ascending, and (trainers,) its node."""
        found = np.flatnonzero(self.node_of >= 0)
        return found, self.node_of[found]

    def trainers(self) -> tuple[IntArray, IntArray]:
        """Node, job and shape of each live trainer that keeps its node, (trainers, 3), and of each new one."""
        index, node = self.with_node()
        new = [(p.node, p.owner, p.shape) for p in self.placed if p.role is Role.TRAINER]
        live = np.column_stack([node, self.problem.trainer_demand[index], self.problem.trainer_shape[index]])
        return live, np.array(new, dtype=np.int64).reshape(len(new), 3)

    def meter(self) -> QuotaMeter:
        """The quota that the jobs in this packing use."""
        limited = {j: demand.quota_uses for j in self.members if (demand := self.problem.demands[j]).quota_uses}
        return QuotaMeter(limited, {j: self.count[j] for j in limited})

    def delete(self, index: int) -> None:
        """Delete a live trainer.

        A bound one becomes a victim; an unbound one only loses its node and may get another.
        """
        trainer = self.problem.live_trainers[index]
        self.count[trainer.demand] -= 1
        node, self.node_of[index] = int(self.node_of[index]), -1
        if node >= 0:
            self.at[node] = [i for i in self.at[node] if i != index]
            self.free[node] += self.problem.request[trainer.shape]
            self.lent[node] -= self.problem.trainer_lent[index]
        if trainer.pod.node:
            self.victims.append(index)
        else:
            self._leave_without_node(index)
            if node >= 0:
                self.now[node] += self.problem.request[trainer.shape]

    def undelete(self, index: int) -> None:
        """Undo the deletion of a trainer: it keeps running on its node."""
        trainer = self.problem.live_trainers[index]
        self.victims.remove(index)
        self.count[trainer.demand] += 1
        if trainer.node >= 0:
            self._keep_on(index, trainer.node)

    def place_trainer(self, j: int, node: int, number: int = 1) -> None:
        """Place more trainers of a job on a node: first live ones that have no node yet, then new ones."""
        self.count[j] += number
        unbound = min(number, len(self.without_node[j]))
        for _ in range(unbound):
            index = self.without_node[j].pop()
            self._keep_on(index, node)
            self.now[node] -= self.problem.request[self.problem.live_trainers[index].shape]
        if number > unbound:
            self.hold(Placed(j, Role.TRAINER, self.problem.demands[j].shape, node), number - unbound)

    def _leave_without_node(self, index: int) -> None:
        """Note that no node has capacity for an unbound trainer.

        The list stays sorted, so that thousands are placed cheaply.
        """
        mine = self.without_node[self.problem.live_trainers[index].demand]
        insort(mine, index, key=lambda i: order_of(self.problem, i))

    def place_fixed(self, j: int, role: Role, shape: int, node: int) -> None:
        """Place a missing master or pserver of a job; one that exists without a node goes first."""
        if (j, role, shape) in self.fixed_without_node:
            self.fixed_without_node.remove((j, role, shape))
            self._reserve(shape, node)
        else:
            self.hold(Placed(j, role, shape, node))

    def hold(self, place: Placed, number: int = 1) -> None:
        """Reserve capacity of a node for equal pods that do not exist yet; the jobs' counts do not change."""
        self.placed += [place] * number
        self._reserve(place.shape, place.node, number)

    def hold_all(self, places: list[Placed]) -> None:
        """Reserve capacity for many pods that do not exist yet, and count the trainers among them."""
        used = self._sum(places)
        self.free -= used
        self.now -= used
        self.placed += places
        for place in places:
            if place.role is Role.TRAINER:
                self.count[place.owner] += 1

    def drop_all(self) -> None:
        """Remove every planned pod that does not exist yet."""
        freed = self._sum(self.placed)
        self.free += freed
        self.now += freed
        for place in self.placed:
            if place.role is Role.TRAINER:
                self.count[place.owner] -= 1
        self.placed = []

    def drop(self, place: Placed) -> None:
        """Remove one planned pod that does not exist yet."""
        self.placed.remove(place)
        self.free[place.node] += self.problem.request[place.shape]
        self.now[place.node] += self.problem.request[place.shape]
        if place.role is Role.TRAINER:
            self.count[place.owner] -= 1

    def move(self, numbers: Sequence[int], node: int) -> None:
        """Plan pods that do not exist yet for another node.

        Args:
            numbers: their positions in `placed`, at least one; all of one shape and planned for one node.
            node: index of the other node.
        """
        before = self.placed[numbers[0]]
        for number in numbers:
            self.placed[number] = self.placed[number]._replace(node=node)
        for free in (self.free, self.now):
            free[before.node] += len(numbers) * self.problem.request[before.shape]
            free[node] -= len(numbers) * self.problem.request[before.shape]

    def slots(self, shape: int) -> IntArray:
        """(nodes,) how many more pods of the shape each node could hold; 0 if it is closed to the shape."""
        slots: IntArray = count_slots(self.free, self.problem.request[shape]) * self.problem.opened[shape]
        return slots

    def has_capacity(self, shape: int, node: int) -> bool:
        """True if one more pod of the shape fits on the node; whether the node is open to it does not matter."""
        return bool(count_slots(self.free[node : node + 1], self.problem.request[shape])[0])

    def is_late(self, shape: int, node: int) -> bool:
        """True if a pod of the shape cannot start on the node before other pods have ended there."""
        return bool((self.now[node] < self.problem.request[shape]).any())

    def tightest(self, shape: int) -> int:
        """Return the node with the least free capacity among those that hold one more pod of a shape.

        -1 if none.
        """
        open_nodes = self.slots(shape).nonzero()[0]
        if not len(open_nodes):
            return -1
        spare = (self.free[open_nodes] / self.problem.largest).sum(axis=1)
        return int(open_nodes[spare.argmin()])

    def _sum(self, places: list[Placed]) -> IntArray:
        """(nodes, resources) the requests of these pods on each node."""
        node, shape = [place.node for place in places], [place.shape for place in places]
        return sum_requests(len(self.free), self.problem.request, node, shape)

    def _reserve(self, shape: int, node: int, number: int = 1) -> None:
        """Use capacity for pods of one shape, now and later."""
        used = number * self.problem.request[shape]
        self.free[node] -= used
        self.now[node] -= used

    def _keep_on(self, index: int, node: int) -> None:
        """Count the requests of a live trainer on a node of the plan; the caller updates `now`."""
        self.node_of[index] = node
        self.at[node] = [*self.at[node], index]
        self.lent[node] += self.problem.trainer_lent[index]
        self.free[node] -= self.problem.request[self.problem.live_trainers[index].shape]

    def _place_bound(self) -> None:
        """Keep every bound pod of the members where it is."""
        problem = self.problem
        is_member = np.zeros(len(problem.demands), dtype=np.bool_)
        is_member[list(self.members)] = True
        held = problem.held
        kept = is_member[held.demand]
        self.free -= sum_requests(len(self.free), problem.request, held.node[kept], held.shape[kept])
        trainers = np.flatnonzero(is_member[problem.trainer_demand] & problem.trainer_is_bound)
        here = np.bincount(problem.trainer_demand[trainers], minlength=len(problem.demands)).tolist()
        self.count = {j: here[j] for j in self.members}
        trainers = trainers[problem.trainer_node[trainers] >= 0]
        nodes = self.node_of[trainers] = problem.trainer_node[trainers]
        if problem.lends:
            np.add.at(self.lent, nodes, problem.trainer_lent[trainers])
        by_node = np.argsort(nodes, kind="stable")
        used, first = np.unique(nodes[by_node], return_index=True)
        ordered, ends = trainers[by_node].tolist(), np.append(first, len(by_node)).tolist()
        for node, (start, end) in zip(used.tolist(), pairwise(ends), strict=True):
            self.at[node] = ordered[start:end]

    def _place_unbound(self, *, place_unbound: bool) -> None:
        """Find a node for every live pod of the members that has none, trainers in reverse order of deletion."""
        for j in self.members:
            for shape, pod in self.problem.demands[j].unbound_fixed:
                node = self._target_node(shape, pod, {}) if place_unbound else -1
                if node < 0 or pod.role is None:
                    self.fixed_without_node.append((j, pod.role or Role.MASTER, shape))
                    continue
                self._reserve(shape, node)
                if pod.nominated:  # its request is taken from problem.now already
                    self.now[node] += self.problem.request[shape]
        without = np.flatnonzero(~self.problem.trainer_is_bound).tolist()
        unbound = [i for i in without if self.problem.live_trainers[i].demand in self.count]
        tightest: dict[int, tuple[int, int]] = {}
        for index in sorted(unbound, key=lambda i: order_of(self.problem, i), reverse=True):
            trainer = self.problem.live_trainers[index]
            node = self._target_node(trainer.shape, trainer.pod, tightest) if place_unbound else -1
            if node < 0:
                self.without_node[trainer.demand].append(index)
                continue
            self.count[trainer.demand] += 1
            self._keep_on(index, node)
            _forget(tightest, trainer.shape, node)
            if not trainer.pod.nominated:
                self.now[node] -= self.problem.request[trainer.shape]
        for mine in self.without_node.values():
            mine.reverse()

    def _target_node(self, shape: int, pod: Pod, tightest: dict[int, tuple[int, int]]) -> int:
        """The node for an unbound pod: nominated, else planned if it fits, else the tightest; -1 if none.

        Args:
            shape: of the pod.
            pod: the pod.
            tightest: by shape, the tightest node and how many pods it takes still; it stays the tightest until then.
        """
        chosen = self.problem.node_index.get(pod.nominated, -1)
        if chosen >= 0:
            return chosen
        node = self.problem.node_index.get(pod.planned, -1)
        if node >= 0 and self.problem.opened[shape, node] and self.has_capacity(shape, node):
            return node
        known, left = tightest.get(shape, (0, 0))
        if known >= 0 and not left:
            known = self.tightest(shape)
            tightest[shape] = known, int(self.slots(shape)[known]) if known >= 0 else 0
        return known


def _forget(tightest: dict[int, tuple[int, int]], shape: int, node: int) -> None:
    """Update the known tightest nodes after a pod was placed: for other shapes that node may be the tightest now."""
    for other, (known, left) in list(tightest.items()):
        if other == shape and known == node:
            tightest[other] = known, left - 1
        elif known >= 0:
            del tightest[other]
