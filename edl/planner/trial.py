"""A trial: which jobs run, where their pods are, what was killed and what was placed, with exact room per node.

Every step of packing is tried on a copy and thrown away if it does not work, so a Room is mutable and cheap to copy.
It keeps the books (room left, counts, victims, new pods) and chooses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edl.model.names import Role
from edl.planner.problem import IntArray, World, count_slots, sum_requests
from edl.planner.quota import Meter

SERVING = -1  # the owner of a place that is kept for a serving pod


class Placed(NamedTuple):
    """A pod that does not exist yet, or is not bound yet, and the node it is meant for."""

    owner: int
    role: Role | None
    shape: int
    node: int


class Room:
    """The room left when `members` run and all other training is gone.

    Attributes:
        free: (nodes, resources) left after everything that stays and everything placed; terminating pods are gone.
        now: (nodes, resources) left while terminating pods and victims still hold their room.
        count: trainers of each member, kept and new.
        at: live trainers (seat indices) on each node; copies share the lists: they are replaced, never changed.
        node_of: node of each seat that has one.
        homeless: unbound trainers of each member that have no room.
        homeless_fixed: unbound masters and pservers without room, as (owner, role, shape).
        victims: seats that die; for_serving: those that lost their room to a serving pod.
        placed: new pods, and room kept for serving.
    """

    __slots__ = (
        "at", "count", "for_serving", "free", "homeless", "homeless_fixed",
        "members", "node_of", "now", "placed", "victims", "world",
    )  # fmt: skip

    def __init__(self, world: World, members: Iterable[int], *, settle: bool = True) -> None:
        """Place what is bound; then, if `settle`, what is unbound, on its promised, planned or tightest node."""
        self.world = world
        self.members = tuple(sorted(members))
        self.free = world.empty.copy()
        self.now = world.now.copy()
        self.count = dict.fromkeys(self.members, 0)
        self.at: list[Sequence[int]] = [()] * len(world.empty)
        self.node_of: dict[int, int] = {}
        self.homeless: dict[int, list[int]] = {j: [] for j in self.members}
        self.homeless_fixed: list[tuple[int, Role, int]] = []
        self.victims: list[int] = []
        self.for_serving: set[int] = set()
        self.placed: list[Placed] = []
        self._seat_bound()
        self._settle_unbound(settle=settle)

    def copy(self) -> Room:
        """An independent copy; the world is shared."""
        twin = object.__new__(Room)
        twin.world, twin.members = self.world, self.members
        twin.free, twin.now = self.free.copy(), self.now.copy()
        twin.count = dict(self.count)
        twin.at = list(self.at)
        twin.node_of = dict(self.node_of)
        twin.homeless = {j: list(seats) for j, seats in self.homeless.items()}
        twin.homeless_fixed = list(self.homeless_fixed)
        twin.victims = list(self.victims)
        twin.for_serving = set(self.for_serving)
        twin.placed = list(self.placed)
        return twin

    def fulfilment(self, j: int, change: int = 0) -> float:
        """Fulfilment of a member with that many trainers more."""
        return self.world.claims[j].fulfilment(self.count[j] + change)

    def meter(self) -> Meter:
        """What the members use of the quotas of their queues now."""
        limited = {j: claim.asks for j in self.members if (claim := self.world.claims[j]).asks}
        return Meter(limited, {j: self.count[j] for j in limited})

    def kill(self, index: int) -> None:
        """Let a trainer die; an unbound one only loses its room and may find another."""
        seat = self.world.seats[index]
        self.count[seat.claim] -= 1
        node = self.node_of.pop(index, -1)
        if node >= 0:
            self.at[node] = [i for i in self.at[node] if i != index]
            self.free[node] += self.world.request[seat.shape]
        if seat.pod.node:
            self.victims.append(index)
        else:
            self.homeless[seat.claim].append(index)
            if node >= 0:
                self.now[node] += self.world.request[seat.shape]

    def revive(self, index: int) -> None:
        """Take back a kill of a bound trainer."""
        seat = self.world.seats[index]
        self.victims.remove(index)
        self.count[seat.claim] += 1
        if seat.node >= 0:
            self._sit(index, seat.node)

    def place_trainer(self, j: int, node: int) -> None:
        """Give a member one more trainer on a node: an unbound one that has no room, else a new one."""
        self.count[j] += 1
        if self.homeless[j]:
            index = max(self.homeless[j], key=lambda i: self.world.seats[i].order)
            self.homeless[j].remove(index)
            self._sit(index, node)
            self.now[node] -= self.world.request[self.world.seats[index].shape]
        else:
            self.hold(Placed(j, Role.TRAINER, self.world.claims[j].shape, node))

    def place_fixed(self, j: int, role: Role, shape: int, node: int) -> None:
        """Give a member one of its missing masters or pservers; one that exists unbound goes first."""
        if (j, role, shape) in self.homeless_fixed:
            self.homeless_fixed.remove((j, role, shape))
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
        self.free[place.node] += self.world.request[place.shape]
        self.now[place.node] += self.world.request[place.shape]
        if place.role is Role.TRAINER:
            self.count[place.owner] -= 1

    def move(self, number: int, node: int) -> None:
        """Mean a pod that does not exist yet, by its number in `placed`, for another node."""
        place = self.placed[number]
        self.placed[number] = place._replace(node=node)
        for books in (self.free, self.now):
            books[place.node] += self.world.request[place.shape]
            books[node] -= self.world.request[place.shape]

    def slots(self, shape: int) -> IntArray:
        """(nodes,) how many more pods of a shape each node that is open to it could hold."""
        slots: IntArray = count_slots(self.free, self.world.request[shape]) * self.world.opened[shape]
        return slots

    def has_room(self, shape: int, node: int) -> bool:
        """True where one more pod of the shape fits on the node, whether or not the node is open to it."""
        return bool(count_slots(self.free[node : node + 1], self.world.request[shape])[0])

    def tightest(self, shape: int) -> int:
        """The node with the least room to spare among those that hold one more pod of the shape; -1 if none."""
        open_nodes = self.slots(shape).nonzero()[0]
        if not len(open_nodes):
            return -1
        spare = (self.free[open_nodes] / self.world.largest).sum(axis=1)
        return int(open_nodes[spare.argmin()])

    def lacking(self, shape: int) -> list[int]:
        """(resources,) on how many of the nodes that are open to a shape there is too little of each for one pod."""
        free = self.free[self.world.opened[shape]]
        lacks: list[int] = (free < self.world.request[shape]).sum(axis=0).tolist()
        return lacks

    def near(self, shape: int) -> frozenset[int]:
        """Members with a trainer, kept or new, on a node that is open to a shape."""
        world, is_open = self.world, self.world.opened[shape]
        seats = np.fromiter(self.node_of, dtype=np.int64, count=len(self.node_of))
        node = np.fromiter(self.node_of.values(), dtype=np.int64, count=len(self.node_of))
        kept = np.unique(world.seat_claim[seats[is_open[node]]]).tolist()
        usable = is_open.tolist()
        return frozenset(kept) | {p.owner for p in self.placed if p.role is Role.TRAINER and usable[p.node]}

    def _sum(self, places: list[Placed]) -> IntArray:
        node, shape = [place.node for place in places], [place.shape for place in places]
        return sum_requests(len(self.free), self.world.request, node, shape)

    def _take(self, shape: int, node: int) -> None:
        self.free[node] -= self.world.request[shape]
        self.now[node] -= self.world.request[shape]

    def _sit(self, index: int, node: int) -> None:
        self.node_of[index] = node
        self.at[node] = [*self.at[node], index]
        self.free[node] -= self.world.request[self.world.seats[index].shape]

    def _seat_bound(self) -> None:
        """Everything that the members have bound."""
        world = self.world
        runs = np.zeros(len(world.claims), dtype=np.bool_)
        runs[list(self.members)] = True
        held = world.held
        ours = runs[held.claim]
        self.free -= sum_requests(len(self.free), world.request, held.node[ours], held.shape[ours])
        at: dict[int, list[int]] = {}
        for j in self.members:
            for index in world.claims[j].seats:
                seat = world.seats[index]
                if not seat.pod.node:
                    continue
                self.count[j] += 1
                if seat.node >= 0:
                    self.node_of[index] = seat.node
                    at.setdefault(seat.node, []).append(index)
        for node, seats in at.items():
            self.at[node] = seats

    def _settle_unbound(self, *, settle: bool) -> None:
        for j in self.members:
            for shape, pod in self.world.claims[j].unbound_fixed:
                node = self._meant_for(shape, pod.nominated, pod.planned) if settle else -1
                if node < 0 or pod.role is None:
                    self.homeless_fixed.append((j, pod.role or Role.MASTER, shape))
                    continue
                self._take(shape, node)
                if pod.nominated:  # world.now has it already
                    self.now[node] += self.world.request[shape]
        unbound = [i for j in self.members for i in self.world.claims[j].seats if not self.world.seats[i].pod.node]
        for index in sorted(unbound, key=lambda i: self.world.seats[i].order, reverse=True):
            seat = self.world.seats[index]
            node = self._meant_for(seat.shape, seat.pod.nominated, seat.pod.planned) if settle else -1
            if node < 0:
                self.homeless[seat.claim].append(index)
                continue
            self.count[seat.claim] += 1
            self._sit(index, node)
            if not seat.pod.nominated:
                self.now[node] -= self.world.request[seat.shape]

    def _meant_for(self, shape: int, nominated: str, planned: str) -> int:
        promised = self.world.node_index.get(nominated, -1)
        if promised >= 0:
            return promised
        node = self.world.node_index.get(planned, -1)
        if node >= 0 and self.slots(shape)[node] > 0:
            return node
        return self.tightest(shape)
