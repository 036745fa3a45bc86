"""A model that is a list, and collectives among threads, or among processes that share a folder.

It imports edl and the standard library alone, because real containers run it, too (tests/real/programs/in_step.py).
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from edl.worker.group import World
from edl.worker.step_settings import Piece, StepPlan
from edl.worker.steps import Flags, PeerLostError


class Wire:
    """The collectives of all worlds, among threads.

    Args:
        timeout_s: of a collective.
    """

    def __init__(self, timeout_s: float = 20.0) -> None:
        self.timeout_s = timeout_s
        self._changed = threading.Condition()
        self._boards: defaultdict[tuple[int, int], dict[int, object]] = defaultdict(dict)
        self._ended: set[int] = set()

    def exchange(self, world: World, turn: int, value: object, is_broken: Callable[[], bool]) -> list[object]:
        """What every rank has given in one turn of a world, once all have."""
        until_s = time.monotonic() + self.timeout_s
        with self._changed:
            board = self._boards[world.generation, turn]
            board[world.rank] = value
            self._changed.notify_all()
            while len(board) < world.size:
                if world.generation in self._ended or is_broken() or time.monotonic() > until_s:
                    raise PeerLostError("a thread is gone")
                self._changed.wait(0.05)
        return [board[rank] for rank in range(world.size)]

    def end(self, world: World) -> None:
        """A trainer that waits in a collective of this world loses it."""
        with self._changed:
            self._ended.add(world.generation)
            self._changed.notify_all()


class FolderWire(Wire):
    """Collectives among processes that share a folder: each value is a file.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def exchange(self, world: World, turn: int, value: object, is_broken: Callable[[], bool]) -> list[object]:
        """See `Wire.exchange`; tuples come back as lists."""
        paths = [self._folder / f"{world.generation}-{turn}-{rank}.json" for rank in range(world.size)]
        draft = paths[world.rank].with_suffix(".draft")
        draft.write_text(json.dumps(value))
        draft.replace(paths[world.rank])
        until_s = time.monotonic() + self.timeout_s
        while True:
            has_ended = self._end_of(world).exists()  # before the look for the values: they may all be there
            if all(path.exists() for path in paths):
                break
            if has_ended or is_broken() or time.monotonic() > until_s:
                raise PeerLostError("a process is gone")
            time.sleep(0.002)
        return [json.loads(path.read_text()) for path in paths]

    def end(self, world: World) -> None:
        """See `Wire.end`."""
        self._end_of(world).touch()

    def _end_of(self, world: World) -> Path:
        return self._folder / f"{world.generation}.ended"


@dataclass
class ListReplica:
    """A model that is the list of the positions that it was trained on."""

    wire: Wire
    folder: Path
    model: list[int] = field(default_factory=list)
    world: World | None = None
    is_broken: Callable[[], bool] = lambda: False
    turn: int = 0
    gradient: list[tuple[int, int]] = field(default_factory=list)
    weight: float = 0.0
    sizes: list[int] = field(default_factory=list)
    plans: list[StepPlan] = field(default_factory=list)
    batch: int | None = None
    propose: Callable[[int], int | None] = lambda _position: None

    def connect(self, world: World, is_broken: Callable[[], bool]) -> None:
        self.world, self.is_broken, self.turn = world, is_broken, 0
        assert not is_broken() or world.size > 1
        self.exchange(None)

    def disconnect(self) -> None:
        if self.world is not None:
            self.wire.end(self.world)

    def copy_state(self, world: World) -> None:
        state = cast(list[tuple[list[int], int | None]], self.exchange((list(self.model), self.batch)))
        self.model, self.batch = list(state[world.source][0]), state[world.source][1]

    def next_batch(self) -> int | None:
        return self.batch

    def goodput(self) -> dict[str, Any] | None:
        speed = {"trainers": 1, "per_s": 2.5, "is_measured": True, "batch": 40, "efficiency": 0.5}
        return {"batch": self.batch, "noise_scale": None, "speeds": [speed]} if self.batch is not None else None

    def begin_step(self, plan: StepPlan) -> None:
        self.gradient, self.weight = [], 0.0
        self.plans.append(plan)

    def begin_piece(self, step: int, piece: Piece) -> None:
        assert step % 1000 <= piece.start < piece.end

    def end_piece(self, piece: Piece) -> None:
        self.gradient += [(piece.epoch, position) for position in range(piece.start, piece.end)]
        self.weight += piece.weight

    def end_step(self, flags: Flags) -> Flags:
        found = self.exchange((self.gradient, self.weight, flags, self.propose(self.plans[-1].end)))
        parts = cast(list[tuple[list[tuple[int, int]], float, Flags, int | None]], found)
        assert math.isclose(sum(part[1] for part in parts), 1.0)
        self.model = [*self.model, *(epoch * 1000 + position for part in parts for epoch, position in part[0])]
        self.sizes.append(len(parts))
        self.batch = parts[0][3]
        return Flags(*map(sum, zip(*(part[2] for part in parts), strict=True)))

    def begin_anew(self) -> None:
        assert not self.model

    def save(self, checkpoint: int) -> None:
        (self.folder / str(checkpoint)).write_text(json.dumps([self.model, self.batch]))

    def committed(self, checkpoint: int) -> None:
        assert (self.folder / str(checkpoint)).exists()

    def load(self, checkpoint: int) -> None:
        self.model, self.batch = json.loads((self.folder / str(checkpoint)).read_text())

    def exchange(self, value: object) -> list[object]:
        assert self.world is not None
        self.turn += 1
        return self.wire.exchange(self.world, self.turn, value, self.is_broken)
