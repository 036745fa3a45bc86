"""Weeks of headroom in seconds: one pool of cores instead of nodes, and no solver.

Serving, trainers and the capacity between them, counted each 2.5 s by the times of the simulator: trainers take 8 s
to end and pods 2 s to start, deletions for capacity pause as in the controller, and trainers come back 30 s after a
shrink. What it leaves out is placement: no capacity is lost to fragments. The rules for the capacity are those of the
simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from edl.headroom.advisor import COOLDOWN_S, GRANT_S, Reservation
from edl.headroom.growth import TICK_S
from edl.planner.sharing import ROOM_DEAD_BAND

POD_CORES, TRAINER_CORES = 2.0, 4.0
STOP_S, REACTION_S, START_S, HOLD_S = 8.0, 1.0, 2.0, 30.0
WINDOW = ceil((STOP_S + REACTION_S + START_S) / TICK_S)


@dataclass(slots=True)
class Account:
    """What came of a stretch of time.

    Attributes:
        waiting_pod_s: pod-seconds that pods waited for capacity, then for their start.
        idle_core_s: core-seconds that nobody requested; seconds: how long it was.
        deleted: trainers deleted for pods that waited; ahead: for capacity.
    """

    waiting_pod_s: float = 0.0
    idle_core_s: float = 0.0
    seconds: float = 0.0
    deleted: int = 0
    ahead: int = 0


class Pool:
    """One pool of cores; `room` says how many pods capacity is kept for, or a number always does."""

    def __init__(self, cores: float, room: Reservation | int) -> None:
        self._room, self._free = room, cores
        self._bound = self._trainers = 0
        self._ending: list[tuple[float, int]] = []
        self._granted_s = self._shrunk_s = -1e9

    def step(self, at_s: float, target: int, account: Account) -> None:
        """Let a tick pass in which serving is to have so many pods; add to the account."""
        wanted = self._room if isinstance(self._room, int) else self._room.observe(at_s, target, WINDOW).pods
        self._free += sum(n for due_s, n in self._ending if due_s <= at_s) * TRAINER_CORES
        self._ending = [one for one in self._ending if one[0] > at_s]
        if target < self._bound:
            self._free += (self._bound - target) * POD_CORES
            self._bound = target
        new = min(target - self._bound, int(self._free // POD_CORES))
        self._bound += new
        self._free -= new * POD_CORES
        short = target - self._bound
        coming = self._free + sum(n for _, n in self._ending) * TRAINER_CORES - short * POD_CORES
        if short:
            self._shrunk_s = at_s
            account.deleted += (ended := self._end(at_s, -coming))
            coming += ended * TRAINER_CORES
        missing = wanted * POD_CORES - max(0.0, coming)
        since_s = at_s - self._granted_s
        may_delete = not isinstance(self._room, int) and (since_s >= COOLDOWN_S or since_s < GRANT_S)
        if may_delete and missing > ROOM_DEAD_BAND * wanted * POD_CORES and (ended := self._end(at_s, missing)):
            account.ahead += ended
            self._granted_s = at_s if since_s >= COOLDOWN_S else self._granted_s
            self._shrunk_s = at_s
        elif not short and at_s - self._shrunk_s >= HOLD_S:
            more = max(0, int((self._free - wanted * POD_CORES) // TRAINER_CORES))
            self._trainers += more
            self._free -= more * TRAINER_CORES
        account.waiting_pod_s += short * TICK_S + new * START_S
        account.idle_core_s += self._free * TICK_S
        account.seconds += TICK_S

    def _end(self, at_s: float, cores: float) -> int:
        """Delete trainers for so many cores; return how many."""
        ended = min(self._trainers, max(0, ceil(cores / TRAINER_CORES)))
        if ended:
            self._trainers -= ended
            self._ending.append((at_s + STOP_S + REACTION_S, ended))
        return ended


def run(
    replicas: Sequence[tuple[float, int]],
    until_s: float,
    cores: float,
    room: Reservation | int,
    parts_s: Sequence[float],
) -> list[Account]:
    """Run a timeline; one account up to each moment of `parts_s`, and one for the rest."""
    pool, accounts, number, part = Pool(cores, room), [Account() for _ in (*parts_s, 0)], 0, 0
    for tick in range(int(until_s / TICK_S)):
        at_s = tick * TICK_S
        while number + 1 < len(replicas) and replicas[number + 1][0] <= at_s:
            number += 1
        while part < len(parts_s) and at_s >= parts_s[part]:
            part += 1
        pool.step(at_s, replicas[number][1], accounts[part])
    return accounts
