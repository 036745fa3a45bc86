"""The processes of one trainer: one for each device of its pod, as torchrun starts them.

They are torch's default group of processes. The first one talks to the master, and what it learns goes to the others
over gloo, on the CPU. That a trainer of another pod is gone goes through a store, since it may be asked at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from edl.errors import ConfigError
from edl.worker.group import World
from edl.worker.steps import PeerLostError

try:
    import torch
    from torch import distributed
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_PATIENCE = timedelta(days=365)  # the first process may wait long for other trainers; torchrun ends what hangs
_LOOPBACK = "127.0.0.1"


class Processes:
    """Implements `edl.worker.siblings.Siblings`.

    Without torchrun, and without a default group of several processes, it is this process alone.

    Args:
        host: an address of the first process that the others can reach; empty if all run on this machine.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    def __init__(self, host: str = "") -> None:
        self.rank, self.size = 0, 1
        has_group = distributed.is_available() and distributed.is_initialized()
        if not has_group and "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            distributed.init_process_group("gloo")
            has_group = True
        if not has_group or distributed.get_world_size() == 1:
            return
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self._control = distributed.new_group(backend="gloo", timeout=_PATIENCE)
        host = host or os.environ.get("MASTER_ADDR", "") or _LOOPBACK
        mine = distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False) if self.rank == 0 else None
        place = self.share((host, mine.port) if mine is not None else None)
        self._store = mine or distributed.TCPStore(*place, is_master=False)

    def share(self, value: Any) -> Any:
        """Return the value of the first process, in every process; see `Siblings.share`."""
        if self.size == 1:
            return value
        found = [value]
        distributed.broadcast_object_list(found, src=0, group=self._control)
        return found[0]

    def all(self, *, ok: bool) -> bool:
        """Return in every process whether the argument is true in all of them; see `Siblings.all`."""
        if self.size == 1:
            return ok
        row = torch.tensor([int(ok)])
        distributed.all_reduce(row, op=distributed.ReduceOp.MIN, group=self._control)
        return bool(row)

    def mark_broken(self, generation: int) -> None:
        """Tell all processes that a trainer of a world is gone; see `Siblings.mark_broken`."""
        if self.size > 1:
            self._store.set(_broken(generation), "1")

    def is_broken(self, generation: int) -> bool:
        """Return True if the first process has called `mark_broken` for that world; see `Siblings.is_broken`."""
        return self.size > 1 and bool(self._store.check([_broken(generation)]))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A block with messages to other trainers: if it fails in one process, it fails in all of them.

        Raises:
            PeerLostError: a trainer is gone.
        """
        lost: PeerLostError | None = None
        try:
            yield
        except PeerLostError as error:
            lost = error
        if not self.all(ok=lost is None) and lost is None:
            lost = PeerLostError("another process of this trainer has lost a trainer")
        if lost is not None:
            raise lost

    def all_of(self, world: World) -> World:
        """Return the ranks of all processes of a world, grouped by trainer."""
        if self.size == 1:
            return world
        holders = [rank * self.size + process for rank in world.holders for process in range(self.size)]
        is_new = world.checkpoint == 0
        return world._replace(
            rank=world.rank * self.size + self.rank,
            size=world.size * self.size,
            source=world.source * self.size,
            holders=(holders[0],) if is_new else tuple(holders),
            names=tuple(f"{name} (process {process})" for name in world.names for process in range(self.size)),
        )

    def twins_of(self, world: World) -> World:
        """The processes of this rank in all trainers of a world: each has the same part of the model."""
        return world._replace(key=f"{world.key}-{self.rank}") if self.size > 1 else world


def _broken(generation: int) -> str:
    return f"broken-{generation}"
