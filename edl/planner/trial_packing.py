"""A trial: which jobs run, where their pods are, what was killed and what was placed, with exact room per node.

Every step of packing is tried on a copy and thrown away if it does not work, so a Room is mutable and cheap to copy.
It keeps the books (room left, counts, victims, new pods) and chooses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edl.model.names import Role
from edl.planner.problem import IntArray, Problem, count_slots, sum_requests
from edl.planner.quota import QuotaMeter

SERVING = -1  # the owner of a place that is kept for a serving pod


class Placed(NamedTuple):
    """A pod that does not exist yet, or is not bound yet, and the node it is meant for."""

    owner: int
    role: Role | None
    shape: int
    node: int


class TrialPacking:
    """The room left when `members` run and all other training is gone.

    Attributes:
        free: (nodes, resources) left after everything that stays and everything placed; terminating pods are gone.
        now: (nodes, resources) left while terminating pods and victims still hold their room.
        count: trainers of each member, kept and new.
        at: live trainers (by index) on each node; copies share the lists: they are replaced, never changed.
        node_of: node of each live trainer that has one.
        without_node: unbound trainers of each member that have no room.
        fixed_without_node: unbound masters and pservers without room, as (owner, role, shape).
        victims: live trainers that the plan deletes; for_serving: those that lost their room to a serving pod.
        placed: new pods, and room kept for serving.
    """

    __slots__ = (
        "at", "count", "fixed_without_node", "for_serving", "free", "members",
        "node_of", "now", "placed", "problem", "victims", "without_node",
    )  # fmt: skip

    def __init__(self, problem: Problem, members: Iterable[int], *, place_unbound: bool = True) -> None:
        """Place the bound pods; if `place_unbound`, also the others, on their promised, planned or tightest node."""
        self.problem = problem
        self.members = tuple(sorted(members))
        self.free = problem.empty.copy()
        self.now = problem.now.copy()
        self.count = dict.fromkeys(self.members, 0)
        self.at: list[Sequence[int]] = [()] * len(problem.empty)
        self.node_of: dict[int, int] = {}
        self.without_node: dict[int, list[int]] = {j: [] for j in self.members}
        self.fixed_without_node: list[tuple[int, Role, int]] = []
        self.victims: list[int] = []
        self.for_serving: set[int] = set()
        self.placed: list[Placed] = []
        self._place_bound()
        self._place_unbound(place_unbound=place_unbound)

    def copy(self) -> TrialPacking:
        """An independent copy; the problem is shared."""
        twin = object.__new__(TrialPacking)
        twin.problem, twin.members = self.problem, self.members
        twin.free, twin.now = self.free.copy(), self.now.copy()
        twin.count = dict(self.count)
        twin.at = list(self.at)
        twin.node_of = dict(self.node_of)
        twin.without_node = {j: list(live_trainers) for j, live_trainers in self.without_node.items()}
        twin.fixed_without_node = list(self.fixed_without_node)
        twin.victims = list(self.victims)
        twin.for_serving = set(self.for_serving)
        twin.placed = list(self.placed)
        return twin

    def fulfilment(self, j: int, change: int = 0) -> float:
        """Fulfilment of a member with that many trainers more."""
        return self.problem.demands[j].fulfilment(self.count[j] + change)

    def meter(self) -> QuotaMeter:
        """What the members use of the quotas of their queues now."""
        limited = {j: demand.quota_uses for j in self.members if (demand := self.problem.demands[j]).quota_uses}
        return QuotaMeter(limited, {j: self.count[j] for j in limited})

    def delete(self, index: int) -> None:
        """Let a trainer die; an unbound one only loses its room and may find another."""
        trainer = self.problem.live_trainers[index]
        self.count[trainer.demand] -= 1
        node = self.node_of.pop(index, -1)
        if node >= 0:
            self.at[node] = [i for i in self.at[node] if i != index]
            self.free[node] += self.problem.request[trainer.shape]
        if trainer.pod.node:
            self.victims.append(index)
        else:
            self.without_node[trainer.demand].append(index)
            if node >= 0:
                self.now[node] += self.problem.request[trainer.shape]

    def revive(self, index: int) -> None:
        """Take back a kill of a bound trainer."""
        trainer = self.problem.live_trainers[index]
        self.victims.remove(index)
        self.count[trainer.demand] += 1
        if trainer.node >= 0:
            self._sit(index, trainer.node)

    def place_trainer(self, j: int, node: int) -> None:
        """Give a member one more trainer on a node: an unbound one that has no room, else a new one."""
        self.count[j] += 1
        if self.without_node[j]:
            index = max(self.without_node[j], key=lambda i: self.problem.live_trainers[i].order)
            self.without_node[j].remove(index)
            self._sit(index, node)
            self.now[node] -= self.problem.request[self.problem.live_trainers[index].shape]
        else:
            self.hold(Placed(j, Role.TRAINER, self.problem.demands[j].shape, node))

    def place_fixed(self, j: int, role: Role, shape: int, node: int) -> None:
        """Give a member one of its missing masters or pservers; one that exists unbound goes first."""
        if (j, role, shape) in self.fixed_without_node:
            self.fixed_without_node.remove((j, role, shape))
            self._take(shape, node)
        else:
            self.hold(Placed(j, role, shape, node))

    def hold(self, place: Placed) -> None:
        """Keep room for a pod."""
        self.placed.append(place)
        self._take(place.shape, place.node)

    def hold_all(self, places: list[Placed]) -> None:
        """Keep room for many pods that do not exist yet; trainers among them count."""
        used = self._sum(places)
        self.free -= used
        self.now -= used
        self.placed += places
        for place in places:
            if place.role is Role.TRAINER:
                self.count[place.owner] += 1

    def drop_all(self) -> None:
        """Take back the placing of every pod that does not exist yet."""
        freed = self._sum(self.placed)
        self.free += freed
        self.now += freed
        for place in self.placed:
            if place.role is Role.TRAINER:
                self.count[place.owner] -= 1
        self.placed = []

    def drop(self, place: Placed) -> None:
        """Take back the placing of a pod that does not exist yet."""
        self.placed.remove(place)
        self.free[place.node] += self.problem.request[place.shape]
        self.now[place.node] += self.problem.request[place.shape]
        if place.role is Role.TRAINER:
            self.count[place.owner] -= 1

    def move(self, number: int, node: int) -> None:
        """Mean a pod that does not exist yet, by its number in `placed`, for another node."""
        place = self.placed[number]
        self.placed[number] = place._replace(node=node)
        for books in (self.free, self.now):
            books[place.node] += self.problem.request[place.shape]
            books[node] -= self.problem.request[place.shape]

    def slots(self, shape: int) -> IntArray:
        """(nodes,) how many more pods of a shape each node that is open to it could hold."""
        slots: IntArray = count_slots(self.free, self.problem.request[shape]) * self.problem.opened[shape]
        return slots

    def has_room(self, shape: int, node: int) -> bool:
        """True where one more pod of the shape fits on the node, whether or not the node is open to it."""
        return bool(count_slots(self.free[node : node + 1], self.problem.request[shape])[0])

    def tightest(self, shape: int) -> int:
        """The node with the least room to spare among those that hold one more pod of the shape; -1 if none."""
        open_nodes = self.slots(shape).nonzero()[0]
        if not len(open_nodes):
            return -1
        spare = (self.free[open_nodes] / self.problem.largest).sum(axis=1)
        return int(open_nodes[spare.argmin()])

    def lacking(self, shape: int) -> list[int]:
        """(resources,) on how many of the nodes that are open to a shape there is too little of each for one pod."""
        free = self.free[self.problem.opened[shape]]
        lacks: list[int] = (free < self.problem.request[shape]).sum(axis=0).tolist()
        return lacks

    def near(self, shape: int) -> frozenset[int]:
        """Members with a trainer, kept or new, on a node that is open to a shape."""
        problem, is_open = self.problem, self.problem.opened[shape]
        live_trainers = np.fromiter(self.node_of, dtype=np.int64, count=len(self.node_of))
        node = np.fromiter(self.node_of.values(), dtype=np.int64, count=len(self.node_of))
        kept = np.unique(problem.trainer_demand[live_trainers[is_open[node]]]).tolist()
        usable = is_open.tolist()
        return frozenset(kept) | {p.owner for p in self.placed if p.role is Role.TRAINER and usable[p.node]}

    def _sum(self, places: list[Placed]) -> IntArray:
        node, shape = [place.node for place in places], [place.shape for place in places]
        return sum_requests(len(self.free), self.problem.request, node, shape)

    def _take(self, shape: int, node: int) -> None:
        self.free[node] -= self.problem.request[shape]
        self.now[node] -= self.problem.request[shape]

    def _sit(self, index: int, node: int) -> None:
        self.node_of[index] = node
        self.at[node] = [*self.at[node], index]
        self.free[node] -= self.problem.request[self.problem.live_trainers[index].shape]

    def _place_bound(self) -> None:
        """Everything that the members have bound."""
        problem = self.problem
        runs = np.zeros(len(problem.demands), dtype=np.bool_)
        runs[list(self.members)] = True
        held = problem.held
        ours = runs[held.demand]
        self.free -= sum_requests(len(self.free), problem.request, held.node[ours], held.shape[ours])
        at: dict[int, list[int]] = {}
        for j in self.members:
            for index in problem.demands[j].live_trainers:
                trainer = problem.live_trainers[index]
                if not trainer.pod.node:
                    continue
                self.count[j] += 1
                if trainer.node >= 0:
                    self.node_of[index] = trainer.node
                    at.setdefault(trainer.node, []).append(index)
        for node, live_trainers in at.items():
            self.at[node] = live_trainers

    def _place_unbound(self, *, place_unbound: bool) -> None:
        for j in self.members:
            for shape, pod in self.problem.demands[j].unbound_fixed:
                node = self._meant_for(shape, pod.nominated, pod.planned) if place_unbound else -1
                if node < 0 or pod.role is None:
                    self.fixed_without_node.append((j, pod.role or Role.MASTER, shape))
                    continue
                self._take(shape, node)
                if pod.nominated:  # world.now has it already
                    self.now[node] += self.problem.request[shape]
        unbound = [
            i
            for j in self.members
            for i in self.problem.demands[j].live_trainers
            if not self.problem.live_trainers[i].pod.node
        ]
        for index in sorted(unbound, key=lambda i: self.problem.live_trainers[i].order, reverse=True):
            trainer = self.problem.live_trainers[index]
            node = self._meant_for(trainer.shape, trainer.pod.nominated, trainer.pod.planned) if place_unbound else -1
            if node < 0:
                self.without_node[trainer.demand].append(index)
                continue
            self.count[trainer.demand] += 1
            self._sit(index, node)
            if not trainer.pod.nominated:
                self.now[node] -= self.problem.request[trainer.shape]

    def _meant_for(self, shape: int, nominated: str, planned: str) -> int:
        promised = self.problem.node_index.get(nominated, -1)
        if promised >= 0:
            return promised
        node = self.problem.node_index.get(planned, -1)
        if node >= 0 and self.slots(shape)[node] > 0:
            return node
        return self.tightest(shape)
